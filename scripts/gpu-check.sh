#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds build/gpu-check/, to be carried to a machine with an NVIDIA GPU: `gpu-check` (all tests), `gpu-bench` (all
# benchmarks) and `run.sh`, which runs both. They need a driver of CUDA 13, libc as of Debian 12 and, for large
# products, cuBLASLt's library. Checks that this is so, and that the folder holds at most 64 MiB.
source "$(dirname "$0")/common.sh"
folder="build/gpu-check"
limit_mib=64
scripts/cuda-toolkit.sh
scripts/build.sh release gpu_check_programs
step "Packing $folder"
rm -rf "$folder"
mkdir -p "$folder"
cp build/release/gpu-check/* "$folder/"
cp scripts/gpu-check-run.sh "$folder/run.sh"

for program in "$folder"/gpu-*; do
  foreign="$(readelf -d "$program" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64|ld-linux-aarch64)\.so\.[0-9]+$' || true)"
  [[ -z "$foreign" ]] || fail "$program needs libraries that a bare machine lacks: $foreign: link them statically (loci_link_carried in cmake/LociCuda.cmake)"
  newest="$(objdump -T "$program" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)"
  [[ "$(printf '%s\nGLIBC_2.36\n' "$newest" | sort -V | tail -1)" == GLIBC_2.36 ]] ||
    fail "$program needs $newest, Debian 12 has GLIBC_2.36: build it there"
done
kib="$(du -sk --apparent-size "$folder" | cut -f1)"
[[ "$kib" -le $((limit_mib * 1024)) ]] || fail "$folder has $((kib / 1024)) MiB, at most $limit_mib: leave architectures out (LOCI_CUDA_ARCHITECTURES)"
note "$folder: $((kib / 1024)) MiB; copy it to a machine with a GPU and run ./run.sh there"
