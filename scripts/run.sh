#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Serves the default model and opens a chat on it; without a terminal it serves in the foreground.
# Arguments go to the server.
source "$(dirname "$0")/common.sh"
if [[ ! -t 0 ]]; then exec build/release/loci serve default "$@"; fi

log="${XDG_STATE_HOME:-$HOME/.local/state}/loci/server.log"
mkdir -p "$(dirname "$log")"
step "Starting the server (log: $log)"
# A session of its own: Ctrl-C in the chat interrupts a reply, not the server.
setsid build/release/loci serve default "$@" > "$log" 2>&1 &
server=$!
stop() { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
trap stop EXIT
# Flags, the environment and a configuration file may all say where it is; its own line says where it came to be.
until url="$(sed -nE '/^ready in |"ready"/s/.*(https?:\/\/[^" ]+).*/\1/p' "$log" | head -1)" && [[ -n "$url" ]]; do
  kill -0 "$server" 2>/dev/null || { tail -3 "$log" >&2; fail "the server did not start: see the lines above"; }
  sleep 0.1
done
if grep -q "open it in a browser" "$log"; then step "Open $url in a browser, or chat here"; fi
build/release/loci chat "$url"
