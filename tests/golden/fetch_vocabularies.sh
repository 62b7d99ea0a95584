#!/bin/sh
# Fetches llama.cpp's vocabularies with their test cases into FOLDER, for the test
# Tokenizer.ConformsOnLlamaCppVocabularies:
#   tests/golden/fetch_vocabularies.sh build/vocabularies
#   LOCI_VOCABULARIES=$PWD/build/vocabularies ctest --test-dir build/release -R text_test
set -eu
folder=${1:?usage: fetch_vocabularies.sh FOLDER}
package=llama-cpp-python
version=0.3.36
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-binary :all: --no-deps --dest "$work" "$package==$version"
tar -xzf "$work"/llama_cpp_python-"$version".tar.gz -C "$work" --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*'
mv "$work"/llama_cpp_python-"$version"/vendor/llama.cpp/models/ggml-vocab-* "$folder"/
echo "$(ls "$folder"/*.gguf | wc -l) vocabularies in $folder"
