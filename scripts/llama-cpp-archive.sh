# SPDX-License-Identifier: Apache-2.0
# Sourced: where llama.cpp's sources come from, the archive of llama-cpp-python, whose vendor/llama.cpp is
# whole, so that no other host is needed than the package index that pip is configured for.
llama_cpp_version=0.3.36
llama_cpp_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

# fetch_llama_cpp FOLDER: FOLDER/llama_cpp_python-VERSION.tar.gz is there and is that file. Prints what went
# wrong and returns 1 where it is not.
fetch_llama_cpp() {
  local archive=$1/llama_cpp_python-$llama_cpp_version.tar.gz
  if [[ ! -f $archive ]]; then
    echo "downloading the source archive of llama-cpp-python $llama_cpp_version (77 MB)"
    mkdir -p "$1"
    printf 'llama-cpp-python==%s --hash=sha256:%s\n' "$llama_cpp_version" "$llama_cpp_sha256" >"$1/requirements.txt"
    python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes --no-binary llama-cpp-python \
      -d "$1/download" -r "$1/requirements.txt" >"$1/download.log" 2>&1 || {
      echo "the download failed ($(tail -n1 "$1/download.log")): check pip's index and the network, then try again" >&2
      return 1
    }
    mv "$1/download/llama_cpp_python-$llama_cpp_version.tar.gz" "$archive"
  fi
  echo "$llama_cpp_sha256  $archive" | sha256sum --check --status || {
    rm -f "$archive"
    echo "the archive's sha256 is not $llama_cpp_sha256: it was removed, try again" >&2
    return 1
  }
}
