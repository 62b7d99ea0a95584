#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh SECONDS [TARGET...]: runs every fuzz target, or those named, for so long, each from its inputs
# (build/corpus/TARGET). LOCI_FUZZ_RUNS=10000000 ends each after so many executions where that is sooner;
# LOCI_FUZZ_AT_ONCE=1 runs one after the other. Says how often each was executed.
# fuzz.sh kept [TARGET...]: each on the inputs that are kept with the sources, and on 2,000 mutations of them that are
# the same each time; built with the sanitizers' tests.
# fuzz.sh keep [TARGET...]: keeps with the sources those inputs of build/corpus that reach different code
# (tests/data/fuzz/TARGET.tar.gz).
source "$(dirname "$0")/common.sh"
mode="${1:-60}"
shift || true
runs="${LOCI_FUZZ_RUNS:--1}"
at_once="${LOCI_FUZZ_AT_ONCE:-$(nproc)}"
preset=fuzz
[[ "$mode" != kept ]] || preset=asan
for name in "$@"; do
  [[ -n "$(find src -name "$name.cc")" ]] || fail "no fuzz target is named $name: find src -name '*_fuzz.cc' lists them"
done
scripts/build.sh "$preset" all_fuzzers
mkdir -p build/crashes
# Leaks are looked for once, at the end. libFuzzer looks after each execution that has allocated more than it freed
# (1,000 times, then no more), and a tokenizer leaves words in its crate's cache of the thread: those looks took nearly
# all of the time.
patience=20  # in seconds, for one input
# What is kept runs at the lowest priority beside other tests, where a second may last ten.
[[ "$mode" != kept ]] || patience=60
limits=(-rss_limit_mb=4096 -timeout="$patience" -print_final_stats=1 -verbosity=0 -detect_leaks=0)

# begin_inputs TARGET FOLDER: what is kept with the sources, and seeds that a program of the target's own writes.
begin_inputs() {
  local name="$1" folder="$2" maker="build/$preset/${1%_fuzz}_corpus"
  mkdir -p "$folder"
  if [[ -f "tests/data/fuzz/$name.tar.gz" ]]; then tar -xzf "tests/data/fuzz/$name.tar.gz" -C "$folder"; fi
  find src -path "*/corpus/$name/*" -type f -exec cp {} "$folder" \;
  if [[ -x "$maker" ]]; then "$maker" "$folder" > /dev/null; fi
}
run_target() {
  local name="$1"; shift
  "build/$preset/$name" "${limits[@]}" -artifact_prefix="build/crashes/$name-" "$@" > "build/$preset/$name.log" 2>&1 ||
    { tail -40 "build/$preset/$name.log" >&2; fail "$name found a failure: reproduce it with build/$preset/$name INPUT; the input is named above or in build/crashes"; }
}

fuzz_one() {
  local name="$1" corpus="build/corpus/$1" begin="$SECONDS" executions
  [[ -n "$(ls "$corpus" 2>/dev/null)" ]] || begin_inputs "$name" "$corpus"
  note "$name for $mode s"
  run_target "$name" -max_total_time="$mode" -runs="$runs" "$corpus"
  executions="$(sed -nE 's/^stat::number_of_executed_units: *//p' "build/$preset/$name.log")"
  note "$name: $executions executions, $((executions / (SECONDS - begin + 1))) a second, $(ls "$corpus" | wc -l) inputs"
}
kept_one() {
  local name="$1" folder="build/$preset/inputs/$1"
  rm -rf "$folder" && begin_inputs "$name" "$folder"
  [[ -n "$(ls "$folder")" ]] || fail "$name has no kept inputs: run make fuzz, then scripts/fuzz.sh keep $name"
  find "$folder" -type f -print0 | sort -z | xargs -0 "build/$preset/$name" "${limits[@]}" > "build/$preset/$name.log" 2>&1 ||
    { tail -40 "build/$preset/$name.log" >&2; fail "$name fails on a kept input: its name is the last one of build/$preset/$name.log"; }
  note "$name: $(ls "$folder" | wc -l) inputs"
  run_target "$name" -runs=2000 -seed=1 -max_len=4096 "$folder"
}
keep_one() {
  local name="$1" folder="build/kept/$1"
  rm -rf "$folder" && mkdir -p "$folder" tests/data/fuzz
  run_target "$name" -set_cover_merge=1 -max_len=4096 "$folder" "build/corpus/$name"
  tar -C "$folder" --sort=name --owner=0 --group=0 --mtime=@0 -cf - . | gzip -9n > "tests/data/fuzz/$name.tar.gz"
  note "$name: $(ls "$folder" | wc -l) of $(ls "build/corpus/$name" | wc -l) inputs in tests/data/fuzz/$name.tar.gz"
}
case "$mode" in kept | keep) one="${mode}_one" ;; *) one=fuzz_one ;; esac

step "Fuzzing ($mode), $at_once targets at a time"
running=0 count=0 failed=0
for target in $(find "build/$preset" -maxdepth 1 -name '*_fuzz' -type f -perm -u+x | sort); do
  name="$(basename "$target")"
  if [[ $# -gt 0 && " $* " != *" $name "* ]]; then continue; fi
  if [[ -z "$(find src -name "$name.cc")" ]]; then continue; fi  # built before its source was renamed
  if [[ "$running" -ge "$at_once" ]]; then wait -n || failed=$((failed + 1)); running=$((running - 1)); fi
  "$one" "$name" &
  running=$((running + 1)) count=$((count + 1))
done
while [[ "$running" -gt 0 ]]; do wait -n || failed=$((failed + 1)); running=$((running - 1)); done
[[ "$count" -gt 0 ]] || fail "no fuzz target was built"
echo "fuzz: $((count - failed)) passed, $failed failed"
[[ "$failed" == 0 ]]
