# SPDX-License-Identifier: Apache-2.0
# loci_core: the state machine, and the event log that records its inputs and outputs.
loci_library(core
  SOURCES core/admission.cc core/arrival_keys.cc core/arrivals.cc core/beginnings.cc core/block_tables.cc core/block_tables_check.cc core/core.cc core/core_admission.cc core/core_ahead.cc core/core_check.cc core/core_commit.cc core/core_fair.cc
          core/core_public.cc core/core_schedule.cc core/core_tiers.cc core/device_memory.cc core/distances.cc core/flights.cc core/flights_check.cc core/forgotten.cc core/giving_way.cc core/link_times.cc core/pass_former.cc core/pass_times.cc core/peer_reads.cc core/places.cc
          core/prefixes.cc core/prefixes_lineages.cc core/preloads.cc core/prompt_sources.cc core/queue_needs.cc core/recovery.cc core/restores.cc core/save_wishes.cc core/share_follower.cc core/shared_questions.cc core/suspension_cost.cc core/transfers_check.cc core/transfers_loads.cc core/transfers_saves.cc core/windows.cc
          log/config_codec.cc log/event_codec.cc log/event_log.cc log/event_log_replay.cc log/plan_codec.cc
  DEPENDS loci_policy loci_memory loci_base fmt::fmt PkgConfig::xxhash)
loci_test(core_test
  SOURCES core/core_ahead_test.cc core/beginnings_test.cc core/core_forget_test.cc core/core_test.cc core/core_pause_test.cc core/core_public_test.cc core/core_restore_test.cc core/core_times_test.cc core/core_disk_test.cc core/core_tiers_test.cc core/core_truncate_test.cc core/core_windows_test.cc
          core/core_papers_test.cc core/core_switches_test.cc core/device_memory_test.cc core/distances_test.cc core/flights_test.cc core/forgotten_test.cc core/giving_way_test.cc core/pass_times_test.cc core/peer_reads_test.cc core/phases_test.cc core/places_test.cc core/prefixes_test.cc core/preloads_test.cc core/prompt_sources_test.cc core/queue_needs_test.cc core/recovery_test.cc core/request_test.cc core/save_wishes_test.cc core/share_follower_test.cc core/shared_questions_test.cc core/suspension_cost_test.cc core/transfers_test.cc core/core_waiting_test.cc
  DEPENDS loci_core)
loci_test(event_log_test SOURCES log/event_log_test.cc DEPENDS loci_core)
loci_fuzzer(event_log_fuzz SOURCES log/event_log_fuzz.cc DEPENDS loci_core)
loci_benchmark(core_benchmark SOURCES core/core_benchmark.cc core/core_events_benchmark.cc DEPENDS loci_core)
