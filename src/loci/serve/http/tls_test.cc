// SPDX-License-Identifier: Apache-2.0
// TLS: files that are wrong, connections that are right, handshakes that are neither, certificates that
// change.
#include "loci/serve/http/tls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/serve/http/http_socket.h"
#include "loci/serve/http/server.h"
#include "loci/serve/http/tls_testing.h"
#include "loci/serve/telemetry/metrics.h"

namespace loci {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TlsFilesTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  static void expect_refused(const TlsFiles& files, const std::string& field, const std::string& message) {
    const Result<TlsContext> context = make_server_tls(files);
    ASSERT_FALSE(context.ok()) << message;
    EXPECT_EQ(context.status().field(), field);
    EXPECT_NE(context.status().message().find(message), std::string::npos) << context.status().message();
  }

  const TestFolder test_folder_;
  const std::filesystem::path& folder_ = test_folder_.path();
};

TEST_F(TlsFilesTest, ErrorsNameTheFlagAndThePath) {
  const TlsFiles good = make_certificate(folder_, "good");
  const TlsFiles other = make_certificate(folder_, "other");
  EXPECT_TRUE(make_server_tls(good).ok());
  expect_refused({good.certificate, ""}, "tls_key", "tls_cert");
  expect_refused({"", good.key}, "tls_cert", "tls_key");
  expect_refused({"/nowhere/a.pem", good.key}, "tls_cert", "/nowhere/a.pem is not there");
  expect_refused({good.certificate, "/nowhere/a.key"}, "tls_key", "/nowhere/a.key is not there");
  expect_refused({folder_, good.key}, "tls_cert", folder_.string() + " cannot be read: Is a directory");
  expect_refused({good.key, good.key}, "tls_cert",
                 good.key + ": expected a PEM file that begins with the server's certificate");
  expect_refused({good.certificate, good.certificate}, "tls_key",
                 good.certificate + ": expected a private key in PEM");
  expect_refused({write("empty", ""), good.key}, "tls_cert", "empty");
  expect_refused({good.certificate, write("garbage", "-----BEGIN PRIVATE KEY-----\nx\n")}, "tls_key",
                 "garbage");
  expect_refused({good.certificate, other.key}, "tls_key",
                 other.key + " is not the key of the certificate in " + good.certificate);
}

TEST_F(TlsFilesTest, NobodyIsAskedForAPassPhrase) {
  const TlsFiles good = make_certificate(folder_, "good");
  const std::string locked = folder_ / "locked.key";
  const std::string command =
      fmt::format("openssl pkey -in {} -aes256 -passout pass:x -out {}", good.key, locked);
  ASSERT_EQ(std::system(command.c_str()), 0);
  expect_refused({good.certificate, locked}, "tls_key", "pass phrase");
}

TEST_F(TlsFilesTest, AClientsAuthoritiesAreChecked) {
  const TlsFiles good = make_certificate(folder_, "good");
  EXPECT_TRUE(make_client_tls("").ok());
  EXPECT_TRUE(make_client_tls(good.certificate).ok());
  EXPECT_NE(make_client_tls(good.key).status().message().find(
                good.key + ": expected a PEM file of trusted certificates ("),
            std::string::npos);
  for (const std::string& path : {write("empty", ""), good.key, std::string("/nowhere/ca.pem")}) {
    const Result<TlsContext> context = make_client_tls(path);
    ASSERT_FALSE(context.ok()) << path;
    EXPECT_EQ(context.status().field(), "tls_ca");
    EXPECT_NE(context.status().message().find(path), std::string::npos) << context.status().message();
  }
}

