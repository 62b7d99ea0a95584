// SPDX-License-Identifier: Apache-2.0
// All of a server's configuration, as plain values. Flags, environment variables and files are read above
// this floor.
//
// Errors of the server floor and of those below it name the option at fault as the configuration file does
// ("device_memory"). The command line shows it as a flag.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/device_choice.h"
#include "loci/compute/state_type.h"
#include "loci/model/open_source.h"
#include "loci/policy/policy_set.h"
#include "loci/serve/call/access.h"
#include "loci/serve/http/server_options.h"
#include "loci/serve/telemetry/log_format.h"
#include "loci/serve/tenants/tenants.h"
#include "loci/server/disk_place.h"
#include "loci/server/sampling_choice.h"
#include "loci/server/traces_options.h"

namespace loci {

// Where a server puts files if the configuration names no place.
struct ServerFolders {
  std::string state;     // a directory: the disk tier
  std::string profiles;  // a directory: measured costs, a file for each model; empty: nowhere
};

struct ServerConfig {
  std::string model;  // a file or directory, or a name that FindModel (server.h) turns into one
  bool pull = true;   // fetch a model of a registry if it is not here
  LoadOptions load;
  HttpServerOptions http;
  std::vector<std::string> cors_origins;   // whose web pages may use the server
  std::vector<std::string> allowed_hosts;  // further names of this server, which it cannot find out itself
  std::optional<Nanos> request_timeout = 3600 * kNanosPerSecond;
  Nanos drain_timeout = 30 * kNanosPerSecond;
  unsigned workers = 2;

  GivenSampling sampling;
  std::vector<std::string> aliases;  // other names of the model
  bool any_model = false;            // requests for any model are served
  bool lenient = false;              // ignore fields that are not supported

  DeviceChoice device;
  bool deterministic = false;  // on a GPU; the CPU always is
  // Of a pass; 0: none. Absent: that of the device's kind (load_engine.cc).
  std::optional<Nanos> stall_limit;
  std::uint32_t threads = 0;  // 0: one for each physical core
  std::optional<InstructionSet> instruction_set;
  std::optional<StateType> state_type;  // absent: the backend's own
  std::optional<std::uint64_t> device_memory;
  bool yield_memory = true;            // on a CPU: give state's memory back while other programs lack memory
  std::uint32_t context_tokens = 0;    // 0: the model's
  std::uint32_t max_batch_tokens = 0;  // 0: what suits the device
  std::optional<Nanos> pass_time = 100 * kNanosPerMilli;  // absent: no limit
  std::uint32_t max_running = 64;
  std::uint32_t max_queued = 256;
  std::string context_overflow = "refuse";  // or "truncate"
  std::uint32_t truncation_percent = 50;    // of the context, that a cut drops
  std::optional<std::string> baseline;      // whose policies (policy/baselines.h) are in `policies`
  PolicySet policies;
  // A file of measured costs. "none": costs are assumed. Empty: the model's own file, or costs measured when
  // idle.
  std::string profile;
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> host_memory;    // absent: none on a CPU, half of what is free on a GPU
  std::optional<std::vector<DiskPlace>> disk;  // absent: ServerFolders::state; none: no disk tier
  std::string disk_io = "auto";
  std::optional<std::uint64_t> io_limit;  // bytes a second; absent: none
  std::string hidden = "off";  // how much of the disk's state is kept as hidden states: off, auto or on
  std::optional<Nanos> state_ttl = 30 * 86'400 * kNanosPerSecond;
  std::string cluster_secret;  // file; empty: none
  std::string join;            // the URL of the cluster's database; empty: no cluster
  std::string advertise;       // host:port at which members reach this server; empty: where it listens
  // The port at which members of the cluster read this server's state. Absent: they do not, and it does not
  // ask them either.
  std::optional<std::uint16_t> peer_port = 0;                  // 0: any free port
  std::string role = "both";                                   // parse_member_role()
  std::string shared;                                          // a URL; empty: none
  std::optional<Nanos> shared_ttl = 86'400 * kNanosPerSecond;  // absent: no limit
  std::string event_log;
  bool event_log_secret = false;
  std::string public_prefix;         // file; empty: none
  KeySources keys;                   // who may use the server; empty: everybody
  std::optional<std::string> store;  // of conversations: a file or a URL; absent or empty: they are not kept
  std::optional<Nanos> store_age = 30 * 86'400 * kNanosPerSecond;  // absent: no limit, as in the fields below
  std::optional<std::uint64_t> store_size = std::uint64_t{10} << 30;
  std::string log_level = "info";
  LogFormat log_format = LogFormat::kText;
  bool access_log = true;
  TracesOptions traces;  // without `scheme`, which follows from `http`
  bool page = true;      // there is a web page
  Access metrics_access = Access::kOpen;
  ServerFolders folders;
};

}  // namespace loci
