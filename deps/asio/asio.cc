// SPDX-License-Identifier: Apache-2.0
// What Boost.Asio defines, compiled once: every other source that includes it only finds declarations
// (BOOST_ASIO_SEPARATE_COMPILATION, deps/CMakeLists.txt).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
