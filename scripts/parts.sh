# SPDX-License-Identifier: Apache-2.0
# Sourced by test.sh: runs parts, each with a budget of time, one after another or side by side, and prints a table.
#
#   part SECONDS NAME COMMAND...     runs COMMAND, and leaves `part_status`. 75: it cannot be done here, as it has said; 76: it
#                                    is put off, as the time is up
#   beside SECONDS NAME COMMAND...   the same among others, LOCI_BESIDE (4) at a time; what it says is in a file, and
#                                    shown when it fails
#   beside_done                      waits for those
#   behind SECONDS NAME COMMAND...   the same with what of the processors all others leave, and not counted among them;
#                                    one at a time, and started where the machine has done what needs all of it
#   behind_done                      waits for it
#   suite ARGUMENT...                pytest of these arguments, its cases counted in the table (scripts/pytest.sh)
#   ctests PRESET ARGUMENT...        ctest of that build with these arguments, its cases counted too
#   ground_stamp NAME GROUND         prints the file that is there where NAME has passed with the files of GROUND (paths,
#                                    apart by blanks) as they stand
#   judge INDEX                      sets `verdict` of a part that has ended: passed, failed, skipped, postponed
#   fits SECONDS                     whether a part of that budget that takes half as long again, which it may, ends before
#                                    $LOCI_DEADLINE, if there is one
#   parts_done                       the table; fails where a part failed
#
# A part fails, too, when it takes more than one and a half times its budget, which is what it takes on two cores with
# nothing compiled before. Time that other programs had the processors for is not counted, so that a busy machine fails
# no part. LOCI_BUDGETS=2 doubles all budgets, LOCI_BUDGETS=off ignores them.
# One that hangs is ended: its processes are killed after three budgets and a minute, of time counted in the same way, and
# after four times as long whatever others took. Budgets that are ignored end nothing.
# LOCI_DEADLINE (seconds of the epoch): when whoever started this run gives it up.
# LOCI_PARTS chooses parts by a regular expression of their names; others are left out and listed nowhere.
export -n LOCI_PARTS LOCI_BUDGETS LOCI_BESIDE LOCI_DEADLINE  # servers that parts start would warn of options that they do not know
part_names=() part_budgets=() part_folder="$PWD/build/parts/$$"  # a run's own: two may go on at the same time
rm -rf "$part_folder"
mkdir -p "$part_folder"
cores="$(nproc)"
# Processes behind and beside ignore Ctrl-C by themselves, and servers in sessions of their own hear nothing of it.
trap 'trap - INT TERM; end_all' INT TERM
clock_ticks="$(getconf CLK_TCK)"

