// SPDX-License-Identifier: Apache-2.0
// The addresses of a host, for coroutines. The system's resolver knows no deadline and cannot be stopped, and
// an io_context looks up one name at a time: one that hangs would hold up those of all other members, and the
// process's end. So each name is looked up by a thread of its own, once for all who wait for it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace loci {

// On the io_context's thread, and gone before it.
class HostLookup {
 public:
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;
  using Done = std::function<void(const boost::system::error_code& error, const Endpoints& found)>;

  // `done` is posted on `io`, once. At most 64 names are looked up at the same time; of one more it is said
  // that it is to be tried again (host_not_found_try_again).
  HostLookup(boost::asio::io_context& io, const std::string& host, std::uint16_t port, Done done);
  // What has not been posted yet is not any more. The thread goes on, and touches nothing of this.
  ~HostLookup();
  HostLookup(const HostLookup&) = delete;
  HostLookup& operator=(const HostLookup&) = delete;

 private:
  using Name = std::pair<std::string, std::uint16_t>;
  struct Running;
  static Running& running();
  static void look_up(const Name& name);
  void post(const boost::system::error_code& error, const Endpoints& found);

  boost::asio::io_context& io_;
  const Name name_;
  Done done_;
};

}  // namespace loci
