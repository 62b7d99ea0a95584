// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/log/event_log_codec.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace loci {
namespace {

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class T>
    requires std::is_integral_v<T>
  void number(T value) {
    auto word = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(word & 0xff));
      if constexpr (sizeof(T) > 1) word >>= 8;
    }
  }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  template <class Tag, class T>
  void id(StrongId<Tag, T> value) {
    number(value.value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
  }
  template <class Tag>
  void ids(const std::vector<StrongId<Tag, std::uint32_t>>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const auto value : values) id(value);
  }
  template <std::size_t kSize>
  void bytes(const std::array<std::uint8_t, kSize>& value) {
    out_.append(reinterpret_cast<const char*>(value.data()), kSize);
  }

 private:
  std::string& out_;
};

// After the first failure everything reads as zero, and status() tells what failed.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  template <class T>
    requires std::is_integral_v<T>
  T number(const char* field) {
    const std::string_view bytes = take(sizeof(T), field);
    std::make_unsigned_t<T> word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      word |= static_cast<std::make_unsigned_t<T>>(
          static_cast<std::make_unsigned_t<T>>(static_cast<unsigned char>(bytes[i])) << (8 * i));
    }
    return static_cast<T>(word);
  }
  bool flag(const char* field) {
    const auto value = number<std::uint8_t>(field);
    if (value > 1) fail(field, fmt::format("expected 0 or 1, found {}", value));
    return value == 1;
  }
  std::string text(const char* field) {
    const auto size = number<std::uint32_t>(field);
    return std::string(take(size, field));
  }
  std::vector<TokenId> tokens(const char* field) {
    const auto count = number<std::uint32_t>(field);
    if (count > in_.size() / 4) {
      fail(field, fmt::format("{} tokens are announced, {} bytes are left", count, in_.size()));
      return {};
    }
    std::vector<TokenId> values(count);
    for (TokenId& value : values) value.value = number<std::uint32_t>(field);
    return values;
  }
  template <std::size_t kSize>
  void bytes(std::array<std::uint8_t, kSize>& value, const char* field) {
    const std::string_view found = take(kSize, field);
    std::copy(found.begin(), found.end(), value.begin());
  }
  // An enumeration of `count` values, as a byte.
  template <class T>
  T choice(std::size_t count, const char* field) {
    const auto value = number<std::uint8_t>(field);
    if (value >= count) fail(field, fmt::format("expected a number below {}, found {}", count, value));
    return static_cast<T>(value < count ? value : 0);
  }
  // A count of things of at least `bytes` bytes each.
  std::uint32_t count(std::size_t bytes, const char* field) {
    const auto value = number<std::uint32_t>(field);
    if (value <= in_.size() / bytes) return value;
    fail(field, fmt::format("{} are announced, {} bytes are left", value, in_.size()));
    return 0;
  }
  std::size_t left() const { return in_.size(); }
  void fail(const char* field, std::string message) {
    if (status_.ok()) status_ = data_loss(std::move(message), field);
    in_ = {};
  }
  Status finish(const char* what) {
    if (status_.ok() && !in_.empty()) {
      return data_loss(fmt::format("{} bytes follow its end", in_.size()), what);
    }
    return status_;
  }

 private:
  std::string_view take(std::size_t size, const char* field) {
    if (size > in_.size()) {
      fail(field, fmt::format("expected {} bytes, found {}", size, in_.size()));
      return {};
    }
    const std::string_view taken = in_.substr(0, size);
    in_.remove_prefix(size);
    return taken;
  }

  std::string_view in_;
  Status status_;
};

void put(Writer& w, const LinkCost& link) {
  w.number(link.latency);
  w.number(link.bytes_per_second);
}

void put(Writer& w, const CostCurves& costs) {
  w.number(costs.token);
  w.number(static_cast<std::uint32_t>(costs.attention.size()));
  for (const Nanos cost : costs.attention) w.number(cost);
  w.number(costs.pass);
  w.number(costs.projection);
  w.number(costs.host_charge);
  w.number(costs.disk_charge);
  for (const LinkCost& link :
       {costs.host_load, costs.host_save, costs.disk_read, costs.disk_write, costs.shared_read})
    put(w, link);
}

