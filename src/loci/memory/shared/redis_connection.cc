// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/descriptor.h"

namespace loci {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::uint64_t kSmallReplyBytesMax = 64u << 10;
constexpr std::string_view kCapitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

Status late() { return {StatusCode::kDeadlineExceeded, "the store did not answer in time"}; }
Status closed(std::string_view why) {
  return {StatusCode::kUnavailable, fmt::format("the connection failed: {}", why)};
}

// Waits until the socket may be read or written (`events` of poll()).
Status wait_for(int socket, short events, const Clock& clock, const RedisStop& stop, Nanos deadline) {
  while (true) {
    const Nanos left = deadline - clock.now();
    if (left <= 0) return late();
    std::array<pollfd, 2> watched = {{{.fd = socket, .events = events, .revents = 0},
                                      {.fd = stop.descriptor(), .events = POLLIN, .revents = 0}}};
    const timespec wait{.tv_sec = left / kNanosPerSecond, .tv_nsec = left % kNanosPerSecond};
    const int ready = ::ppoll(watched.data(), watched.size(), &wait, nullptr);
    if (ready < 0 && errno != EINTR) return closed(std::strerror(errno));
    if (watched[1].revents != 0) return {StatusCode::kCancelled, "the store is being closed"};
    if (ready > 0 && watched[0].revents != 0) return {};
  }
}

// Until when an address is waited for: whoever does not answer leaves time for those behind it.
Nanos share_of(const addrinfo* address, Nanos now, Nanos deadline) {
  Nanos left = 0;
  for (const addrinfo* one = address; one != nullptr; one = one->ai_next) ++left;
  return now + (deadline - now) / left;
}

Result<Descriptor> connect_to(RedisResolver& resolver, const Clock& clock, const RedisStop& stop,
                              Nanos deadline) {
  LOCI_ASSIGN_OR_RETURN(const RedisResolver::Addresses found, resolver.resolve(deadline));
  Status last = closed("no address");
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) continue;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
    if (errno != EINPROGRESS) {
      last = closed(std::strerror(errno));
      continue;
    }
    const Status answered =
        wait_for(socket.get(), POLLOUT, clock, stop, share_of(one, clock.now(), deadline));
    if (answered.code() == StatusCode::kDeadlineExceeded) {
      last = answered;
      continue;
    }
    LOCI_RETURN_IF_ERROR(answered);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return socket;
    last = closed(std::strerror(error));
  }
  return last;
}

// --- the protocol's reader ---

RedisReply& reply_of(const redisReadTask* task) { return *static_cast<RedisReply*>(task->privdata); }

void* create_text(const redisReadTask* task, char* text, std::size_t size) {
  RedisReply& reply = reply_of(task);
  reply.kind = task->type == REDIS_REPLY_ERROR    ? RedisReply::Kind::kError
               : task->type == REDIS_REPLY_STATUS ? RedisReply::Kind::kText
                                                  : RedisReply::Kind::kBytes;
  const auto* bytes = reinterpret_cast<const std::byte*>(text);
  reply.bytes.assign(bytes, bytes + size);
  return &reply;
}
void* create_integer(const redisReadTask* task, long long value) {
  reply_of(task).kind = RedisReply::Kind::kInteger;
  reply_of(task).integer = value;
  return &reply_of(task);
}
void* create_nil(const redisReadTask* task) {
  reply_of(task).kind = RedisReply::Kind::kNil;
  return &reply_of(task);
}
// No command that is sent has an array for a reply.
void* create_array(const redisReadTask*, int) { return nullptr; }
void free_nothing(void*) {}

redisReplyObjectFunctions reply_functions() {
  return {create_text, create_array, create_integer, create_nil, free_nothing};
}

struct FreeReader {
  void operator()(redisReader* reader) const { redisReaderFree(reader); }
};

// --- TLS ---

