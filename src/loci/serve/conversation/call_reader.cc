// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/call_reader.h"

#include <algorithm>
#include <utility>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

std::string json_text(std::string_view text) { return dump_json(Json(text)); }

bool is_name_key(std::string_view key) { return key == "\"name\"" || key == "\"tool_name\""; }
bool is_arguments_key(std::string_view key) { return key == "\"arguments\"" || key == "\"parameters\""; }

}  // namespace

void CallReader::start(std::string name) {
  open_ = true;
  pieces_.emplace_back(ToolCallStart{.id = {}, .name = std::move(name)});
}

void CallReader::arguments(std::string_view text) {
  if (!text.empty()) pieces_.emplace_back(ToolCallPiece{std::string(text)});
}

void CallReader::end() {
  open_ = false;
  pieces_.emplace_back(ToolCallEnd{});
}

// --- JSON calls ---

CallReader::Step JsonCallReader::begin_item() {
  name_.clear();
  arguments_.clear();
  has_arguments_ = false;
  state_ = State::kKeyOrClose;
  return Step::kMore;
}

CallReader::Step JsonCallReader::push(char byte) {
  if (state_ == State::kValue) return value_byte(byte);
  if (state_ == State::kKey) {
    key_ += byte;
    const JsonScanner::Step step = scanner_.push(byte);
    if (step == JsonScanner::Step::kInvalid) return Step::kInvalid;
    if (step != JsonScanner::Step::kEnd) return Step::kMore;
    state_ = State::kColon;
    return is_expected_key() ? Step::kMore : Step::kInvalid;
  }
  if (is_json_space(byte)) return Step::kMore;
  switch (state_) {
    case State::kBegin:
      if (byte != '[') return byte == '{' ? begin_item() : Step::kInvalid;
      array_ = true;
      state_ = State::kItem;
      return Step::kMore;
    case State::kItem: return byte == '{' ? begin_item() : Step::kInvalid;
    case State::kKeyOrClose:
      if (byte == '}') return end_item();
      [[fallthrough]];
    case State::kKeyBegin:
      if (byte != '"') return Step::kInvalid;
      scanner_ = JsonScanner();
      scanner_.push(byte);
      key_ = byte;
      state_ = State::kKey;
      return Step::kMore;
    case State::kColon: state_ = State::kValueBegin; return byte == ':' ? Step::kMore : Step::kInvalid;
    case State::kValueBegin: return begin_value(byte);
    case State::kCommaOrClose:
      if (byte == '}') return end_item();
      state_ = State::kKeyBegin;
      return byte == ',' ? Step::kMore : Step::kInvalid;
    default:  // kAfterItem
      if (byte == ']') return Step::kEnd;
      state_ = State::kItem;
      return byte == ',' ? Step::kMore : Step::kInvalid;
  }
}

bool JsonCallReader::is_expected_key() const {
  if (members_ == Members::kAny) return true;
  return name_.empty() ? is_name_key(key_) : !has_arguments_ && is_arguments_key(key_);
}

CallReader::Step JsonCallReader::begin_value(char byte) {
  const bool arguments_follow = is_arguments_key(key_);
  if (arguments_follow && has_arguments_) return Step::kInvalid;
  if (is_name_key(key_) && !name_.empty()) return Step::kInvalid;
  scanner_ = JsonScanner();
  value_.clear();
  streaming_ = arguments_follow && byte == '{' && !name_.empty();
  if (streaming_) start(name_);
  state_ = State::kValue;
  return value_byte(byte);
}

CallReader::Step JsonCallReader::value_byte(char byte) {
  std::string text;
  if (scanner_.in_string())
    append_string_byte(byte, text);
  else
    text = byte;
  const JsonScanner::Step step = scanner_.push(byte);
  if (step == JsonScanner::Step::kInvalid) return Step::kInvalid;
  if (step == JsonScanner::Step::kBefore) {
    const Step ended = end_value();
    return ended == Step::kMore ? push(byte) : ended;
  }
  if (streaming_)
    arguments(text);
  else
    value_ += text;
  return step == JsonScanner::Step::kEnd ? end_value() : Step::kMore;
}

CallReader::Step JsonCallReader::end_value() {
  state_ = State::kCommaOrClose;
  if (is_name_key(key_)) {
    const Result<Json> name = parse_json(value_);
    if (!name.ok() || !name->is_string()) return Step::kInvalid;
    name_ = name->get<std::string>();
    return name_.empty() || !accept_(name_) ? Step::kInvalid : Step::kMore;
  }
  if (!is_arguments_key(key_)) return Step::kMore;
  has_arguments_ = true;
  if (streaming_) return Step::kMore;
  if (value_.front() == '{') {
    arguments_ = value_;
  } else if (value_ == "null") {
    arguments_ = "{}";
  } else {
    // Some models write the object as a string, as OpenAI's API does.
    const Result<Json> text = parse_json(value_);
    if (!text.ok() || !text->is_string()) return Step::kInvalid;
    arguments_ = text->get<std::string>();
    const Result<Json> object = parse_json(arguments_);
    if (!object.ok() || !object->is_object()) return Step::kInvalid;
  }
  return Step::kMore;
}