void get(Reader& r, CostCurves& costs) {
  costs.token = r.number<Nanos>("token");
  costs.attention.resize(r.count(8, "attention"));
  for (Nanos& cost : costs.attention) cost = r.number<Nanos>("attention");
  if (costs.attention.empty()) r.fail("attention", "expected at least one cost, found none");
  costs.pass = r.number<Nanos>("pass");
  costs.projection = r.number<Nanos>("projection");
  costs.host_charge = r.number<Nanos>("host_charge");
  costs.disk_charge = r.number<Nanos>("disk_charge");
  for (LinkCost* link :
       {&costs.host_load, &costs.host_save, &costs.disk_read, &costs.disk_write, &costs.shared_read}) {
    link->latency = r.number<Nanos>("latency");
    link->bytes_per_second = r.number<std::uint64_t>("bytes_per_second");
  }
}

void put(Writer& w, const Arrival& e) {
  w.id(e.request);
  w.text(e.group);
  w.ids(e.prompt);
  w.number(e.max_new_tokens);
  w.number(e.min_new_tokens);
  w.ids(e.stop_tokens);
  w.number(e.deadline);
  w.number(e.weight);
  w.number(e.queued_max);
  w.flag(e.scope == SharingScope::kPublic);
  w.number(static_cast<std::uint32_t>(e.dropped.size()));
  for (const TokenRange& range : e.dropped) {
    w.number(range.begin);
    w.number(range.end);
  }
  w.flag(e.follows);
  w.text(e.salt);
}
void put(Writer& w, const Cancel& e) { w.id(e.request); }
void put(Writer& w, const PassDone& e) {
  w.id(e.pass);
  w.number(static_cast<std::uint32_t>(e.spans.size()));
  for (const SpanOutcome& span : e.spans) {
    w.flag(span.ok);
    w.number(static_cast<std::uint8_t>((span.sample ? 1 : 0) | (static_cast<int>(span.end) << 1)));
    if (span.sample) w.id(*span.sample);
  }
}
void put(Writer&, const Tick&) {}
void put(Writer& w, const Drain& e) { w.number(e.deadline); }
void put(Writer& w, const Withdraw& e) { w.id(e.prefix); }
void put(Writer& w, const MovesEnded& e) {
  w.number(static_cast<std::uint32_t>(e.moves.size()));
  for (const MoveOutcome& move : e.moves) {
    w.id(move.move);
    w.number(static_cast<std::uint8_t>(move.result));
    w.number(move.took);
  }
}
void put(Writer& w, const DiskEntry& e) {
  w.bytes(e.key.bytes);
  w.bytes(e.parent.bytes);
  w.number(static_cast<std::uint8_t>(e.parent_kind));
  w.bytes(e.above.bytes);
  w.number(e.depth);
  for (const TokenId token : e.tokens) w.id(token);
  w.number(e.used_at);
}
// As a plan names it. Keys follow from the tokens and the secret, and say nothing of what was decided.
void put_named(Writer& w, const DiskEntry& e) {
  w.number(static_cast<std::uint8_t>(e.parent_kind));
  w.number(e.depth);
  for (const TokenId token : e.tokens) w.id(token);
}
void put(Writer& w, const Recovered& e) {
  w.number(static_cast<std::uint32_t>(e.entries.size()));
  for (const RecoveredEntry& found : e.entries) {
    put(w, found.entry);
    w.number(found.group);
    w.flag(found.hole);
    w.id(found.slot);
  }
  w.number(e.now);
  w.flag(e.last);
}
void put_slots(Writer& w, const std::vector<std::uint32_t>& slots) {
  w.number(static_cast<std::uint32_t>(slots.size()));
  for (const std::uint32_t count : slots) w.number(count);
}
void put(Writer& w, const DiskRoom& e) { put_slots(w, e.slots); }
void put(Writer& w, const MemoryRoom& e) { put_slots(w, e.slots); }
void put(Writer& w, const Forget& e) {
  w.text(e.group);
  w.text(e.salt);
  w.ids(e.tokens);
}
void put(Writer& w, const CostsMeasured& e) { put(w, e.costs); }
void put(Writer& w, const Pause& e) {
  w.id(e.request);
  w.flag(e.paused);
}
void put(Writer& w, const SharedAnswer& e) {
  w.id(e.request);
  w.number(static_cast<std::uint32_t>(e.groups.size()));
  for (const std::uint8_t groups : e.groups) w.number(groups);
}

