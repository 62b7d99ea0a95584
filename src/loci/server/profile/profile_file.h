// SPDX-License-Identifier: Apache-2.0
// The file that `loci profile` writes and `loci serve` reads: measured costs, with the machine and the model
// that they are of. JSON; docs/policies.md describes it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/policy/cost_model.h"

namespace loci {

// What costs depend on beside the model. (Not the disk: which directory is used may change without them.)
struct MachineId {
  std::string cpu;            // the processor's name
  std::uint32_t threads = 0;  // that this process may run at once
  std::string backend;        // BackendInfo::description
  friend bool operator==(const MachineId&, const MachineId&) = default;
};
MachineId this_machine(const BackendInfo& backend);

struct CostProfile {
  MachineId machine;
  std::string model;              // for people
  std::string model_fingerprint;  // hexadecimal
  std::string measured_at;        // for people, UTC
  std::string disk_directory;     // empty: the disk's costs were not measured
  bool rough = false;             // by a server, in two seconds (profile_rough.h)
  CostCurves curves;
  std::vector<ReadRate> disk_reads;  // by size, ascending; may be empty
  friend bool operator==(const CostProfile&, const CostProfile&) = default;
};

std::string fingerprint_text(const std::array<std::uint8_t, 16>& fingerprint);

std::string format_profile(const CostProfile& profile);
// Errors: kInvalidArgument naming the field, what was expected and what was found.
Result<CostProfile> parse_profile(const std::string& text);

// The model's file in the folder of profiles.
std::string profile_path(const std::string& folder, const std::string& model_fingerprint);

// Writes the file in one step, its folder too. Errors name the file.
Status write_profile(const std::string& path, const CostProfile& profile);
// Errors: kNotFound; as parse_profile(), naming the file.
Result<CostProfile> read_profile(const std::string& path);

// kInvalidArgument, saying what differs, where the profile is another machine's or model's.
Status check_profile(const CostProfile& profile, const MachineId& machine,
                     const std::string& model_fingerprint);

// What a server goes by, and where it comes from, for people.
struct ChosenCosts {
  CostCurves curves;
  std::string source;
  bool measured = false;
  // Where nothing is measured, and it is not asked for that nothing be: where the server is to write what it
  // measures. A file there that cannot be used is left alone: nothing is written.
  std::optional<std::string> measure_into;  // empty text: nowhere
};
inline constexpr const char* kNoProfile = "none";
// `file`: it must be this machine's and this model's; errors name profile. kNoProfile: `assumed`. Empty: the
// model's file in `folder`, if it is there and is this machine's; else `assumed`, with the reason.
struct ProfilePlace {
  std::string file;
  std::string folder;  // empty: nothing is read or kept by default
};
Result<ChosenCosts> choose_costs(const ProfilePlace& place, const MachineId& machine,
                                 const std::array<std::uint8_t, 16>& model_fingerprint,
                                 const CostCurves& assumed);
// What is assumed of a backend that was not measured: of a CPU the curves' defaults, of a GPU what its sizes
// tell.
CostCurves assumed_costs(const BackendInfo& backend);

}  // namespace loci
