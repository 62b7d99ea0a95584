// SPDX-License-Identifier: Apache-2.0
// The file that `loci profile` writes and `loci serve` reads: measured costs, and the machine and model that
// they belong to. It is JSON; docs/policies.md describes it.
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

// What the costs of computing depend on beside the model. The disk is not part of it: a server may change to
// another directory and keep these costs.
struct MachineId {
  std::string cpu;            // the processor's name
  std::uint32_t threads = 0;  // how many this process may run at once
  std::string backend;        // BackendInfo::description
  friend bool operator==(const MachineId&, const MachineId&) = default;
};
MachineId this_machine(const BackendInfo& backend);

// What passes take, finer than the curves by which the core decides: for who simulates this machine. Entry i
// is of 2^i; between entries a curve is straight, beyond the last it grows in proportion. Of curves that are
// empty nothing was measured.
struct PassCurves {
  std::vector<Nanos> rows;              // a pass of so many rows: reading weights, products; no logits
  std::vector<Nanos> logits;            // what the logits of so many rows add
  std::vector<Nanos> decode_attention;  // attention of a row that is alone in its span, behind so many tokens
  bool measured() const { return !rows.empty() && !logits.empty() && !decode_attention.empty(); }
  friend bool operator==(const PassCurves&, const PassCurves&) = default;
};

struct CostProfile {
  MachineId machine;
  std::string model;              // for people
  std::string model_fingerprint;  // hexadecimal
  std::string measured_at;        // for people, UTC
  std::string disk_directory;     // empty: the disk was not measured
  bool rough = false;             // measured by a server in two seconds (profile_rough.h)
  CostCurves curves;
  std::vector<ReadRate> disk_reads;  // by size, ascending; may be empty
  PassCurves passes;                 // not of a rough profile
  friend bool operator==(const CostProfile&, const CostProfile&) = default;
};

std::string fingerprint_text(const std::array<std::uint8_t, 16>& fingerprint);

std::string format_profile(const CostProfile& profile);
// Errors: kInvalidArgument naming the field, what was expected and what was found.
Result<CostProfile> parse_profile(const std::string& text);

// The model's file in the folder of profiles.
std::string profile_path(const std::string& folder, const std::string& model_fingerprint);

// Whether write_profile() can; makes the folder.
bool can_write_profile(const std::string& path);
// Writes the file in one step, its folder too. Errors name the file.
Status write_profile(const std::string& path, const CostProfile& profile);
// Errors: kNotFound; as parse_profile(), naming the file.
Result<CostProfile> read_profile(const std::string& path);

// Errors: kInvalidArgument, saying what differs, if the profile belongs to another machine or model.
Status check_profile(const CostProfile& profile, const MachineId& machine,
                     const std::string& model_fingerprint);

// The costs that a server uses, and where they come from, for people.
struct ChosenCosts {
  CostCurves curves;
  std::string source;
  bool measured = false;
  bool lacks_disk = false;  // all was measured but the disk's links
  // The path to which the server is to write costs that it measures itself. Absent: it is not to measure.
  // Empty: it measures and writes nothing: there is no folder, or the file there cannot be used and is left
  // alone.
  std::optional<std::string> measure_into;  // empty text: nowhere
};
inline constexpr const char* kNoProfile = "none";
// With a `file`, it must belong to this machine and this model; errors name profile. With kNoProfile:
// `assumed`. With neither: the model's file in `folder` if it exists and belongs to this machine, else
// `assumed`, with the reason.
struct ProfilePlace {
  std::string file;
  std::string folder;  // empty: no file is read or written by default
  // A server has a disk whose speed it may measure: what it measured roughly without one is measured again.
  bool wants_disk = false;
};
Result<ChosenCosts> choose_costs(const ProfilePlace& place, const MachineId& machine,
                                 const std::array<std::uint8_t, 16>& model_fingerprint,
                                 const CostCurves& assumed);
// The costs that are assumed for a backend that was not measured: the curves' defaults for a CPU, an estimate
// from its sizes for a GPU.
CostCurves assumed_costs(const BackendInfo& backend);

}  // namespace loci