void get(Reader& r, Arrival& e) {
  e.request.value = r.number<std::uint64_t>("request");
  e.group = r.text("group");
  e.prompt = r.tokens("prompt");
  e.max_new_tokens = r.number<std::uint32_t>("max_new_tokens");
  e.min_new_tokens = r.number<std::uint32_t>("min_new_tokens");
  e.stop_tokens = r.tokens("stop_tokens");
  e.deadline = r.number<Nanos>("deadline");
  e.weight = r.number<std::uint32_t>("weight");
  e.queued_max = r.number<std::uint32_t>("queued_max");
  e.scope = r.flag("scope") ? SharingScope::kPublic : SharingScope::kTenant;
  const auto cuts = r.number<std::uint32_t>("dropped");
  if (cuts > r.left() / (2 * sizeof(std::uint32_t))) {
    r.fail("dropped", fmt::format("{} cuts are announced, {} bytes are left", cuts, r.left()));
    return;
  }
  e.dropped.resize(cuts);
  for (TokenRange& range : e.dropped) {
    range.begin = r.number<std::uint32_t>("dropped");
    range.end = r.number<std::uint32_t>("dropped");
  }
  e.follows = r.flag("follows");
  e.salt = r.text("salt");
}
void get(Reader& r, Cancel& e) { e.request.value = r.number<std::uint64_t>("request"); }
void get(Reader& r, PassDone& e) {
  e.pass.value = r.number<std::uint64_t>("pass");
  const auto count = r.number<std::uint32_t>("spans");
  if (count > r.left() / 2) {
    r.fail("spans", fmt::format("{} spans are announced, {} bytes are left", count, r.left()));
    return;
  }
  e.spans.resize(count);
  for (SpanOutcome& span : e.spans) {
    span.ok = r.flag("ok");
    const auto end = r.number<std::uint8_t>("has_sample");
    if ((end & 1u) != 0) span.sample = TokenId(r.number<std::uint32_t>("sample"));
    if (end >> 1 > static_cast<int>(GrammarEnd::kFailed))
      r.fail("has_sample", fmt::format("expected at most 5, found {}", end));
    span.end = static_cast<GrammarEnd>(end >> 1);
  }
}
void get(Reader&, Tick&) {}
void get(Reader& r, Drain& e) { e.deadline = r.number<Nanos>("deadline"); }
void get(Reader& r, Withdraw& e) { e.prefix.value = r.number<std::uint64_t>("prefix"); }
void get(Reader& r, MovesEnded& e) {
  e.moves.resize(r.count(17, "moves"));
  for (MoveOutcome& move : e.moves) {
    move.move.value = r.number<std::uint64_t>("move");
    move.result = r.choice<MoveResult>(kMoveResults, "result");
    move.took = r.number<Nanos>("took");
  }
}
void get(Reader& r, DiskEntry& e) {
  r.bytes(e.key.bytes, "key");
  r.bytes(e.parent.bytes, "parent");
  e.parent_kind = r.choice<ParentKind>(3, "parent_kind");
  r.bytes(e.above.bytes, "above");
  e.depth = r.number<std::uint32_t>("depth");
  for (TokenId& token : e.tokens) token.value = r.number<std::uint32_t>("tokens");
  e.used_at = r.number<std::int64_t>("used_at");
}
void get(Reader& r, Recovered& e) {
  e.entries.resize(r.count(190, "entries"));
  for (RecoveredEntry& found : e.entries) {
    get(r, found.entry);
    found.group = r.number<std::uint32_t>("group");
    if (found.group >= 2 * kLayerGroupsMax)
      r.fail("group", fmt::format("expected below {}, found {}", 2 * kLayerGroupsMax, found.group));
    found.hole = r.flag("hole");
    found.slot.value = r.number<std::uint32_t>("slot");
  }
  e.now = r.number<std::int64_t>("now");
  e.last = r.flag("last");
}
void get_slots(Reader& r, std::vector<std::uint32_t>& slots) {
  slots.resize(r.count(4, "slots"));
  for (std::uint32_t& count : slots) count = r.number<std::uint32_t>("slots");
}
void get(Reader& r, DiskRoom& e) { get_slots(r, e.slots); }
void get(Reader& r, MemoryRoom& e) { get_slots(r, e.slots); }
void get(Reader& r, Forget& e) {
  e.group = r.text("group");
  e.salt = r.text("salt");
  e.tokens = r.tokens("tokens");
}
void get(Reader& r, CostsMeasured& e) { get(r, e.costs); }
void get(Reader& r, Pause& e) {
  e.request.value = r.number<std::uint64_t>("request");
  e.paused = r.flag("paused");
}
void get(Reader& r, SharedAnswer& e) {
  e.request.value = r.number<std::uint64_t>("request");
  e.groups.resize(r.count(1, "groups"));
  for (std::uint8_t& groups : e.groups) groups = r.number<std::uint8_t>("groups");
}

