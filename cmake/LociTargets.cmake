# SPDX-License-Identifier: Apache-2.0
# One way to declare each kind of target, so that flags and conventions live here alone.

add_library(loci_options INTERFACE)
# deps/include before the system's: it mends what libraries' headers lack.
target_include_directories(loci_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/deps/include)
target_compile_options(loci_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough
  -Wno-missing-field-initializers  # designated initialisers leave the rest at its default
  # Bits must not depend on which multiplications a compiler chooses to fuse: fusing is written out.
  -ffp-contract=off
  -fno-math-errno
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-maybe-uninitialized>)  # false alarms of g++ 12 (GCC bug 105329, 80635)
# g++ looks for garbage from 128 MB on, again and again, which takes a tenth of its time; its largest process then takes
# 1.1 GB instead of 0.8.
target_compile_options(loci_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=4194304>)
# Sources of a target are compiled eight at once (CMAKE_UNITY_BUILD in the presets) or more, which halves a build: names in a
# target's anonymous namespaces differ. The fuzz preset compiles each by itself, so that each includes what it uses.
if(CMAKE_UNITY_BUILD)
  target_compile_options(loci_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
option(LOCI_WERROR "treat warnings as errors" OFF)
if(LOCI_WERROR)
  target_compile_options(loci_options INTERFACE -Werror)
endif()
# loci/base/mutex.h: what a mutex guards is checked wherever clang compiles, which is under every sanitizer.
target_compile_options(loci_options INTERFACE
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety;-Werror=thread-safety>)
# What clang says of g++'s headers, and of loops of GPU kernels that it leaves rolled up, would hide a test's failure in
# a run's last lines.
target_compile_options(loci_options INTERFACE
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations;-Wno-pass-failed>)
if(LOCI_SANITIZE)
  list(JOIN LOCI_SANITIZE "," sanitize)
  target_compile_options(loci_options INTERFACE -fsanitize=${sanitize} -fno-omit-frame-pointer)
  target_link_options(loci_options INTERFACE -fsanitize=${sanitize})
  target_compile_definitions(loci_options INTERFACE LOCI_SANITIZED)  # loci/base/rounds_testing.h
  if("undefined" IN_LIST LOCI_SANITIZE)
    # The checks for null pointers and alignment take half of a build's time, those for pointer overflow two thirds of
    # what the kernels' sources take. The address sanitizer finds what such pointers are used for.
    target_compile_options(loci_options INTERFACE -fno-sanitize=null,alignment,pointer-overflow -fno-sanitize-recover=all)
  endif()
endif()

# binutils' other linker takes half of the time, which each change waits for (docs/decisions/builds.md).
find_program(LOCI_GOLD ld.gold)
if(LOCI_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-fuse-ld=gold)
endif()

include(LociPrecompiled)
loci_precompile_headers()

# ON in the build that has the upper floors' tests and the fuzz targets, and no other tests. These run little of the code
# below serve/. So that code is compiled without optimisation, and of the kernels there is only the plain code, which no
# sanitizer looks at (docs/decisions/builds.md).
option(LOCI_UPPER_ALONE "sanitize for the tests of serve, cluster, server and cli, and for fuzzing, alone" OFF)

# Where a server or a test spends its time: compiled with -O3, and with -O1 under sanitizers, whose presets compile
# everything else as it stands, which takes a third of the time.
set(LOCI_BUSY base compute core core_world cuda_simulated engine gguf history memory policy reference text)
# Of these, where upper floors' tests and fuzz targets do: history's repeat, and an input of core_fuzz is a whole world.
set(LOCI_BUSY_ALONE core core_world history memory policy)

# Halves are converted by the processor under sanitizers too, where a test may spend a fifth of its time on it otherwise.
if(LOCI_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(LOCI_HALVES -mf16c)
endif()

# Whose sources take long to compile: four at once, so that a change in one takes at most ten seconds. (Sanitizers'
# builds, whose objects wait for no single change, take 24 of all: CMakePresets.json.)
set(LOCI_SLOW_TO_COMPILE api_responses cluster gguf http)

# loci_library(NAME SOURCES ... DEPENDS ...): the static library loci_NAME of one floor.
function(loci_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(loci_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(loci_${name} PUBLIC loci_options ${ARG_DEPENDS})
  if(name IN_LIST LOCI_SLOW_TO_COMPILE AND NOT LOCI_SANITIZE)
    set_target_properties(loci_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 4)
  endif()
  if(name IN_LIST LOCI_BUSY AND (name IN_LIST LOCI_BUSY_ALONE OR NOT LOCI_UPPER_ALONE))
    target_compile_options(loci_${name} PRIVATE $<$<CONFIG:Release>:-O3> $<$<BOOL:${LOCI_SANITIZE}>:-O1>)
  else()
    loci_use_precompiled(loci_${name})
  endif()
endfunction()

find_program(LOCI_ADDR2LINE addr2line)  # the linker's, not what came with another clang
# All test programs, and what they start.
add_custom_target(all_tests)
# Those that `make test` runs as a server is compiled too, and not under sanitizers alone: of the floors where a server
# spends its time, and what compares them with references. What those above do wrong shows under sanitizers, and the
# live suites run all of it as it is compiled; those on the simulated GPU are gpu_tests.
add_custom_target(optimised_tests)
# Those that start threads of their own: what the thread sanitizer is for.
add_custom_target(threaded_tests)
# Those on the simulated GPU: with the kernels they are a quarter of a sanitizers' build, and `make test-changed` runs
# them where their sources changed.
add_custom_target(gpu_tests)
# Under the address sanitizer `make test` runs those of the floors that clients and peers talk to, and `make test-changed`
# the others where their sources changed: those take long, and are optimised_tests too.
add_custom_target(upper_tests)
add_custom_target(lower_tests)

# loci_floors_here(RESULT): "upper" or "lower", as the folder that is being read is on these floors or on those.
function(loci_floors_here result)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/src/loci/(serve|cluster|server|cli)(/|$)")
    set(${result} upper PARENT_SCOPE)
  else()
    set(${result} lower PARENT_SCOPE)
  endif()
endfunction()

# loci_test_program(PROGRAM [THREADS] [GPU]): makes the program a part of the targets above.
function(loci_test_program program)
  cmake_parse_arguments(ARG "THREADS;GPU" "" "" ${ARGN})
  if(ARG_GPU AND LOCI_SANITIZE)
    if(ARG_THREADS OR NOT "thread" IN_LIST LOCI_SANITIZE)
      add_dependencies(gpu_tests ${program})
    endif()
    return()
  endif()
  add_dependencies(all_tests ${program})
  if(ARG_THREADS)
    add_dependencies(threaded_tests ${program})
  endif()
  loci_floors_here(floors)
  add_dependencies(${floors}_tests ${program})
endfunction()

# loci_test_environment(NAME): what a test of ctest's runs with.
function(loci_test_environment name)
  set(symbolizer external_symbolizer_path=${LOCI_ADDR2LINE})
  set(folder ${CMAKE_BINARY_DIR}/test-tmp/${name})
  file(MAKE_DIRECTORY ${folder})
  # Of where memory came from, a few callers tell enough: noting thirty takes most of some tests' time. And stacks
  # that outlive their calls would be made anew for each of the simulated device's fibers. Clang alone brings nothing
  # that names functions and lines: addr2line does. TEST_TMPDIR is where GoogleTest captures what a test prints (two trees
  # may run the same one); a test's own files are in a TestFolder.
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "LOCI_SOURCE_DIR=${CMAKE_SOURCE_DIR};LOCI_BINARY_DIR=${CMAKE_BINARY_DIR};TEST_TMPDIR=${folder};ASAN_OPTIONS=${symbolizer}:malloc_context_size=6:detect_stack_use_after_return=0;TSAN_OPTIONS=${symbolizer};UBSAN_OPTIONS=${symbolizer}")
endfunction()

# loci_test(NAME [SLOW] [THREADS] [PUBLISHED] [COMPUTES] SOURCES ... DEPENDS ...): a GoogleTest program, run by ctest with the
# label "fast" (all of them together take about a minute) or "slow", "threads" where it has several, "gpu" where it
# runs on the simulated one, "published" where it has cases for published vocabularies or templates, "optimised" where
# it is one of optimised_tests, and "upper" or "lower" as it is one of those tests. One that COMPUTES (what it compares
# with) is compiled with -O1 under sanitizers. One that others would wait for is SHARDS (1) tests of ctest, which begin first,
# in a fresh clone too.
function(loci_test name)
  cmake_parse_arguments(ARG "SLOW;THREADS;PUBLISHED;COMPUTES" "SHARDS" "SOURCES;DEPENDS" ${ARGN})
  loci_floors_here(floors)
  # (Where there are no kernels but plain ones, tests of kernels would compare these with themselves.)
  if(NOT LOCI_TESTS OR (LOCI_UPPER_ALONE AND floors STREQUAL lower))
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE loci_options ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  # What runs once: -O2 would take half as long again to compile. And what fails names its line itself.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og;-g0>)
  target_link_options(${name} PRIVATE $<$<CONFIG:Release>:-Wl,--strip-debug>)
  if(ARG_COMPUTES AND LOCI_SANITIZE)
    target_compile_options(${name} PRIVATE -O1 ${LOCI_HALVES})
  else()
    loci_use_precompiled(${name})
  endif()
  set(kinds)
  set(labels fast)
  if(ARG_SLOW)
    set(labels slow)
  endif()
  if(ARG_THREADS)
    list(APPEND kinds THREADS)
    list(APPEND labels threads)
  endif()
  if("loci_cuda_simulated" IN_LIST ARG_DEPENDS)
    list(APPEND kinds GPU)
    list(APPEND labels gpu)
  endif()
  if(ARG_PUBLISHED)
    list(APPEND labels published)
  endif()
  list(APPEND labels ${floors})
  if(floors STREQUAL upper AND NOT LOCI_SANITIZE)
    # `make test` does not compile these here, and whoever does waits for a change in one.
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 2)
  endif()
  # serve/history matches tokens, and its tests repeat (base/rounds_testing.h).
  if(ARG_PUBLISHED OR CMAKE_CURRENT_SOURCE_DIR MATCHES "/serve/history$"
     OR NOT (GPU IN_LIST kinds OR floors STREQUAL upper))
    list(APPEND labels optimised)
    add_dependencies(optimised_tests ${name})
  endif()
  loci_test_program(${name} ${kinds})
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    loci_test_environment(${name})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 900)
    return()
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    # GoogleTest calls a report as the program is called.
    add_custom_command(TARGET ${name} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink ${name} ${name}-${shard} WORKING_DIRECTORY $<TARGET_FILE_DIR:${name}> VERBATIM)
    add_test(NAME ${name}-${shard} COMMAND $<TARGET_FILE_DIR:${name}>/${name}-${shard} --gtest_brief=1)
    loci_test_environment(${name}-${shard})
    set_tests_properties(${name}-${shard} PROPERTIES LABELS "${labels}" TIMEOUT 900 COST 100)
    set_property(TEST ${name}-${shard} APPEND PROPERTY
      ENVIRONMENT GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${shard})
  endforeach()
endfunction()

# loci_strip(PROGRAM): in a release build the program's debug information goes to PROGRAM.debug beside it, where
# debuggers look for it.
function(loci_strip program)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
  endif()
  set(file $<TARGET_FILE:${program}>)
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND ${CMAKE_OBJCOPY} --only-keep-debug ${file} ${file}.debug
    COMMAND ${CMAKE_OBJCOPY} --strip-debug --add-gnu-debuglink=${file}.debug ${file}
    VERBATIM)
endfunction()

add_custom_target(all_fuzzers)
# loci_fuzzer(NAME SOURCES ... DEPENDS ...): a libFuzzer program. The fuzz preset lets it see which code an input reaches;
# elsewhere it runs the inputs that it is given.
function(loci_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT LOCI_FUZZERS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # What -fsanitize=fuzzer adds to its own code; by that name, clang refuses the precompiled header.
  target_compile_options(${name} PRIVATE
    -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table,stack-depth)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE loci_options ${ARG_DEPENDS})
  loci_use_precompiled(${name})
  add_dependencies(all_fuzzers ${name})
endfunction()

# loci_benchmark(NAME SOURCES ... DEPENDS ...): a Google Benchmark program.
function(loci_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT LOCI_BENCHMARKS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE loci_options loci_allocator ${ARG_DEPENDS} benchmark::benchmark)
endfunction()
