// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/member.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <charconv>

#include "loci/base/ascii.h"
#include "loci/base/check.h"
#include "loci/base/hex.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

constexpr std::int64_t kVersion1 = 1;
constexpr std::size_t kIdDigits = 16;
constexpr std::size_t kTextBytesMax = 512;
constexpr std::size_t kModelsMax = 64;

// Reads members of an object; the first fault is kept.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  std::string text(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string() && value->get_ref<const std::string&>().size() <= kTextBytesMax)
      return value->get<std::string>();
    return fault(name, fmt::format("a text of at most {} bytes", kTextBytesMax)), std::string();
  }
  std::int64_t integer(const char* name, std::int64_t min, std::int64_t max) {
    const Json* value = find(name);
    if (value == nullptr) return min;
    if (value->is_number_integer() && *value >= min && *value <= max) return value->get<std::int64_t>();
    return fault(name, fmt::format("an integer from {} to {}", min, max)), min;
  }
  bool boolean(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    return fault(name, "true or false"), false;
  }
  std::vector<std::string> names(const char* name) {
    const Json* value = find(name);
    std::vector<std::string> out;
    if (value == nullptr) return out;
    const auto is_name = [](const Json& one) {
      return one.is_string() && one.get_ref<const std::string&>().size() <= kTextBytesMax;
    };
    if (value->is_array() && !value->empty() && value->size() <= kModelsMax &&
        std::all_of(value->begin(), value->end(), is_name))
      return value->get<std::vector<std::string>>();
    return fault(name, fmt::format("1 to {} names", kModelsMax)), out;
  }
  void fault(const char* name, const std::string& expected) {
    if (status_.ok()) status_ = invalid_argument("expected " + expected, name);
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* name) {
    const auto at = object_.find(name);
    if (at != object_.end()) return &*at;
    fault(name, "a value");
    return nullptr;
  }

  const Json& object_;
  Status status_;
};

bool is_member_id(std::string_view id) { return id.size() == kIdDigits && is_lower_hex(id); }

std::string held_name(std::size_t tier) { return fmt::format("{}_held", kMemberTiers[tier]); }
std::string slots_name(std::size_t tier) { return fmt::format("{}_slots", kMemberTiers[tier]); }

constexpr std::array<std::string_view, 3> kRoleNames = {"both", "prefill", "decode"};

}  // namespace

Result<MemberRole> parse_member_role(std::string_view text) {
  const auto at = std::find(kRoleNames.begin(), kRoleNames.end(), text);
  if (at != kRoleNames.end()) return static_cast<MemberRole>(at - kRoleNames.begin());
  return invalid_argument(fmt::format("expected both, prefill or decode, found \"{}\"", text), "role");
}

std::string_view member_role_name(MemberRole role) { return kRoleNames[static_cast<std::size_t>(role)]; }

std::string Member::address() const { return authority_of(host, port); }

ServedAs Member::serves(std::string_view model) const {
  if (std::find(models.begin(), models.end(), model) != models.end()) return ServedAs::kNamed;
  return any_model ? ServedAs::kAnything : ServedAs::kNothing;
}

std::string write_member(const Member& member, std::int64_t at_ms) {
  Json out = {{"version", kVersion1},
              {"at_ms", at_ms},
              {"id", member.id},
              {"host", member.host},
              {"port", member.port},
              {"tls", member.tls},
              {"models", member.models},
              {"any_model", member.any_model},
              {"fingerprint", member.fingerprint},
              {"numerics", member.numerics},
              {"block_tokens", member.block_tokens},
              {"running", member.running},
              {"queued", member.queued},
              {"draining", member.draining},
              {"program", member.version},
              {"store", member.store},
              {"peer_port", member.peer_port},
              {"role", member_role_name(member.role)}};
  for (std::size_t tier = 0; tier < kMemberTiers.size(); ++tier) {
    if (member.slots[tier].all == 0) continue;
    out[held_name(tier)] = member.slots[tier].held;
    out[slots_name(tier)] = member.slots[tier].all;
  }
  return dump_json(out);
}

Status check_names(const Member& member) {
  constexpr std::size_t kCountsGrow = 256;  // what is said of the load takes no more digits than that
  const auto refused = [](std::string message) { return invalid_argument(std::move(message), "alias"); };
  const std::size_t count = member.models.size();
  if (count > kModelsMax)
    return refused(
        fmt::format("expected at most {} names of a cluster's member, its model's own included, found {}",
                    kModelsMax, count));
  for (const std::string& name : member.models) {
    if (name.size() > kTextBytesMax)
      return refused(fmt::format("expected names of at most {} bytes in a cluster, found one of {}",
                                 kTextBytesMax, name.size()));
  }
  const std::size_t bytes = write_member(member, INT64_MAX).size() + kCountsGrow;
  if (bytes > kMemberBytesMax)
    return refused(
        fmt::format("expected fewer or shorter names, as a member's row has at most {} bytes, found {}",
                    kMemberBytesMax, bytes));
  return {};
}