template <std::size_t kIndex = 0>
bool get_event(Reader& r, std::size_t index, Event& event) {
  if constexpr (kIndex == std::variant_size_v<Event>) {
    return false;
  } else {
    if (index != kIndex) return get_event<kIndex + 1>(r, index, event);
    get(r, event.emplace<kIndex>());
    return true;
  }
}

void put(Writer& w, const Started& o) {
  w.id(o.request);
  w.number(o.cached_tokens);
  const ContextSources& sources = o.sources;
  for (const std::uint32_t tokens :
       {sources.device, sources.host, sources.disk, sources.shared, sources.hidden})
    w.number(tokens);
  for (const std::uint32_t tokens : sources.computed) w.number(tokens);
  w.number(sources.predicted_load);
  w.number(sources.predicted_compute);
  const RestoreForecast& restore = sources.restore;
  w.number(static_cast<std::uint8_t>(restore.rule));
  for (const Nanos time : {restore.planned, restore.loading_all, restore.computing_all}) w.number(time);
}
void put(Writer& w, const TokenSampled& o) {
  w.id(o.request);
  w.id(o.token);
}
void put(Writer& w, const Finished& o) {
  w.id(o.request);
  w.number(static_cast<std::uint8_t>(o.reason));
  w.number(o.usage.prompt_tokens);
  w.number(o.usage.cached_tokens);
  w.number(o.usage.completion_tokens);
  w.number(o.usage.suspensions);
}
void put(Writer& w, const Rejected& o) {
  w.id(o.request);
  w.number(static_cast<std::uint8_t>(o.status.code()));
  w.text(o.status.field());
  w.text(o.status.message());
  w.number(o.retry_after);
}

void put_groups(Writer& w, const std::vector<BlockTable>& tables) {
  for (std::size_t group = 0; group < tables.size(); ++group) {
    if (group > 0) w.ids(tables[group].blocks);
    w.number(tables[group].write_from);
  }
}

void put(Writer& w, const Pass& pass) {
  w.id(pass.id);
  w.number(pass.patience);
  w.number(static_cast<std::uint32_t>(pass.copies.size()));
  for (const BlockCopy& copy : pass.copies) {
    w.id(copy.from);
    w.id(copy.to);
    w.number(copy.tokens);
    if (copy.group > 0) w.number(copy.group);
  }
  w.number(static_cast<std::uint32_t>(pass.spans.size()));
  for (const Span& span : pass.spans) {
    w.ids(span.tokens);
    w.number(span.position);
    w.number(span.layers.begin);
    w.number(span.layers.end);
    w.ids(span.tables.front().blocks);
    w.number(static_cast<std::uint8_t>(span.logits));
    put_groups(w, span.tables);
    if (span.token_of) w.number(*span.token_of);
  }
}

