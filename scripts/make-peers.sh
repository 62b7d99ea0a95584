#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds llama.cpp, the peer that `make bench` and the golden files compare with, once, into build/peers/:
#   avx512/bin, avx2/bin   llama-bench, llama-batched-bench, llama-server and the libraries they load
#   python/llama_cpp       the bindings of the same archive (LLAMA_CPP_LIB_PATH names the libraries)
#   default                a link to the best variant that this machine runs
# AMX stays off: g++ 12 passes only part of the tile configuration to the assembler, and llama.cpp's AMX path
# crashes.
set -euo pipefail
export LC_ALL=C

source "$(dirname "$0")/llama-cpp-archive.sh"
targets=(llama-bench llama-batched-bench llama-server)

root=$(cd "$(dirname "$0")/.." && pwd)
peers=$root/build/peers
jobs=${JOBS:-$(nproc)}
log=$peers/build.log

say() { printf 'peers: %s\n' "$*"; }
die() { printf 'peers: %s\n' "$*" >&2; exit 1; }

check_tools() {
  local missing=()
  command -v python3 >/dev/null || missing+=(python3)
  python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip python3-venv)
  command -v cmake >/dev/null || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  command -v g++ >/dev/null || missing+=(g++)
  if ((${#missing[@]})); then die "programs are missing: run 'apt-get install ${missing[*]}', then 'make peers'"; fi
}

cpu_has() { grep -qw -m1 "$1" /proc/cpuinfo; }

# Prints the cmake flags of a variant; what the processor lacks is off.
variant_flags() {
  local on=(AVX AVX2 FMA F16C BMI2) option
  if [[ $1 == avx512 ]]; then
    on+=(AVX512)
    cpu_has avx512vbmi && on+=(AVX512_VBMI)
    cpu_has avx512_vnni && on+=(AVX512_VNNI)
    cpu_has avx512_bf16 && on+=(AVX512_BF16)
  fi
  for option in AVX AVX2 FMA F16C BMI2 AVX512 AVX512_VBMI AVX512_VNNI AVX512_BF16 AMX_TILE AMX_INT8 AMX_BF16; do
    if [[ " ${on[*]} " == *" $option "* ]]; then printf ' -DGGML_%s=ON' "$option"; else printf ' -DGGML_%s=OFF' "$option"; fi
  done
}

fetch_source() {
  local archive=$peers/llama_cpp_python-$llama_cpp_version.tar.gz
  fetch_llama_cpp "$peers" || die "the sources of llama.cpp are missing: run 'make peers' again"
  say "unpacking"
  rm -rf "$peers/source" "$peers/python"
  mkdir -p "$peers/source" "$peers/python"
  tar -xzf "$archive" -C "$peers/source" --strip-components=1 || die "unpacking failed: is the disk full? (df -h $peers)"
  cp -r "$peers/source/llama_cpp" "$peers/python/"
}

configure() {  # configure VARIANT
  # shellcheck disable=SC2046
  cmake -S "$peers/source/vendor/llama.cpp" -B "$peers/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DGGML_NATIVE=OFF $(variant_flags "$1") \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >>"$log" 2>&1 ||
    die "cmake failed for $1: see $log"
}

compile() {  # compile VARIANT TARGET...
  local variant=$1 stride=1
  shift
  [[ -t 1 ]] || stride=20
  NINJA_STATUS='[%f/%t %es] ' nice -n 10 ninja -C "$peers/$variant" -j "$jobs" "$@" 2>&1 | tee -a "$log" |
    awk -v stride=$stride -v name="$variant" '/^\[/ && (++n % stride == 0) {
      split($0, part, "]"); printf(stride == 1 ? "\rpeers: %s %s]   " : "peers: %s %s]\n", name, part[1]); fflush() }'
  local status=${PIPESTATUS[0]}
  [[ $stride == 1 ]] && printf '\n'
  ((status == 0)) || die "compiling $variant failed: see the end of $log"
}

main() {
  check_tools
  cpu_has avx2 || die "this processor has no AVX2: there is no peer to build for it"
  local variants=(avx2) stamp
  if cpu_has avx512f && cpu_has avx512bw && cpu_has avx512vl && cpu_has avx512dq; then variants=(avx512 avx2); fi
  mkdir -p "$peers"
  stamp="$llama_cpp_sha256 ${targets[*]} $(for v in "${variants[@]}"; do variant_flags "$v"; done) $(g++ -dumpfullversion)"
  if [[ -f $peers/stamp && $(<"$peers/stamp") == "$stamp" ]]; then
    say "up to date: $peers/default/bin"
    return
  fi
  : >"$log"
  rm -f "$peers/stamp"
  fetch_source
  # Only the library ggml-cpu is compiled for an instruction set: the second variant takes everything
  # else from the first.
  local first=${variants[0]} variant
  say "building ${variants[*]} with $jobs jobs (several minutes; log: $log)"
  configure "$first"
  compile "$first" "${targets[@]}"
  for variant in "${variants[@]:1}"; do
    configure "$variant"
    compile "$variant" ggml-cpu
    cp -Pn "$peers/$first/bin/"* "$peers/$variant/bin/"
  done
  ln -sfn "$first" "$peers/default"
  for variant in "${variants[@]}"; do
    "$peers/$variant/bin/llama-bench" --help >/dev/null 2>&1 || die "llama-bench of $variant does not start: see $log"
  done
  printf '%s' "$stamp" >"$peers/stamp"
  say "done: $peers/default/bin"
}

main "$@"
