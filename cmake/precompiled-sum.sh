#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# precompiled-sum.sh OUT ROOT COMPILER FLAGS...: writes a hash to OUT. It covers the flags and all text that the
# compiler reads with them. ROOT is the clone's path: it is left out, so all clones have the same hash.
set -euo pipefail
out="$1" root="$2"; shift 2
{ "$@" -E -dD -P -o -; "$1" --version; printf '%s\n' "${@//"$root"/}"; } | sha256sum > "$out"
