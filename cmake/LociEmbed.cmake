# SPDX-License-Identifier: Apache-2.0
# Files that are part of a program: their texts stand in a source that CMake writes, and that is written anew when one of
# them changes.

# loci_embed(FUNCTION TYPE HEADER FILES ...): FUNCTION.cc in CMAKE_CURRENT_BINARY_DIR, with what HEADER declares,
# `const std::vector<TYPE>& FUNCTION()`: the FILES in their order, each {name, text}.
function(loci_embed function type header)
  set(embedded "")
  foreach(file ${ARGN})
    file(READ ${file} text)
    get_filename_component(name ${file} NAME)
    string(APPEND embedded "      {\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc @ONLY CONTENT [[
#include "@header@"

namespace loci {

const std::vector<@type@>& @function@() {
  static const std::vector<@type@> files = {
@embedded@  };
  return files;
}

}  // namespace loci
]])
endfunction()
