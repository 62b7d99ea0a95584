// SPDX-License-Identifier: Apache-2.0
// Requests to one bucket of an S3 store, many at once on one thread: libcurl's, which also signs them (AWS
// Signature Version 4) and keeps connections. Requests of a kind go in a *lane*, which has so many under way
// and lets the others wait in order. An answer that asks for patience (429, 5xx) and a connection that breaks
// are tried again, each time after a longer pause.
//
// What is signed: the method, the object's path, the header, and of a body that it has any: it is sealed by
// whoever made it (shared_format.h), so no hash of it is signed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/s3_address.h"
#include "loci/memory/shared/s3_credentials.h"
#include "loci/memory/shared/s3_reply.h"

namespace loci {

struct S3Reply {
  // Ok: the store answered, whatever it said (head.code). kUnavailable: nobody is there, TLS;
  // kDeadlineExceeded; kCancelled: the client ends; kDataLoss: it is not HTTP, or not what was asked for.
  Status status;
  S3Head head;
  S3Error error;          // of an answer that is one and has a body
  bool was_sent = false;  // false: it waited for its turn until it was too late
  // The store may yet do what a try asked for: it got no answer, or 5xx. (Some answer so and carry it out.)
  bool is_open = false;
  std::uint64_t taken = 0;  // bytes of kRead

  bool is(std::uint32_t code) const { return status.ok() && head.code == code; }
};

struct S3Request {
  enum class Verb : std::uint8_t {
    kHead,   // how large it is, and how old
    kRead,   // bytes [first, first + bytes)
    kWrite,  // the whole object
    kRenew,  // the object onto itself, so that it is new
    kDelete,
    kProbe,  // as kRead, of an object that is not there: an error with a body, which kHead has not
  };
  enum class Lane : std::uint8_t { kQuestions, kReads, kWrites, kDeletions };

  Verb verb = Verb::kHead;
  Lane lane = Lane::kQuestions;
  std::string name;  // below the address's prefix; nothing in it is escaped in a URL
  std::uint64_t first = 0, bytes = 0;
  std::vector<std::byte> body;
  Nanos waits_until = 0;  // it is sent by then, or not at all
  Nanos time_limit = 0;   // of each try
  std::uint32_t tries = 1;
  // Of kRead: bytes of the object, in order, each once, also over several tries. False: no more of them.
  std::function<bool(const S3Head& head, std::span<const std::byte> bytes)> take;
  std::function<void(const S3Reply& reply)> done;  // once
};

// Thread-safe where it says so; all else on its own thread alone. Callbacks are on its thread and may call
// it.
class S3Client {
 public:
  struct Limits {
    std::size_t questions = 64, reads = 16, writes = 8, deletions = 4;
    Nanos connect = 2 * kNanosPerSecond;
  };
  // `thread`: its name, of at most 15 letters. `clock` must outlive it.
  S3Client(S3Address address, S3Credentials credentials, const Limits& limits, const char* thread,
           const Clock& clock);
  // stop().
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  // Thread-safe. Runs the task on the client's thread, also while it stops. False: it has stopped.
  bool post(std::function<void()> task);
  // Thread-safe. Ends all requests with kCancelled and runs what was posted; then waits for the thread. Not
  // from a callback.
  void stop();

  void begin(S3Request request);
  std::size_t waiting(S3Request::Lane lane) const;
  // Runs the task at that time, unless the client stops before.
  void later(Nanos when, std::function<void()> task);
  // For the requests that are sent from now on.
  void set_credentials(S3Credentials credentials);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loci