void put(Writer& w, const Move& move) {
  w.id(move.id);
  w.number(static_cast<std::uint8_t>(move.from));
  w.number(static_cast<std::uint8_t>(move.to));
  w.number(static_cast<std::uint32_t>(move.parts.size()));
  for (const MovePart& part : move.parts) {
    w.number(part.group);
    w.id(part.from);
    w.id(part.to);
  }
  w.number(static_cast<std::uint8_t>(move.form));
  w.number(move.rotate_by);
  put_named(w, move.entry);
}

void put(Writer& w, const DiskNote& note) {
  w.number(static_cast<std::uint8_t>(note.kind));
  w.number(note.group);
  w.id(note.slot);
  put_named(w, note.entry);
}

// Entries of a disk name themselves by keys that another process has made, which its secret alone can check.
bool outlives_process(const CoreConfig& config) {
  return std::any_of(config.groups.begin(), config.groups.end(),
                     [](const CoreGroup& group) { return group.disk_blocks > 0; });
}

}  // namespace

void encode_config(const CoreConfig& config, LoggedSecret secret, std::string& out) {
  Writer w(out);
  w.number(static_cast<std::uint32_t>(config.groups.size()));
  for (const CoreGroup& group : config.groups) {
    w.number(group.window);
    w.number(group.block_count);
    w.number(group.host_blocks);
    w.number(group.disk_blocks);
    w.number(group.shared_blocks);
    w.number(group.block_bytes);
  }
  w.number(config.layers);
  w.number(config.context_tokens);
  w.number(config.max_batch_tokens);
  w.number(config.max_running);
  w.number(config.max_queued);
  w.number(config.decode_reserve_percent);
  w.number(config.passes_ahead);
  w.bytes(config.model_fingerprint);
  w.text(config.eviction);
  w.number(config.seed);
  w.text(config.admission);
  w.text(config.restore);
  w.text(config.save);
  w.number(config.swap_out_percent);
  w.number(config.saves_max);
  w.number(config.hole_records);
  w.number(config.hidden.disk_blocks);
  w.number(config.hidden.block_bytes);
  w.number(config.hidden.share_percent);
  w.number(config.state_ttl);
  w.number(config.lookahead_requests);
  w.number(config.pass_time);
  put(w, config.costs);
  const bool keyed = secret == LoggedSecret::kKept && outlives_process(config);
  w.flag(keyed);
  if (keyed) w.bytes(config.chain_secret);
}

