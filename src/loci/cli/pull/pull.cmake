# SPDX-License-Identifier: Apache-2.0
# loci_pull: models from a registry of Hugging Face's layout, and where they lie.
loci_library(pull
  SOURCES paths.cc pull/file_download.cc pull/file_hash.cc pull/http_client.cc pull/hub.cc pull/model_folder.cc
    pull/progress.cc pull/puller.cc pull/repo_files.cc pull/repo_reference.cc pull/resolve_model.cc
  DEPENDS loci_files loci_gguf PkgConfig::curl PkgConfig::sodium nlohmann_json::nlohmann_json fmt::fmt Threads::Threads)
loci_test(pull_parts_test SOURCES pull/pull_parts_test.cc DEPENDS loci_pull)
