// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/sse.h"

namespace loci {

std::string sse_event(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 8);
  out += "data: ";
  for (std::size_t i = 0; i < data.size(); ++i) {
    const char c = data[i];
    if (c == '\r' && i + 1 < data.size() && data[i + 1] == '\n') continue;
    if (c == '\n' || c == '\r')
      out += "\ndata: ";
    else
      out += c;
  }
  out += "\n\n";
  return out;
}

void SseParser::end_line(std::vector<std::string>& out) {
  if (line_.empty()) {
    if (has_data_) out.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
    return;
  }
  std::string_view line = line_;
  if (line.starts_with("data:")) {
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
}

bool has_event(std::string_view events) {
  while (!events.empty()) {
    if (!events.starts_with(':')) return true;
    const std::size_t end = events.find("\n\n");
    if (end == std::string_view::npos) return false;
    events.remove_prefix(end + 2);
  }
  return false;
}

std::vector<std::string> SseParser::push(std::string_view piece) {
  std::vector<std::string> out;
  for (const char c : piece) {
    if (overflowed_) break;
    const bool second_of_crlf = after_cr_ && c == '\n';
    after_cr_ = c == '\r';
    if (second_of_crlf) continue;
    if (c == '\n' || c == '\r') {
      end_line(out);
    } else {
      line_ += c;
      overflowed_ = line_.size() + data_.size() > event_bytes_max_;
    }
  }
  return out;
}

}  // namespace loci