Result<LoggedConfig> decode_config(std::string_view bytes) {
  Reader r(bytes);
  LoggedConfig logged;
  CoreConfig& config = logged.core;
  const auto count = r.number<std::uint32_t>("groups");
  if (count == 0 || count > kLayerGroupsMax) {
    r.fail("groups", fmt::format("expected 1 to {}, found {}", kLayerGroupsMax, count));
  }
  for (std::uint32_t group = 0; group < std::min(count, kLayerGroupsMax); ++group) {
    CoreGroup& g = config.groups.emplace_back();
    g.window = r.number<std::uint32_t>("window");
    g.block_count = r.number<std::uint32_t>("block_count");
    g.host_blocks = r.number<std::uint32_t>("host_blocks");
    g.disk_blocks = r.number<std::uint32_t>("disk_blocks");
    g.shared_blocks = r.number<std::uint32_t>("shared_blocks");
    g.block_bytes = r.number<std::uint64_t>("block_bytes");
  }
  config.layers = r.number<std::uint32_t>("layers");
  config.context_tokens = r.number<std::uint32_t>("context_tokens");
  config.max_batch_tokens = r.number<std::uint32_t>("max_batch_tokens");
  config.max_running = r.number<std::uint32_t>("max_running");
  config.max_queued = r.number<std::uint32_t>("max_queued");
  config.decode_reserve_percent = r.number<std::uint32_t>("decode_reserve_percent");
  config.passes_ahead = r.number<std::uint32_t>("passes_ahead");
  r.bytes(config.model_fingerprint, "model_fingerprint");
  config.eviction = r.text("eviction");
  config.seed = r.number<std::uint64_t>("seed");
  config.admission = r.text("admission");
  config.restore = r.text("restore");
  config.save = r.text("save");
  config.swap_out_percent = r.number<std::uint32_t>("swap_out_percent");
  config.saves_max = r.number<std::uint32_t>("saves_max");
  config.hole_records = r.number<std::uint32_t>("hole_records");
  config.hidden.disk_blocks = r.number<std::uint32_t>("hidden");
  config.hidden.block_bytes = r.number<std::uint64_t>("hidden");
  config.hidden.share_percent = r.number<std::uint32_t>("hidden");
  config.state_ttl = r.number<Nanos>("state_ttl");
  config.lookahead_requests = r.number<std::uint32_t>("lookahead_requests");
  config.pass_time = r.number<Nanos>("pass_time");
  get(r, config.costs);
  const bool has_secret = r.flag("has_secret");
  if (has_secret && !outlives_process(config)) r.fail("has_secret", "expected none without a disk");
  if (has_secret) r.bytes(config.chain_secret, "chain_secret");
  if (!has_secret && outlives_process(config)) logged.secret = LoggedSecret::kLeftOut;
  LOCI_RETURN_IF_ERROR(r.finish("config"));
  return logged;
}

void encode_event(const Event& event, std::string& out) {
  Writer w(out);
  w.number(static_cast<std::uint8_t>(event.index()));
  std::visit([&](const auto& e) { put(w, e); }, event);
}

Result<Event> decode_event(std::string_view bytes) {
  Reader r(bytes);
  const auto index = r.number<std::uint8_t>("event");
  Event event;
  if (!get_event(r, index, event)) {
    return data_loss(fmt::format("expected a kind below {}, found {}", std::variant_size_v<Event>, index),
                     "event");
  }
  LOCI_RETURN_IF_ERROR(r.finish("event"));
  return event;
}

void encode_plan(const Plan& plan, std::string& out) {
  Writer w(out);
  w.flag(plan.pass.has_value());
  if (plan.pass) put(w, *plan.pass);
  w.number(static_cast<std::uint32_t>(plan.spans.size()));
  for (const SpanPlan& span : plan.spans) {
    w.id(span.request);
    w.flag(span.sample);
  }
  w.number(static_cast<std::uint32_t>(plan.moves.size()));
  for (const Move& move : plan.moves) put(w, move);
  w.number(static_cast<std::uint32_t>(plan.give_back.size()));
  for (const FreedSlot& freed : plan.give_back) w.number(freed.group), w.id(freed.slot);
  w.number(static_cast<std::uint32_t>(plan.notes.size()));
  for (const DiskNote& note : plan.notes) put(w, note);
  w.number(static_cast<std::uint32_t>(plan.asks.size()));
  for (const SharedAsk& ask : plan.asks) {
    w.id(ask.request);
    w.number(static_cast<std::uint32_t>(ask.keys.size()));
    w.number(ask.time_limit);
  }
  w.number(static_cast<std::uint32_t>(plan.shared_forgets.size()));
  w.number(static_cast<std::uint32_t>(plan.outputs.size()));
  for (const Output& output : plan.outputs) {
    w.number(static_cast<std::uint8_t>(output.index()));
    std::visit([&](const auto& o) { put(w, o); }, output);
  }
  w.number(plan.wake_at);
  w.flag(plan.drained);
}

std::uint64_t plan_digest(const Plan& plan) {
  std::string bytes;
  encode_plan(plan, bytes);
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace loci
