#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cargo.sh CARGO ARGUMENTS...: runs cargo and says how far it is, on the file descriptor $LOCI_PROGRESS where there is one.
# (Ninja shows what a step prints only when the step has ended, so scripts/build.sh hands its own output down.) What else
# cargo prints, errors and warnings, goes to standard output.
set -uo pipefail
progress="${LOCI_PROGRESS:-}"
{ [[ -z "$progress" ]] || : >&"$progress"; } 2>/dev/null || progress=""
# On a terminal a line stands until ninja writes its own over it; elsewhere each line stays.
seconds_between=10
[[ -z "$progress" || ! -t "$progress" ]] || seconds_between=2
done="" now=""  # how many units of how many cargo has compiled, and what it is at

# hear LINE: of cargo's, a state or a message.
hear() {
  local line="$1" escape=$'\e\[[0-9;]*[A-Za-z]'
  while [[ "$line" =~ $escape ]]; do line="${line//"${BASH_REMATCH[0]}"/}"; done
  line="${line%"${line##*[! ]}"}"  # a state is filled up with blanks
  if [[ "$line" =~ ^\ *Building\ \[.*\]\ ([0-9]+/[0-9]+)(:\ (.*))?$ ]]; then done="${BASH_REMATCH[1]}" now="${BASH_REMATCH[3]}"
  elif [[ "$line" =~ ^\ +(Downloading|Updating)\  ]]; then now="downloading"
  elif [[ "$line" =~ ^\ +Blocking\  ]]; then now="waiting for another build, which compiles them"
  elif [[ -n "$line" && ! "$line" =~ ^\ +(Adding|Compiling|Downloaded|Finished|Locking)\  ]]; then printf '%s\n' "$line"
  fi
}

show() {
  local line="[crates: ${done:+$done, }${SECONDS}s] $now"
  if [[ -t "$progress" ]]; then printf '\r\e[K%.79s' "$line" >&"$progress"
  else printf '%s\n' "$line" >&"$progress"; fi
}

follow() {
  local status part line="" shown=-1000
  while true; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+="$part"
    if (( status <= 128 )); then hear "$line"; line=""; fi  # else the second is over, and the rest of the line comes later
    (( status == 0 || status > 128 )) || return 0
    [[ -n "$progress" && -n "$done$now" ]] && (( SECONDS - shown >= seconds_between )) || continue
    show
    shown=$SECONDS
  done
}

# Cargo ends a state with a carriage return. (What it leaves running must not keep the build's output open.)
export CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=200
( [[ -z "$progress" ]] || exec {progress}>&-; exec "$@" ) 2>&1 | stdbuf -oL tr '\r' '\n' | follow
exit "${PIPESTATUS[0]}"
