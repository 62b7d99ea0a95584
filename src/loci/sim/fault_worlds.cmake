# SPDX-License-Identifier: Apache-2.0
# Worlds on which things go wrong, and the program that runs many of them (`make simulate`).
if(LOCI_TESTS)
  loci_library(fault_worlds SOURCES fault_worlds.cc seed_runner.cc DEPENDS loci_sim Threads::Threads)
  add_executable(simulate simulate_main.cc)
  target_link_libraries(simulate PRIVATE loci_allocator loci_core_world loci_fault_worlds CLI11::CLI11)
  add_dependencies(all_tests simulate)
  add_dependencies(lower_tests simulate)
endif()
loci_test(fault_worlds_test THREADS SOURCES fault_worlds_test.cc DEPENDS loci_fault_worlds)
