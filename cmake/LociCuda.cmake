# SPDX-License-Identifier: Apache-2.0
# CUDA code: where its compiler is, and what is made of kernels (*.cu). Each kernel's source is compiled twice:
# by nvcc for GPUs (loci_cuda), and by the C++ compiler for the simulated device, which tests run on
# (loci_cuda_simulated).
#
# nvcc is called by commands of our own, not as a language of CMake's: CMake 3.25 knows no CUDA 13, and would
# compile a source in one language only.

set(LOCI_CUDA AUTO CACHE STRING "CUDA backend: ON, OFF, or AUTO (where there is a CUDA 13 toolkit: make cuda-toolkit)")
set_property(CACHE LOCI_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LOCI_CUDA_ARCHITECTURES "80;89;90a" CACHE STRING "GPUs that kernels are compiled for: Ampere 80, Ada 89, Hopper 90a")

# LOCI_NVCC: nvcc of CUDA 13, or empty. Looked for anew at each configuration.
function(loci_find_nvcc)
  set(LOCI_NVCC "" PARENT_SCOPE)
  if(LOCI_CUDA STREQUAL "OFF")
    return()
  endif()
  find_program(nvcc_of_path nvcc NO_CACHE)
  foreach(candidate "$ENV{CUDACXX}" "${nvcc_of_path}" "${CMAKE_SOURCE_DIR}/build/cuda/13.0/nvidia/cu13/bin/nvcc" /usr/local/cuda/bin/nvcc)
    if(EXISTS "${candidate}")
      execute_process(COMMAND "${candidate}" --version OUTPUT_VARIABLE version ERROR_QUIET)
      file(REAL_PATH "${candidate}" nvcc)
      cmake_path(GET nvcc PARENT_PATH folder)
      if(version MATCHES "release 13\\." AND EXISTS "${folder}/../include/cublasLt.h")
        set(LOCI_NVCC "${nvcc}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  if(LOCI_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOCI_CUDA is ON, but there is no nvcc of CUDA 13: run make cuda-toolkit, or name one in CUDACXX")
  endif()
endfunction()

loci_find_nvcc()
if(LOCI_NVCC)
  message(STATUS "CUDA: ${LOCI_NVCC} for ${LOCI_CUDA_ARCHITECTURES}")
  cmake_path(GET LOCI_NVCC PARENT_PATH folder)
  cmake_path(GET folder PARENT_PATH root)
  add_library(loci_cuda_runtime INTERFACE)
  set(LOCI_CUDA_INCLUDES ${root}/include)
  find_library(cudart cudart_static PATHS ${root}/lib ${root}/lib64 NO_DEFAULT_PATH NO_CACHE REQUIRED)
  # It loads the driver itself, at the first call: a program starts without one.
  target_link_libraries(loci_cuda_runtime INTERFACE ${cudart} Threads::Threads ${CMAKE_DL_LIBS} rt)
else()
  message(STATUS "CUDA: none (make cuda-toolkit fetches what compiles it)")
endif()

