# SPDX-License-Identifier: Apache-2.0
# loci_shared: stores that servers share.
set(shared ${CMAKE_CURRENT_LIST_DIR})
loci_library(shared
  SOURCES ${shared}/redis_address.cc ${shared}/redis_cluster.cc ${shared}/redis_connection.cc ${shared}/redis_dialer.cc ${shared}/redis_rate.cc ${shared}/redis_read.cc ${shared}/redis_resolver.cc
          ${shared}/redis_slots.cc ${shared}/redis_store.cc ${shared}/redis_store_state.cc ${shared}/redis_topology.cc ${shared}/redis_writer.cc
          ${shared}/shared_account.cc ${shared}/shared_format.cc
  DEPENDS loci_base PkgConfig::sodium PkgConfig::hiredis OpenSSL::SSL OpenSSL::Crypto Threads::Threads fmt::fmt)
loci_test(shared_store_test THREADS
  SOURCES ${shared}/redis_connection_test.cc ${shared}/redis_resolver_test.cc ${shared}/redis_store_test.cc ${shared}/shared_format_fuzz.cc ${shared}/shared_format_test.cc
  DEPENDS loci_shared loci_disk)
loci_fuzzer(shared_format_fuzz SOURCES ${shared}/shared_format_fuzz.cc DEPENDS loci_shared)
loci_test(redis_cluster_test THREADS
  SOURCES ${shared}/redis_cluster_test.cc ${shared}/redis_slots_fuzz.cc ${shared}/redis_slots_test.cc
  DEPENDS loci_shared)
loci_fuzzer(redis_slots_fuzz SOURCES ${shared}/redis_slots_fuzz.cc DEPENDS loci_shared)
# loci_s3: the one in a bucket of an S3 store.
loci_library(s3
  SOURCES ${shared}/s3_address.cc ${shared}/s3_client.cc ${shared}/s3_credentials.cc ${shared}/s3_credentials_reader.cc ${shared}/s3_deletions.cc ${shared}/s3_questions.cc
          ${shared}/s3_read.cc ${shared}/s3_reply.cc ${shared}/s3_store.cc ${shared}/s3_store_state.cc ${shared}/s3_verdict.cc ${shared}/s3_writes.cc
  DEPENDS loci_shared PkgConfig::curl PkgConfig::sodium Threads::Threads fmt::fmt)
loci_test(s3_store_test THREADS
  SOURCES ${shared}/s3_credentials_reader_test.cc ${shared}/s3_deletions_test.cc ${shared}/s3_parts_test.cc ${shared}/s3_questions_test.cc ${shared}/s3_reply_fuzz.cc ${shared}/s3_store_test.cc
  DEPENDS loci_s3 loci_disk)
loci_fuzzer(s3_reply_fuzz SOURCES ${shared}/s3_reply_fuzz.cc DEPENDS loci_s3)