Result<SaidMember> read_member(std::string_view text) {
  if (text.size() > kMemberBytesMax)
    return invalid_argument(fmt::format("expected at most {} bytes, found {}", kMemberBytesMax, text.size()));
  LOCI_ASSIGN_OR_RETURN(const Json object, parse_json(text, {.depth_max = 4, .values_max = 256}));
  if (!object.is_object()) return invalid_argument("expected an object");
  Fields fields(object);
  fields.integer("version", kVersion1, kVersion1);
  SaidMember out;
  Member& member = out.member;
  out.at_ms = fields.integer("at_ms", 0, INT64_MAX);
  member.id = fields.text("id");
  if (!is_member_id(member.id)) fields.fault("id", fmt::format("{} hexadecimal digits", kIdDigits));
  member.host = fields.text("host");
  if (member.host.empty() || !may_be_host(member.host)) fields.fault("host", "a name or an address");
  member.port = static_cast<std::uint16_t>(fields.integer("port", 1, UINT16_MAX));
  member.tls = fields.boolean("tls");
  member.models = fields.names("models");
  member.any_model = fields.boolean("any_model");
  member.fingerprint = fields.text("fingerprint");
  member.numerics = fields.text("numerics");
  member.block_tokens = static_cast<std::uint32_t>(fields.integer("block_tokens", 1, UINT16_MAX));
  member.running = static_cast<std::uint32_t>(fields.integer("running", 0, UINT32_MAX));
  member.queued = static_cast<std::uint32_t>(fields.integer("queued", 0, UINT32_MAX));
  member.draining = fields.boolean("draining");
  member.version = fields.text("program");
  // Members of before said none.
  if (object.contains("store")) member.store = fields.text("store");
  if (object.contains("peer_port"))
    member.peer_port = static_cast<std::uint16_t>(fields.integer("peer_port", 0, UINT16_MAX));
  for (std::size_t tier = 0; tier < kMemberTiers.size(); ++tier) {
    const std::string held = held_name(tier), slots = slots_name(tier);
    if (!object.contains(slots)) continue;
    const std::int64_t all = fields.integer(slots.c_str(), 0, UINT32_MAX);
    member.slots[tier] = {.held = static_cast<std::uint32_t>(fields.integer(held.c_str(), 0, all)),
                          .all = static_cast<std::uint32_t>(all)};
  }
  if (object.contains("role")) {
    const Result<MemberRole> role = parse_member_role(fields.text("role"));
    if (role.ok()) member.role = *role;
    if (!role.ok()) fields.fault("role", "both, prefill or decode");
  }
  LOCI_RETURN_IF_ERROR(fields.status());
  return out;
}

Result<std::pair<std::string, std::uint16_t>> parse_member_address(std::string_view text) {
  const Status wrong = invalid_argument(
      fmt::format("expected HOST:PORT, as other machines reach this one, found \"{}\"", text));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  if (!in_brackets && host.find(':') != std::string_view::npos) return wrong;
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size() || port == 0 || host.empty() ||
      !may_be_host(host))
    return wrong;
  return std::pair(std::string(host), port);
}

std::string seal(const MemberKey& key, std::string_view purpose, std::string_view text) {
  LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
  static_assert(crypto_auth_KEYBYTES == std::tuple_size_v<MemberKey>);
  std::string sealed(purpose);
  sealed.push_back('\n');
  sealed.append(text);
  std::array<std::uint8_t, crypto_auth_BYTES> out{};
  crypto_auth(out.data(), reinterpret_cast<const unsigned char*>(sealed.data()), sealed.size(), key.data());
  return to_hex(out);
}

bool is_sealed(const MemberKey& key, std::string_view purpose, std::string_view text,
               std::string_view given) {
  const std::string wanted = seal(key, purpose, text);
  return wanted.size() == given.size() && sodium_memcmp(wanted.data(), given.data(), wanted.size()) == 0;
}

Status check_alike(const Member& member, const Member& other) {
  const auto shared = std::find_if(member.models.begin(), member.models.end(), [&](const std::string& name) {
    return std::find(other.models.begin(), other.models.end(), name) != other.models.end();
  });
  if (shared == member.models.end()) return {};
  const auto differ = [&](std::string_view what, const auto& ours, const auto& theirs) {
    return invalid_argument(
        fmt::format("the member {} at {} serves '{}' with another {}: it has {}, this server {}; make the "
                    "two alike, or give the model of one of them another name",
                    other.id, other.address(), *shared, what, theirs, ours));
  };
  if (member.fingerprint != other.fingerprint)
    return differ("version of the model (fingerprint)", member.fingerprint, other.fingerprint);
  if (member.block_tokens != other.block_tokens)
    return differ("size of blocks in tokens", member.block_tokens, other.block_tokens);
  if (member.numerics != other.numerics) return differ("numerics", member.numerics, other.numerics);
  return {};
}

std::string random_member_id() {
  LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
  std::array<std::uint8_t, kIdDigits / 2> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return to_hex(bytes);
}

}  // namespace loci
