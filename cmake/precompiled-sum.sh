#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# precompiled-sum.sh OUT ROOT COMPILER FLAGS...: writes a hash of what the compiler reads with these flags, and of the
# flags, to OUT; the same in every clone, whose path is ROOT.
set -euo pipefail
out="$1" root="$2"; shift 2
{ "$@" -E -dD -P -o -; "$1" --version; printf '%s\n' "${@//"$root"/}"; } | sha256sum > "$out"
