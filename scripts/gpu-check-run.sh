#!/bin/sh
# Runs all tests of the CUDA backend on this machine's first GPU, then the benchmarks; both end with
# "N passed, N failed". Arguments go to the benchmarks (--quick, names). Needs an NVIDIA driver of CUDA 13. cuBLASLt's
# library (libcublasLt.so.13) is looked for in LD_LIBRARY_PATH, beside the programs, in Python's packages
# (pip install nvidia-cublas) and in /usr/local/cuda/lib64.
# Exit status: 0 all passed, 1 something failed, 2 there is no GPU.
cd "$(dirname "$0")" || exit 1
echo "== tests"
./gpu-check
tests=$?
[ "$tests" -ne 2 ] || exit 2
echo "== benchmarks"
if [ -x ./gpu-bench ]; then ./gpu-bench "$@"; benchmarks=$?; else echo "none were built"; benchmarks=1; fi
[ "$tests" -eq 0 ] && [ "$benchmarks" -eq 0 ]