# Hundredths of a second that the processors were busy since the machine started, idle and waiting left out.
busy_centiseconds() {
  local _ user nice system idle wait irq softirq steal rest
  read -r _ user nice system idle wait irq softirq steal rest < /proc/stat
  echo $(((user + nice + system + irq + softirq + steal) * 100 / clock_ticks))
}
# What `times` says of a shell's children, in a file, as hundredths of a second.
own_centiseconds() {
  tail -1 "$1" | sed -E 's/([0-9]+)m([0-9]+)[.,]([0-9]{2})[0-9]*s/\1 \2 \3/g' |
    { read -r m1 s1 c1 m2 s2 c2; echo $(((m1 + m2) * 6000 + (10#$s1 + 10#$s2) * 100 + 10#$c1 + 10#$c2)); }
}

# others_seconds BUSY OWN: what others had of each processor, where since then it was busy for all but BUSY and we had OWN.
others_seconds() {
  local others=0
  # Where /proc/stat tells of other processors than ours, nothing is known of others.
  [[ "$(grep -c '^cpu[0-9]' /proc/stat)" != "$cores" ]] || others=$((($(busy_centiseconds) - $1 - $2) / 100 / cores))
  echo $((others < 0 ? 0 : others))
}

# Where the cases of a part's next suite go, as JUnit writes them. A part may have several.
cases_file() { local n=0; while [[ -e "$part_cases.$n.xml" ]]; do n=$((n + 1)); done; echo "$part_cases.$n.xml"; }
suite() { scripts/pytest.sh -q --junit-xml="$(cases_file)" "$@"; }
# Each GoogleTest program writes its own cases into a folder beside the file of ctest's.
# A -j among the arguments replaces the number of processors.
ctests() {
  local file; file="$(cases_file)"
  GTEST_OUTPUT="xml:${file%.xml}.programs/" ctest --test-dir "build/$1" -j "$cores" "${@:2}" --output-on-failure --no-tests=error --output-junit "$file"
}

# run_part INDEX COMMAND...: in a subshell; leaves "STATUS SECONDS FAIR OWN": seconds as the clock says, less those that
# others took, and those of its own processors. STATUS 124: it hung.
run_part() {
  local index="$1" begin="$SECONDS" busy status=0 own=0 others=0 seconds watcher part_cases="$part_folder/$1"; shift
  busy="$(busy_centiseconds)"
  watch "$index" "$BASHPID" "$busy" &
  watcher=$!
  export PART_OF_RUN="$part_folder/$index"  # by which its processes are found
  ("$@") || status=$?
  [[ -e "$part_folder/$index.hung" ]] || kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  [[ ! -e "$part_folder/$index.hung" ]] || status=124
  seconds=$((SECONDS - begin))
  times > "$part_folder/$index.times"  # no command in a subshell: that would have times of its own
  own="$(own_centiseconds "$part_folder/$index.times")"
  others="$(others_seconds "$busy" "$own")"
  [[ "$others" -le "$seconds" ]] || others="$seconds"
  echo "$status $seconds $((seconds - others)) $((own / 100))" > "$part_folder/$index"
}

# part_processes INDEX TOP WATCHER KNOWN...: "PROCESS TICKS STATE KNOWN" of all that the part has started: what is below
# TOP, what has its mark, as servers in a session of their own have, what is below those, whose environments can be
# others, and what was KNOWN earlier, whose parents may have ended since. TICKS: of the processors, its ended children's
# included. An empty INDEX: of all parts, as marked.
part_processes() {
  local mark=(-lzxF)
  [[ -n "$1" ]] || mark=(-lzF)
  {
    grep "${mark[@]}" -- "PART_OF_RUN=$part_folder/$1" /proc/[0-9]*/environ | sed -E 's|/proc/([0-9]+)/.*|marked \1|' || true
    [[ "$#" -le 3 ]] || printf 'known %s\n' "${@:4}"
    cat /proc/[0-9]*/stat || true  # some end meanwhile
  } 2>/dev/null | awk -v top="$2" -v watcher="$3" '
    $1 == "marked" { marked[$2]; next }
    $1 == "known" { known[$2]; next }
    {
      process = $1; sub(/^.*\) /, ""); state[process] = $1; parent[process] = $2
      ticks[process] = $12 + $13 + $14 + $15; name[process] = process ":" $20
      if (name[process] in known) marked[process]
    }
    END {
      for (process in parent) {
        for (p = process; p in parent && p != top && p != watcher && !(p in marked); p = parent[p]);
        if (p != watcher && process != top && (p == top || p in marked)) print process, ticks[process], state[process], name[process]
      }
    }'
}

# end_all: asks everything in the run to end, the run too.
end_all() {
  local processes
  mapfile -t processes < <(part_processes "" "" "" | cut -d' ' -f1)
  if [[ "${#processes[@]}" != 0 ]]; then
    kill -TERM "${processes[@]}" 2>/dev/null || true
    kill -CONT "${processes[@]}" 2>/dev/null || true  # one that is stopped hears nothing else
  fi
  kill -TERM 0
}

# cap BUDGET: after how many seconds a part hangs; nothing where budgets are ignored.
cap() { [[ "${LOCI_BUDGETS:-1}" == off ]] || awk -v budget="$1" -v scale="${LOCI_BUDGETS:-1}" 'BEGIN { printf "%d\n", (3 * budget + 60) * scale }'; }

# watch INDEX TOP BUSY: ends the part, whose processes are below TOP, where it hangs.
watch() {
  local most begin="$SECONDS" seconds own
  most="$(cap "${part_budgets[$1]}")"
  while kill -0 "$2" 2>/dev/null && sleep 1 > /dev/null 2>&1; do
    seconds=$((SECONDS - begin))
    [[ -n "$most" && "$seconds" -gt "$most" ]] || continue
    own="$(part_processes "$1" "$2" "$BASHPID" | awk -v ticks="$clock_ticks" '{ sum += $2 } END { printf "%d", sum * 100 / ticks }')"
    [[ "$seconds" -gt $((4 * most)) || $((seconds - $(others_seconds "$3" "$own"))) -gt "$most" ]] || continue
    end_hung "$1" "$2" "$BASHPID"
    return
  done
}

# end_hung INDEX TOP WATCHER: says what runs in the part, and where in it pytest is; asks it to end, then makes it.
end_hung() {
  local process command processes=() known=() signal
  touch "$part_folder/$1.hung"
  note "${part_names[$1]}: it hangs, and is ended. What runs in it:"
  while read -r process _; do
    command="$(tr '\0' ' ' 2>/dev/null < "/proc/$process/cmdline" | cut -c1-300)" || continue
    note "  $process $command"
    [[ "$command" != *" -m pytest "* ]] || kill -ABRT "$process" 2>/dev/null || true
  done < <(part_processes "$1" "$2" "$3")
  for signal in 0 TERM TERM TERM TERM TERM KILL KILL; do
    know_processes "$@"
    [[ "${#processes[@]}" != 0 ]] || return 0
    kill "-$signal" "${processes[@]}" 2>/dev/null || true
    [[ "$signal" != TERM ]] || kill -CONT "${processes[@]}" 2>/dev/null || true  # one that is stopped hears nothing else
    sleep 1
  done
  know_processes "$@"
  [[ "${#processes[@]}" == 0 ]] || note "${part_names[$1]}: these were killed, and have not ended: ${processes[*]}"
}

# know_processes INDEX TOP WATCHER: sets `processes` to what runs in the part, and adds it to `known`.
know_processes() {
  local found
  found="$(part_processes "$@" "${known[@]+"${known[@]}"}" | awk '$3 != "Z"')"
  mapfile -t processes < <(awk '{ print $1 }' <<< "$found" | grep . || true)
  mapfile -t known < <(awk '{ print $4 }' <<< "$found" | grep . || true)
}

# over_budget FAIR BUDGET: by more than half.
over_budget() {
  [[ "${LOCI_BUDGETS:-1}" != off ]] && awk -v fair="$1" -v budget="$2" -v scale="${LOCI_BUDGETS:-1}" 'BEGIN { exit !(fair > 1.5 * budget * scale) }'
}

fits() { [[ -z "${LOCI_DEADLINE:-}" || $(($(date +%s) + $1 * 3 / 2)) -le "${LOCI_DEADLINE:-0}" ]]; }

# Sets `index` to the part's, or fails where it was not chosen.
new_part() {
  [[ "$2" =~ ${LOCI_PARTS:-} ]] || return 1
  index="${#part_names[@]}"
  part_names+=("$2") part_budgets+=("$1")
}

tell_part() {
  local index="$1" status seconds fair own
  read -r status seconds fair own < "$part_folder/$index"
  case "$status" in
    0) note "${part_names[index]}: passed in $seconds s" ;;
    75) note "${part_names[index]}: SKIPPED" ;;
    76) note "${part_names[index]}: PUT OFF, as too little time is left" ;;
    124) note "${part_names[index]}: HUNG, and ended after $seconds s" ;;
    *) note "${part_names[index]}: FAILED after $seconds s" ;;
  esac
}

