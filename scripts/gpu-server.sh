#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs build/gpu-server.tar.xz, to be carried to a machine with an NVIDIA GPU: the server with what it links, the
# suites that drive it, and run.sh, which runs them there (scripts/gpu-server-run.sh). Unpacked it is about 60 MB.
source "$(dirname "$0")/common.sh"
folder="build/gpu-server"
scripts/cuda-toolkit.sh
scripts/build.sh release loci loci-random-model
step "Packing $folder.tar.xz"
rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder/lib" "$folder/tests"
cp build/release/loci build/release/loci-random-model "$folder/"
strip "$folder/loci-random-model"
cp tests/*.py "$folder/tests/"
cp pytest.ini "$folder/"
scripts/clients.sh pytest
# What runs the suites, in Python alone; the last two are what pytest needs on Python 3.10.
build/pytest-venv/bin/pip install -q --disable-pip-version-check --target "$folder/python" "$(cat build/pytest-venv/installed)" exceptiongroup tomli
cp scripts/gpu-server-run.sh "$folder/run.sh"
# All but what belongs to the system's own C and C++.
ldd build/release/loci | awk '$3 ~ /^\// {print $3}' | grep -vE '/lib(c|m|gcc_s|stdc\+\+|pthread|dl|rt)\.so' | xargs -I{} cp -L {} "$folder/lib/"
tar -C build -cf - gpu-server | xz -T0 -3 > "$folder.tar.xz"
note "$folder.tar.xz: $(($(stat -c %s "$folder.tar.xz") >> 20)) MiB; unpack it on a machine with a GPU and run gpu-server/run.sh there"
