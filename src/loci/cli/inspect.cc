// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/compute/state_type.h"
#include "loci/model/families/family.h"
#include "loci/model/model_spec.h"

namespace loci {
namespace {

// One tensor, whether or not Loci can compute with it.
struct Listed {
  std::string_view name;
  std::string type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::optional<std::uint64_t> size_bytes;
  bool supported;

  std::uint64_t elements() const { return rows * columns; }
};

// A file's text, cut to fit in one line of the report.
std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::size_t end = std::min(text.size(), kMost);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return printable(text.substr(0, end), LineEnds::kReplace) + (end < text.size() ? "..." : "");
}

std::vector<Listed> list_tensors(const ModelSource& file) {
  std::vector<Listed> all;
  for (const TensorView& tensor : file.tensors()) {
    all.push_back({tensor.name, std::string(tensor_type_info(tensor.type).name), tensor.rows, tensor.columns,
                   tensor.size_bytes(), true});
  }
  for (const OpaqueTensor& tensor : file.opaque_tensors()) {
    all.push_back(
        {tensor.name, shortened(tensor.type_name), tensor.rows, tensor.columns, tensor.size_bytes, false});
  }
  return all;
}

class Report {
 public:
  void section(std::string_view title) { text_ += fmt::format("{}{}\n", text_.empty() ? "" : "\n", title); }
  void line(std::string_view name, std::string_view value) {
    text_ += fmt::format("  {:<20} {}\n", name, value);
  }
  void raw(std::string_view text) { text_ += text; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string text_or(const ModelSource& file, std::string_view key, std::string_view otherwise) {
  const Result<std::string> value = file.get_string(key);
  return shortened(value.ok() ? value.value() : std::string(otherwise));
}

std::string per_head(const ModelSpec& spec) {
  std::string text =
      fmt::format("{} query, {} key/value, {} dimensions each", spec.heads, spec.kv_heads, spec.head_dim);
  if (!spec.ropes.empty() && spec.ropes.front().dimensions != spec.head_dim)
    text += fmt::format(" ({} rotated)", spec.ropes.front().dimensions);
  return text;
}

void report_state(Report& report, const ModelSpec& spec) {
  report.section("State (keys and values, by --state-type)");
  for (const StateType type : kStateTypes) {
    const std::uint64_t per_token =
        2 * state_head_bytes(type, spec.head_dim) * spec.kv_heads * spec.layer_count();
    report.line(
        state_type_name(type),
        fmt::format("{} ({} bytes) a token, {} tokens per GiB, whole context {}", format_bytes(per_token),
                    format_count(per_token), format_count((std::uint64_t{1} << 30) / per_token),
                    format_bytes(per_token * spec.context_length)));
  }
}

void report_model(Report& report, const ModelSource& file, const Result<ModelSpec>& spec,
                  const std::vector<Listed>& tensors) {
  report.section("Model");
  report.line("name", text_or(file, "general.name", "-"));
  report.line("architecture", text_or(file, "general.architecture", "-"));
  std::uint64_t parameters = 0;
  for (const Listed& tensor : tensors) parameters += tensor.elements();
  report.line("parameters", format_count(parameters));
  if (!spec.ok()) {
    const std::string why = spec.status().field() + ": " + spec.status().message();
    report.line("can be served", "no: " + printable(why, LineEnds::kReplace));
    return;
  }
  report.line("layers", format_count(spec->layer_count()));
  report.line("hidden", format_count(spec->hidden));
  report.line("feed-forward", format_count(spec->ffn));
  report.line("attention heads", per_head(spec.value()));
  report.line("context", format_count(spec->context_length) + " tokens");
  report.line("output",
              spec->output.data == spec->embedding.data ? "tied to the embedding" : "a matrix of its own");
  report_state(report, spec.value());
}

std::string count_of(const ModelSource& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  return array == nullptr ? "none" : format_count(array->size());
}

// "2 <|im_end|>"
std::string token_of(const ModelSource& file, std::string_view key) {
  const Result<std::uint64_t> id = file.get_uint(key);
  if (!id.ok()) return "none";
  const GgufValue* value = file.find("tokenizer.ggml.tokens");
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const auto* texts = array == nullptr ? nullptr : std::get_if<std::vector<std::string>>(&array->elements);
  if (texts == nullptr || id.value() >= texts->size())
    return fmt::format("{} (outside the vocabulary)", id.value());
  return fmt::format("{} {}", id.value(), shortened((*texts)[id.value()]));
}

// "2, 0"
std::string numbers_of(const ModelSource& file, std::string_view key) {
  const Result<std::vector<std::int32_t>> numbers = file.get_ints(key);
  if (!numbers.ok()) return "none";
  std::string text;
  for (const std::int32_t number : *numbers) text += fmt::format("{}{}", text.empty() ? "" : ", ", number);
  return text;
}

std::string template_of(const ModelSource& file) {
  const Result<std::string> source = file.get_string("tokenizer.chat_template");
  return source.ok() ? fmt::format("{} characters", format_count(source->size())) : "none: completions only";
}

// Of a Hugging Face directory, whose vocabulary only the tokenizer itself reads.
void report_directory_text(Report& report, const ModelSource& file) {
  const Result<std::string> tokenizer = file.get_string("tokenizer.huggingface.json");
  report.section("Text");
  report.line("tokenizer", tokenizer.ok() ? fmt::format("tokenizer.json, {}", format_bytes(tokenizer->size()))
                                          : "none: it can't be served");
  report.line("end of sequence", numbers_of(file, "tokenizer.ggml.end_token_ids"));
  report.line("chat template", template_of(file));
}

void report_text(Report& report, const ModelSource& file) {
  if (file.format() == SourceFormat::kHuggingFace) return report_directory_text(report, file);
  report.section("Text");
  report.line("tokenizer", fmt::format("{}, pre-tokenizer {}", text_or(file, "tokenizer.ggml.model", "none"),
                                       text_or(file, "tokenizer.ggml.pre", "none")));
  report.line("vocabulary", count_of(file, "tokenizer.ggml.tokens") + " tokens");
  report.line("merges", count_of(file, "tokenizer.ggml.merges"));
  report.line("begin of sequence", token_of(file, "tokenizer.ggml.bos_token_id"));
  report.line("end of sequence", token_of(file, "tokenizer.ggml.eos_token_id"));
  report.line("chat template", template_of(file));
}

void report_types(Report& report, const std::vector<Listed>& tensors) {
  struct Sum {
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
    bool supported = true;
  };
  std::map<std::string, Sum> by_type;
  for (const Listed& tensor : tensors) {
    Sum& sum = by_type[tensor.type];
    ++sum.tensors;
    sum.elements += tensor.elements();
    sum.bytes += tensor.size_bytes.value_or(0);
    sum.supported = tensor.supported;
  }
  std::vector<std::pair<std::string, Sum>> order(by_type.begin(), by_type.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  report.section("Tensors");
  report.raw(fmt::format("  {:<10} {:>8} {:>16} {:>12}\n", "type", "tensors", "elements", "bytes"));
  Sum total;
  for (const auto& [type, sum] : order) {
    report.raw(fmt::format("  {:<10} {:>8} {:>16} {:>12}{}\n", type, format_count(sum.tensors),
                           format_count(sum.elements), format_bytes(sum.bytes),
                           sum.supported ? "" : "  not supported"));
    total.tensors += sum.tensors;
    total.elements += sum.elements;
    total.bytes += sum.bytes;
  }
  report.raw(fmt::format("  {:<10} {:>8} {:>16} {:>12}\n", "all", format_count(total.tensors),
                         format_count(total.elements), format_bytes(total.bytes)));
}

void report_every_tensor(Report& report, const std::vector<Listed>& tensors) {
  std::size_t widest = 4;
  for (const Listed& tensor : tensors) widest = std::max(widest, shortened(tensor.name).size());
  report.raw(
      fmt::format("\n  {:<{}} {:<10} {:>18} {:>12}\n", "name", widest, "type", "[rows, columns]", "bytes"));
  for (const Listed& tensor : tensors) {
    report.raw(fmt::format("  {:<{}} {:<10} {:>18} {:>12}\n", shortened(tensor.name), widest, tensor.type,
                           fmt::format("[{}, {}]", tensor.rows, tensor.columns),
                           tensor.size_bytes ? format_bytes(*tensor.size_bytes) : "?"));
  }
}

// The specification without the fingerprint, which would read all the weights.
Result<ModelSpec> read_sizes(const ModelSource& file) {
  LOCI_ASSIGN_OR_RETURN(const Family* family, find_family(file));
  return family->read(file);
}

}  // namespace

std::string inspect_source(const OpenedSource& opened, const std::string& path, InspectDetail detail) {
  const ModelSource& source = *opened.source;
  const std::vector<Listed> tensors = list_tensors(source);
  Report report;
  report.section("File");
  report.line("path", shortened(path));
  report.line("size",
              fmt::format("{} ({} bytes)", format_bytes(opened.file_bytes), format_count(opened.file_bytes)));
  report.line("format",
              fmt::format("{}, {} metadata keys", opened.format, format_count(source.metadata().size())));
  report_model(report, source, read_sizes(source), tensors);
  report_text(report, source);
  report_types(report, tensors);
  if (detail == InspectDetail::kEveryTensor) report_every_tensor(report, tensors);
  return report.take();
}

Result<std::string> inspect_model(const std::string& path, InspectDetail detail) {
  LOCI_ASSIGN_OR_RETURN(const OpenedSource opened, open_model_source(path));
  return inspect_source(opened, path, detail);
}

}  // namespace loci