part_status=0
part() {
  local index _
  part_status=0
  new_part "$1" "$2" || return 0
  step "$2"
  (run_part "$index" "${@:3}")  # the command's failure is in the file; one of our own ends the run
  read -r part_status _ < "$part_folder/$index"
  tell_part "$index"
}

# run_quietly INDEX NAME COMMAND...: what it says is in a file, and shown when it fails.
run_quietly() {
  local index="$1"
  run_part "$index" "${@:3}" > "$part_folder/$index.log" 2>&1
  if [[ "$(cut -d' ' -f1 "$part_folder/$index")" == 0 ]]; then tail -1 "$part_folder/$index.log"
  else step "What \"$2\" said"; cat "$part_folder/$index.log"; fi
  tell_part "$index"
}

beside_running=()  # processes
beside() {
  local index ended process left=()
  new_part "$1" "$2" || return 0
  if [[ "${#beside_running[@]}" -ge "${LOCI_BESIDE:-4}" ]]; then
    wait -n -p ended "${beside_running[@]}" || true
    for process in "${beside_running[@]}"; do [[ "$process" == "$ended" ]] || left+=("$process"); done
    beside_running=("${left[@]+"${left[@]}"}")
  fi
  step "$2 (beside others)"
  run_quietly "$index" "${@:2}" &
  beside_running+=($!)
}
beside_done() { [[ "${#beside_running[@]}" == 0 ]] || wait "${beside_running[@]}" || true; beside_running=(); }

