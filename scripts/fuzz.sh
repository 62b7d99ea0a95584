#!/usr/bin/env bash
# fuzz.sh SECONDS: runs every fuzz target for so long, each from its kept corpus (build/corpus/TARGET).
source "$(dirname "$0")/common.sh"
seconds="${1:-60}"
scripts/build.sh fuzz all_fuzzers
passed=0
for target in $(find build/fuzz -maxdepth 1 -name '*_fuzz' -type f -perm -u+x | sort); do
  name="$(basename "$target")"
  corpus="build/corpus/$name"
  mkdir -p "$corpus" build/crashes
  seeds="$(find src -type d -path "*/corpus/$name")"
  # Seeds that a program of the target's own writes.
  maker="build/fuzz/${name%_fuzz}_corpus"
  if [[ -x "$maker" && -z "$(ls "$corpus")" ]]; then "$maker" "$corpus" $seeds > /dev/null; fi
  step "Fuzzing $name for $seconds s"
  "$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix="build/crashes/$name-" "$corpus" $seeds > "build/fuzz/$name.log" 2>&1 ||
    { tail -40 "build/fuzz/$name.log" >&2; fail "$name found a failure: reproduce it with $target build/crashes/$name-..."; }
  note "$(ls "$corpus" | wc -l) inputs kept"
  passed=$((passed + 1))
done
[[ "$passed" -gt 0 ]] || fail "no fuzz target was built"
echo "fuzz: $passed passed, 0 failed"
