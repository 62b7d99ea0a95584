// SPDX-License-Identifier: Apache-2.0
// What Boost.Beast defines of HTTP, compiled once: boost/beast/src.hpp without web sockets, compression and
// the streams of tests, which nobody uses here (BOOST_BEAST_SEPARATE_COMPILATION, deps/CMakeLists.txt).
#define BOOST_BEAST_SOURCE
#include <boost/beast/core/detail/config.hpp>

#include <boost/beast/core/detail/impl/temporary_buffer.ipp>
#include <boost/beast/core/impl/error.ipp>
#include <boost/beast/core/impl/saved_handler.ipp>
#include <boost/beast/core/impl/string.ipp>
#include <boost/beast/http/detail/basic_parser.ipp>
#include <boost/beast/http/detail/rfc7230.ipp>
#include <boost/beast/http/impl/basic_parser.ipp>
#include <boost/beast/http/impl/error.ipp>
#include <boost/beast/http/impl/field.ipp>
#include <boost/beast/http/impl/fields.ipp>
#include <boost/beast/http/impl/rfc7230.ipp>
#include <boost/beast/http/impl/status.ipp>
#include <boost/beast/http/impl/verb.ipp>
