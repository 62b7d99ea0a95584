#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where clang-format would change a line.
source "$(dirname "$0")/common.sh"
command -v clang-format-19 > /dev/null || fail "clang-format-19 is missing: run scripts/setup.sh lint"
said="$(git ls-files '*.h' '*.cc' '*.inl' '*.cu' '*.cuh' | xargs clang-format-19 --dry-run --Werror 2>&1)" ||
  { head -20 <<< "$said" >&2; fail "formatting differs: run make format"; }
