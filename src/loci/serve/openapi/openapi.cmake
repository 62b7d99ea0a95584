# SPDX-License-Identifier: Apache-2.0
# Embeds parts/*.json, each as one string, in parts.cc (declared in parts.h).
file(GLOB openapi_parts CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/parts/*.json)
set(openapi_strings "")
foreach(part ${openapi_parts})
  file(READ ${part} text)
  string(APPEND openapi_strings "    R\"openapi(${text})openapi\",\n")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${openapi_parts})
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/openapi_parts.cc @ONLY CONTENT [[
#include "loci/serve/openapi/parts.h"

namespace loci {

const std::vector<std::string_view>& openapi_parts() {
  static const std::vector<std::string_view> parts = {
@openapi_strings@  };
  return parts;
}

}  // namespace loci
]])
