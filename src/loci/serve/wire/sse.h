// SPDX-License-Identifier: Apache-2.0
// Server-sent events: framing for the server, parsing for the client.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

inline constexpr std::string_view kSseDone = "[DONE]";
// Says nothing but that the stream lives: clients pass over comments.
inline constexpr std::string_view kSseComment = ":\n\n";

// One event: "data: ...\n\n". Line ends inside `data` become further data lines.
std::string sse_event(std::string_view data);

// `events`: whole ones. False: they are comments, or nothing.
bool has_event(std::string_view events);

// Takes the stream in pieces of any size and gives the data of whole events. Understands LF, CRLF and
// CR line ends, comments and several data lines; ignores other fields. If an event is larger than the bound,
// it and all that follows is dropped. Thread-compatible.
class SseParser {
 public:
  explicit SseParser(std::size_t event_bytes_max = std::size_t{64} << 20)
      : event_bytes_max_(event_bytes_max) {}
  std::vector<std::string> push(std::string_view piece);
  bool overflowed() const { return overflowed_; }
  std::size_t event_bytes_max() const { return event_bytes_max_; }

 private:
  void end_line(std::vector<std::string>& out);

  std::size_t event_bytes_max_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;
  bool overflowed_ = false;
};

}  // namespace loci
