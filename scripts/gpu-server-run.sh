#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--out FOLDER] [--model FILE] [--device NAME] [--quick | --load]: the whole server on this machine's GPU: a
# start without a flag, the live suites, every path of state with --deterministic, and conversations that outgrow the
# device's memory. --quick leaves out these, --load all but these. FILE is the default model (make model); without it a
# random one of its shape starts, and the suites but one, which are written for the default model's words, are left
# out. Everything is also in FOLDER: summary.txt, suites.txt, load.txt.
# Needs Python 3.10 or newer. All of it ends within 580 s. Exit status: 0 all passed, 1 something failed.
set -u
out="" model="" device="cuda:0" suites=yes loads=yes
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out) mkdir -p "$2"; out="$(cd "$2" && pwd)"; shift ;;
    --model) model="$(realpath "$2")"; shift ;;
    --device) device="$2"; shift ;;
    --quick) loads="" ;;
    --load) suites="" ;;
    *) echo "usage: run.sh [--out FOLDER] [--model FILE] [--device NAME] [--quick | --load]" >&2; exit 1 ;;
  esac
  shift
done
cd "$(dirname "$0")" || exit 1
here="$PWD" work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
[[ -n "$out" ]] || out="$work"
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LOCI_DEVICE="$device"
loci="$here/loci" talks=yes
./loci-random-model --shape tiny "$work/tiny.gguf"
if [[ -z "$model" ]]; then talks=""; model="$work/model.gguf"; ./loci-random-model --shape smollm2-135m "$model"; fi
say() { echo "$*" | tee -a "$out/summary.txt"; }

# wait_ready LOG SECONDS
wait_ready() { for _ in $(seq $(($2 * 10))); do grep -q '^ready' "$1" && return 0; sleep 0.1; done; return 1; }
ask() { env -u LD_LIBRARY_PATH curl -s -m 60 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 40, "temperature": 0}'; }
failed=0
a_start() {
  local begin server
  begin="$(date +%s%N)"
  XDG_STATE_HOME="$work/state" timeout 60 "$loci" serve "$model" --port 9931 > "$work/start.txt" 2>&1 &
  server=$!
  if wait_ready "$work/start.txt" 60; then
    say "a start without a flag: ready after $((($(date +%s%N) - begin) / 1000000)) ms"
    ask 9931 | tee -a "$out/summary.txt"; echo
  else
    say "a start without a flag: FAILED"; failed=1
  fi
  cat "$work/start.txt" >> "$out/summary.txt"
  kill "$server" 2>/dev/null; wait "$server" 2>/dev/null
}

# The suites side by side, with little memory each. They ask for state that is loaded, and this model is computed faster
# than it is loaded, so they are told that computing is slow.
slow_to_compute() {  # FILE FLAG...
  local file="$1"; shift
  "$loci" profile "$model" --no-disk --output "$file" "$@" > "$work/profile.txt" 2>&1 || { say "loci profile: FAILED: $(tail -1 "$work/profile.txt")"; failed=1; }
  python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); p["costs"]["token_ns"] = 10**9; json.dump(p, open(sys.argv[1], "w"))' "$file"
}
suite() {  # NAME ARGUMENT..., of pytest
  local name="$1" start="$SECONDS" status; shift
  PYTHONPATH="$here/python" timeout 200 python3 -m pytest -q --loci "$loci" "$@" > "$work/$name.txt" 2>&1; status=$?
  echo "$name: exit $status in $((SECONDS - start)) s: $(tail -1 "$work/$name.txt")" > "$work/ends/$name"
}
all_suites() {
  export LOCI_HOST_MEMORY=0 LOCI_DEVICE_MEMORY=2GiB
  local job jobs end each
  if [[ -n "$talks" ]]; then
    slow_to_compute "$work/profile.json"
    slow_to_compute "$work/deterministic.json" --deterministic
  fi
  mkdir "$work/ends"
  jobs=()
  if [[ -n "$talks" ]]; then
    export LOCI_PROFILE="$work/profile.json"
    suite live tests/live_*test.py --model "$model" & jobs+=($!)
    suite responses tests/responses_test.py --model "$model" & jobs+=($!)
    export LOCI_PROFILE="$work/deterministic.json" LOCI_DETERMINISTIC=on
    suite live_deterministic tests/live_*test.py --model "$model" & jobs+=($!)
    suite tiers tests/tiers_test.py tests/tiers_restart_test.py --model "$model" & jobs+=($!)
    suite truncation tests/truncation_test.py --model "$model" & jobs+=($!)
    unset LOCI_PROFILE LOCI_DETERMINISTIC
  fi
  [[ "$device" == cpu ]] || { suite paths_of_state tests/gpu_test.py --model tiny & jobs+=($!); }
  for job in "${jobs[@]}"; do wait "$job"; done
  for end in "$work"/ends/*; do
    say "$(cat "$end")"
    grep -q ': exit 0 ' "$end" || failed=1
  done
  for each in "$work"/ends/*; do echo "=== $(basename "$each")"; cat "$work/$(basename "$each").txt"; done > "$out/suites.txt"
  grep -hE '^(FAILED|ERROR) ' "$out/suites.txt" | tee -a "$out/summary.txt"
  unset LOCI_HOST_MEMORY LOCI_DEVICE_MEMORY
}

# An 8B's shape, quantised, 128 KiB of state a token: device memory for all 32 conversations of some 5,800 tokens at their
# end, and for a quarter of them; twice, in turn.
load() {  # NAME FLAG...
  local name="$1" server; shift
  "$loci" serve "$work/8b.gguf" --port 9932 --store '' --disk none --context 16384 "$@" > "$work/load.txt" 2>&1 &
  server=$!
  wait_ready "$work/load.txt" 90 && timeout 100 "$loci" bench http://127.0.0.1:9932 --conversations 32 --turns 4 --private-prefix-tokens 2000 \
    --concurrency 8 --max-tokens 64 --ignore-eos --seed 1 > "$work/bench.txt" 2>&1
  say "$name: $(sed -nE 's/^ *([0-9]+ replies in )/\1/p' "$work/bench.txt"); later turns: $(sed -n '/^later turns/,/^$/p' "$work/bench.txt" | grep -E 'TTFT|cached' | tr -s ' ' | tr '\n' ';')"
  { echo "=== $name"; tail -15 "$work/load.txt"; cat "$work/bench.txt"; } >> "$out/load.txt"
  kill "$server" 2>/dev/null; wait "$server" 2>/dev/null
}
if [[ -n "$suites" ]]; then
  a_start
  all_suites
fi
if [[ -n "$loads" ]]; then
  ./loci-random-model --shape llama-8b "$work/8b.gguf"
  for round in 1 2; do
    load "all resident, round $round" --device-memory 28GiB --host-memory 0
    load "a quarter resident, round $round" --device-memory 7GiB --host-memory 28GiB
  done
fi
exit "$failed"
