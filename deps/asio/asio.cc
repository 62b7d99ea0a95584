// SPDX-License-Identifier: Apache-2.0
// What Boost.Asio and Boost.Beast define, compiled once: every other source that includes them only finds
// declarations (BOOST_ASIO_SEPARATE_COMPILATION and BOOST_BEAST_SEPARATE_COMPILATION, deps/CMakeLists.txt).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
