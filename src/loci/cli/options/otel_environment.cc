// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/otel_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <system_error>

#include "loci/base/ascii.h"
#include "loci/base/printable.h"
#include "loci/serve/wire/percent.h"
#include "loci/server/open_traces.h"
#include "loci/server/trace_headers.h"

namespace loci {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using Variables = std::map<std::string, std::string, std::less<>>;

constexpr const char* kDisabled = "OTEL_SDK_DISABLED";
constexpr const char* kExporter = "OTEL_TRACES_EXPORTER";
constexpr const char* kSampler = "OTEL_TRACES_SAMPLER";
constexpr const char* kSamplerArgument = "OTEL_TRACES_SAMPLER_ARG";
constexpr const char* kAttributes = "OTEL_RESOURCE_ATTRIBUTES";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// A variable that is empty is as good as not set.
Variables variables_of(const std::vector<std::string>& environment) {
  Variables out;
  for (const std::string& entry : environment) {
    if (!entry.starts_with("OTEL_")) continue;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view value =
        trimmed(std::string_view(entry).substr(std::min(equals + 1, entry.size())));
    if (!value.empty()) out[entry.substr(0, equals)] = value;
  }
  return out;
}

struct Variable {
  std::string name, text;
};

Variable variable(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return {.name = std::string(name), .text = found == variables.end() ? "" : found->second};
}

// The one of traces goes before the one of all signals.
Variable exporter_variable(const Variables& variables, std::string_view what) {
  Variable own = variable(variables, fmt::format("OTEL_EXPORTER_OTLP_TRACES_{}", what));
  return own.text.empty() ? variable(variables, fmt::format("OTEL_EXPORTER_OTLP_{}", what)) : own;
}

// A value in an error.
std::string shown(std::string_view value) {
  return fmt::format("\"{}\"", printable(value.substr(0, 80), LineEnds::kReplace));
}

std::vector<std::string> words(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    if (!trimmed(word).empty()) out.push_back(lower_ascii(trimmed(word)));
  }
  return out;
}

// --- lists ---

bool has_valid_escapes(std::string_view text) {
  const auto is_hex = [](char c) { return is_lower_hex(lower_ascii(std::string_view(&c, 1))); };
  for (std::size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%', at + 3)) {
    if (at + 2 >= text.size() || !is_hex(text[at + 1]) || !is_hex(text[at + 2])) return false;
  }
  return true;
}

// The members of a list as `take(name, decoded value)` has them; it returns what is wrong with one.
template <class Take>
Status read_members(std::string_view text, Take take) {
  if (text.size() > kOtelListBytesMax)
    return invalid_argument(
        fmt::format("expected at most {} characters, found {}", kOtelListBytesMax, text.size()));
  std::size_t members = 0;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view member = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), member.size() + 1));
    if (trimmed(member).empty()) continue;
    const auto wrong = [number](std::string_view why) {
      return invalid_argument(fmt::format("member {}: {}", number, why));
    };
    if (++members > kOtelMembersMax) return wrong(fmt::format("expected at most {}", kOtelMembersMax));
    const std::size_t equals = member.find('=');
    if (equals == std::string_view::npos) return wrong("expected NAME=VALUE, found no '='");
    const std::string_view value = trimmed(member.substr(equals + 1));
    if (!has_valid_escapes(value))
      return wrong("expected two hexadecimal digits after each '%' (itself %25)");
    if (const Status status = take(trimmed(member.substr(0, equals)), percent_decoded(value)); !status.ok())
      return wrong(status.message());
  }
  return {};
}

// `is_same(name, other)`: they name one thing.
template <class IsSame>
void put(Pairs& pairs, std::string name, std::string value, IsSame is_same) {
  std::erase_if(pairs, [&](const auto& other) { return is_same(name, other.first); });
  pairs.emplace_back(std::move(name), std::move(value));
}

// --- where spans go ---

// OTEL_EXPORTER_OTLP_ENDPOINT is a base, to which the path of the signal is added.
std::string below_base(std::string_view base) {
  const std::string_view query = base.substr(std::min(base.find_first_of("?#"), base.size()));
  std::string_view place = base.substr(0, base.size() - query.size());
  while (place.ends_with('/')) place.remove_suffix(1);
  return fmt::format("{}/v1/traces{}", place, query.starts_with('?') ? query.substr(0, query.find('#')) : "");
}

// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is used as it is: no path is "/" (parse_traces_url() has another
// default).
std::string as_it_is(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return std::string(url);
  const std::size_t end = std::min(url.find_first_of("/?#", scheme + 3), url.size());
  const std::string_view rest = url.substr(end, url.find('#', end) - end);
  return rest.empty() || rest == "/" ? fmt::format("{}/?", url.substr(0, end)) : std::string(url);
}

