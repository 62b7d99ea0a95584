# SPDX-License-Identifier: Apache-2.0
# loci_core_world: clients and a modelled device around the core, for tests that know what every token must be.
if(LOCI_TESTS OR LOCI_FUZZERS)
  loci_library(core_world SOURCES core_world.cc core_world_outputs.cc core_world_passes.cc core_world_peers.cc core_world_random.cc core_world_shared.cc core_world_tiers.cc DEPENDS loci_core)
endif()
loci_test(event_log_worlds_test SOURCES event_log_worlds_test.cc DEPENDS loci_core_world)
loci_test(core_fuzz_test SOURCES core_fuzz_test.cc DEPENDS loci_core_world)
loci_test(core_exhaustive_test SOURCES core_exhaustive_test.cc DEPENDS loci_core_world)
loci_fuzzer(core_fuzz SOURCES core_fuzz.cc DEPENDS loci_core_world)