# loci_nvcc_objects(OUT SOURCE...): an object of each kernel source, for all architectures; beside it, in
# NAME.o.ptxas, what ptxas says of each kernel (scripts/cuda-report.py reads that).
function(loci_nvcc_objects out)
  set(flags -std=c++20 -O3 -ccbin ${CMAKE_CXX_COMPILER} -I${CMAKE_SOURCE_DIR}/src --expt-relaxed-constexpr
    # As on the host: fusing is written out, so that the simulated device computes the same.
    --fmad=false
    -Xptxas=-v -Xcompiler=-Wall --compress-mode=size)
  foreach(architecture ${LOCI_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  if(LOCI_WERROR)
    list(APPEND flags -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/src/loci OUTPUT_VARIABLE name)
    set(object ${CMAKE_BINARY_DIR}/nvcc/${name}.o)
    cmake_path(GET object PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${object}.ptxas
      COMMAND ${CMAKE_SOURCE_DIR}/cmake/nvcc-object.sh ${object} ${CCACHE} ${LOCI_NVCC} ${flags}
              -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/nvcc-object.sh
      DEPFILE ${object}.d
      COMMENT "Compiling ${name} for GPUs" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# loci_cuda_libraries(KERNELS *.cu SHARED *.cc REAL *.cc SIMULATED *.cc WITHOUT *.cc DEPENDS ...): declares
#   loci_cuda            KERNELS by nvcc, SHARED and REAL; without a toolkit WITHOUT alone
#   loci_cuda_simulated  KERNELS as C++, SHARED and SIMULATED
# They define the same names: a program links one of them.
function(loci_cuda_libraries)
  cmake_parse_arguments(ARG "" "" "KERNELS;SHARED;REAL;SIMULATED;WITHOUT;DEPENDS" ${ARGN})
  if(LOCI_NVCC)
    loci_nvcc_objects(objects ${ARG_KERNELS})
    # CUDA's headers and the kernels' language for the simulated device define the same names.
    string(REPLACE ";" "," architectures "${LOCI_CUDA_ARCHITECTURES}")
    set_source_files_properties(${ARG_REAL} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    loci_library(cuda SOURCES ${ARG_SHARED} ${ARG_REAL} ${objects} DEPENDS loci_cuda_runtime ${ARG_DEPENDS})
    target_include_directories(loci_cuda SYSTEM PRIVATE ${LOCI_CUDA_INCLUDES})
    target_compile_definitions(loci_cuda PRIVATE LOCI_CUDA_ARCHITECTURES="${architectures}")
    add_custom_target(cuda_kernels DEPENDS ${objects})
  else()
    loci_library(cuda SOURCES ${ARG_WITHOUT} DEPENDS ${ARG_DEPENDS})
    add_custom_target(cuda_kernels COMMENT "this build has no CUDA: run make cuda-toolkit, then cmake --preset release"
                      COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  endif()
  if(ARG_SIMULATED)
    # Each by itself, as nvcc has them.
    set_source_files_properties(${ARG_KERNELS} PROPERTIES LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION ON)
    if("undefined" IN_LIST LOCI_SANITIZE)
      # What a GPU traps at; and it fails the test, rather than being told alone.
      set_source_files_properties(${ARG_KERNELS} PROPERTIES COMPILE_OPTIONS "-fsanitize=alignment;-fno-sanitize-recover=all")
    endif()
    if("thread" IN_LIST LOCI_SANITIZE)
      # Kernels run as fibers, whose switches the sanitizer does not know; they run one at a time.
      set_source_files_properties(${ARG_KERNELS} simulated/grid.cc simulated/tensor_cores.cc PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
    endif()
    set_property(SOURCE simulated/tensor_cores.cc APPEND PROPERTY COMPILE_OPTIONS ${LOCI_HALVES})
    loci_library(cuda_simulated SOURCES ${ARG_KERNELS} ${ARG_SHARED} ${ARG_SIMULATED} DEPENDS ${ARG_DEPENDS} Boost::context)
    target_compile_options(loci_cuda_simulated PUBLIC -Wno-unknown-pragmas -Wno-psabi)  # nvcc's: unroll; params aligned to 64
  endif()
endfunction()

# loci_cuda_test(NAME [SLOW] [THREADS] [COMPUTES] [SIMULATED] SOURCES ... DEPENDS ...): a GoogleTest program on the simulated
# device. Its sources (*.cc, and *.cu of kernels that are for the test alone) and what they depend on become
# part of gpu-check, unless it is about SIMULATED devices.
function(loci_cuda_test name)
  cmake_parse_arguments(ARG "SLOW;THREADS;COMPUTES;SIMULATED" "" "SOURCES;DEPENDS" ${ARGN})
  set(kinds)
  foreach(kind SLOW THREADS COMPUTES)
    if(ARG_${kind})
      list(APPEND kinds ${kind})
    endif()
  endforeach()
  set(kernels ${ARG_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  if(kernels)
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  loci_test(${name} ${kinds} SOURCES ${ARG_SOURCES} DEPENDS loci_cuda_simulated ${ARG_DEPENDS})
  if(NOT ARG_SIMULATED)
    foreach(source ${ARG_SOURCES})
      cmake_path(ABSOLUTE_PATH source)
      set_property(GLOBAL APPEND PROPERTY LOCI_GPU_CHECK_SOURCES ${source})
    endforeach()
    set_property(GLOBAL APPEND PROPERTY LOCI_GPU_CHECK_DEPENDS ${ARG_DEPENDS})
  endif()
endfunction()

# loci_cuda_benchmarks(SOURCE...): sources of gpu-bench, main() among them.
function(loci_cuda_benchmarks)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source)
    set_property(GLOBAL APPEND PROPERTY LOCI_GPU_BENCH_SOURCES ${source})
  endforeach()
endfunction()

# Links PROGRAM so that it needs the driver's and libc's shared libraries alone, as gpu-check is carried to
# machines that have nothing else: fmt's functions are compiled into it, the rest is linked statically.
function(loci_link_carried program)
  foreach(name xxhash sodium)
    find_library(archive lib${name}.a NO_CACHE REQUIRED)
    list(APPEND archives ${archive})
    unset(archive)
  endforeach()
  target_sources(${program} PRIVATE ${CMAKE_SOURCE_DIR}/src/loci/compute/cuda/check/fmt_definitions.cc)
  # Whole archives first: what they define, no shared library is needed for.
  target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed -Wl,--gc-sections -s
                      -Wl,--whole-archive ${archives} -Wl,--no-whole-archive)
  set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL TRUE RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu-check)
endfunction()

# loci_gpu_check(): the programs of `make gpu-check` (scripts/gpu-check.sh), from the sources that loci_cuda_test()
# and loci_cuda_benchmarks() named before. gpu_check_programs makes both.
function(loci_gpu_check)
  set(check ${CMAKE_SOURCE_DIR}/src/loci/compute/cuda/check)
  get_property(bench_sources GLOBAL PROPERTY LOCI_GPU_BENCH_SOURCES)
  if(NOT LOCI_NVCC OR NOT LOCI_TESTS)
    add_custom_target(gpu_check_programs COMMENT "this build has no CUDA: run make cuda-toolkit, then cmake --preset release"
                      COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
    return()
  endif()
  get_property(sources GLOBAL PROPERTY LOCI_GPU_CHECK_SOURCES)
  get_property(depends GLOBAL PROPERTY LOCI_GPU_CHECK_DEPENDS)
  list(REMOVE_DUPLICATES sources)
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  list(FILTER sources EXCLUDE REGEX "\\.cu$")
  set(objects)
  if(kernels)
    loci_nvcc_objects(objects ${kernels})
  endif()
  add_executable(gpu_check ${sources} ${objects} ${check}/gpu_check_main.cc)
  target_link_libraries(gpu_check PRIVATE loci_options ${depends} loci_cuda GTest::gtest)
  # Tests may include what kernels and host share.
  target_compile_options(gpu_check PRIVATE -Wno-unknown-pragmas)
  # Tests of several programs, whose names may be the same.
  set_target_properties(gpu_check PROPERTIES OUTPUT_NAME gpu-check UNITY_BUILD OFF)
  loci_link_carried(gpu_check)
  add_custom_target(gpu_check_programs DEPENDS gpu_check)
  if(bench_sources)
    set(kernels ${bench_sources})
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    list(FILTER bench_sources EXCLUDE REGEX "\\.cu$")
    loci_nvcc_objects(objects ${kernels})
    add_executable(gpu_bench ${bench_sources} ${objects})
    target_link_libraries(gpu_bench PRIVATE loci_options loci_cuda)
    set_target_properties(gpu_bench PROPERTIES OUTPUT_NAME gpu-bench UNITY_BUILD OFF)
    loci_link_carried(gpu_bench)
    add_dependencies(gpu_check_programs gpu_bench)
  endif()
endfunction()
