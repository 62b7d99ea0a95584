# SPDX-License-Identifier: Apache-2.0
# loci_store: the durable store of conversations (docs/conversation-store.md).
loci_library(store
  SOURCES store/commit_groups.cc store/open_store.cc store/postgres_connection.cc store/postgres_database.cc
          store/postgres_store.cc store/schema.cc store/sql_claims.cc store/sql_rows.cc store/sql_sequences.cc store/sql_store.cc store/sql_turns.cc
          store/sql_upkeep.cc store/sql_usage.cc store/sqlite_connection.cc store/sqlite_database.cc store/sqlite_store.cc store/store_claim.cc store/store_shares.cc store/stored_text.cc
          store/token_blob.cc store/sql_lists.cc
  DEPENDS loci_messages PkgConfig::sqlite PkgConfig::pqxx Threads::Threads)

if(LOCI_TESTS OR LOCI_BENCHMARKS)
  loci_library(test_stores SOURCES store/fault_vfs.cc store/naive_store.cc store/random_walk.cc store/test_postgres.cc store/test_stores.cc DEPENDS loci_store)
endif()
loci_test(store_contract_test THREADS
  SOURCES store/commit_groups_test.cc store/store_contract_test.cc store/store_model_test.cc store/postgres_store_test.cc
          store/sqlite_store_test.cc store/store_claim_test.cc store/store_shares_test.cc
  DEPENDS loci_test_stores)
loci_test(store_crash_test SOURCES store/store_crash_test.cc DEPENDS loci_test_stores)
loci_benchmark(store_benchmark SOURCES store/store_benchmark.cc DEPENDS loci_test_stores)
