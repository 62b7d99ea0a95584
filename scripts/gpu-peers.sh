#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds llama.cpp with its CUDA backend, for Hopper alone, and packs build/gpu-peers.tar.xz. Carry it with
# build/gpu-server.tar.xz (make gpu-server) to a machine with an NVIDIA GPU and unpack both there: gpu-peers/run.sh
# measures the two servers side by side. Takes an hour on two cores; what is compiled already is kept.
source "$(dirname "$0")/common.sh"
source scripts/llama-cpp-archive.sh
work="$PWD/build/gpu-peers-build" folder="build/gpu-peers"
scripts/cuda-toolkit.sh
mkdir -p "$work"
if [[ ! -d "$work/source/vendor/llama.cpp" ]]; then
  fetch_llama_cpp "$PWD/build/peers" || fail "the sources of llama.cpp are missing: run make gpu-peers again"
  step "Unpacking llama.cpp"
  mkdir -p "$work/source"
  tar -xzf "build/peers/llama_cpp_python-$llama_cpp_version.tar.gz" -C "$work/source" --strip-components=1
fi

# The toolkit as CMake looks for one. Of the libraries that a machine with a GPU has, names suffice here.
toolkit="$(dirname "$(dirname "$(readlink -f build/cuda/13.0/nvidia/cu13/bin/nvcc || command -v nvcc)")")"
rm -rf "$work/toolkit"
cp -rs "$toolkit" "$work/toolkit"
ln -sf libcudart.so.13 "$work/toolkit/lib/libcudart.so"
mkdir -p "$work/toolkit/lib/stubs"
for name in cublas.so.13 cublasLt.so.13 stubs/cuda.so.1; do
  library="$work/toolkit/lib/$(dirname "$name")/lib$(basename "${name%.*}")"
  gcc -shared -Wl,-soname,"lib$(basename "$name")" -o "$library" -x c /dev/null
done

step "Compiling llama.cpp for GPUs (log: build/gpu-peers-build/build.log)"
cmake -S "$work/source/vendor/llama.cpp" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
  -DGGML_NATIVE=OFF -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DCMAKE_CUDA_ARCHITECTURES=90 \
  -DCMAKE_CUDA_COMPILER="$work/toolkit/bin/nvcc" -DCUDAToolkit_ROOT="$work/toolkit" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--no-as-needed \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
  -DLLAMA_OPENSSL=OFF > "$work/build.log" 2>&1 || fail "cmake failed: see $work/build.log"
nice ninja -C "$work/build" llama-server >> "$work/build.log" 2>&1 || fail "compiling failed: see the end of $work/build.log"

step "Packing $folder.tar.xz"
rm -rf "$folder"
mkdir -p "$folder"
cp -L "$work"/build/bin/lib*.so.0 "$work"/build/bin/libllama-*impl.so "$work"/build/bin/llama-server "$work/toolkit/lib/libcudart.so.13" "$folder/"
strip "$folder"/lib*.so.0 "$folder"/llama-*
cp scripts/gpu-peers-run.sh "$folder/run.sh"
tar -C build -cf - gpu-peers | xz -T0 -3 > "$folder.tar.xz"
note "$folder.tar.xz: $(($(stat -c %s "$folder.tar.xz") >> 20)) MiB"
