#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [--out FOLDER] [--quick] [BEGIN-OF-NAME ...]: runs all tests of the CUDA backend on this machine's first
# GPU, a few of them under compute-sanitizer where it is there, then the benchmarks, each group in a process of its
# own with a limit of time. All of it ends within 580 s, and everything that is printed is also in FOLDER, as it is
# printed (tests.txt, sanitizer.txt, and a file for each group of benchmarks). Names choose benchmarks.
#
# Needs an NVIDIA driver of CUDA 13. cuBLASLt's library (libcublasLt.so.13) is looked for by the loader, beside the
# programs, in Python's environments and in CUDA_HOME.
# Exit status: 0 all passed, 1 something failed, 2 there is no GPU.
out=""
quick=""
names=""
while [ $# -gt 0 ]; do
  case "$1" in
    --out) [ $# -ge 2 ] || { echo "run.sh: --out names a folder" >&2; exit 1; }; mkdir -p "$2" && out="$(cd "$2" && pwd)"; shift ;;
    --quick) quick="--quick" ;;
    --*) echo "usage: run.sh [--out FOLDER] [--quick] [BEGIN-OF-NAME ...]" >&2; exit 1 ;;
    *) names="$names $1" ;;
  esac
  shift
done
cd "$(dirname "$0")" || exit 1
begin="$(date +%s)"
left() { echo $((580 - $(date +%s) + begin)); }
failed=0
# part FILE SECONDS COMMAND...: its output to the screen and the file; its status, 124 past the limit.
part() {
  file="$1" limit="$2"; shift 2
  rest="$(left)"; [ "$rest" -ge "$limit" ] || limit="$rest"
  [ "$limit" -gt 0 ] || { echo "no time was left for: $*"; return 124; }
  status_file="$(mktemp)"
  { timeout -k 5 "$limit" "$@" 2>&1; echo $? > "$status_file"; } | if [ -n "$out" ]; then tee "$out/$file"; else cat; fi
  status="$(cat "$status_file")"; rm -f "$status_file"
  [ "$status" -ne 124 ] && [ "$status" -ne 137 ] || echo "stopped after $limit s: $*"
  return "$status"
}

echo "== tests"
part tests.txt 260 ./gpu-check; status=$?
[ "$status" -ne 2 ] || exit 2
[ "$status" -eq 0 ] || failed=1
sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)"
if [ -n "$sanitizer" ] && [ -z "$quick" ]; then
  echo "== compute-sanitizer"
  # One process: the sanitizer follows no others.
  part sanitizer.txt 90 sh -c '
    for tool in memcheck racecheck; do
      echo "-- $1, $tool"
      "$0" --tool "$tool" --error-exitcode 9 --print-limit 5 ./gpu-check --here --gtest_brief=1 --gtest_filter="$2" || exit 1
    done' "$sanitizer" "a few tests" "AddNormTest.AddsAndNormalises:PlaceRowsTest.PlacesHeads:CudaAttentionTest.AnyNumberOfStages:CudaAttentionTest.LongContextsAreSplit:MultiplyTest.LaunchersAgree:WarpgroupTest.EveryFormOfProduct:CudaAttentionTest.PromptsOfEveryHeadSizeAndType:CudaAttentionTest.PromptsAmongDecodes:MultiplyTest.WarpgroupsAgreeWithFloat64:SamplingTest.LargeVocabularies" || failed=1
fi
echo "== benchmarks"
for group in attention models movement products restore rows; do
  chosen=""
  for name in $names; do case "$name" in "$group"*) chosen="$chosen $name" ;; esac; done
  [ -z "$names" ] || [ -n "$chosen" ] || continue
  # shellcheck disable=SC2086
  part "$group.txt" 120 ./gpu-bench $quick ${chosen:-$group/} || failed=1
done
exit "$failed"
