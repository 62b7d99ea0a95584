#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the chat templates of published models, as llama.cpp's tests keep them, into FOLDER, for the test
# Templates.* (prepare_tools_test):
#   tests/golden/fetch_templates.sh build/templates
#   LOCI_TEMPLATES=$PWD/build/templates ctest --test-dir build/release -R prepare_test
set -euo pipefail
folder=${1:?usage: fetch_templates.sh FOLDER}
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/llama-cpp-archive.sh"
rm -rf "$folder.new"
mkdir -p "$folder.new"  # a folder of that name is whole
fetch_llama_cpp "$root/build/peers"
tar -xzf "$root/build/peers/llama_cpp_python-$llama_cpp_version.tar.gz" -C "$folder.new" --strip-components=5 \
  --wildcards '*/vendor/llama.cpp/models/templates/*.jinja'
rm -rf "$folder"
mv "$folder.new" "$folder"
echo "$(ls "$folder"/*.jinja | wc -l) templates in $folder"
