#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches llama.cpp's vocabularies with their test cases into FOLDER, for the test
# Tokenizer.ConformsOnLlamaCppVocabularies:
#   tests/golden/fetch_vocabularies.sh build/vocabularies
#   LOCI_VOCABULARIES=$PWD/build/vocabularies ctest --test-dir build/release -R text_test
set -euo pipefail
folder=${1:?usage: fetch_vocabularies.sh FOLDER}
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/llama-cpp-archive.sh"
rm -rf "$folder.new"
mkdir -p "$folder.new"  # a folder of that name is whole
fetch_llama_cpp "$root/build/peers"
tar -xzf "$root/build/peers/llama_cpp_python-$llama_cpp_version.tar.gz" -C "$folder.new" --strip-components=4 \
  --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*'
rm -rf "$folder"
mv "$folder.new" "$folder"
echo "$(ls "$folder"/*.gguf | wc -l) vocabularies in $folder"
