# SPDX-License-Identifier: Apache-2.0
# loci_device_flags: --device.
loci_library(device_flags SOURCES device_flags.cc DEPENDS loci_backends CLI11::CLI11)
# loci_bench_compute: what `loci bench-compute` does, and a program that does nothing else.
loci_library(bench_compute
  SOURCES bench_compute.cc
  DEPENDS loci_device_flags loci_backends loci_hugging_face nlohmann_json::nlohmann_json CLI11::CLI11 fmt::fmt)
add_executable(bench_compute bench_compute_main.cc)
target_link_libraries(bench_compute PRIVATE loci_bench_compute)
