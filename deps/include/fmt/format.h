// SPDX-License-Identifier: Apache-2.0
// fmt's header, and a declaration that fmt 9 lacks: the library holds vformat_to<char>, but its header does
// not say so. Without it each source that logs, or formats into a buffer, compiles all of fmt's formatting
// once more: three seconds of a processor at -O2. Sources and spdlog find this file before the library's
// (cmake/LociTargets.cmake).
#pragma once

#include_next <fmt/format.h>

#if FMT_VERSION / 10000 == 9 && !defined(FMT_HEADER_ONLY) && !defined(__clang__)
extern template void fmt::detail::vformat_to(buffer<char>&, string_view,
                                             basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
#endif
