// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/output_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/serve/conversation/call_reader.h"
#include "loci/serve/conversation/json_scanner.h"

namespace loci {
namespace {

constexpr std::size_t kHeaderBytesMax = 512;

bool contains(const std::vector<std::string>& list, std::string_view one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Adds a piece of text, to the last one if it is of the same kind.
template <class Piece>
void extend(std::vector<OutputPiece>& pieces, std::string Piece::* field, std::string_view text) {
  if (text.empty()) return;
  if (Piece* last = pieces.empty() ? nullptr : std::get_if<Piece>(&pieces.back())) {
    (last->*field) += text;
    return;
  }
  Piece piece;
  piece.*field = text;
  pieces.emplace_back(std::move(piece));
}

}  // namespace

OutputParser::OutputParser(const OutputSyntax& syntax, OutputParserOptions options)
    : syntax_(&syntax), options_(std::move(options)) {
  if (options_.continues) (options_.begins_in_reasoning ? reasoning_began_ : said_something_) = true;
  if (syntax.harmony() && !options_.continues)
    enter(State::kChannel);
  else
    enter(options_.begins_in_reasoning ? State::kReasoning : State::kText);
}

OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;

std::vector<OutputPiece> OutputParser::take() { return std::exchange(pieces_, {}); }

void OutputParser::enter(State state) {
  state_ = state;
  find_marks();
}

void OutputParser::find_marks() {
  marks_.clear();
  if (is_text_alone()) return;
  if (syntax_->harmony()) {
    if (state_ != State::kHeader && state_ != State::kCall) marks_ = syntax_->marks();
    return;
  }
  const bool tools = !options_.tool_names.empty();
  if (state_ == State::kReasoning) {
    marks_.push_back(syntax_->reasoning_close);
  } else if (state_ == State::kText) {
    if (!syntax_->reasoning_open.empty() && !said_something_ && calls_ == 0)
      marks_.push_back(syntax_->reasoning_open);
    append(marks_, syntax_->ignored);
    if (tools) append(marks_, syntax_->call_open);
    if (tools) append(marks_, syntax_->wrappers);
  } else if (state_ == State::kAfterCall) {
    append(marks_, syntax_->ignored);
    append(marks_, syntax_->call_open);
    append(marks_, syntax_->wrappers);
    append(marks_, syntax_->call_close);
  }
}

// --- what comes in ---

void OutputParser::push(std::string_view text) {
  for (const char c : text) {
    held_ += c;
    advance(Held::kMayGoOn);
  }
}

void OutputParser::push_control(std::string_view text) {
  advance(Held::kIsOver);
  if (state_ == State::kHeader) {
    header_ += text;
    if (header_.size() > kHeaderBytesMax) fail_call();
    return;
  }
  if (state_ == State::kCall) {
    const bool known = reader_->push_control(text);
    take_call_pieces();
    if (known) return;
    fail_call();
  }
  if (contains(marks_, text)) on_mark(std::string(text), /*text=*/{});
}

void OutputParser::finish() {
  if (finished_) return;
  finished_ = true;
  // The beginning of a mark behind a call: the reply's end cut it off.
  if (state_ == State::kAfterCall) held_.clear();
  advance(Held::kIsOver);
  // So did it behind the mark that opens another one.
  if (state_ == State::kHeader && calls_ > 0 && header_.empty()) {
    raw_.clear();
    space_.clear();
  }
  switch (state_) {
    case State::kHeader:
    case State::kCall: fail_call(); [[fallthrough]];
    case State::kText: flush_space(); break;
    case State::kChannel:
      // A header that the reply's end cut off says nothing; without any mark it is no header.
      if (!channel_marked_) emit_text(raw_);
      raw_.clear();
      break;
    default: break;
  }
  space_.clear();
}

// Decides about the first bytes that are held, as far as it can be decided.
void OutputParser::advance(Held held) {
  while (!held_.empty()) {
    const bool looks_for_marks = state_ != State::kHeader && state_ != State::kCall;
    if (looks_for_marks) {
      bool may_become_one = false;
      for (const std::string& mark : marks_) {
        if (!mark.starts_with(held_)) continue;
        if (mark.size() == held_.size()) {
          on_mark(mark, std::exchange(held_, {}));
          return;
        }
        may_become_one = true;
      }
      if (may_become_one && held == Held::kMayGoOn) return;
    }
    const char first = held_.front();
    held_.erase(0, 1);
    on_byte(first);
  }
}

void OutputParser::on_byte(char c) {
  switch (state_) {
    case State::kText: text_byte(c); break;
    case State::kReasoning: reasoning_byte(c); break;
    case State::kHeader: header_byte(c); break;
    case State::kCall: call_byte(c); break;
    case State::kAfterCall:
      if (is_json_space(c)) {
        space_ += c;
      } else if (c == '{' && syntax_->bare_calls()) {
        begin_bare_call(c);
      } else {
        enter(State::kText);
        text_byte(c);
      }
      break;
    case State::kChannel: channel_byte(c); break;
  }
}

// `mark` is a copy: finding the marks of another state replaces them.
void OutputParser::on_mark(std::string mark, std::string text) {
  if (syntax_->harmony()) {
    channel_mark(mark);
  } else if (state_ == State::kReasoning) {
    reasoning_mark(mark);
    reasoned_ = !reasons_in_text();
    enter(State::kText);
  } else if (!syntax_->reasoning_open.empty() && mark == syntax_->reasoning_open) {
    reasoning_mark(mark);
    enter(State::kReasoning);
  } else if (contains(syntax_->call_open, mark)) {
    raw_ = std::move(text);
    header_.clear();
    enter(State::kHeader);
  } else if (state_ == State::kAfterCall) {
    space_.clear();
  }
}

// --- text and reasoning ---

void OutputParser::emit_text(std::string_view text) {
  if (text.empty()) return;
  extend(pieces_, &TextPiece::text, text);
  if (said_something_) return;
  said_something_ = true;
  find_marks();
}

void OutputParser::flush_space() {
  // After reasoning a text begins with its first word.
  if (said_something_ || !reasoned_) emit_text(space_);
  space_.clear();
}

void OutputParser::text_byte(char c) {
  const bool tools = !options_.tool_names.empty();
  if (is_json_space(c) && (tools || !said_something_)) {
    space_ += c;
    return;
  }
  const bool begins = !said_something_ && calls_ == 0;
  const bool lists = options_.calls == CallPlace::kAnywhere;
  if (tools && begins && (c == '{' || (c == '[' && lists)) && syntax_->bare_calls())
    return begin_bare_call(c);
  flush_space();
  emit_text(std::string_view(&c, 1));
}

// Reasoning in the text counts as nothing said: a call may follow it.
void OutputParser::reasoning_mark(std::string_view mark) {
  if (reasons_in_text()) {
    extend(pieces_, &TextPiece::text, space_);
    extend(pieces_, &TextPiece::text, mark);
  }
  space_.clear();
}

void OutputParser::reasoning_byte(char c) {
  if (reasons_in_text()) return extend(pieces_, &TextPiece::text, std::string_view(&c, 1));
  if (is_json_space(c)) {
    space_ += c;
    return;
  }
  if (reasoning_began_) extend(pieces_, &ReasoningPiece::text, space_);
  space_.clear();
  reasoning_began_ = true;
  extend(pieces_, &ReasoningPiece::text, std::string_view(&c, 1));
}

// --- calls ---

std::unique_ptr<CallReader> OutputParser::make_json_reader() const {
  // Without a mark that says so, only what calls one of the request's tools is a call.
  const bool is_any = !syntax_->bare_calls() && options_.other_tools == OtherTools::kCalled;
  const bool is_strict = syntax_->bare_calls() && options_.calls == CallPlace::kInsteadOfText;
  return std::make_unique<JsonCallReader>(
      [is_any, names = is_any ? std::vector<std::string>() : options_.tool_names](std::string_view name) {
        return is_any || contains(names, name);
      },
      is_strict ? JsonCallReader::Members::kNameThenArguments : JsonCallReader::Members::kAny);
}

bool OutputParser::is_called(std::string_view name) const {
  return options_.other_tools == OtherTools::kCalled || contains(options_.tool_names, name);
}

void OutputParser::begin_bare_call(char first) {
  raw_.clear();
  reader_ = make_json_reader();
  enter(State::kCall);
  call_byte(first);
}

void OutputParser::header_byte(char c) {
  const CallBody body = syntax_->body;
  const bool json = body == CallBody::kJson || body == CallBody::kEither;
  const char end = body == CallBody::kNameXml ? '>' : '{';
  if (header_.empty() && is_json_space(c)) {
    raw_ += c;
  } else if (json && header_.empty() && (c == '{' || c == '[')) {
    reader_ = make_json_reader();
    enter(State::kCall);
    call_byte(c);
  } else if (body == CallBody::kJson || header_.size() >= kHeaderBytesMax) {
    raw_ += c;
    fail_call();
  } else if (c == end) {
    begin_named_call(c);
  } else {
    raw_ += c;
    header_ += c;
  }
}

void OutputParser::begin_named_call(char first) {
  std::string name = syntax_->name_in_header(std::exchange(header_, {}));
  if (name.empty() || !is_called(name)) {
    raw_ += first;
    return fail_call();
  }
  enter(State::kCall);
  switch (syntax_->body) {
    case CallBody::kNameXml: {
      const auto text = options_.text_parameters.find(name);
      reader_ = std::make_unique<XmlArgumentsReader>(
          name, text == options_.text_parameters.end() ? std::vector<std::string>() : text->second);
      raw_ += first;
      return;
    }
    case CallBody::kNameGemma4: reader_ = std::make_unique<GemmaArgumentsReader>(std::move(name)); break;
    default: reader_ = std::make_unique<ArgumentsReader>(std::move(name)); break;
  }
  call_byte(first);
}

void OutputParser::call_byte(char c) {
  raw_ += c;
  const CallReader::Step step = reader_->push(c);
  take_call_pieces();
  if (step == CallReader::Step::kInvalid) return fail_call();
  if (step != CallReader::Step::kEnd) return;
  reader_.reset();
  raw_.clear();
  enter(State::kAfterCall);
}

void OutputParser::take_call_pieces() {
  for (OutputPiece& piece : reader_->take()) {
    if (auto* start = std::get_if<ToolCallStart>(&piece)) {
      start->id = fmt::format("{}{}", options_.id_prefix, calls_++);
      space_.clear();
    }
    raw_.clear();
    if (const auto* arguments = std::get_if<ToolCallPiece>(&piece))
      extend(pieces_, &ToolCallPiece::arguments, arguments->arguments);
    else
      pieces_.push_back(std::move(piece));
  }
}

// What was read is no call, or breaks off.
void OutputParser::fail_call() {
  if (reader_ && reader_->open()) pieces_.emplace_back(ToolCallEnd{});
  reader_.reset();
  header_.clear();
  enter(State::kText);
  const std::string raw = std::exchange(raw_, {});
  if (raw.find_first_not_of(" \n\r\t") == std::string::npos) {
    space_ += raw;
    return;
  }
  flush_space();
  emit_text(raw);
}

// --- harmony's channels ---

void OutputParser::channel_byte(char c) {
  raw_ += c;
  header_ += c;
  if (header_.size() <= kHeaderBytesMax) return;
  header_.clear();
  enter(State::kText);
  emit_text(std::exchange(raw_, {}));
}

void OutputParser::channel_mark(std::string_view mark) {
  channel_marked_ = true;
  if (state_ == State::kChannel) {
    if (mark == "<|message|>") return begin_channel_body();
    if (mark == "<|channel|>" || mark == "<|constrain|>") {
      header_ += mark;
      return;
    }
  } else if (state_ == State::kText) {
    flush_space();
  } else if (state_ == State::kReasoning) {
    reasoning_mark(mark);
  }
  // Every other mark ends what was there.
  space_.clear();
  raw_.clear();
  header_ = mark == "<|channel|>" ? mark : std::string_view();
  enter(State::kChannel);
}

void OutputParser::begin_channel_body() {
  const std::string header = std::exchange(header_, {});
  raw_.clear();
  const auto word_after = [&](std::string_view what) {
    const std::size_t at = header.find(what);
    if (at == std::string::npos) return std::string();
    const std::size_t begin = at + what.size();
    return header.substr(begin, header.find_first_of(" <\n", begin) - begin);
  };
  const std::string channel = word_after("<|channel|>");
  const std::string recipient = word_after("to=");
  const std::string name = syntax_->name_in_header(recipient);
  const bool is_call = !name.empty() && recipient.starts_with("functions.");
  if (is_call && !options_.tool_names.empty() && is_called(name)) {
    reader_ = std::make_unique<ArgumentsReader>(name);
    enter(State::kCall);
  } else if (channel == "analysis") {
    if (reasoning_began_) space_ = "\n";  // between two messages
    if (reasons_in_text()) reasoning_mark(header + "<|message|>");
    enter(State::kReasoning);
  } else {
    enter(State::kText);
  }
}

}  // namespace loci
