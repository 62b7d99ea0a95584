// SPDX-License-Identifier: Apache-2.0
// One connection to a store that speaks Redis's protocol. The protocol is hiredis's (its formatter and its
// reader); the socket is this one's, with TLS by OpenSSL, as a whole operation must have a deadline: a store
// that sends a byte a second would outlive any limit on single reads.
//
// Commands may be sent ahead of their replies, which come in the same order. After any error but a reply's
// own (RedisReply::kError) nothing more can be had of the connection.
//
// A second kind of connection, redis_cluster.h, is to all nodes of a Redis Cluster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/redis_address.h"
#include "loci/memory/shared/redis_resolver.h"

namespace loci {

struct RedisReply {
  enum class Kind : std::uint8_t {
    kNil,
    kInteger,
    kText,
    kBytes,
    kError,
    kAway,  // of a cluster: nobody who could answer is there (redis_cluster.h)
  };
  Kind kind = Kind::kNil;
  std::int64_t integer = 0;
  std::vector<std::byte> bytes;  // of kText, kBytes and kError
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  // For an operator: what the store says in a kError.
  std::string said() const;
};

// Ends all waiting for a connection's bytes, for good. Thread-safe.
class RedisStop {
 public:
  RedisStop();
  ~RedisStop();
  RedisStop(const RedisStop&) = delete;
  RedisStop& operator=(const RedisStop&) = delete;
  void stop();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// One thread's.
class RedisConnection {
 public:
  // A command's words, which may have any bytes.
  using Words = std::vector<std::string_view>;

  // Connects to what the resolver says of the address's host, logs in and chooses the database, all by
  // `deadline` (of `clock`). `clock` and `stop` must outlive it. Errors: kUnavailable (nobody is there, TLS),
  // kInvalidArgument (the store refuses the login or the database, or is none), kDeadlineExceeded,
  // kCancelled.
  static Result<std::unique_ptr<RedisConnection>> open(const RedisAddress& address, RedisResolver& resolver,
                                                       const Clock& clock, const RedisStop& stop,
                                                       Nanos deadline);
  virtual ~RedisConnection() = default;

  // As far as is known, the store has not closed it and has sent nothing that was not asked for.
  virtual bool is_open() const = 0;
  virtual Status send(const Words& command, Nanos deadline) = 0;
  // `reply`: its memory is used again. Errors: kDataLoss (not the protocol, or a reply of more than
  // `bytes_max`), kUnavailable (closed), kDeadlineExceeded, kCancelled.
  virtual Status receive(std::uint64_t bytes_max, Nanos deadline, RedisReply& reply) = 0;
};

}  // namespace loci
