#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: runs every fuzz target, or those named, for so long, each from its kept corpus
# (build/corpus/TARGET). LOCI_FUZZ_RUNS=10000000 ends each after so many executions where that is sooner.
source "$(dirname "$0")/common.sh"
seconds="${1:-60}"
shift || true
runs="${LOCI_FUZZ_RUNS:--1}"
scripts/build.sh fuzz all_fuzzers
passed=0
for target in $(find build/fuzz -maxdepth 1 -name '*_fuzz' -type f -perm -u+x | sort); do
  name="$(basename "$target")"
  if [[ $# -gt 0 && " $* " != *" $name "* ]]; then continue; fi
  corpus="build/corpus/$name"
  mkdir -p "$corpus" build/crashes
  seeds="$(find src -type d -path "*/corpus/$name")"
  # Seeds that a program of the target's own writes.
  maker="build/fuzz/${name%_fuzz}_corpus"
  if [[ -x "$maker" && -z "$(ls "$corpus")" ]]; then "$maker" "$corpus" $seeds > /dev/null; fi
  step "Fuzzing $name for $seconds s"
  "$target" -max_total_time="$seconds" -runs="$runs" -rss_limit_mb=4096 -timeout=20 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix="build/crashes/$name-" "$corpus" $seeds > "build/fuzz/$name.log" 2>&1 ||
    { tail -40 "build/fuzz/$name.log" >&2; fail "$name found a failure: reproduce it with $target build/crashes/$name-..."; }
  note "$(ls "$corpus" | wc -l) inputs kept"
  passed=$((passed + 1))
done
[[ "$passed" -gt 0 ]] || fail "no fuzz target was built"
echo "fuzz: $passed passed, 0 failed"
