# SPDX-License-Identifier: Apache-2.0
# loci_disk: the disk tier's bytes.
set(disk ${CMAKE_CURRENT_LIST_DIR})
loci_library(disk
  SOURCES ${disk}/disk_budget.cc ${disk}/disk_clears.cc ${disk}/disk_files.cc ${disk}/disk_folder.cc ${disk}/disk_format.cc ${disk}/disk_keeper.cc ${disk}/disk_layout.cc ${disk}/disk_models.cc
          ${disk}/disk_queue.cc ${disk}/disk_reads.cc ${disk}/disk_recovery.cc ${disk}/disk_store.cc
          ${disk}/disk_survey.cc ${disk}/disk_unused.cc ${disk}/disk_unused_folder.cc ${disk}/disk_writes.cc ${disk}/thread_engine.cc ${disk}/unused_entries.cc ${disk}/uring_engine.cc
  DEPENDS loci_base PkgConfig::sodium PkgConfig::uring PkgConfig::xxhash Threads::Threads fmt::fmt)
loci_test(disk_store_test THREADS
  SOURCES ${disk}/disk_store_test.cc ${disk}/disk_budget_test.cc ${disk}/disk_clears_test.cc ${disk}/disk_fault_test.cc ${disk}/disk_files_test.cc ${disk}/disk_folder_test.cc ${disk}/disk_format_test.cc
          ${disk}/disk_format_fuzz.cc ${disk}/disk_hangs_test.cc ${disk}/disk_model_test.cc ${disk}/disk_queue_test.cc ${disk}/disk_unread_test.cc ${disk}/disk_unused_races_test.cc ${disk}/disk_unused_test.cc ${disk}/unused_entries_test.cc ${disk}/uring_engine_test.cc ${disk}/faulty_disk_testing.cc
  DEPENDS loci_disk)
loci_fuzzer(disk_format_fuzz SOURCES ${disk}/disk_format_fuzz.cc DEPENDS loci_disk)
loci_benchmark(disk_store_benchmark SOURCES ${disk}/disk_store_benchmark.cc DEPENDS loci_disk)
