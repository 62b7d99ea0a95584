# SPDX-License-Identifier: Apache-2.0
# Loads on the core in virtual time, for tests and benchmarks of its policies.
if(LOCI_TESTS OR LOCI_BENCHMARKS)
  loci_library(client_load SOURCES client_load.cc DEPENDS loci_core fmt::fmt)
  loci_library(tier_load SOURCES tier_load.cc tier_traces.cc DEPENDS loci_core nlohmann_json::nlohmann_json)
endif()
loci_test(fairness_test SOURCES fairness_test.cc DEPENDS loci_client_load)
loci_benchmark(fairness_benchmark SOURCES fairness_benchmark.cc DEPENDS loci_client_load)
loci_test(tier_load_test SOURCES tier_load_test.cc DEPENDS loci_tier_load)
loci_benchmark(policy_benchmark SOURCES policy_benchmark.cc DEPENDS loci_tier_load)
