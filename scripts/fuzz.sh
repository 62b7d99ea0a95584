#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: runs every fuzz target, or those named, for so long, each from its kept corpus
# (build/corpus/TARGET). LOCI_FUZZ_RUNS=10000000 ends each after so many executions where that is sooner;
# LOCI_FUZZ_AT_ONCE=1 runs one after the other. Says how often each was executed.
source "$(dirname "$0")/common.sh"
seconds="${1:-60}"
shift || true
runs="${LOCI_FUZZ_RUNS:--1}"
at_once="${LOCI_FUZZ_AT_ONCE:-$(nproc)}"
scripts/build.sh fuzz all_fuzzers
mkdir -p build/crashes

fuzz_one() {
  local target="$1" name corpus seeds maker begin="$SECONDS" executions
  name="$(basename "$target")"
  corpus="build/corpus/$name"
  mkdir -p "$corpus"
  seeds="$(find src -type d -path "*/corpus/$name")"
  # Seeds that a program of the target's own writes.
  maker="build/fuzz/${name%_fuzz}_corpus"
  if [[ -x "$maker" && -z "$(ls "$corpus")" ]]; then "$maker" "$corpus" $seeds > /dev/null; fi
  note "$name for $seconds s"
  # Leaks are looked for once, at the end. libFuzzer looks after each execution that has allocated more than it freed
  # (1,000 times, then no more), and a tokenizer leaves words in its crate's cache of the thread: those looks took nearly
  # all of the time.
  "$target" -max_total_time="$seconds" -runs="$runs" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 -verbosity=0 \
    -detect_leaks=0 -artifact_prefix="build/crashes/$name-" "$corpus" $seeds > "build/fuzz/$name.log" 2>&1 ||
    { tail -40 "build/fuzz/$name.log" >&2; fail "$name found a failure: reproduce it with $target build/crashes/$name-..."; }
  executions="$(sed -nE 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log")"
  note "$name: $executions executions, $((executions / (SECONDS - begin + 1))) a second, $(ls "$corpus" | wc -l) inputs kept"
}

step "Fuzzing, $at_once targets at a time"
running=0 count=0 failed=0
for target in $(find build/fuzz -maxdepth 1 -name '*_fuzz' -type f -perm -u+x | sort); do
  if [[ $# -gt 0 && " $* " != *" $(basename "$target") "* ]]; then continue; fi
  if [[ "$running" -ge "$at_once" ]]; then wait -n || failed=$((failed + 1)); running=$((running - 1)); fi
  fuzz_one "$target" &
  running=$((running + 1)) count=$((count + 1))
done
while [[ "$running" -gt 0 ]]; do wait -n || failed=$((failed + 1)); running=$((running - 1)); done
[[ "$count" -gt 0 ]] || fail "no fuzz target was built"
echo "fuzz: $((count - failed)) passed, $failed failed"
[[ "$failed" == 0 ]]
