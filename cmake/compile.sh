#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compile.sh ROOT CCACHE COMPILER ARGUMENTS...: compiles by way of ccache for the clone ROOT, such that what one clone
# compiled serves every other one (docs/decisions/builds.md says what each line saves).
set -euo pipefail
root="$1" ccache="$2"; shift 2
arguments=("$@")
# CMake writes a unity that includes each source by its whole path. ccache gets one that includes them from ROOT.
source="${arguments[-1]}"
if [[ "$source" == */Unity/unity_*_cxx.cxx ]]; then
  united="${source%.cxx}.cc"
  text="$(< "$source")"
  printf '%s\n' "${text//"#include \"$root/"/'#include "'}" > "$united"
  arguments[-1]="$united"
  arguments+=("-I$root")
fi
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=locale,pch_defines,time_macros
# ccache compares, instead of a precompiled header, what cmake/LociPrecompiled.cmake says of it.
export CCACHE_PCH_EXTSUM=1
# ccache reads from the compiler's list which headers an object needs. By default it runs the preprocessor first.
export CCACHE_DEPEND=1
# Compilers are faster with the server's allocator.
allocator="/usr/lib/$HOSTTYPE-linux-gnu/libjemalloc.so.2"
[[ ! -e "$allocator" ]] || export LD_PRELOAD="$allocator"
exec "$ccache" "${arguments[@]}"