struct FreeTls {
  void operator()(SSL* tls) const { SSL_free(tls); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

std::string tls_error() {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return text.data();
}

// --- the connection ---

class SocketConnection final : public RedisConnection {
 public:
  SocketConnection(Descriptor socket, const Clock& clock, const RedisStop& stop)
      : socket_(std::move(socket)), clock_(clock), stop_(stop), functions_(reply_functions()) {
    reader_.reset(redisReaderCreateWithFunctions(&functions_));
    LOCI_CHECK(reader_ != nullptr, "memory for a reader");
    reader_->maxbuf = 0;  // its buffer is kept
    input_.resize(kReadBytes);
  }

  // Certificates are checked against the system's authorities (or SSL_CERT_FILE's) and the host's name.
  Status begin_tls(const std::string& host, Nanos deadline) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (context_ == nullptr || SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_default_verify_paths(context_.get()) != 1)
      return closed(tls_error());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    tls_.reset(SSL_new(context_.get()));
    if (tls_ == nullptr || SSL_set_fd(tls_.get(), socket_.get()) != 1) return closed(tls_error());
    X509_VERIFY_PARAM* expected = SSL_get0_param(tls_.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) != 1) {
      if (SSL_set1_host(tls_.get(), host.c_str()) != 1 ||
          SSL_set_tlsext_host_name(tls_.get(), host.c_str()) != 1)
        return closed(tls_error());
    }
    while (true) {
      ERR_clear_error();
      const int result = SSL_connect(tls_.get());
      if (result == 1) return {};
      LOCI_RETURN_IF_ERROR(wait_for_tls(result, deadline));
    }
  }

  Status log_in(const RedisAddress& address, Nanos deadline) {
    RedisReply reply;
    if (!address.password.empty()) {
      Words words = {"AUTH"};
      if (!address.user.empty()) words.emplace_back(address.user);
      words.emplace_back(address.password);
      LOCI_RETURN_IF_ERROR(ask(words, "the store refuses the user or the password", deadline, reply));
    }
    if (address.database != 0) {
      const std::string number = fmt::format("{}", address.database);
      LOCI_RETURN_IF_ERROR(
          ask({"SELECT", number}, "the store refuses the database's number", deadline, reply));
    }
    return ask({"PING"}, "the store refuses commands", deadline, reply);
  }

