// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect_state.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "loci/base/hex.h"
#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_survey.h"

namespace loci {
namespace {

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("  {:<20} {}\n", name, value);
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

std::string time_of(const DiskSurvey& survey, bool newest) {
  DiskSurvey::Group all;
  for (const DiskSurvey::Group& group : survey.groups) {
    if (group.records.valid == 0) continue;
    const bool first = all.records.valid == 0;
    all.oldest = first ? group.oldest : std::min(all.oldest, group.oldest);
    all.newest = first ? group.newest : std::max(all.newest, group.newest);
    all.records.valid += group.records.valid;
  }
  return utc(all, newest ? all.newest : all.oldest);
}

// How long it is kept without use.
std::string limit_text(const std::string& folder, const std::array<std::uint8_t, 16>& model) {
  const Result<Nanos> limit = read_disk_limit(folder, model);
  if (limit.status().code() == StatusCode::kNotFound) return "not noted";
  if (!limit.ok()) return "unreadable";
  return *limit == kNever ? "no limit" : exact_duration(*limit);
}

constexpr const char* kModelRow = "  {:<32}  {:<34} {:>10} {:>10}  {:<16}  {:<16}  {:<11}  {}\n";

std::string model_row(const StoredModel& model) {
  const Result<DiskSurvey> survey = survey_disk_store(model.folder);
  std::uint64_t entries = 0;
  if (survey.ok()) {
    for (const DiskSurvey::Group& group : survey->groups) entries += group.records.valid;
  }
  const std::string served = model.user == 0  ? "no"
                             : model.user > 0 ? fmt::format("process {}", model.user)
                                              : std::string("yes");
  const std::string name = printable(model.name.name, LineEnds::kReplace);
  return fmt::format(kModelRow, model.id, name.empty() ? "?" : name,
                     survey.ok() ? format_count(entries) : "damaged", format_bytes(model.held_bytes),
                     survey.ok() ? time_of(*survey, false) : "-", survey.ok() ? time_of(*survey, true) : "-",
                     survey.ok() ? limit_text(model.folder, survey->superblock.model_fingerprint) : "-",
                     served);
}

std::string inspect_models(const std::string& path) {
  std::uint64_t held = 0;
  std::string rows;
  const std::vector<StoredModel> models = list_stored_models(path);
  for (const StoredModel& model : models) {
    held += model.held_bytes;
    rows += model_row(model);
  }
  const std::string head = "State of models\n" + line("path", path) +
                           line("models", fmt::format("{}", models.size())) +
                           line("files", format_bytes(held));
  if (models.empty()) return head;
  return head + "\n" +
         fmt::format(kModelRow, "folder (in models/)", "model", "entries", "size", "oldest (UTC)", "newest",
                     "kept unused", "served") +
         rows + "\n`loci inspect " + path +
         "/models/FOLDER` tells more of one, `loci forget MODEL` removes it.\n";
}

}  // namespace

bool is_state_directory(const std::string& path) { return is_disk_store(path) || is_models_directory(path); }

Result<std::string> inspect_state(const std::string& path) {
  if (!is_state_directory(path)) return not_found(fmt::format("{}: there is no state here", path));
  if (!is_disk_store(path)) return inspect_models(path);
  LOCI_ASSIGN_OR_RETURN(const DiskSurvey survey, survey_disk_store(path));
  const Superblock& superblock = survey.superblock;
  std::string out =
      "State store\n" + line("path", path) + line("in use", user(survey.user)) +
      line("format version", fmt::format("{}", version_of_files(superblock.groups))) +
      line("model", to_hex(superblock.model_fingerprint)) +
      line("kept unused", limit_text(path, superblock.model_fingerprint)) +
      line("directory", fmt::format("{} of {}, set {}", superblock.directory + 1, superblock.directories,
                                    to_hex(superblock.set))) +
      line("files", fmt::format("{} ({} bytes)", format_bytes(survey.file_bytes), survey.file_bytes));
  std::uint64_t unread = survey.holes.records.unread;
  for (const DiskSurvey::Group& group : survey.groups) unread += group.records.unread;
  if (unread > 0) out += line("unreadable", fmt::format("{} records", unread));
  out += fmt::format("\nEntries\n  {:<8} {:<20} {:>10} {:>10} {:>10} {:>8} {:>8}  {:<16}  {}\n", "group",
                     "layers", "slots", "entries", "size", "damaged", "foreign", "oldest (UTC)", "newest");
  for (std::size_t g = 0; g < survey.groups.size(); ++g) {
    const DiskGroup& shape = superblock.groups[g];
    const bool hidden = shape.form == StateForm::kHidden;
    out += row(fmt::format("{}{}", g, hidden ? " hidden" : ""), survey.groups[g],
               fmt::format("{} of {}", shape.layers, format_bytes(shape.layer_slice_bytes)));
  }
  return out + row("holes", survey.holes, "-");
}

}  // namespace loci
