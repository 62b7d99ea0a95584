// SPDX-License-Identifier: Apache-2.0
// From the text of a reply, as it comes, to what the model said by meaning: text, reasoning, calls of tools
// with their arguments streamed.
//
// A parser is total: whatever comes in comes out. A call that turns out to be none comes out as text; one
// that breaks off in its arguments comes out as far as it went, and what follows as text. Only marks of the
// syntax (behind a call, also the part of one that the reply's end cuts off) and the white space around calls
// and reasoning are left out. How the text is cut into pieces makes no difference to the output.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/conversation/output.h"
#include "loci/serve/conversation/output_syntax.h"

namespace loci {

class CallReader;

enum class ReasoningPlace : std::uint8_t {
  kApart,   // pieces of its own, without the marks and the white space around it
  kInText,  // text, as the model wrote it
};

enum class CallPlace : std::uint8_t {
  kAnywhere,
  // A grammar lets the reply be calls in the notation that it writes, or text. Text that has begun stays
  // text, whatever stands in it.
  kInsteadOfText,
};

// What a call of a tool that is not among the names is, where a mark says that it is a call.
enum class OtherTools : std::uint8_t {
  kCalled,  // a call, so that the client can tell the model that it made it up
  kText,    // text, as the reply may not call it
};

struct OutputParserOptions {
  // The tools that the reply may call. None: calls are not looked for.
  std::vector<std::string> tool_names;
  OtherTools other_tools = OtherTools::kCalled;
  CallPlace calls = CallPlace::kAnywhere;
  // Of arguments that a syntax writes without JSON's quotes (kNameXml): the names of each tool's parameters
  // that are strings.
  std::map<std::string, std::vector<std::string>> text_parameters;
  bool begins_in_reasoning = false;  // the prompt ends with the mark that opens it
  bool continues = false;            // the prompt ends in the middle of a text, or of reasoning
  ReasoningPlace reasoning = ReasoningPlace::kApart;
  std::string id_prefix = "call_";  // of the calls' ids, which end in their number
};

// Thread-compatible; `syntax` must outlive it.
class OutputParser {
 public:
  OutputParser(const OutputSyntax& syntax, OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;

  // Whole characters of UTF-8.
  void push(std::string_view text);
  // A control token, by its text: a mark of the syntax, or nothing.
  void push_control(std::string_view text);
  // The reply has ended.
  void finish();

  // What became known since the last call.
  std::vector<OutputPiece> take();

  bool in_reasoning() const { return state_ == State::kReasoning; }
  std::uint32_t calls() const { return calls_; }  // begun
  // Bytes of pushed text about which nothing is known yet.
  std::uint64_t undecided() const { return held_.size() + space_.size() + raw_.size(); }

 private:
  enum class State : std::uint8_t {
    kText,
    kReasoning,
    kHeader,     // after a call's opening mark: the name, up to what begins the arguments
    kCall,       // inside of what a CallReader reads
    kAfterCall,  // until something comes that belongs to no call
    kChannel,    // harmony: a message's header
  };

  enum class Held : std::uint8_t { kMayGoOn, kIsOver };

  void enter(State state);
  void find_marks();
  void advance(Held held);
  void on_byte(char c);
  void on_mark(std::string mark, std::string text);

  void text_byte(char c);
  void reasoning_byte(char c);
  void header_byte(char c);
  void call_byte(char c);
  void channel_byte(char c);
  void channel_mark(std::string_view mark);
  void begin_channel_body();
  void begin_bare_call(char first);
  void begin_named_call(char first);
  std::unique_ptr<CallReader> make_json_reader() const;
  // What a mark says is a call of it is one.
  bool is_called(std::string_view name) const;
  void take_call_pieces();
  void fail_call();

  bool is_text_alone() const {
    return state_ == State::kText && said_something_ && options_.calls == CallPlace::kInsteadOfText;
  }
  bool reasons_in_text() const { return options_.reasoning == ReasoningPlace::kInText; }
  void reasoning_mark(std::string_view mark);
  void emit_text(std::string_view text);
  void flush_space();

  const OutputSyntax* syntax_;
  OutputParserOptions options_;
  State state_ = State::kText;
  std::vector<std::string> marks_;  // of the present state
  std::string held_;                // may become a mark
  std::string space_;               // white space that a call or the end of reasoning would swallow
  std::string raw_;                 // what a call that is not yet certain was read from
  std::string header_;
  std::unique_ptr<CallReader> reader_;
  std::uint32_t calls_ = 0;
  bool said_something_ = false;   // text was shown
  bool reasoning_began_ = false;  // reasoning was shown
  bool reasoned_ = false;         // reasoning has ended
  bool channel_marked_ = false;   // harmony: a mark was seen
  bool finished_ = false;
  std::vector<OutputPiece> pieces_;
};

}  // namespace loci
