#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up what compiles CUDA code, nvcc of CUDA 13.0 with the headers and the static runtime, in build/cuda/13.0
# out of pinned Python packages; nothing is installed elsewhere. Does nothing where it is there, or where the
# machine has a CUDA 13 of its own ($CUDACXX, PATH, /usr/local/cuda).
#
# cuBLAS is loaded at run time, so its 0.5 GB of libraries are kept only where there is an NVIDIA driver to use
# them (LOCI_CUDA_LIBRARIES=yes|no decides otherwise); its headers always.
#
# Exit status: 0 there is a toolkit; 75 the packages cannot be fetched (try again later); 1 anything else.
source "$(dirname "$0")/common.sh"
packages=(
  # name and version; SHA-256 for x86_64, for aarch64
  nvidia-cuda-nvcc==13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03 c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f
  nvidia-nvvm==13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0 c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1
  nvidia-cuda-crt==13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4 ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003
  nvidia-cuda-cccl==13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649 6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c
  nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
  nvidia-cublas==13.0.2.14 0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c 17165c296de689662b96e0ef4f21dfbff3092ff00d0e3e59470f5acb08c0f87d
)
folder="build/cuda/13.0"
libraries="${LOCI_CUDA_LIBRARIES:-$([[ -e /dev/nvidiactl ]] && echo yes || echo no)}"
stamp="${packages[*]} libraries=$libraries"

is_cuda_13() { [[ -x "$1" ]] && "$1" --version 2>/dev/null | grep -q 'release 13\.'; }
# The machine's own, with the header that products need.
for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  [[ -n "$nvcc" ]] && is_cuda_13 "$nvcc" && [[ -f "$(dirname "$(readlink -f "$nvcc")")/../include/cublasLt.h" ]] && exit 0
done
[[ "$(cat "$folder/installed" 2>/dev/null)" != "$stamp" ]] || exit 0

python3 -m pip --version >/dev/null 2>&1 || fail "pip is missing, which fetches the CUDA toolkit: run make setup, then make cuda-toolkit"
step "Fetching the CUDA 13.0 toolkit (525 MB; $([[ "$libraries" == yes ]] && echo 870 || echo 272) MB unpacked) into $folder"
mkdir -p build/cuda
work="$(mktemp -d build/cuda/.fetch.XXXXXX)"
trap 'rm -rf "$work"' EXIT
quiet=(-q); [[ ! -t 1 ]] || quiet=()  # on a terminal pip shows how far it is
for ((i = 0; i < ${#packages[@]}; i += 3)); do
  note "$((i / 3 + 1)) of $((${#packages[@]} / 3)): ${packages[i]}"
  echo "${packages[i]} --hash=sha256:${packages[i + 1]} --hash=sha256:${packages[i + 2]}" > "$work/requirements.txt"
  if ! python3 -m pip download "${quiet[@]+"${quiet[@]}"}" --no-deps --require-hashes --only-binary=:all: \
      --disable-pip-version-check -d "$work" -r "$work/requirements.txt" 2> "$work/errors"; then
    tail -3 "$work/errors" >&2
    if grep -q 'DO NOT MATCH THE HASHES' "$work/errors"; then
      fail "a package of the CUDA toolkit is not what was expected (its SHA-256 differs): delete pip's cache and run make cuda-toolkit"
    fi
    echo "loci: the CUDA toolkit could not be fetched: check the network and pip's configuration, then run make cuda-toolkit" >&2
    exit 75
  fi
done
python3 - "$work" "$libraries" <<'PYTHON' || fail "the CUDA toolkit could not be unpacked: look for space on the disk, then run make cuda-toolkit"
import glob, os, sys, zipfile
work, libraries = sys.argv[1:]
for wheel in sorted(glob.glob(work + "/*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if "nvidia_cublas" in wheel and libraries == "no" and "/lib/" in member.filename:
                continue
            path = archive.extract(member, work + "/toolkit")
            mode = member.external_attr >> 16 & 0o777
            if mode and not member.is_dir():
                os.chmod(path, mode)
    os.remove(wheel)
os.symlink("lib", work + "/toolkit/nvidia/cu13/lib64")  # where nvcc looks for the runtime
PYTHON
is_cuda_13 "$work/toolkit/nvidia/cu13/bin/nvcc" || fail "the CUDA toolkit that was fetched does not run on this machine: install CUDA 13 by yourself, so that nvcc is on the path"
echo "$stamp" > "$work/toolkit/installed"
rm -rf "$folder"
mv "$work/toolkit" "$folder"
note "$folder/nvidia/cu13/bin/nvcc ($("$folder/nvidia/cu13/bin/nvcc" --version | sed -nE 's/.*(release [0-9.]+).*/\1/p'))"