CallReader::Step JsonCallReader::end_item() {
  if (name_.empty()) return Step::kInvalid;
  if (members_ == Members::kNameThenArguments && !has_arguments_) return Step::kInvalid;
  if (!open()) {
    start(name_);
    arguments(has_arguments_ ? arguments_ : "{}");
  }
  end();
  state_ = State::kAfterItem;
  return array_ ? Step::kMore : Step::kEnd;
}

// --- arguments alone ---

CallReader::Step ArgumentsReader::push(char byte) {
  if (!open()) {
    if (is_json_space(byte)) return Step::kMore;
    if (byte != '{') return Step::kInvalid;
    start(name_);
  }
  std::string text;
  if (scanner_.in_string())
    append_string_byte(byte, text);
  else
    text = byte;
  const JsonScanner::Step step = scanner_.push(byte);
  if (step == JsonScanner::Step::kInvalid) return Step::kInvalid;
  arguments(text);
  if (step == JsonScanner::Step::kMore) return Step::kMore;
  end();
  return Step::kEnd;
}

// --- arguments as XML ---

namespace {
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::size_t kParameterNameMax = 256;
}  // namespace

CallReader::Step XmlArgumentsReader::push(char byte) {
  if (!in_value_ && read_.empty() && is_json_space(byte)) return Step::kMore;
  read_ += byte;
  if (!in_value_) return between();
  return read_.ends_with(kParameterEnd) ? parameter_ended() : Step::kMore;
}

CallReader::Step XmlArgumentsReader::between() {
  if (kFunctionEnd.starts_with(read_)) {
    if (read_.size() < kFunctionEnd.size()) return Step::kMore;
    if (parameters_ == 0) start(name_);
    arguments(parameters_ == 0 ? "{}" : "}");
    end();
    return Step::kEnd;
  }
  if (kParameter.starts_with(read_)) return Step::kMore;
  if (!read_.starts_with(kParameter) || read_.size() > kParameter.size() + kParameterNameMax)
    return Step::kInvalid;
  if (read_.back() != '>') return Step::kMore;
  key_ = read_.substr(kParameter.size(), read_.size() - kParameter.size() - 1);
  read_.clear();
  in_value_ = true;
  return key_.empty() ? Step::kInvalid : Step::kMore;
}

CallReader::Step XmlArgumentsReader::parameter_ended() {
  std::string_view value = read_;
  value.remove_suffix(kParameterEnd.size());
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (parameters_ == 0) start(name_);
  arguments(parameters_ == 0 ? "{" : ", ");
  const bool text =
      std::find(text_parameters_.begin(), text_parameters_.end(), key_) != text_parameters_.end();
  const bool json = !text && parse_json(value).ok();
  arguments(json_text(key_) + ": " + (json ? std::string(value) : json_text(value)));
  ++parameters_;
  in_value_ = false;
  read_.clear();
  return Step::kMore;
}

// --- Gemma 4's notation ---

namespace {
constexpr std::string_view kQuote = "<|\"|>";
}  // namespace

CallReader::Step GemmaArgumentsReader::push(char byte) {
  if (!open()) {
    if (byte != '{') return Step::kInvalid;
    start(name_);
  }
  held_ += byte;
  if (held_ == kQuote) {
    held_.clear();
    return quote();
  }
  Step step = Step::kMore;
  while (step == Step::kMore && !kQuote.starts_with(held_)) {
    const char first = held_.front();
    held_.erase(0, 1);
    step = plain(first);
  }
  return step;
}

bool GemmaArgumentsReader::push_control(std::string_view mark) {
  return mark == kQuote && open() && held_.empty() && quote() != Step::kInvalid;
}

CallReader::Step GemmaArgumentsReader::quote() {
  if (!in_text_ && !word_.empty()) return Step::kInvalid;
  in_text_ = !in_text_;
  return put('"');
}

CallReader::Step GemmaArgumentsReader::put(char byte) {
  const JsonScanner::Step step = scanner_.push(byte);
  if (step != JsonScanner::Step::kMore && step != JsonScanner::Step::kEnd) return Step::kInvalid;
  arguments(std::string_view(&byte, 1));
  if (step == JsonScanner::Step::kMore) return Step::kMore;
  end();
  return Step::kEnd;
}

CallReader::Step GemmaArgumentsReader::plain(char byte) {
  std::string out;
  if (in_text_) {
    if (byte == '"' || byte == '\\') out = '\\';
    append_string_byte(byte, out);
  } else if (std::string_view("{}[],:").find(byte) != std::string_view::npos) {
    const bool plain_value = byte != ':' && Json::accept(word_);
    if (!word_.empty()) out = plain_value ? word_ : json_text(word_);
    word_.clear();
    out += byte;
  } else if (!is_json_space(byte)) {
    word_ += byte;
  }
  Step step = Step::kMore;
  for (std::size_t i = 0; i < out.size() && step == Step::kMore; ++i) step = put(out[i]);
  return step;
}

}  // namespace loci
