# SPDX-License-Identifier: Apache-2.0
loci_library(core
  SOURCES core.cc core_admission.cc core_ahead.cc core_check.cc core_commit.cc core_fair.cc core_lookahead.cc
          core_public.cc core_recover.cc core_schedule.cc core_tiers.cc core_truncate.cc core_window.cc
          event_log.cc event_log_codec.cc event_log_replay.cc
  DEPENDS loci_policy loci_memory loci_base fmt::fmt PkgConfig::xxhash)

if(LOCI_TESTS OR LOCI_FUZZERS)
  loci_library(core_world SOURCES core_world.cc core_world_outputs.cc core_world_tiers.cc DEPENDS loci_core)
endif()
loci_test(core_test SOURCES core_ahead_test.cc core_test.cc core_public_test.cc core_tiers_test.cc core_truncate_test.cc DEPENDS loci_core)
loci_test(event_log_test SOURCES event_log_test.cc DEPENDS loci_core_world)
loci_test(core_fuzz_test SOURCES core_fuzz_test.cc DEPENDS loci_core_world)
loci_test(core_exhaustive_test SOURCES core_exhaustive_test.cc DEPENDS loci_core_world)
loci_fuzzer(core_fuzz SOURCES core_fuzz.cc DEPENDS loci_core_world)
loci_fuzzer(event_log_fuzz SOURCES event_log_fuzz.cc DEPENDS loci_core)
loci_benchmark(core_benchmark SOURCES core_benchmark.cc DEPENDS loci_core)

if(LOCI_TESTS OR LOCI_BENCHMARKS)
  loci_library(client_load SOURCES client_load.cc DEPENDS loci_core fmt::fmt)
endif()
loci_test(fairness_test SOURCES fairness_test.cc DEPENDS loci_client_load)
loci_benchmark(fairness_benchmark SOURCES fairness_benchmark.cc DEPENDS loci_client_load)

if(LOCI_TESTS OR LOCI_BENCHMARKS)
  loci_library(tier_load SOURCES tier_load.cc tier_traces.cc DEPENDS loci_core nlohmann_json::nlohmann_json)
endif()
loci_test(tier_load_test SOURCES tier_load_test.cc DEPENDS loci_tier_load)
loci_benchmark(policy_benchmark SOURCES policy_benchmark.cc DEPENDS loci_tier_load)
