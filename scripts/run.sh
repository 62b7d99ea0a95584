#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Serves the default model and opens a chat on it; without a terminal it serves in the foreground.
# Arguments go to the server.
source "$(dirname "$0")/common.sh"
if [[ ! -t 0 ]]; then exec build/release/loci serve default "$@"; fi

host=127.0.0.1 port=8080
arguments=("$@")
for ((i = 0; i < ${#arguments[@]}; ++i)); do
  case "${arguments[i]}" in
    --port) port="${arguments[i + 1]:-}" ;;
    --port=*) port="${arguments[i]#*=}" ;;
    --host) host="${arguments[i + 1]:-}" ;;
    --host=*) host="${arguments[i]#*=}" ;;
  esac
done
[[ "$host" != 0.0.0.0 ]] || host=127.0.0.1
log="${XDG_STATE_HOME:-$HOME/.local/state}/loci/server.log"
mkdir -p "$(dirname "$log")"
step "Starting the server (log: $log)"
# A session of its own: Ctrl-C in the chat interrupts a reply, not the server.
setsid build/release/loci serve default "$@" > "$log" 2>&1 &
server=$!
stop() { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
trap stop EXIT
sleep 0.2
kill -0 "$server" 2>/dev/null || { tail -3 "$log" >&2; fail "the server did not start: see the lines above"; }
build/release/loci chat "http://$host:$port"
