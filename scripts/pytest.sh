#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pytest.sh ARGUMENT...: pytest of a pinned version (scripts/clients.sh), in the repository's folder; with the official
# clients where a suite is named that uses them, or none at all. scripts/pytest.sh tests/tenants_test.py -k flood -x
source "$(dirname "$0")/common.sh"
group=pytest folder=build/pytest-venv
if [[ " $* " =~ tests/clients|responses_test || ! " $* " =~ _test\.py ]]; then group=python folder=build/clients-venv; fi
scripts/clients.sh "$group"
exec "$folder/bin/python" -m pytest "$@"
