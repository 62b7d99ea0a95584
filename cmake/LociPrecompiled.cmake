# SPDX-License-Identifier: Apache-2.0
# Under sanitizers, clang reads the headers of libraries (cmake/precompiled.h) once and not for each object, which is a
# third of such a build (docs/decisions/builds.md). A command of our own and not CMake's target_precompile_headers():
# there each target whose definitions differ would need a precompiled header of its own, and what one clone compiled
# would serve no other, as ccache would compare the file with its paths.

# What targets define for the headers of libraries, here for all, so that one precompiled header serves all.
set(LOCI_HEADER_DEFINITIONS FMT_SHARED GTEST_HAS_PTHREAD=1 LOCI_SANITIZED SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL
    SPDLOG_SHARED_LIB _FILE_OFFSET_BITS=64)

# loci_precompile_headers(): declares how the header is made. After it all options must have been set on loci_options.
function(loci_precompile_headers)
  # A build that compiles each source by itself is to show what a source does not include.
  if(NOT LOCI_SANITIZE OR NOT CMAKE_UNITY_BUILD OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  target_compile_definitions(loci_options INTERFACE ${LOCI_HEADER_DEFINITIONS})
  set(header ${CMAKE_SOURCE_DIR}/cmake/precompiled.h)
  set(output ${CMAKE_BINARY_DIR}/precompiled.pch)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  list(TRANSFORM LOCI_HEADER_DEFINITIONS PREPEND -D OUTPUT_VARIABLE definitions)
  list(APPEND flags -std=c++20 ${definitions} -I${CMAKE_SOURCE_DIR}/deps/include
       "$<TARGET_PROPERTY:loci_options,INTERFACE_COMPILE_OPTIONS>" -x c++-header ${header})
  add_custom_command(OUTPUT ${output} ${output}.sum
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} -MD -MF ${output}.d -MT ${output} -Xclang -fno-pch-timestamp
            -fpch-instantiate-templates -o ${output}
    # What ccache takes for the file (CCACHE_PCH_EXTSUM): what was read and how, without the clone's paths.
    COMMAND ${CMAKE_SOURCE_DIR}/cmake/precompiled-sum.sh ${output}.sum ${CMAKE_SOURCE_DIR} ${CMAKE_CXX_COMPILER} ${flags}
    DEPENDS ${header} ${CMAKE_SOURCE_DIR}/cmake/precompiled-sum.sh
    DEPFILE ${output}.d COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Reading the headers of libraries once for all objects")
  add_custom_target(precompiled DEPENDS ${output})
endfunction()

# loci_use_precompiled(TARGET): compiles the target with that header, where there is one, and unless the target or one of
# its sources has options of its own, which the header would have to have been made with.
function(loci_use_precompiled target)
  if(NOT TARGET precompiled)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      return()
    endif()
  endforeach()
  # What libstdc++ allows itself in its headers (the pragma is not kept in the precompiled one), clang would tell us.
  target_compile_options(${target} PRIVATE -Wno-deprecated-declarations
                         $<$<COMPILE_LANGUAGE:CXX>:SHELL:-include-pch ${CMAKE_BINARY_DIR}/precompiled.pch>)
  add_dependencies(${target} precompiled)
endfunction()
