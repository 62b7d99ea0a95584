# SPDX-License-Identifier: Apache-2.0
# loci_profile: what `loci profile` measures and writes.
loci_library(profile
  SOURCES profile_disk.cc profile_file.cc profile_measure.cc profile_rough.cc profile_svg.cc profile_timing.cc
  DEPENDS loci_pull loci_messages loci_policy loci_compute loci_disk PkgConfig::xxhash nlohmann_json::nlohmann_json fmt::fmt Threads::Threads)
loci_test(profile_test SOURCES profile_test.cc DEPENDS loci_profile loci_engine loci_model_spec)
