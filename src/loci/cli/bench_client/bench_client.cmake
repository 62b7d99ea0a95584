# SPDX-License-Identifier: Apache-2.0
# loci_bench_client: what `loci bench` does.
loci_library(bench_client
  SOURCES bench_client/bench_figures.cc bench_client/bench_report.cc bench_client/bench_run.cc bench_client/bench_server.cc
          bench_client/bench_svg.cc bench_client/dialogue.cc bench_client/objective.cc bench_client/reply_stream.cc bench_client/samples.cc
          bench_client/trace_dialogues.cc bench_client/turn_schedule.cc
  DEPENDS loci_cli_parts loci_sim)
loci_test(bench_client_test
  SOURCES bench_client/bench_report_test.cc bench_client/bench_run_test.cc bench_client/bench_svg_test.cc bench_client/dialogue_test.cc bench_client/reply_stream_test.cc
          bench_client/objective_test.cc bench_client/samples_test.cc bench_client/trace_dialogues_test.cc bench_client/turn_schedule_test.cc
  DEPENDS loci_bench_client)