// A client that waits, with a time limit, and trusts whom it meets: who is trusted is tests/tls_test.py's.
class TlsClient {
 public:
  explicit TlsClient(std::uint16_t port, int version = TLS1_3_VERSION)
      : context_(asio::ssl::context::tls_client) {
    SSL_CTX_set_max_proto_version(context_.native_handle(), version);
    stream_.emplace(io_, context_);
    tcp::socket& socket = stream_->next_layer();
    socket.connect({asio::ip::make_address("127.0.0.1"), port});
    const timeval patience{.tv_sec = 120, .tv_usec = 0};
    setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    stream_->handshake(asio::ssl::stream_base::client, error_);
  }
  bool is_connected() const { return !error_; }
  error_code error() const { return error_; }
  std::string version() { return SSL_get_version(stream_->native_handle()); }
  // Whose certificate the server showed.
  std::string shown_name() {
    X509* certificate = SSL_get1_peer_certificate(stream_->native_handle());
    char name[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
    X509_free(certificate);
    return name;
  }
  void send(std::string_view data) { asio::write(*stream_, asio::buffer(data), error_); }
  // Until `end` was seen, or the connection's end.
  std::string read_until(const std::string& end) {
    std::string got;
    for (std::size_t looked = 0; !error_ && got.find(end, looked) == got.npos;) {
      looked = got.size() - std::min(got.size(), end.size());
      char piece[16384];
      const std::size_t bytes = stream_->read_some(asio::buffer(piece), error_);
      if (error_ == asio::error::interrupted) error_ = {};  // as a process may see that stood still
      got.append(piece, bytes);
    }
    return got;
  }

 private:
  asio::io_context io_;
  asio::ssl::context context_;
  std::optional<asio::ssl::stream<tcp::socket>> stream_;
  error_code error_;
};

class TlsServerTest : public TlsFilesTest {
 protected:
  void start(const HttpLimits& limits = {}) {
    if (!files_.given()) files_ = make_certificate(folder_, "first");
    server_.emplace(
        HttpServer::Options{.host = "127.0.0.1", .port = 0, .tls = files_, .limits = limits}, clock_,
        metrics_, std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>()));
    const Status status = server_->listen([](Exchange& exchange) { return handle(exchange); });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  static asio::awaitable<void> handle(Exchange& exchange) {
    co_await exchange.read_body();
    if (exchange.path() == "/stream") {
      co_await exchange.begin_stream("text/plain");
      for (int i = 0; i < 3; ++i) co_await exchange.stream(fmt::format("piece {}.", i));
      co_await exchange.end_stream();
      co_return;
    }
    if (exchange.path() == "/watch") {
      // Reads ahead for a while, as a generation does.
      exchange.watch([] {});
      asio::steady_timer timer(exchange.io(), std::chrono::milliseconds(50));
      error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    HttpResponse response{.body = fmt::format("<{}:{}>", exchange.path(), exchange.request().body),
                          .headers = {}};
    co_await exchange.respond(std::move(response));
  }

  // What a raw connection gets that sends `data`.
  std::string raw(std::string_view data) {
    asio::io_context io;
    tcp::socket socket(io);
    socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    const timeval patience{.tv_sec = 120, .tv_usec = 0};
    setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    error_code error;
    asio::write(socket, asio::buffer(data), error);
    std::string got;
    char piece[4096];
    ssize_t bytes = 0;
    do {
      bytes = recv(socket.native_handle(), piece, sizeof(piece), 0);
      got.append(piece, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    } while (bytes > 0 || (bytes < 0 && errno == EINTR));  // as a process may see that stood still
    ended_ = bytes == 0 || errno == ECONNRESET;
    return got;
  }
  // What our own client says that calls the server so, and trusts these authorities.
  std::string distrust(const std::string& host, const std::string& authorities) {
    asio::io_context io;
    HttpSocket socket(tcp::socket(io), make_client_tls(authorities).value());
    const auto endpoints = tcp::resolver(io).resolve("127.0.0.1", std::to_string(server_->port()));
    std::string said;
    asio::co_spawn(io, connect_to(socket, host, endpoints),
                   [&](const std::exception_ptr&, const Status& status) { said = status.message(); });
    io.run();
    return said;
  }
  bool metrics_say(const std::string& line) {
    return metrics_.scrape(std::nullopt, 0).find("\n" + line + "\n") != std::string::npos;
  }

  SystemClock clock_;
  ServeMetrics metrics_{"test"};
  TlsFiles files_;
  std::optional<HttpServer> server_;
  bool ended_ = false;  // raw() saw the connection's end
};

TEST_F(TlsServerTest, ServesBothVersions) {
  start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server_->port(), version);
    ASSERT_TRUE(client.is_connected()) << client.error().message();
    EXPECT_EQ(client.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    // Two requests at once on a connection that is kept, the second while the first one is watched.
    client.send(
        "POST /watch HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /next HTTP/1.1\r\nHost: "
        "x\r\n\r\n");
    std::string got = client.read_until("</next:>");
    EXPECT_NE(got.find("</watch:abc>"), std::string::npos) << got;
    EXPECT_NE(got.find("</next:>"), std::string::npos) << got;
    client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_NE(client.read_until("0\r\n\r\n").find("piece 2."), std::string::npos);
    const std::string body(3 << 20, 'x');
    client.send(
        fmt::format("POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
    got = client.read_until("x>");
    EXPECT_NE(got.find("</large:" + body + ">"), std::string::npos);
  }
  TlsClient old(server_->port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.is_connected());
}

// The certificate, signed anew by itself, ended a second ago.
void let_expire(const TlsFiles& files) {
  std::FILE* file = std::fopen(files.key.c_str(), "r");
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_PrivateKey(file, nullptr, nullptr, nullptr), EVP_PKEY_free);
  std::fclose(file);
  file = std::fopen(files.certificate.c_str(), "r+");
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_X509(file, nullptr, nullptr, nullptr), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), -1);
  EXPECT_NE(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  std::rewind(file);
  PEM_write_X509(file, certificate.get());
  EXPECT_EQ(std::fclose(file), 0);
}

TEST_F(TlsServerTest, AClientSaysWhatHelpsWhereItTrustsNoCertificate) {
  start();
  const std::string other = make_certificate(folder_, "other").certificate;
  EXPECT_EQ(distrust("127.0.0.1", files_.certificate), "");
  EXPECT_NE(distrust("127.0.0.1", other).find("the option tls_ca names an authority that is"),
            std::string::npos);
  for (const char* const name : {"127.0.0.2", "loci.example"}) {
    const std::string said = distrust(name, files_.certificate);
    EXPECT_NE(said.find("mismatch); it needs one for the name by which it is called"), std::string::npos)
        << said;
  }
}

TEST_F(TlsServerTest, AClientSaysThatACertificateHasExpired) {
  files_ = make_certificate(folder_, "old");
  let_expire(files_);
  start();
  const std::string said = distrust("127.0.0.1", files_.certificate);
  EXPECT_NE(said.find("expired); it needs one that is valid by this machine's clock"), std::string::npos)
      << said;
}

// A client must be able to tell a whole reply from one that somebody cut off on the way.
TEST_F(TlsServerTest, EndsConnectionsWithAWord) {
  start();
  TlsClient client(server_->port());
  client.send("GET /stream HTTP/1.0\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until("\x01never").find("piece 0.piece 1.piece 2."), std::string::npos);
  EXPECT_EQ(client.error(), asio::error::eof) << client.error().message();
}

TEST_F(TlsServerTest, RefusesWhatIsNoHandshake) {
  start();
  const std::string answer = raw("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  EXPECT_NE(answer.find("https://"), std::string::npos) << answer;
  EXPECT_TRUE(ended_);
  // A record of a length that none has; one of another kind; a hello that is cut in the middle of a length.
  const std::string long_record = std::string("\x16\x03\x01\xff\xff") + std::string(1 << 16, 'x');
  const std::string hello_in_pieces("\x16\x03\x01\x00\x05\x01\xff\xff\xff\x03", 10);
  for (const std::string& data : {long_record, std::string("\x17\x03\x03\x00\x01x", 6),
                                  std::string(200, '\0'), hello_in_pieces, std::string("SSH-2.0-x\r\n")}) {
    EXPECT_FALSE(raw(data).starts_with("HTTP")) << data.substr(0, 8);
    EXPECT_TRUE(ended_) << data.substr(0, 8);
  }
  EXPECT_TRUE(eventually([&] { return metrics_say("loci_http_connections 0"); }));
  EXPECT_TRUE(metrics_say("loci_tls_handshake_failures_total 6"));
  EXPECT_TRUE(TlsClient(server_->port()).is_connected());
}

TEST_F(TlsServerTest, EndsHandshakesThatStall) {
  start({.header_timeout = 300 * kNanosPerMilli});
  // On a machine that stands still for seconds they may take longer: then others stall.
  EXPECT_TRUE(in_one_try(10, [&] {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(raw(""), "");
    EXPECT_TRUE(ended_);
    EXPECT_EQ(raw(std::string("\x16\x03\x01\x01\x00\x01", 6)), "");
    EXPECT_TRUE(ended_);
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, std::chrono::milliseconds(600));
    return took < std::chrono::seconds(8);
  }));
  EXPECT_TRUE(eventually([&] { return metrics_say("loci_http_connections 0"); }));
}

// Time that is up in the middle of a request is said to the client, over the same connection.
TEST_F(TlsServerTest, AnswersARequestThatStalls) {
  start({.header_timeout = kNanosPerSecond});
  std::string got;
  error_code end;
  // Whose handshake takes longer than that, or who is paused behind it, sends nothing in time: then another
  // one tries.
  (void)in_one_try(20, [&] {
    TlsClient client(server_->port());
    if (client.is_connected()) client.send("GET /x HTTP/1.1\r\nHos");
    got = client.read_until("\x01never");
    end = client.error();
    return !got.empty();
  });
  EXPECT_TRUE(got.starts_with("HTTP/1.1 408 ")) << got;
  EXPECT_EQ(end, asio::error::eof) << end.message();
}

TEST_F(TlsServerTest, ResumesBySessionTickets) {
  start();
  asio::io_context io;
  asio::ssl::context context(asio::ssl::context::tls_client);
  SSL_CTX_set_max_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_SESSION* session = nullptr;
  for (const bool is_first : {true, false}) {
    asio::ssl::stream<tcp::socket> stream(io, context);
    stream.next_layer().connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    if (!is_first) SSL_set_session(stream.native_handle(), session);
    error_code error;
    stream.handshake(asio::ssl::stream_base::client, error);
    ASSERT_FALSE(error) << error.message();
    EXPECT_EQ(SSL_session_reused(stream.native_handle()) == 1, !is_first);
    if (is_first) session = SSL_get1_session(stream.native_handle());
    SSL_set_shutdown(stream.native_handle(), SSL_SENT_SHUTDOWN);  // else the session counts as broken
  }
  SSL_SESSION_free(session);
}

TEST_F(TlsServerTest, WhoDoesNotGreetMakesRoom) {
  start({.connections_max = 1, .header_timeout = 600 * kNanosPerSecond});
  asio::io_context io;
  tcp::socket silent(io);
  silent.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
  ASSERT_TRUE(eventually([&] { return metrics_say("loci_http_connections 1"); }));
  TlsClient busy(server_->port());
  EXPECT_TRUE(busy.is_connected());
  char byte = 0;
  error_code error;
  silent.read_some(asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error) << "it was closed";
  // A request is never closed for a handshake.
  busy.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
  busy.read_until("100 Continue\r\n\r\n");
  EXPECT_FALSE(TlsClient(server_->port()).is_connected());
  busy.send("x");
  EXPECT_NE(busy.read_until("</a:x>").find("</a:x>"), std::string::npos);
  // (Behind its reply it takes the server a moment to wait for the next request.)
  EXPECT_TRUE(eventually([&] { return TlsClient(server_->port()).is_connected(); }));
}

TEST_F(TlsServerTest, ShowsTheCertificateThatIsThereNow) {
  start({.header_timeout = 600 * kNanosPerSecond});
  TlsClient before(server_->port());
  EXPECT_EQ(before.shown_name(), "first");
  const TlsFiles next = make_certificate(folder_, "second");
  // The certificate without its key changes nothing.
  std::filesystem::rename(next.certificate, files_.certificate);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(TlsClient(server_->port()).shown_name(), "first");
  std::filesystem::rename(next.key, files_.key);
  EXPECT_TRUE(eventually([&] { return TlsClient(server_->port()).shown_name() == "second"; }));
  // Who was connected stays so.
  before.send("GET /still HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(before.read_until("</still:>").find("</still:>"), std::string::npos);
}

}  // namespace
}  // namespace loci
