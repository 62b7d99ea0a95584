// SPDX-License-Identifier: Apache-2.0
// The models that keep state in one directory. Each has a folder of its own, which is a disk store
// (docs/disk-store.md): DIR/models/FINGERPRINT/. Functions here read and change folders that no server has
// open; they take no part in serving.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"

namespace loci {

// What people call the model of a folder; written when a server opens it.
struct ModelName {
  std::string name;  // as clients call it
  std::string path;  // of its file or directory
};

struct StoredModel {
  std::string id;  // the folder's name: the fingerprint in hexadecimal
  std::string folder;
  ModelName name;
  int user = 0;                  // disk_folder_user()
  std::uint64_t held_bytes = 0;  // that its files take of the file system
};

std::string model_id(const std::array<std::uint8_t, 16>& fingerprint);
// Of an id; nothing where it is none.
std::optional<std::array<std::uint8_t, 16>> fingerprint_of(std::string_view id);
std::string model_folder(const std::string& directory, const std::string& id);
std::string models_place(const std::string& directory);  // the folders of all models

// The name that a model's folder has while it is removed.
std::string leftover_of(std::string_view id);
bool is_leftover(std::string_view name);
std::string_view model_of_leftover(std::string_view name);  // any other name is the model itself

// Makes the directory (0700) with a place for the model; moves the files of a store that an earlier version
// kept in the directory itself to their model's folder. Errors: kInvalidArgument naming disk.
Status prepare_model_folder(const std::string& directory, const std::string& id, const ModelName& name);

// Whether models keep or kept state there: it has some, or the place for them, which is empty.
bool is_models_directory(const std::string& directory);

// All models of the directory, by id. Empty where there are none.
std::vector<StoredModel> list_stored_models(const std::string& directory);
std::uint64_t held_bytes_of(const std::string& folder);

// Those that `text` names: a name, a path, or the first four or more digits of an id.
std::vector<StoredModel> find_stored_models(const std::string& directory, const std::string& text);

// Removes all state of a model. `say`: if it waits for another process that drops state there. Errors:
// kUnavailable where a server has it open, or files cannot be removed.
Status forget_stored_model(
    const StoredModel& model, std::function<void(const std::string&)> say = [](const std::string&) {});

struct DroppedState {
  std::uint64_t freed_bytes = 0;
  std::int64_t oldest_used_at = 0;  // of what is left; 0: nothing is
};

// Drops the least recently used state of a model, a block's descendants before it, until so many bytes are
// free or nothing is left; then, or where the files are damaged or the file system punches no holes, the
// folder goes. Who starts to serve the model meanwhile waits. Errors: kUnavailable where a server has it
// open, or the disk does not read or write it now; what was dropped until then is.
Result<DroppedState> drop_oldest_state(const StoredModel& model, std::uint64_t bytes);

}  // namespace loci
