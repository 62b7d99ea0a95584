// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect_state.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <ctime>

#include "loci/base/units.h"
#include "loci/memory/disk/disk_survey.h"

namespace loci {
namespace {

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("  {:<20} {}\n", name, value);
}

std::string hex(const std::array<std::uint8_t, 16>& bytes) {
  std::string out;
  for (const unsigned byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

std::string user(int process) {
  if (process == 0) return "no";
  const std::string moment = "; the figures are of one moment";
  return (process > 0 ? fmt::format("by process {}", process) : "by a process") + moment;
}

std::string utc(const DiskSurvey::Group& group, std::int64_t milliseconds) {
  if (group.records.valid == 0) return "-";
  // A checksum says that the record is whole, not that its time makes sense.
  constexpr std::int64_t kMost = std::int64_t{253402300799} * 1000;
  if (milliseconds < 0 || milliseconds > kMost) return "?";
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(milliseconds / 1000)));
}

std::string row(std::string_view name, const DiskSurvey::Group& group, std::string_view shape) {
  const RecordScan& records = group.records;
  return fmt::format("  {:<8} {:<20} {:>10} {:>10} {:>10} {:>8} {:>8}  {:<16}  {}\n", name, shape,
                     format_count(group.slots), format_count(records.valid),
                     format_bytes(records.valid * (group.slot_bytes + group.record_bytes)),
                     format_count(records.damaged), format_count(records.foreign), utc(group, group.oldest),
                     utc(group, group.newest));
}

}  // namespace

bool is_state_directory(const std::string& path) { return is_disk_store(path); }

Result<std::string> inspect_state(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const DiskSurvey survey, survey_disk_store(path));
  const Superblock& superblock = survey.superblock;
  std::string out =
      "State store\n" + line("path", path) + line("in use", user(survey.user)) +
      line("format version", fmt::format("{}", kDiskVersion)) +
      line("model", hex(superblock.model_fingerprint)) +
      line("directory", fmt::format("{} of {}, set {}", superblock.directory + 1, superblock.directories,
                                    hex(superblock.set))) +
      line("files", fmt::format("{} ({} bytes)", format_bytes(survey.file_bytes), survey.file_bytes));
  std::uint64_t errors = survey.holes.records.read_errors;
  for (const DiskSurvey::Group& group : survey.groups) errors += group.records.read_errors;
  if (errors > 0) out += line("unreadable", fmt::format("{} pieces of headers", errors));
  out += fmt::format("\nEntries\n  {:<8} {:<20} {:>10} {:>10} {:>10} {:>8} {:>8}  {:<16}  {}\n", "group",
                     "layers", "slots", "entries", "size", "damaged", "foreign", "oldest (UTC)", "newest");
  for (std::size_t g = 0; g < survey.groups.size(); ++g) {
    const DiskGroup& shape = superblock.groups[g];
    out += row(fmt::format("{}", g), survey.groups[g],
               fmt::format("{} of {}", shape.layers, format_bytes(shape.layer_slice_bytes)));
  }
  return out + row("holes", survey.holes, "-");
}

}  // namespace loci
