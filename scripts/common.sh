# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: where things are, and how they speak.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -t 1 ]]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold="" dim="" plain=""; fi
step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
note() { printf '%s    %s%s\n' "$dim" "$*" "$plain"; }
# One line: what failed and what to do.
fail() { printf 'loci: %s\n' "$*" >&2; exit 1; }

default_model="${XDG_CACHE_HOME:-$HOME/.cache}/loci/models/SmolLM2-135M-Instruct.Q4_1.gguf"