struct Endpoint {
  std::string url, from;
};

Endpoint endpoint_of(const Variables& variables) {
  const Variable endpoint = exporter_variable(variables, "ENDPOINT");
  if (endpoint.text.empty()) return {.url = "http://localhost:4318/v1/traces", .from = kExporter};
  const bool is_of_traces = endpoint.name.find("TRACES") != std::string::npos;
  return {.url = is_of_traces ? as_it_is(endpoint.text) : below_base(endpoint.text), .from = endpoint.name};
}

Status take_url(const Variables& variables, TracesOptions& traces, OtelNews& news) {
  const Variable protocol = exporter_variable(variables, "PROTOCOL");
  const std::string said = lower_ascii(protocol.text);
  if (!said.empty() && said != "http/json" && said != "http/protobuf") {
    return invalid_argument(
        fmt::format(
            "expected http/json, which is what Loci speaks (collectors take it at port 4318), found {}",
            shown(protocol.text)),
        protocol.name);
  }
  Endpoint endpoint = endpoint_of(variables);
  if (const auto parsed = parse_traces_url(endpoint.url); !parsed.ok())
    return Status(parsed.status().code(), parsed.status().message(), endpoint.from);
  if (said == "http/protobuf")
    news.notes.push_back(
        fmt::format("{}: spans are sent as http/json, to where http/protobuf would go", protocol.name));
  traces.url = std::move(endpoint.url);
  news.url_from = std::move(endpoint.from);
  return {};
}

// Whether the variables ask this program for spans.
Result<bool> is_asked(const Variables& variables, OtelNews& news) {
  const std::string disabled = lower_ascii(variable(variables, kDisabled).text);
  if (disabled == "true") return false;
  const Variable exporter = variable(variables, kExporter);
  if (exporter.text.empty()) {
    if (const Variable endpoint = exporter_variable(variables, "ENDPOINT"); !endpoint.text.empty())
      news.notes.push_back(fmt::format("{} alone does not make Loci send spans; {}=otlp beside it does",
                                       endpoint.name, kExporter));
    return false;
  }
  const std::vector<std::string> exporters = words(exporter.text);
  if (std::ranges::find(exporters, "none") != exporters.end()) return false;
  if (std::ranges::find(exporters, "otlp") == exporters.end())
    return invalid_argument(fmt::format("expected otlp or none, found {}", shown(exporter.text)), kExporter);
  if (exporters.size() > 1) news.notes.push_back(fmt::format("{}: spans go by otlp alone", kExporter));
  if (!disabled.empty() && disabled != "false")
    return invalid_argument(fmt::format("expected true or false, found {}", shown(disabled)), kDisabled);
  return lower_ascii(variable(variables, kSampler).text) != "always_off";
}

// --- what is sent with them ---

bool is_one_place(const std::string& url, const std::string& other) {
  const Result<TraceCollector> a = parse_traces_url(url), b = parse_traces_url(other);
  return a.ok() && b.ok() && a->address.host == b->address.host && a->address.port == b->address.port &&
         (a->address.tls == nullptr) == (b->address.tls == nullptr);
}

// A key is for the collector that the variables name, and goes to no other.
Status take_headers(const Variables& variables, TracesOptions& traces, OtelNews& news) {
  const Variable headers = exporter_variable(variables, "HEADERS");
  if (!traces.headers_file.empty() || headers.text.empty()) return {};
  const Variable endpoint = exporter_variable(variables, "ENDPOINT");
  if (!endpoint.text.empty() && !is_one_place(traces.url, endpoint_of(variables).url)) {
    news.warnings.push_back(
        fmt::format("{}: not sent, because it belongs to {}, and spans go elsewhere; --trace-headers gives "
                    "headers for that place",
                    headers.name, endpoint.name));
    return {};
  }
  Result<TraceHeaders> parsed = parse_otel_headers(headers.text);
  if (!parsed.ok()) return invalid_argument(parsed.status().message(), headers.name);
  traces.headers = std::move(parsed).value();
  return {};
}

Result<double> ratio_of(const Variables& variables) {
  const Variable argument = variable(variables, kSamplerArgument);
  if (argument.text.empty()) return 1.0;
  double share = 0;
  const char* const end = argument.text.data() + argument.text.size();
  const auto read = std::from_chars(argument.text.data(), end, share);
  if (read.ec == std::errc() && read.ptr == end && share >= 0 && share <= 1) return share;
  return invalid_argument(fmt::format("expected a number from 0 to 1, found {}", shown(argument.text)),
                          kSamplerArgument);
}

