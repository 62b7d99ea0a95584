#!/usr/bin/env bash
# clang-tidy over the sources (configuration: .clang-tidy).
source "$(dirname "$0")/common.sh"
scripts/build.sh release
step "clang-tidy"
git ls-files 'src/*.cc' | grep -v -E '_fuzz\.cc$|_benchmark\.cc$' |
  xargs -P "$(nproc)" -n 4 clang-tidy-19 -p build/release --quiet --warnings-as-errors='*' 2> /dev/null ||
  fail "clang-tidy found the above"
