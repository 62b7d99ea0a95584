#!/usr/bin/env bash
# client-venv.sh: the official clients that tests use (tests/clients.txt), in build/clients.
source "$(dirname "$0")/common.sh"
venv=build/clients
if [[ ! -f "$venv/ready" || tests/clients.txt -nt "$venv/ready" ]]; then
  step "Installing the clients of tests/clients.txt"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --requirement tests/clients.txt
  touch "$venv/ready"
fi
note "$venv: $("$venv/bin/pip" list --format=freeze 2>/dev/null | grep -i -f <(cut -d= -f1 tests/clients.txt) | tr '\n' ' ')"
