// SPDX-License-Identifier: Apache-2.0
// The server for peers, as seen by clients that do not behave like peers.
#include "loci/cluster/peers/peer_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <vector>

#include "loci/cluster/peers/peer_testing.h"

namespace loci {
namespace asio = boost::asio;
namespace {

// TLS without the key, and none at all.
TEST(PeerServerTest, AConnectionWithoutTheKeyEnds) {
  FakePeer one({key_of(1)});
  asio::io_context io;
  const asio::ip::tcp::endpoint at(asio::ip::make_address("127.0.0.1"), one.address("one").port);
  asio::ssl::context plain(asio::ssl::context::tls_client);
  asio::ssl::stream<asio::ip::tcp::socket> stream(io, plain);
  stream.next_layer().connect(at);
  boost::system::error_code error;
  stream.handshake(asio::ssl::stream_base::client, error);
  EXPECT_TRUE(error) << "a handshake without the key";
  asio::ip::tcp::socket socket(io);
  socket.connect(at);
  const std::vector<ChainKey> keys{key_of(1)};
  const std::string question = write_peer_question(keys);
  ASSERT_EQ(question.size(), 20u);
  asio::write(socket,
              asio::buffer("POST /peers/2/ask HTTP/1.1\r\nHost: x\r\nLoci-State: same\r\n"
                           "Content-Length: 20\r\n\r\n" +
                           question),
              error);
  std::string got(4096, '\0');
  const std::size_t bytes = socket.read_some(asio::buffer(got), error);
  EXPECT_EQ(got.substr(0, bytes).find("200 OK"), std::string::npos) << got.substr(0, bytes);
  EXPECT_EQ(one.questions(), 0);
}

// (It takes kPeerPatience.)
TEST(PeerServerTest, AReadEndsAtItsTimeLimitThoughItsReaderWaits) {
  FakePeer silent({key_of(1)}, FakePeer::Ways::kIsSilent);
  asio::io_context io;
  const TlsContext tls = make_peer_client_tls(secret_of(1)).value();
  asio::ssl::stream<asio::ip::tcp::socket> stream(io, *tls);
  stream.next_layer().connect({asio::ip::address_v4::loopback(), silent.address("silent").port});
  stream.handshake(asio::ssl::stream_base::client);
  const std::string wants = write_peer_wants({.time_limit = kNanosPerMilli, .wants = {{key_of(1), 1}}});
  asio::write(stream,
              asio::buffer(fmt::format("POST /peers/2/read HTTP/1.1\r\nHost: x\r\nLoci-State: same\r\n"
                                       "Content-Length: {}\r\n\r\n{}",
                                       wants.size(), wants)));
  EXPECT_TRUE(silent.has_left(1));
  EXPECT_EQ(silent.reads(), 1);
}

}  // namespace
}  // namespace loci
