// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "loci/memory/disk/disk_file.h"
#include "loci/memory/disk/disk_layout.h"
#include "loci/memory/disk/disk_models.h"

namespace loci {
namespace {

Status survey_records(const std::string& path, std::uint64_t bytes, const DiskSurvey& survey,
                      std::uint32_t group, const DiskLayout& layout, DiskSurvey::Group& into) {
  LOCI_ASSIGN_OR_RETURN(const std::shared_ptr<DiskFile> file, open_disk_file_to_read(path));
  if (file->size_bytes() < bytes) {
    return data_loss(fmt::format("{}: expected {} bytes or more, found {}", path, bytes, file->size_bytes()));
  }
  const Superblock& superblock = survey.superblock;
  bool any = false;
  into.records = scan_records(
      *file, layout, layout.record_of(superblock.model_fingerprint, group, superblock.directory),
      [] { return false; },
      [&](const RecoveredEntry& one) {
        into.oldest = any ? std::min(into.oldest, one.entry.used_at) : one.entry.used_at;
        into.newest = any ? std::max(into.newest, one.entry.used_at) : one.entry.used_at;
        any = true;
      });
  return {};
}

}  // namespace

bool is_disk_store(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path + "/" + kSuperblockFileName, ignored);
}

Result<Superblock> read_disk_superblock(const std::string& path) {
  std::vector<std::byte> bytes(kSuperblockBytes);
  LOCI_ASSIGN_OR_RETURN(const std::shared_ptr<DiskFile> file,
                        open_disk_file_to_read(path + "/" + kSuperblockFileName));
  const std::int64_t got = file->read(0, bytes);
  if (got < 0)
    return Status(StatusCode::kUnavailable, fmt::format("{}: the superblock cannot be read: {}", path,
                                                        errno_text(static_cast<int>(-got))));
  if (got != static_cast<std::int64_t>(bytes.size())) return data_loss(path + ": the superblock is damaged");
  Result<Superblock> superblock = decode_superblock(bytes);
  if (!superblock.ok()) return superblock.status().with_context(path);
  return superblock;
}

Result<Nanos> read_disk_limit(const std::string& path,
                              const std::array<std::uint8_t, 16>& model_fingerprint) {
  LOCI_ASSIGN_OR_RETURN(const std::shared_ptr<DiskFile> file,
                        open_disk_file_to_read(path + "/" + kLimitFileName));
  std::vector<std::byte> note(std::min(file->size_bytes(), kStateLimitBytesMax));
  const std::int64_t got = file->read(0, note);
  if (got < 0)
    return Status(StatusCode::kUnavailable, fmt::format("{}: {}", path, errno_text(static_cast<int>(-got))));
  note.resize(static_cast<std::size_t>(got));
  return decode_state_limit(model_fingerprint, note);
}

Result<DiskSurvey> survey_disk_store(const std::string& path) {
  DiskSurvey survey;
  LOCI_ASSIGN_OR_RETURN(survey.superblock, read_disk_superblock(path));
  survey.user = disk_folder_user(path);
  const DiskLayout layout{.directories = survey.superblock.directories,
                          .groups = survey.superblock.groups,
                          .holes = survey.superblock.holes};
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    DiskSurvey::Group group{.slots = layout.groups[g].slots / layout.directories,
                            .slot_bytes = layout.slot_stride(g),
                            .record_bytes = layout.record_stride(g)};
    LOCI_RETURN_IF_ERROR(survey_records(path + "/" + header_file_name(g), layout.header_file_bytes(g), survey,
                                        g, layout, group));
    survey.groups.push_back(group);
  }
  survey.holes.slots = layout.holes / layout.directories;
  survey.holes.record_bytes = record_bytes(0);
  LOCI_RETURN_IF_ERROR(survey_records(path + "/" + kHoleFileName, layout.hole_file_bytes(), survey,
                                      kHoleGroup, layout, survey.holes));
  survey.file_bytes = held_bytes_of(path);
  return survey;
}

}  // namespace loci
