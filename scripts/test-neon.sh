#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernel tests for 64-bit Arm and runs them by emulation: NEON's kernels against plain code's bits.
# Says so and ends with status 75 where the tools are missing. Emulated speed says nothing about a real machine's.
source "$(dirname "$0")/common.sh"

compiler="$(command -v aarch64-linux-gnu-g++ || command -v aarch64-linux-gnu-g++-12 || true)"
emulator="$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)"
if [[ -z "$compiler" || -z "$emulator" || ! -d /usr/src/googletest/googletest ]]; then
  echo "The NEON tests need an Arm compiler, its emulator and GoogleTest's source; on Debian: scripts/setup.sh arm"
  exit 75
fi

folder=build/neon
mkdir -p build
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S cmake/neon-tests -B "$folder" -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER="$compiler" "${launcher[@]+"${launcher[@]}"}" > "$folder.log" 2>&1 ||
  { cat "$folder.log" >&2; fail "the NEON tests could not be configured"; }
ninja -C "$folder" --quiet
# Matrices of 40 rows have whole groups of 16 and a part of one, so those of 16 are left out.
"$emulator" -cpu max "$folder/kernel_tests" --gtest_brief=1 --gtest_filter='-*ProductTest.*_16_*' "$@"