behind_running=""
behind() {
  local index
  new_part "$1" "$2" || return 0
  step "$2 (behind others)"
  { renice -n 19 -p "$BASHPID" > /dev/null; run_quietly "$index" "${@:2}"; } &
  behind_running=$!
}
behind_done() { [[ -z "$behind_running" ]] || wait "$behind_running" || true; behind_running=""; }

ground_stamp() {
  local name="${1//[^a-zA-Z0-9]/-}" ground hash
  read -ra ground <<< "$2"
  hash="$(git ls-files -co --exclude-standard -z -- "${ground[@]}" | sort -z | xargs -0 sha256sum -- | sha256sum | cut -c1-32)"
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/loci/passed/$name-$hash"
}

# Sets `cases`, `cases_failed` and `cases_skipped` of a part; nothing where it has no suite that counts them.
count_cases() {
  local files=("$part_folder/$1".*.xml)
  cases="" cases_failed="" cases_skipped=""
  [[ -e "${files[0]}" ]] || return 0
  scripts/cases.py "${files[@]}" > "$part_folder/$1.cases" && read -r cases cases_failed cases_skipped < "$part_folder/$1.cases"
}

# What the table says of a part: `verdict`, `result`, `seconds`, and what count_cases sets.
judge() {
  local status=1 fair=0 own=0
  seconds=0
  [[ ! -f "$part_folder/$1" ]] || read -r status seconds fair own < "$part_folder/$1"
  count_cases "$1" || status=1
  if [[ "$status" == 75 ]]; then verdict=skipped result="skipped: it could not run here"
  elif [[ "$status" == 76 ]]; then verdict=postponed result="PUT OFF: the next run has it"
  elif [[ "$status" == 124 ]]; then verdict=failed result="FAILED: it hung, and was ended"
  elif [[ "$status" != 0 ]]; then verdict=failed result="FAILED"
  elif over_budget "$fair" "${part_budgets[$1]}"; then
    verdict=failed result="FAILED: $fair s without what others took, more than 1.5 times the budget"
  elif [[ "$cases" == 0 ]]; then verdict=skipped result="skipped: none of its cases could run here"
  else
    verdict=passed result=passed
    [[ "${cases_skipped:-0}" == 0 ]] || result="passed, but for the skipped cases"
  fi
}

parts_done() {
  local index passed=0 failed=0 skipped=0 postponed=0 skips=0 verdict result seconds cases cases_failed cases_skipped
  local row='%-66s %7s %7s %7s %7s %7s  %s\n'
  echo
  # shellcheck disable=SC2059
  printf "$row" part seconds budget passed failed skipped result
  for index in "${!part_names[@]}"; do
    judge "$index"
    case "$verdict" in
      passed) passed=$((passed + 1)) ;;
      failed) failed=$((failed + 1)) ;;
      skipped) skipped=$((skipped + 1)) ;;
      postponed) postponed=$((postponed + 1)) ;;
    esac
    # shellcheck disable=SC2059
    printf "$row" "${part_names[index]}" "$seconds" "${part_budgets[index]}" "$cases" "$cases_failed" "$cases_skipped" "$result"
    if [[ "${cases_skipped:-0}" != 0 ]]; then
      skips=$((skips + cases_skipped))
      tail -n +2 "$part_folder/$index.cases" | sed 's/^/    skipped: /'
    fi
  done
  # shellcheck disable=SC2059
  printf "$row" all "$SECONDS" "" "" "" "" ""
  echo "$passed passed, $failed failed, $skipped skipped$([[ "$postponed" == 0 ]] || echo ", $postponed put off")$([[ "$skips" == 0 ]] || echo "; cases that were skipped: $skips")"
  [[ "$failed" == 0 ]] || { note "what each said: $part_folder"; return 1; }
  rm -rf "$part_folder"
  [[ "$((passed + skipped + postponed))" -gt 0 ]] || fail "no part was run: look for the name that LOCI_PARTS=\"${LOCI_PARTS:-}\" means in docs/testing.md"
}
