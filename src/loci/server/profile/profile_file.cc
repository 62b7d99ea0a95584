// SPDX-License-Identifier: Apache-2.0
#include "loci/server/profile/profile_file.h"
#include "loci/base/hex.h"
#include "loci/base/json_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "loci/base/durable_file.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

constexpr const char* kFormat = "loci-profile-2";
constexpr std::size_t kFileMax = 1 << 20;
constexpr std::int64_t kMost = kCostMax;
constexpr std::size_t kRatesMax = 64;

Json write_link(const LinkCost& link) {
  return {{"latency_ns", link.latency}, {"bytes_per_second", link.bytes_per_second}};
}

// The objects inside stay where they are while their readers live.
class ProfileReader {
 public:
  explicit ProfileReader(const Json& root) : root_(root) {}

  Result<CostProfile> read() {
    FieldReader top(root_);
    std::string format;
    top.text("format", format);
    if (top.ok() && format != kFormat) top.expected("format", fmt::format("\"{}\"", kFormat), Json(format));
    top.text("model", out_.model);
    top.text("model_fingerprint", out_.model_fingerprint);
    top.text("measured_at", out_.measured_at);
    top.text("disk_directory", out_.disk_directory);
    top.boolean("rough", out_.rough);
    LOCI_RETURN_IF_ERROR(top.status());
    LOCI_RETURN_IF_ERROR(read_machine(top));
    LOCI_RETURN_IF_ERROR(read_curves(top));
    LOCI_RETURN_IF_ERROR(read_passes(top));
    return out_;
  }

 private:
  static const Json* object(FieldReader& reader, std::string_view name) {
    const Json* value = reader.find(name);
    if (value != nullptr && value->is_object()) return value;
    reader.expected(name, "an object", value == nullptr ? Json() : *value);
    return nullptr;
  }

  Status read_machine(FieldReader& top) {
    const Json* machine = object(top, "machine");
    if (machine == nullptr) return top.status();
    FieldReader reader(*machine, "machine");
    reader.text("cpu", out_.machine.cpu);
    reader.unsigned_integer("threads", 1, 1u << 20, out_.machine.threads);
    reader.text("backend", out_.machine.backend);
    return reader.status();
  }

  static void read_cost(FieldReader& reader, std::string_view name, Nanos& out) {
    std::optional<std::int64_t> value;
    reader.integer(name, 0, kMost, value);
    if (value)
      out = *value;
    else if (reader.ok())
      reader.expected(name, "a number of nanoseconds", Json());
  }

  static Status read_link(FieldReader& costs, std::string_view name, LinkCost& out) {
    const Json* link = object(costs, name);
    if (link == nullptr) return costs.status();
    FieldReader reader(*link, costs.full_name(name));
    read_cost(reader, "latency_ns", out.latency);
    std::optional<std::int64_t> rate;
    reader.integer("bytes_per_second", 1, std::numeric_limits<std::int64_t>::max(), rate);
    if (rate)
      out.bytes_per_second = static_cast<std::uint64_t>(*rate);
    else if (reader.ok())
      reader.expected("bytes_per_second", "a number of at least 1", Json());
    return reader.status();
  }

  Status read_rates(FieldReader& costs) {
    const Json* rates = costs.find("disk_reads");
    if (rates == nullptr || !rates->is_array() || rates->size() > kRatesMax) {
      costs.expected("disk_reads", fmt::format("an array of at most {} rates", kRatesMax),
                     rates == nullptr ? Json() : *rates);
      return costs.status();
    }
    for (const Json& json : *rates) {
      std::uint64_t before = out_.disk_reads.empty() ? 0 : out_.disk_reads.back().bytes;
      const auto number = [&](const char* name) -> std::uint64_t {
        const auto found = json.is_object() ? json.find(name) : json.end();
        const std::optional<std::int64_t> value =
            json.is_object() && found != json.end() ? as_integer(*found) : std::nullopt;
        return static_cast<std::uint64_t>(std::max<std::int64_t>(value.value_or(0), 0));
      };
      const ReadRate rate{number("bytes"), number("bytes_per_second")};
      if (rate.bytes <= before || rate.bytes_per_second == 0) {
        costs.expected("disk_reads", "objects of bytes, ascending, and bytes_per_second, each above 0", json);
        return costs.status();
      }
      out_.disk_reads.push_back(rate);
    }
    return {};
  }

  // Costs at powers of two.
  static Status read_powers(FieldReader& from, std::string_view name, std::vector<Nanos>& out) {
    const Json* costs = from.find(name);
    if (costs == nullptr || !costs->is_array() || costs->empty() || costs->size() > 32) {
      from.expected(name, "an array of 1 to 32 costs at powers of two", costs == nullptr ? Json() : *costs);
      return from.status();
    }
    out.clear();
    for (const Json& cost : *costs) {
      const std::optional<std::int64_t> value = as_integer(cost);
      if (!value || *value < 0 || *value > kMost) from.expected(name, "numbers of nanoseconds", cost);
      out.push_back(value.value_or(0));
    }
    return from.status();
  }