  bool is_open() const override {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

  Status send(const Words& command, Nanos deadline) override {
    std::vector<const char*> words;
    std::vector<std::size_t> sizes;
    for (const std::string_view word : command) {
      words.push_back(word.data());
      sizes.push_back(word.size());
    }
    char* text = nullptr;
    const int size =
        redisFormatCommandArgv(&text, static_cast<int>(words.size()), words.data(), sizes.data());
    LOCI_CHECK(size >= 0, "memory for a command");
    const std::unique_ptr<char, void (*)(char*)> owned(text, [](char* t) { redisFreeCommand(t); });
    return write_all({text, static_cast<std::size_t>(size)}, deadline);
  }

  Status receive(std::uint64_t bytes_max, Nanos deadline, RedisReply& reply) override {
    reader_->privdata = &reply;
    reply.bytes.clear();
    reply.integer = 0;
    for (std::uint64_t fed = 0;;) {
      void* whole = nullptr;
      if (redisReaderGetReply(reader_.get(), &whole) != REDIS_OK)
        return data_loss(
            fmt::format("expected a server that speaks Redis's protocol, found another one ({}): check the "
                        "address and the port",
                        reader_->errstr));
      if (whole != nullptr) return {};
      // (What has come and is no reply yet is within the limit, and so is what is read at once.)
      if (fed > bytes_max + kReadBytes)
        return data_loss(fmt::format("expected a reply of at most {} bytes, found a longer one", bytes_max));
      LOCI_ASSIGN_OR_RETURN(const std::size_t size, read_some(deadline));
      if (redisReaderFeed(reader_.get(), input_.data(), size) != REDIS_OK)
        return data_loss("the reply does not fit into memory");
      fed += size;
    }
  }

 private:
  Status ask(const Words& words, std::string_view refusal, Nanos deadline, RedisReply& reply) {
    LOCI_RETURN_IF_ERROR(send(words, deadline));
    Status status = receive(kSmallReplyBytesMax, deadline, reply);
    if (status.code() == StatusCode::kDataLoss) return invalid_argument(status.message());
    LOCI_RETURN_IF_ERROR(status);
    if (reply.kind != RedisReply::Kind::kError) return {};
    // Some servers repeat what they were asked, a password too: of that only the kind of error is shown.
    const std::string_view text = reply.text();
    const std::size_t shown = words.front() == "AUTH" ? text.find_first_not_of(kCapitals) : 200;
    return invalid_argument(
        fmt::format("{}: {}", refusal, text.substr(0, std::min<std::size_t>(shown, 200))));
  }

  Status wait_for_tls(int result, Nanos deadline) {
    const int error = SSL_get_error(tls_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return wait_for(socket_.get(), POLLIN, clock_, stop_, deadline);
    if (error == SSL_ERROR_WANT_WRITE) return wait_for(socket_.get(), POLLOUT, clock_, stop_, deadline);
    if (error == SSL_ERROR_ZERO_RETURN || error == SSL_ERROR_SYSCALL)
      return closed("the store closed the connection");
    return closed(tls_error());
  }

  Status write_all(std::string_view text, Nanos deadline) {
    while (!text.empty()) {
      if (tls_ != nullptr) {
        ERR_clear_error();
        const int sent =
            SSL_write(tls_.get(), text.data(), static_cast<int>(std::min<std::size_t>(text.size(), 1 << 20)));
        if (sent <= 0) {
          LOCI_RETURN_IF_ERROR(wait_for_tls(sent, deadline));
          continue;
        }
        text.remove_prefix(static_cast<std::size_t>(sent));
        continue;
      }
      const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        LOCI_RETURN_IF_ERROR(wait_for(socket_.get(), POLLOUT, clock_, stop_, deadline));
      } else if (errno != EINTR) {
        return closed(std::strerror(errno));
      }
    }
    return {};
  }

  // At least a byte, into input_.
  Result<std::size_t> read_some(Nanos deadline) {
    while (true) {
      if (clock_.now() >= deadline) return late();
      ssize_t got = 0;
      if (tls_ != nullptr) {
        ERR_clear_error();
        got = SSL_read(tls_.get(), input_.data(), static_cast<int>(input_.size()));
        if (got <= 0) {
          LOCI_RETURN_IF_ERROR(wait_for_tls(static_cast<int>(got), deadline));
          continue;
        }
        return static_cast<std::size_t>(got);
      }
      got = ::recv(socket_.get(), input_.data(), input_.size(), 0);
      if (got > 0) return static_cast<std::size_t>(got);
      if (got == 0) return closed("the store closed the connection");
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        LOCI_RETURN_IF_ERROR(wait_for(socket_.get(), POLLIN, clock_, stop_, deadline));
      } else if (errno != EINTR) {
        return closed(std::strerror(errno));
      }
    }
  }

  const Descriptor socket_;
  const Clock& clock_;
  const RedisStop& stop_;
  std::unique_ptr<SSL_CTX, FreeTls> context_;
  std::unique_ptr<SSL, FreeTls> tls_;  // null: none
  redisReplyObjectFunctions functions_;
  std::unique_ptr<redisReader, FreeReader> reader_;
  std::vector<char> input_;
};

}  // namespace

std::string RedisReply::said() const { return fmt::format("the store says: {}", text().substr(0, 200)); }

RedisStop::RedisStop() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  LOCI_CHECK(descriptor_ >= 0, "a descriptor for an event");
}
RedisStop::~RedisStop() { ::close(descriptor_); }
void RedisStop::stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof one);
}

Result<std::unique_ptr<RedisConnection>> RedisConnection::open(const RedisAddress& address,
                                                               RedisResolver& resolver, const Clock& clock,
                                                               const RedisStop& stop, Nanos deadline) {
  LOCI_ASSIGN_OR_RETURN(Descriptor socket, connect_to(resolver, clock, stop, deadline));
  auto connection = std::make_unique<SocketConnection>(std::move(socket), clock, stop);
  if (address.tls) LOCI_RETURN_IF_ERROR(connection->begin_tls(address.host, deadline));
  LOCI_RETURN_IF_ERROR(connection->log_in(address, deadline));
  return std::unique_ptr<RedisConnection>(std::move(connection));
}

}  // namespace loci
