#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PRESET [TARGET ...]: configures where it must and builds.
source "$(dirname "$0")/common.sh"
preset="$1"; shift
step "Building ($preset)"
# Two parts of a run may build in one folder: the second one waits.
mkdir -p build
exec 9> "build/$preset.lock"
flock --nonblock 9 || { note "another build of $preset goes on: this one waits for it"; flock 9; }
# Again where presets have changed, a CUDA toolkit has come since, or other GPUs are meant ($LOCI_CUDA_ARCHITECTURES; all that are supported
# where it is empty).
architectures="${LOCI_CUDA_ARCHITECTURES:-80;89;90a}"
configured="$(sed -nE 's/^LOCI_CUDA_ARCHITECTURES:[A-Z]+=//p' "build/$preset/CMakeCache.txt" 2>/dev/null || true)"
if [[ ! -f "build/$preset/build.ninja" || CMakePresets.json -nt "build/$preset/build.ninja" || build/cuda/13.0/installed -nt "build/$preset/build.ninja" || "$configured" != "$architectures" ]]; then
  cmake --preset "$preset" -DLOCI_CUDA_ARCHITECTURES="$architectures" > "/tmp/loci-cmake-$$.log" 2>&1 9>&- ||
    { tail -20 "/tmp/loci-cmake-$$.log" >&2; fail "cmake failed (log: /tmp/loci-cmake-$$.log): mend what the error above names, then again"; }
fi
# How far it is, and for how long it has been at it: one line that changes on a terminal, a line for each step elsewhere.
# Crates are one step of minutes: cmake/cargo.sh says there how many of them are done.
exec 8>&1
NINJA_STATUS="[%f/%t, %es] " LOCI_PROGRESS=8 ninja -C "build/$preset" "$@" 9>&- || fail "the build failed: the first error is above"