  // Missing in files that were written before passes were measured so, and in rough ones.
  Status read_passes(FieldReader& top) {
    if (top.find("passes") == nullptr) return top.status();
    const Json* passes = object(top, "passes");
    if (passes == nullptr) return top.status();
    FieldReader reader(*passes, "passes");
    LOCI_RETURN_IF_ERROR(read_powers(reader, "rows_ns", out_.passes.rows));
    LOCI_RETURN_IF_ERROR(read_powers(reader, "logits_ns", out_.passes.logits));
    return read_powers(reader, "decode_attention_ns", out_.passes.decode_attention);
  }

  Status read_curves(FieldReader& top) {
    const Json* object_of_costs = object(top, "costs");
    if (object_of_costs == nullptr) return top.status();
    FieldReader costs(*object_of_costs, "costs");
    CostCurves& curves = out_.curves;
    read_cost(costs, "token_ns", curves.token);
    read_cost(costs, "pass_ns", curves.pass);
    if (costs.find("projection_ns") != nullptr) read_cost(costs, "projection_ns", curves.projection);
    LOCI_RETURN_IF_ERROR(read_powers(costs, "attention_ns", curves.attention));
    LOCI_RETURN_IF_ERROR(read_link(costs, "host_load", curves.host_load));
    LOCI_RETURN_IF_ERROR(read_link(costs, "host_save", curves.host_save));
    LOCI_RETURN_IF_ERROR(read_link(costs, "disk_read", curves.disk_read));
    LOCI_RETURN_IF_ERROR(read_link(costs, "disk_write", curves.disk_write));
    read_cost(costs, "host_charge_ns", curves.host_charge);
    read_cost(costs, "disk_charge_ns", curves.disk_charge);
    LOCI_RETURN_IF_ERROR(costs.status());
    return read_rates(costs);
  }

  const Json& root_;
  CostProfile out_;
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

void make_folder_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(behind_links(path)).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
}

}  // namespace

MachineId this_machine(const BackendInfo& backend) {
  return {processor_name(), std::max(1u, std::thread::hardware_concurrency()), backend.description};
}

