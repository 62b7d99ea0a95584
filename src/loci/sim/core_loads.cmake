# SPDX-License-Identifier: Apache-2.0
# Loads on the core in virtual time, for tests and benchmarks of its policies.
if(LOCI_TESTS OR LOCI_BENCHMARKS)
  loci_library(client_load SOURCES client_load.cc DEPENDS loci_packed_file loci_trace loci_core fmt::fmt)
endif()
loci_test(fairness_test SOURCES fairness_test.cc DEPENDS loci_client_load)
loci_benchmark(fairness_benchmark SOURCES fairness_benchmark.cc DEPENDS loci_client_load)
