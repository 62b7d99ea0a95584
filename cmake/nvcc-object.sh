#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nvcc-object.sh OBJECT COMMAND...: runs a compilation by nvcc; what ptxas says of each kernel goes to
# OBJECT.ptxas, everything else that it says is shown.
set -uo pipefail
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR
CCACHE_BASEDIR="$(cd "$(dirname "$0")/.." && pwd)"
object="$1"; shift
"$@" > "$object.said" 2>&1
status=$?
ptxas='^ptxas info |^ +[0-9]+ bytes stack frame'
grep -E "$ptxas" "$object.said" > "$object.ptxas"
grep -vE "$ptxas" "$object.said" >&2
rm -f "$object.said"
exit "$status"