CostCurves assumed_costs(const BackendInfo& backend) {
  CostCurves curves;
  if (backend.name == "cpu") return curves;
  // About two thirds of an A100: 1 TB/s of memory, 200 Tflop/s of 16-bit products (a token does one for every
  // byte of 16-bit weights, and four for every byte of state that four heads share), a link of 16 GiB/s.
  static constexpr std::uint64_t kMemoryBytes = 1000, kProducts = 200'000, kNanosMost = 1'000'000'000;
  const auto nanos = [](std::uint64_t amount, std::uint64_t each) {
    return static_cast<Nanos>(std::clamp<std::uint64_t>(amount / each, 1, kNanosMost));
  };
  curves.pass = nanos(backend.weight_bytes, kMemoryBytes) + 100'000;
  curves.token = nanos(backend.weight_bytes, kProducts) + 100;
  curves.attention = {1, 1, 1, 1, 1, nanos(4 * backend.block_bytes, kProducts)};
  curves.host_load = curves.host_save = {20'000, std::uint64_t{16} << 30};
  curves.host_charge = curves.disk_charge = 0;  // it is not the GPU that verifies and copies
  return curves;
}

std::string fingerprint_text(const std::array<std::uint8_t, 16>& fingerprint) { return to_hex(fingerprint); }

std::string profile_path(const std::string& folder, const std::string& model_fingerprint) {
  return folder.empty() ? "" : folder + "/" + model_fingerprint + ".json";
}

std::string format_profile(const CostProfile& profile) {
  const CostCurves& curves = profile.curves;
  Json reads = Json::array();
  for (const ReadRate& rate : profile.disk_reads)
    reads.push_back({{"bytes", rate.bytes}, {"bytes_per_second", rate.bytes_per_second}});
  Json json = {{"format", kFormat},
               {"measured_at", profile.measured_at},
               {"machine",
                {{"cpu", profile.machine.cpu},
                 {"threads", profile.machine.threads},
                 {"backend", profile.machine.backend}}},
               {"model", profile.model},
               {"model_fingerprint", profile.model_fingerprint},
               {"disk_directory", profile.disk_directory},
               {"rough", profile.rough},
               {"costs",
                {{"token_ns", curves.token},
                 {"pass_ns", curves.pass},
                 {"projection_ns", curves.projection},
                 {"attention_ns", curves.attention},
                 {"host_load", write_link(curves.host_load)},
                 {"host_save", write_link(curves.host_save)},
                 {"disk_read", write_link(curves.disk_read)},
                 {"disk_write", write_link(curves.disk_write)},
                 {"host_charge_ns", curves.host_charge},
                 {"disk_charge_ns", curves.disk_charge},
                 {"disk_reads", reads}}}};
  const PassCurves& passes = profile.passes;
  if (passes.measured()) {
    json["passes"] = {{"rows_ns", passes.rows},
                      {"logits_ns", passes.logits},
                      {"decode_attention_ns", passes.decode_attention}};
  }
  return json.dump(2) + "\n";
}

Result<CostProfile> parse_profile(const std::string& text) {
  const JsonRead<Json> read = read_json<Json>(text, {});
  const Json& json = read.value;
  if (read.fault == JsonFault::kLimit) return invalid_argument(read.what);
  if (!json.is_object()) return invalid_argument("expected a JSON object as `loci profile` writes it");
  return ProfileReader(json).read();
}

bool can_write_profile(const std::string& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return false;
  if (is_no_file(path)) return ::access(path.c_str(), W_OK) == 0;
  make_folder_of(path);
  const std::string fresh = fmt::format("{}.{}", behind_links(path), ::getpid());
  const bool out = std::ofstream(fresh, std::ios::trunc).is_open();
  std::filesystem::remove(fresh, error);
  return out;
}

Status write_profile(const std::string& path, const CostProfile& profile) {
  constexpr mode_t kForAll = 0644;  // there is nothing secret in it
  if (!is_no_file(path)) {
    make_folder_of(path);
    return replace_file(path, format_profile(profile), kForAll);
  }
  // A device or a pipe is written to.
  errno = 0;
  std::ofstream out(path);
  out << format_profile(profile);
  out.close();
  if (out) return {};
  return Status(StatusCode::kUnavailable,
                fmt::format("{}: {}", path, errno != 0 ? std::strerror(errno) : "cannot be written"));
}

Result<CostProfile> read_profile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found(fmt::format("{}: there is no such file", path));
  std::string text(kFileMax, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  Result<CostProfile> profile = parse_profile(text);
  if (profile.ok()) return profile;
  const Status& status = profile.status();
  const std::string field = status.field().empty() ? "" : status.field() + ": ";
  return Status(status.code(), fmt::format("{}: {}{}", path, field, status.message()));
}

Status check_profile(const CostProfile& profile, const MachineId& machine,
                     const std::string& model_fingerprint) {
  const auto differs = [](std::string_view what, const auto& found, const auto& expected) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the profile is of another {}: expected {}, found {}", what, expected, found));
  };
  if (profile.model_fingerprint != model_fingerprint)
    return differs("model", profile.model_fingerprint, model_fingerprint);
  if (profile.machine.cpu != machine.cpu) return differs("machine", profile.machine.cpu, machine.cpu);
  if (profile.machine.threads != machine.threads)
    return differs("machine", fmt::format("{} processors", profile.machine.threads),
                   fmt::format("{} processors", machine.threads));
  if (profile.machine.backend != machine.backend)
    return differs("set-up", profile.machine.backend, machine.backend);
  return {};
}

Result<ChosenCosts> choose_costs(const ProfilePlace& place, const MachineId& machine,
                                 const std::array<std::uint8_t, 16>& model_fingerprint,
                                 const CostCurves& assumed) {
  const std::string& file = place.file;
  if (file == kNoProfile) return ChosenCosts{.curves = assumed, .source = "assumed"};
  const std::string fingerprint = fingerprint_text(model_fingerprint);
  const std::string path = file.empty() ? profile_path(place.folder, fingerprint) : file;
  if (path.empty()) return ChosenCosts{.curves = assumed, .source = "assumed", .measure_into = ""};
  const Result<CostProfile> profile = read_profile(path);
  const Status status = profile.ok() ? check_profile(*profile, machine, fingerprint) : profile.status();
  if (status.ok()) {
    ChosenCosts chosen{.curves = profile->curves,
                       .source = fmt::format("measured{} {} ({})", profile->rough ? " roughly" : "",
                                             profile->measured_at, path),
                       .measured = true};
    if (file.empty() && profile->rough && place.wants_disk && profile->disk_directory.empty()) {
      chosen.source += ", the disk's assumed";
      chosen.measure_into = path;
      chosen.lacks_disk = true;
    }
    return chosen;
  }
  if (!file.empty()) {
    const std::string message =
        profile.ok() ? fmt::format("{}: {}", path, status.message()) : status.message();
    return Status(status.code(), message + "; `loci profile MODEL` measures", "profile");
  }
  const bool missing = status.code() == StatusCode::kNotFound;
  const std::string why = missing        ? "not measured here"
                          : profile.ok() ? fmt::format("{} is not used: {}", path, status.message())
                                         : "not used: " + status.message();  // which names the file
  return ChosenCosts{.curves = assumed,
                     .source = fmt::format("assumed, {} (`loci profile MODEL` measures)", why),
                     .measure_into = missing ? path : ""};
}

}  // namespace loci
