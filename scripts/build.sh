#!/usr/bin/env bash
# build.sh PRESET [TARGET ...]: configures where it must and builds.
source "$(dirname "$0")/common.sh"
preset="$1"; shift
step "Building ($preset)"
# Again where a CUDA toolkit has come since.
if [[ ! -f "build/$preset/build.ninja" || build/cuda/13.0/installed -nt "build/$preset/build.ninja" ]]; then
  cmake --preset "$preset" > "/tmp/loci-cmake-$$.log" 2>&1 ||
    { tail -20 "/tmp/loci-cmake-$$.log" >&2; fail "cmake failed (log: /tmp/loci-cmake-$$.log): run make setup, then again"; }
fi
ninja -C "build/$preset" "$@" || fail "the build failed: the first error is above"
