# SPDX-License-Identifier: Apache-2.0
# bench_truncation: perplexity of texts that outgrow the context.
loci_library(bench_truncation
  SOURCES bench_truncation.cc
  DEPENDS loci_device_flags loci_backends loci_model nlohmann_json::nlohmann_json CLI11::CLI11 fmt::fmt)
add_executable(bench_truncation bench_truncation_main.cc)
target_link_libraries(bench_truncation PRIVATE loci_bench_truncation)
