# SPDX-License-Identifier: Apache-2.0
# The kernels of the processor that is compiled for, LOCI_KERNELS, and what tests them, LOCI_KERNEL_TESTS: for
# loci_compute, and for the tests for Arm (cmake/neon-tests).
set(here ${CMAKE_CURRENT_LIST_DIR})
set(LOCI_KERNELS ${here}/kernels_plain.cc ${here}/products_plain.cc ${here}/products_k_plain.cc)
if(LOCI_UPPER_ALONE)
  # Plain code is enough (cmake/LociTargets.cmake).
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # Each file is compiled for its instruction set and called only where the machine has it.
  list(APPEND LOCI_KERNELS ${here}/kernels_avx2.cc ${here}/products_avx2.cc ${here}/products_k_avx2.cc ${here}/kernels_avx512.cc ${here}/products_avx512.cc ${here}/products_k_avx512.cc ${here}/kernels_amx.cc)
  set_source_files_properties(${here}/kernels_avx2.cc ${here}/products_avx2.cc ${here}/products_k_avx2.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(${here}/kernels_avx512.cc ${here}/products_avx512.cc ${here}/products_k_avx512.cc ${here}/kernels_amx.cc PROPERTIES COMPILE_OPTIONS
    # g++ 12 takes its own intrinsics' undefined registers for mistakes (GCC bug 105593).
    "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND LOCI_KERNELS ${here}/kernels_neon.cc ${here}/products_neon.cc ${here}/products_k_neon.cc)
  set_source_files_properties(${here}/kernels_neon.cc ${here}/products_neon.cc ${here}/products_k_neon.cc PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
endif()
# Unrolled plain loops take half a minute to compile and are no faster.
set_source_files_properties(${here}/kernels_plain.cc ${here}/products_plain.cc ${here}/products_k_plain.cc PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")
# What only tests run: 20 s of a processor to compile instead of 33.
set_source_files_properties(${here}/emulated_tiles_testing.cc PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
if(LOCI_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The same bits; where nothing is inlined, calls of fmaf() would be half of all that tests do.
  set_property(SOURCE ${here}/kernels_plain.cc ${here}/products_plain.cc ${here}/products_k_plain.cc ${here}/emulated_tiles_testing.cc APPEND PROPERTY COMPILE_OPTIONS -mfma)
endif()
if("thread" IN_LIST LOCI_SANITIZE)
  # What tests compare with. Which thread does what is the same for all kernels, and is looked at in the others.
  set_property(SOURCE ${here}/kernels_plain.cc ${here}/products_plain.cc ${here}/products_k_plain.cc APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=thread)
endif()

if(LOCI_UPPER_ALONE)
  set_property(SOURCE ${here}/kernels_plain.cc ${here}/products_plain.cc ${here}/products_k_plain.cc APPEND PROPERTY COMPILE_OPTIONS -O1 -fno-sanitize=all)
endif()

set(LOCI_KERNEL_TESTS)
foreach(source attention_test elementwise_test mixture_test emulated_tiles_testing product_test state_test)
  list(APPEND LOCI_KERNEL_TESTS ${here}/${source}.cc)
endforeach()
