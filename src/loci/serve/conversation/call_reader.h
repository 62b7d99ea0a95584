// SPDX-License-Identifier: Apache-2.0
// Reads the calls of one section: JSON calls, or arguments alone whose name stood before them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/serve/conversation/json_scanner.h"
#include "loci/serve/conversation/output.h"

namespace loci {

// What has been read, without ids: the parser gives them.
class CallReader {
 public:
  enum class Step : std::uint8_t {
    kMore,     // the byte belongs to the calls
    kEnd,      // the byte was the last of them
    kInvalid,  // the byte does not go on with them
  };

  virtual ~CallReader() = default;
  virtual Step push(char byte) = 0;
  // A control token in the middle of it. False: it does not belong here.
  virtual bool push_control(std::string_view) { return false; }

  // What became known since the last call.
  std::vector<OutputPiece> take() { return std::exchange(pieces_, {}); }
  // A call has begun and not ended.
  bool open() const { return open_; }

 protected:
  void start(std::string name);
  void arguments(std::string_view text);
  void end();

  std::vector<OutputPiece> pieces_;
  bool open_ = false;
};

// {"name": ..., "arguments": {...}} or an array of such; "tool_name" and "parameters" are understood too.
// `accept` says which names are calls: with another one nothing is.
class JsonCallReader final : public CallReader {
 public:
  enum class Members : std::uint8_t {
    kAny,
    kNameThenArguments,  // and no others
  };

  explicit JsonCallReader(std::function<bool(std::string_view)> accept, Members members = Members::kAny)
      : accept_(std::move(accept)), members_(members) {}
  Step push(char byte) override;

 private:
  enum class State : std::uint8_t {
    kBegin,
    kItem,
    kKeyOrClose,
    kKeyBegin,
    kKey,
    kColon,
    kValueBegin,
    kValue,
    kCommaOrClose,
    kAfterItem,
  };

  Step begin_item();
  Step begin_value(char byte);
  Step value_byte(char byte);
  Step end_value();
  Step end_item();
  bool is_expected_key() const;

  std::function<bool(std::string_view)> accept_;
  Members members_;
  State state_ = State::kBegin;
  bool array_ = false;
  JsonScanner scanner_;
  std::string key_;        // with its quotes
  std::string value_;      // of name, or of arguments that are not shown as they come
  std::string name_;       // empty: not yet known
  std::string arguments_;  // known before the name
  bool has_arguments_ = false;
  bool streaming_ = false;
};

// The JSON object of a call whose name is known.
class ArgumentsReader final : public CallReader {
 public:
  explicit ArgumentsReader(std::string name) : name_(std::move(name)) {}
  Step push(char byte) override;

 private:
  std::string name_;
  JsonScanner scanner_;
};

// <parameter=key>value</parameter> ... up to </function>. A value is text where `text_parameters` has the
// key, else JSON if it is such, else text.
class XmlArgumentsReader final : public CallReader {
 public:
  XmlArgumentsReader(std::string name, std::vector<std::string> text_parameters)
      : name_(std::move(name)), text_parameters_(std::move(text_parameters)) {}
  Step push(char byte) override;

 private:
  Step between();
  Step parameter_ended();

  std::string name_;
  std::vector<std::string> text_parameters_;
  std::string read_;  // of the present tag or value
  std::string key_;
  bool in_value_ = false;
  std::uint32_t parameters_ = 0;
};

// {key:<|"|>text<|"|>,other:3}: names without quotes, <|"|> around texts (a token of its own, or text).
class GemmaArgumentsReader final : public CallReader {
 public:
  explicit GemmaArgumentsReader(std::string name) : name_(std::move(name)) {}
  Step push(char byte) override;
  bool push_control(std::string_view mark) override;

 private:
  Step plain(char byte);
  Step put(char byte);
  Step quote();

  std::string name_;
  JsonScanner scanner_;
  std::string held_;  // the beginning of <|"|>
  std::string word_;  // a name, a number or a literal that has no quotes
  bool in_text_ = false;
};

}  // namespace loci
