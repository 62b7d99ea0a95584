# SPDX-License-Identifier: Apache-2.0
# loci_profile: what computing and moving state costs here: measured, and kept in a file, which others read too.
loci_library(profile_file
  SOURCES profile/profile_file.cc
  DEPENDS loci_wire loci_policy nlohmann_json::nlohmann_json fmt::fmt)
loci_library(profile
  SOURCES profile/profile_disk.cc profile/profile_measure.cc profile/profile_rough.cc profile/profile_timing.cc
  DEPENDS loci_profile_file loci_policy loci_compute loci_disk PkgConfig::xxhash nlohmann_json::nlohmann_json fmt::fmt Threads::Threads)
loci_test(profile_test SOURCES profile/aside_test.cc profile/profile_test.cc DEPENDS loci_profile loci_engine loci_model_spec loci_gguf_testing)
