#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--server FOLDER] [--models FOLDER] [--out FOLDER] [TYPE ...]: Loci and llama.cpp on this machine's GPU, with the same random
# models of a Llama 8B's shape (Q4_0 and Q8_0, if no TYPE is named). Both servers run side by side and answer in turns
# (`loci bench --compare`): one conversation at a time, then 64. FOLDER of the server: gpu-server, unpacked (../gpu-server);
# of models: where they are kept.
# Needs cuBLAS of CUDA 13 in Python's packages or where the loader looks. Ends within 300 s.
set -u
server="" models="" out="" types=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --server) server="$(realpath "$2")"; shift ;;
    --models) mkdir -p "$2"; models="$(realpath "$2")"; shift ;;
    --out) mkdir -p "$2"; out="$(realpath "$2")"; shift ;;
    -*) echo "usage: run.sh [--server FOLDER] [--models FOLDER] [--out FOLDER] [TYPE ...]" >&2; exit 1 ;;
    *) types+=("$1") ;;
  esac
  shift
done
here="$(cd "$(dirname "$0")" && pwd)" work="$(mktemp -d)"
[[ -n "$server" ]] || server="$here/../gpu-server"
[[ -n "$out" ]] || out="$work"
[[ -n "$models" ]] || models="$work"
[[ ${#types[@]} -gt 0 ]] || types=(Q4_0 Q8_0)
# This machine's own libraries come first: those of the server are for what it lacks.
cublas="$(python3 -c 'import nvidia.cu13 as m; print(list(m.__path__)[0] + "/lib")' 2>/dev/null)"
listens() { for _ in {1..600}; do (: < "/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0; sleep 0.1; done; return 1; }
loci=(env LD_LIBRARY_PATH="$server/lib" "$server/loci")
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT

for type in "${types[@]}"; do
  [[ -f "$models/$type.gguf" ]] || LD_LIBRARY_PATH="$server/lib" "$server/loci-random-model" --shape llama-8b --type "$type" "$models/$type.gguf" &
done
wait
for type in "${types[@]}"; do
  # 64 requests of up to 4,096 tokens have room in both.
  "${loci[@]}" serve "$models/$type.gguf" --port 9941 --store '' --disk none --host-memory 0 --context 4096 --max-running 64 --device-memory 40GiB > "$work/loci.txt" 2>&1 &
  env LD_LIBRARY_PATH="$here:$cublas" "$here/llama-server" -m "$models/$type.gguf" --port 9942 -ngl 99 -fa on -np 64 -c $((64 * 4096)) > "$work/llama.txt" 2>&1 &
  listens 9941 && listens 9942 || { tail -n 3 "$work/loci.txt" "$work/llama.txt"; exit 1; }
  for load in "1 8" "64 64"; do
    read -r concurrency conversations <<< "$load"
    echo "== $type, $concurrency at a time"
    "${loci[@]}" bench http://127.0.0.1:9941 --compare http://127.0.0.1:9942 --conversations "$conversations" --turns 2 --concurrency "$concurrency" \
      --private-prefix-tokens 200 --max-tokens 64 --ignore-eos --seed "$concurrency" --wait 60 --timeout 60 2>&1 || tail -n 3 "$work/loci.txt" "$work/llama.txt"
  done
  kill $(jobs -p) 2>/dev/null
  wait
done 2>&1 | tee "$out/peers.txt"