// Loci's share is what the samplers parentbased_... do: whoever brings a trace is obeyed.
Status take_share(const Variables& variables, const OtelTold& told, TracesOptions& traces, OtelNews& news) {
  const Variable sampler = variable(variables, kSampler);
  if (told.share || sampler.text.empty()) return {};
  constexpr std::string_view kParentBased = "parentbased_";
  const std::string name = lower_ascii(sampler.text);
  const bool is_parent_based = name.starts_with(kParentBased);
  const std::string root = is_parent_based ? name.substr(kParentBased.size()) : name;
  if (root == "traceidratio") {
    LOCI_ASSIGN_OR_RETURN(traces.share, ratio_of(variables));
  } else if (root == "always_on" || root == "always_off") {
    traces.share = root == "always_on" ? 1 : 0;
  } else {
    return invalid_argument(
        fmt::format("expected parentbased_ before traceidratio, always_on or always_off, or one of these, "
                    "found {}",
                    shown(sampler.text)),
        kSampler);
  }
  news.share_from = kSampler;
  if (!is_parent_based)
    news.notes.push_back(fmt::format("{}: {} counts as {}{}, because Loci obeys the header traceparent",
                                     kSampler, name, kParentBased, name));
  return {};
}

// Who sends the spans. As the specification has it, a list that is wrong is left out whole.
void take_resource(const Variables& variables, TracesOptions& traces, OtelNews& news) {
  if (const Variable list = variable(variables, kAttributes); !list.text.empty()) {
    if (Result<Pairs> parsed = parse_otel_attributes(list.text); parsed.ok())
      traces.attributes = std::move(parsed).value();
    else
      news.warnings.push_back(fmt::format("{}: {}; none is sent", kAttributes, parsed.status().message()));
  }
  std::erase_if(traces.attributes, [&traces](const auto& attribute) {
    if (attribute.first != "service.name") return false;
    if (!attribute.second.empty()) traces.service = attribute.second;
    return true;
  });
  if (const Variable name = variable(variables, "OTEL_SERVICE_NAME"); !name.text.empty())
    traces.service = name.text;
}

Status take_details(const Variables& variables, const OtelTold& told, TracesOptions& traces, OtelNews& news) {
  LOCI_RETURN_IF_ERROR(take_headers(variables, traces, news));
  LOCI_RETURN_IF_ERROR(take_share(variables, told, traces, news));
  take_resource(variables, traces, news);
  return {};
}

Status take_all(const Variables& variables, const OtelTold& told, TracesOptions& traces, OtelNews& news) {
  LOCI_ASSIGN_OR_RETURN(const bool asked, is_asked(variables, news));
  if (!asked) return {};
  LOCI_RETURN_IF_ERROR(take_url(variables, traces, news));
  return take_details(variables, told, traces, news);
}

// Of a server that was told to trace.
void note_what_is_not_obeyed(const Variables& variables, OtelNews& news) {
  const auto note = [&news](const Variable& one) {
    news.notes.push_back(
        fmt::format("{}={}: spans are sent all the same, as Loci itself was told to (--traces)", one.name,
                    lower_ascii(one.text)));
  };
  if (const Variable one = variable(variables, kDisabled); lower_ascii(one.text) == "true") note(one);
  if (const Variable one = variable(variables, kExporter); lower_ascii(one.text) == "none") note(one);
}

}  // namespace

Result<TraceHeaders> parse_otel_headers(std::string_view text) {
  TraceHeaders out;
  const auto take = [&out](std::string_view name, std::string value) {
    Status status = check_trace_header(name, value);
    if (status.ok()) put(out, std::string(name), std::move(value), equal_ascii);
    return status;
  };
  LOCI_RETURN_IF_ERROR(read_members(text, take));
  return out;
}

Result<Pairs> parse_otel_attributes(std::string_view text) {
  Pairs out;
  const auto take = [&out](std::string_view name, std::string value) {
    if (name.empty() || !has_valid_escapes(name)) return invalid_argument("expected a name before the '='");
    put(out, percent_decoded(name), std::move(value), std::equal_to<>());
    return Status();
  };
  LOCI_RETURN_IF_ERROR(read_members(text, take));
  return out;
}

Result<OtelNews> apply_otel_environment(const std::vector<std::string>& environment, const OtelTold& told,
                                        TracesOptions& traces) {
  OtelNews news;
  const Variables variables = variables_of(environment);
  if (told.url) {
    if (traces.url.empty()) return news;
    note_what_is_not_obeyed(variables, news);
    LOCI_RETURN_IF_ERROR(take_details(variables, told, traces, news));
    return news;
  }
  TracesOptions taken = traces;
  const Status status = take_all(variables, told, taken, news);
  if (!status.ok()) {
    // What is for all programs keeps none of them from starting.
    OtelNews bad;
    bad.warnings.push_back(fmt::format("{}: {}; no spans are sent", status.field(), status.message()));
    return bad;
  }
  traces = std::move(taken);
  return news;
}

}  // namespace loci
