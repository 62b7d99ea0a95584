// SPDX-License-Identifier: Apache-2.0
// For tests: a server in this process that speaks as much of S3's protocol as the store uses, verifies
// signatures as S3 does, and misbehaves as it is told.
#pragma once

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/ascii.h"
#include "loci/base/clock.h"
#include "loci/base/hex.h"
#include "loci/base/mutex.h"
#include "loci/memory/shared/s3_reply.h"
#include "loci/memory/shared/server_testing.h"

namespace loci {

// Thread-safe.
class S3Fake {
 public:
  struct Request {
    std::string method, path;
    std::map<std::string, std::string> header;  // names in small letters
    std::string body;
  };
  struct Object {
    std::string bytes;
    std::int64_t age = 0;  // seconds
    friend bool operator==(const Object&, const Object&) = default;
  };
  using Objects = std::map<std::string, Object>;  // by the path
  // What is sent for a request; absent: as S3 would answer. An empty string: nothing, ever. Stores ask until
  // they end: it owns what it has, or has what outlives them.
  using Answer = std::function<std::optional<std::string>(const Request&)>;

  static constexpr const char* kKeyId = "AKIDEXAMPLE";
  static constexpr const char* kSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
  static constexpr const char* kBucket = "bucket";

  ~S3Fake() { server_.stop(); }

  std::uint16_t port() const { return server_.port(); }
  void stop() { server_.stop(); }
  void dribble(std::chrono::milliseconds pause) { server_.dribble(pause); }
  void hang_up(int replies) { server_.hang_up(replies); }
  void answer(Answer answer) {
    const MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }
  // Requests have it and sign it.
  void expect_token(std::string token) {
    const MutexLock lock(mutex_);
    token_ = std::move(token);
  }
  Objects objects() const {
    const MutexLock lock(mutex_);
    return objects_;
  }
  void set_objects(Objects objects) {
    const MutexLock lock(mutex_);
    objects_ = std::move(objects);
  }
  // Of that method, ever.
  std::uint64_t requests(const std::string& method) const {
    const MutexLock lock(mutex_);
    const auto found = counts_.find(method);
    return found == counts_.end() ? 0 : found->second;
  }
  // Under way at once, at most.
  std::size_t most_at_once() const {
    const MutexLock lock(mutex_);
    return most_at_once_;
  }

  static std::string reply(const std::string& status, const std::string& header, const std::string& body) {
    return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nDate: {}\r\n{}\r\n{}", status, body.size(),
                       date(0), header, body);
  }
  static std::string error(const std::string& status, const std::string& code) {
    return reply(status, "Content-Type: application/xml\r\n",
                 fmt::format("<?xml version=\"1.0\"?>\n<Error><Code>{}</Code><Message>It &lt;says&gt; "
                             "so.</Message><Region>eu-west-7</Region></Error>",
                             code));
  }

 private:
  static std::string date(std::int64_t age) {
    const std::time_t when = seconds_since_1970() - age;
    std::tm parts{};
    ::gmtime_r(&when, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return text;
  }

  // The header, and then the body, which may have to be asked for.
  std::optional<std::string> converse(std::string& input, bool& has_asked) {
    const std::size_t end = input.find("\r\n\r\n");
    if (end == std::string::npos) return std::nullopt;
    Request request;
    std::istringstream lines(input.substr(0, end + 2));
    std::string line;
    std::getline(lines, line);
    std::istringstream(line) >> request.method >> request.path;
    while (std::getline(lines, line)) {
      const std::size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      request.header[lower_ascii(line.substr(0, colon))] = s3_trimmed(line.substr(colon + 1));
    }
    const auto length = static_cast<std::size_t>(std::atoll(request.header["content-length"].c_str()));
    if (input.size() < end + 4 + length) {
      if (request.header["expect"].empty() || std::exchange(has_asked, true)) return std::nullopt;
      return "HTTP/1.1 100 Continue\r\n\r\n";
    }
    has_asked = false;
    request.body = input.substr(end + 4, length);
    input.erase(0, end + 4 + length);
    return reply_to(request);
  }

  std::string reply_to(const Request& request) {
    Answer special;
    {
      const MutexLock lock(mutex_);
      ++counts_[request.method];
      most_at_once_ = std::max(most_at_once_, ++at_once_);
      special = answer_;
    }
    std::optional<std::string> text;
    if (special) text = special(request);
    const MutexLock lock(mutex_);
    --at_once_;
    return text ? *text : usual_reply(request);
  }

  std::string usual_reply(const Request& request) REQUIRES(mutex_) {
    const std::string fault = login_fault(request);
    if (!fault.empty()) return error("403 Forbidden", fault);
    if (!request.path.starts_with(fmt::format("/{}/", kBucket)))
      return error("404 Not Found", "NoSuchBucket");
    const auto found = objects_.find(request.path);
    if (request.method == "DELETE") {
      objects_.erase(request.path);
      return "HTTP/1.1 204 No Content\r\n\r\n";
    }
    if (request.method == "PUT") return put(request);
    if (found == objects_.end()) {
      std::string missing = error("404 Not Found", "NoSuchKey");
      if (request.method == "HEAD") missing.erase(missing.find("\r\n\r\n") + 4);
      return missing;
    }
    const Object& object = found->second;
    const std::string dated = fmt::format("Last-Modified: {}\r\n", date(object.age));
    if (request.method == "HEAD")
      return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nDate: {}\r\n{}\r\n", object.bytes.size(),
                         date(0), dated);
    return get(request, object, dated);
  }

