# SPDX-License-Identifier: Apache-2.0
# bench_state: what a type of state costs in perplexity.
add_executable(bench_state EXCLUDE_FROM_ALL bench_state.cc)
target_link_libraries(bench_state PRIVATE loci_backends loci_model CLI11::CLI11 fmt::fmt)
