#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over the sources (configuration: .clang-tidy), read as clang compiles them: so it also finds what is
# touched without the mutex that guards it (base/mutex.h), in every source that it reads.
source "$(dirname "$0")/common.sh"
command -v clang-tidy-19 > /dev/null || fail "clang-tidy-19 is missing: run scripts/setup.sh lint fuzz"
scripts/build.sh release
# With each source's command. (g++'s has options that are errors to clang.)
cmake --fresh --preset release -B build/tidy -DCMAKE_UNITY_BUILD=OFF -DCMAKE_C_COMPILER=clang-19 \
  -DCMAKE_CXX_COMPILER=clang++-19 > /dev/null || fail "cmake failed: run cmake --preset release"
step "clang-tidy"
# Without a CUDA toolkit some sources are no part of the build.
git ls-files 'src/*.cc' | grep -v -E '_fuzz\.cc$|_benchmark\.cc$' |
  while read -r source; do ! grep -q "/$source\"" build/tidy/compile_commands.json || echo "$source"; done |
  xargs -P "$(nproc)" -n 4 clang-tidy-19 -p build/tidy --quiet --warnings-as-errors='*' 2> /dev/null ||
  fail "clang-tidy found the above"