  static std::string get(const Request& request, const Object& object, const std::string& dated) {
    const auto range = request.header.find("range");
    if (range == request.header.end()) return reply("200 OK", dated, object.bytes);
    std::size_t first = 0, last = 0;
    LOCI_CHECK(std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &first, &last) == 2, "a range");
    if (first >= object.bytes.size()) return error("416 Range Not Satisfiable", "InvalidRange");
    const std::string part = object.bytes.substr(first, last - first + 1);
    return reply("206 Partial Content",
                 fmt::format("{}Content-Range: bytes {}-{}/{}\r\n", dated, first, first + part.size() - 1,
                             object.bytes.size()),
                 part);
  }

  std::string put(const Request& request) REQUIRES(mutex_) {
    const auto source = request.header.find("x-amz-copy-source");
    if (source == request.header.end()) {
      objects_[request.path] = {.bytes = request.body};
      return reply("200 OK", "", "");
    }
    const auto found = objects_.find(source->second);
    const auto directive = request.header.find("x-amz-metadata-directive");
    if (found == objects_.end()) return error("404 Not Found", "NoSuchKey");
    // As S3 has it of an object that is copied onto itself.
    if (directive == request.header.end() || directive->second != "REPLACE")
      return error("400 Bad Request", "InvalidRequest");
    objects_[request.path] = {.bytes = found->second.bytes};
    return reply("200 OK", "", "<CopyObjectResult></CopyObjectResult>");
  }

  // --- AWS Signature Version 4, of requests without a query ---

  using Hash = std::array<unsigned char, 32>;
  static Hash hmac(std::string_view key, std::string_view text) {
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.data()), key.size());
    crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    Hash hash{};
    crypto_auth_hmacsha256_final(&state, hash.data());
    return hash;
  }
  static std::string_view view(const Hash& hash) {
    return {reinterpret_cast<const char*>(hash.data()), hash.size()};
  }
  static std::string sha256(std::string_view text) {
    Hash hash{};
    crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
    return to_hex(hash);
  }
  static std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t at = text.find(begin);
    if (at == std::string::npos) return "";
    return text.substr(at + begin.size(), text.find(end, at) - at - begin.size());
  }

  // The error's code; empty: the request is signed by whom it should be.
  std::string login_fault(const Request& request) const REQUIRES(mutex_) {
    std::map<std::string, std::string> header = request.header;
    const std::string login = header["authorization"] + ",";
    const std::string credential = between(login, "Credential=", ","),
                      names = between(login, "SignedHeaders=", ",");
    const std::string key_id = credential.substr(0, credential.find('/'));
    const std::string scope = credential.substr(std::min(credential.size(), key_id.size() + 1));
    if (key_id != kKeyId) return "InvalidAccessKeyId";
    if (header["x-amz-security-token"] != token_) return "InvalidToken";
    std::string lines;
    std::istringstream split(names);
    for (std::string name; std::getline(split, name, ';');) lines += name + ":" + header[name] + "\n";
    for (const auto& [name, value] : request.header) {
      const bool must_be_signed = name == "host" || name.starts_with("x-amz-");
      if (must_be_signed && fmt::format(";{};", names).find(fmt::format(";{};", name)) == std::string::npos)
        return "SignatureDoesNotMatch";
    }
    const std::string body_hash = header["x-amz-content-sha256"];
    if (body_hash != "UNSIGNED-PAYLOAD" && body_hash != sha256(request.body))
      return "XAmzContentSHA256Mismatch";
    const std::string canonical =
        fmt::format("{}\n{}\n\n{}\n{}\n{}", request.method, request.path, lines, names, body_hash);
    const std::string text =
        fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", header["x-amz-date"], scope, sha256(canonical));
    Hash key = hmac(std::string("AWS4") + kSecret, scope.substr(0, scope.find('/')));
    std::istringstream parts(scope.substr(scope.find('/') + 1));
    for (std::string part; std::getline(parts, part, '/');) key = hmac(view(key), part);
    const bool is_genuine = to_hex(hmac(view(key), text)) == between(login, "Signature=", ",");
    return is_genuine ? "" : "SignatureDoesNotMatch";
  }

  mutable Mutex mutex_;
  Answer answer_ GUARDED_BY(mutex_);
  std::string token_ GUARDED_BY(mutex_);
  Objects objects_ GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> counts_ GUARDED_BY(mutex_);
  std::size_t at_once_ GUARDED_BY(mutex_) = 0, most_at_once_ GUARDED_BY(mutex_) = 0;
  FakeServer server_{[this] {
    return [this, has_asked = false](std::string& input) mutable { return converse(input, has_asked); };
  }};
};

}  // namespace loci
