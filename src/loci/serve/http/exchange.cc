// SPDX-License-Identifier: Apache-2.0
// Exchange's answers: status lines, headers, chunks.
#include "loci/serve/http/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <random>

#include "loci/serve/http/connection.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kRequestIdBytesMax = 128;

bool acceptable_id(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::string random_id() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return fmt::format("{:016x}", generator());
}

}  // namespace

Exchange::Exchange(Connection& connection, HttpRequest header, Nanos received_at)
    : connection_(connection), request_(std::move(header)), received_at_(received_at) {
  path_ = request_.target.substr(0, request_.target.find('?'));
  const std::string_view id = request_.header("X-Request-Id");
  request_id_ = acceptable_id(id) ? std::string(id) : random_id();
}

namespace {

// Absent: the client has left.
std::optional<asio::ip::address> address_of(const asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return std::nullopt;
  const asio::ip::address address = peer.address();
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

}  // namespace

bool Exchange::is_local() const {
  const std::optional<asio::ip::address> address = address_of(connection_.socket_.tcp());
  return address && address->is_loopback();
}

// Whoever has one address of IPv6 has the 2^64 of its network.
std::string Exchange::party() const {
  if (!party_.empty()) return party_;
  const std::optional<asio::ip::address> address = address_of(connection_.socket_.tcp());
  if (!address) return "nobody";
  if (address->is_v4()) return address->to_string();
  return asio::ip::make_network_v6(address->to_v6(), 64).canonical().to_string();
}

std::string Exchange::head(int status, std::string_view content_type, const HttpHeaders& headers,
                           std::optional<std::size_t> body_bytes) const {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  std::string out = fmt::format(
      "HTTP/1.1 {} {}\r\nServer: loci\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nX-Request-Id: {}\r\n", status,
      std::string_view(reason.data(), reason.size()), fmt::gmtime(std::time(nullptr)), request_id_);
  if (!content_type.empty()) out += fmt::format("Content-Type: {}\r\n", content_type);
  if (body_bytes) out += fmt::format("Content-Length: {}\r\n", *body_bytes);
  if (chunked_) out += "Transfer-Encoding: chunked\r\n";
  if (!connection_.keep_alive_)
    out += "Connection: close\r\n";
  else if (request_.version < 11)
    out += "Connection: keep-alive\r\n";
  for (const HttpHeaders* list : {&headers_, &headers}) {
    for (const auto& [name, value] : *list) out += fmt::format("{}: {}\r\n", name, value);
  }
  return out + "\r\n";
}

asio::awaitable<bool> Exchange::respond(HttpResponse response) {
  status_ = response.status;
  if (status_ == 429) co_await connection_.hold_refusal();
  connection_.before_answer();
  // 204 has no body and no length.
  std::optional<std::size_t> length;
  if (response.status != 204) length = response.body_bytes.value_or(response.body.size());
  const std::string top =
      head(response.status, length.value_or(0) == 0 ? "" : response.content_type, response.headers, length);
  const std::array<asio::const_buffer, 3> buffers = {
      asio::buffer(top), is_head() ? asio::const_buffer() : asio::buffer(response.body),
      asio::const_buffer()};
  co_return co_await connection_.write(buffers);
}

asio::awaitable<bool> Exchange::begin_stream(std::string_view content_type, int status) {
  status_ = status;
  connection_.before_answer();
  chunked_ = request_.version >= 11;
  // A client of HTTP/1.0 learns the end from the connection's.
  if (!chunked_) connection_.keep_alive_ = false;
  const std::string top =
      head(status, content_type, {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}, {});
  const std::array<asio::const_buffer, 3> buffers = {asio::buffer(top), asio::const_buffer(),
                                                     asio::const_buffer()};
  co_return co_await connection_.write(buffers);
}

asio::awaitable<bool> Exchange::stream(std::string_view data) { return stream({}, data); }

asio::awaitable<bool> Exchange::stream(std::string_view top, std::string_view data) {
  const std::size_t bytes = top.size() + data.size();
  if (bytes == 0 || is_head()) co_return !gone();
  std::string begin = chunked_ ? fmt::format("{:x}\r\n", bytes) : std::string();
  begin += top;
  const std::string_view end = chunked_ ? "\r\n" : "";
  const std::array<asio::const_buffer, 3> buffers = {asio::buffer(begin), asio::buffer(data),
                                                     asio::buffer(end)};
  co_return co_await connection_.write(buffers);
}

void Exchange::cut_stream() { connection_.gone_ = true; }

asio::awaitable<bool> Exchange::end_stream() {
  if (is_head()) co_return !gone();
  const std::string_view last = chunked_ ? "0\r\n\r\n" : "";
  const std::array<asio::const_buffer, 3> buffers = {asio::buffer(last), asio::const_buffer(),
                                                     asio::const_buffer()};
  co_return co_await connection_.write(buffers);
}

}  // namespace loci
