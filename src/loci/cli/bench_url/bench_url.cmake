# SPDX-License-Identifier: Apache-2.0
# loci_bench_url: what `loci bench` does.
loci_library(bench_url
  SOURCES bench_url/bench_figures.cc bench_url/bench_report.cc bench_url/bench_run.cc bench_url/bench_server.cc
          bench_url/bench_svg.cc bench_url/dialogue.cc bench_url/objective.cc bench_url/reply_stream.cc bench_url/samples.cc
          bench_url/trace_dialogues.cc bench_url/turn_schedule.cc
  DEPENDS loci_cli_parts loci_sim)
loci_test(bench_url_test
  SOURCES bench_url/bench_report_test.cc bench_url/bench_svg_test.cc bench_url/dialogue_test.cc bench_url/reply_stream_test.cc
          bench_url/objective_test.cc bench_url/samples_test.cc bench_url/trace_dialogues_test.cc bench_url/turn_schedule_test.cc
  DEPENDS loci_bench_url)
