// SPDX-License-Identifier: Apache-2.0
// Events, a codec for each kind: put() writes what get() reads.
#include "loci/engine/log/event_log_codec.h"

#include <fmt/format.h>

#include <variant>
#include <vector>

#include "loci/engine/log/log_bytes.h"

namespace loci {
namespace {

void put(LogWriter& w, const Arrival& e) {
  w.id(e.request);
  w.text(e.tenant);
  w.ids(e.prompt);
  w.number(e.max_new_tokens);
  w.number(e.min_new_tokens);
  w.ids(e.stop_tokens);
  w.number(e.deadline);
  w.number(e.weight);
  w.number(e.queued_max);
  w.flag(e.scope == SharingScope::kPublic);
  w.list(e.dropped, [&](const TokenRange& range) {
    w.number(range.begin);
    w.number(range.end);
  });
  w.flag(e.follows);
  w.text(e.salt);
}
void put(LogWriter& w, const Cancel& e) { w.id(e.request); }
void put(LogWriter& w, const PassDone& e) {
  w.id(e.pass);
  w.list(e.spans, [&](const SpanOutcome& span) {
    w.flag(span.ok);
    w.number(static_cast<std::uint8_t>((span.sample ? 1 : 0) | (static_cast<int>(span.end) << 1)));
    if (span.sample) w.id(*span.sample);
  });
  w.number(e.projected.slices);
  w.number(e.projected.took);
}
void put(LogWriter&, const Tick&) {}
void put(LogWriter& w, const Drain& e) { w.number(e.deadline); }
void put(LogWriter& w, const Withdraw& e) { w.id(e.prefix); }
void put(LogWriter& w, const MovesEnded& e) {
  w.list(e.moves, [&](const MoveOutcome& move) {
    w.id(move.move);
    w.number(static_cast<std::uint8_t>(move.result));
    w.number(move.took);
    w.flag(move.came);
  });
}
void put(LogWriter& w, const BlockEntry& e) {
  w.bytes(e.key.bytes);
  w.bytes(e.parent.bytes);
  w.number(static_cast<std::uint8_t>(e.parent_kind));
  w.bytes(e.above.bytes);
  w.number(e.depth);
  for (const TokenId token : e.tokens) w.id(token);
  w.number(e.used_at);
}
void put(LogWriter& w, const Recovered& e) {
  w.list(e.entries, [&](const RecoveredEntry& found) {
    put(w, found.entry);
    w.number(found.group);
    w.flag(found.hole);
    w.id(found.slot);
  });
  w.number(e.now);
  w.flag(e.last);
}

void put_slots(LogWriter& w, const std::vector<std::uint32_t>& slots) {
  w.list(slots, [&](std::uint32_t count) { w.number(count); });
}
void put(LogWriter& w, const DiskRoom& e) { put_slots(w, e.slots); }
void put(LogWriter& w, const MemoryRoom& e) { put_slots(w, e.slots); }
void put(LogWriter& w, const Forget& e) {
  w.text(e.tenant);
  w.text(e.salt);
  w.ids(e.tokens);
}
void put(LogWriter& w, const CostsMeasured& e) { put(w, e.costs); }
void put(LogWriter& w, const Pause& e) {
  w.id(e.request);
  w.flag(e.paused);
}
void put(LogWriter& w, const SharedAnswer& e) {
  w.id(e.request);
  w.list(e.groups, [&](std::uint8_t groups) { w.number(groups); });
}

void put(LogWriter& w, const PeerQuestion& e) {
  w.id(e.id);
  w.list(e.keys, [&](const ChainKey& key) { w.bytes(key.bytes); });
}
void put(LogWriter& w, const PeerRead& e) {
  w.id(e.id);
  w.list(e.wants, [&](const PeerWant& want) {
    w.bytes(want.key.bytes);
    w.number(want.groups);
  });
  w.number(e.deadline);
  w.number(e.rounds);
}
void put(LogWriter& w, const PeerLeft& e) { w.id(e.id); }

void get(LogReader& r, Arrival& e) {
  e.request.value = r.number<std::uint64_t>("request");
  e.tenant = r.text("tenant");
  e.prompt = r.tokens("prompt");
  e.max_new_tokens = r.number<std::uint32_t>("max_new_tokens");
  e.min_new_tokens = r.number<std::uint32_t>("min_new_tokens");
  e.stop_tokens = r.tokens("stop_tokens");
  e.deadline = r.number<Nanos>("deadline");
  e.weight = r.number<std::uint32_t>("weight");
  e.queued_max = r.number<std::uint32_t>("queued_max");
  e.scope = r.flag("scope") ? SharingScope::kPublic : SharingScope::kTenant;
  r.list(e.dropped, 8, "dropped", [&](TokenRange& range) {
    range.begin = r.number<std::uint32_t>("dropped");
    range.end = r.number<std::uint32_t>("dropped");
  });
  e.follows = r.flag("follows");
  e.salt = r.text("salt");
}
void get(LogReader& r, Cancel& e) { e.request.value = r.number<std::uint64_t>("request"); }
void get(LogReader& r, PassDone& e) {
  e.pass.value = r.number<std::uint64_t>("pass");
  r.list(e.spans, 2, "spans", [&](SpanOutcome& span) {
    span.ok = r.flag("ok");
    const auto end = r.number<std::uint8_t>("has_sample");
    if ((end & 1u) != 0) span.sample = TokenId(r.number<std::uint32_t>("sample"));
    if (end >> 1 > static_cast<int>(GrammarEnd::kFailed))
      r.fail("has_sample", fmt::format("expected at most 5, found {}", end));
    span.end = static_cast<GrammarEnd>(end >> 1);
  });
  e.projected.slices = r.number<std::uint64_t>("projected");
  e.projected.took = r.number<Nanos>("projected");
}
void get(LogReader&, Tick&) {}
void get(LogReader& r, Drain& e) { e.deadline = r.number<Nanos>("deadline"); }
void get(LogReader& r, Withdraw& e) { e.prefix.value = r.number<std::uint64_t>("prefix"); }
void get(LogReader& r, MovesEnded& e) {
  r.list(e.moves, 18, "moves", [&](MoveOutcome& move) {
    move.move.value = r.number<std::uint64_t>("move");
    move.result = r.choice<MoveResult>(kMoveResults, "result");
    move.took = r.number<Nanos>("took");
    move.came = r.flag("came");
  });
}
void get(LogReader& r, BlockEntry& e) {
  r.bytes(e.key.bytes, "key");
  r.bytes(e.parent.bytes, "parent");
  e.parent_kind = r.choice<ParentKind>(3, "parent_kind");
  r.bytes(e.above.bytes, "above");
  e.depth = r.number<std::uint32_t>("depth");
  for (TokenId& token : e.tokens) token.value = r.number<std::uint32_t>("tokens");
  e.used_at = r.number<std::int64_t>("used_at");
}
void get(LogReader& r, Recovered& e) {
  r.list(e.entries, 190, "entries", [&](RecoveredEntry& found) {
    get(r, found.entry);
    found.group = r.number<std::uint32_t>("group");
    if (found.group >= 2 * kLayerGroupsMax)
      r.fail("group", fmt::format("expected below {}, found {}", 2 * kLayerGroupsMax, found.group));
    found.hole = r.flag("hole");
    found.slot.value = r.number<std::uint32_t>("slot");
  });
  e.now = r.number<std::int64_t>("now");
  e.last = r.flag("last");
}

void get_slots(LogReader& r, std::vector<std::uint32_t>& slots) {
  r.list(slots, 4, "slots", [&](std::uint32_t& count) { count = r.number<std::uint32_t>("slots"); });
}
void get(LogReader& r, DiskRoom& e) { get_slots(r, e.slots); }
void get(LogReader& r, MemoryRoom& e) { get_slots(r, e.slots); }
void get(LogReader& r, Forget& e) {
  e.tenant = r.text("tenant");
  e.salt = r.text("salt");
  e.tokens = r.tokens("tokens");
}
void get(LogReader& r, CostsMeasured& e) { get(r, e.costs); }
void get(LogReader& r, Pause& e) {
  e.request.value = r.number<std::uint64_t>("request");
  e.paused = r.flag("paused");
}
void get(LogReader& r, SharedAnswer& e) {
  e.request.value = r.number<std::uint64_t>("request");
  r.list(e.groups, 1, "groups", [&](std::uint8_t& groups) { groups = r.number<std::uint8_t>("groups"); });
}

void get(LogReader& r, PeerQuestion& e) {
  e.id.value = r.number<std::uint64_t>("peer");
  r.list(e.keys, 16, "keys", [&](ChainKey& key) { r.bytes(key.bytes, "keys"); });
}
void get(LogReader& r, PeerRead& e) {
  e.id.value = r.number<std::uint64_t>("peer");
  r.list(e.wants, 17, "wants", [&](PeerWant& want) {
    r.bytes(want.key.bytes, "wants");
    want.groups = r.number<std::uint8_t>("wants");
  });
  e.deadline = r.number<Nanos>("deadline");
  e.rounds = r.number<std::uint8_t>("rounds");
  if (!is_peer_rounds(e.rounds))
    r.fail("rounds", fmt::format("expected 1 to {}, found {}", kPeerRoundsMax, e.rounds));
}
void get(LogReader& r, PeerLeft& e) { e.id.value = r.number<std::uint64_t>("peer"); }

template <std::size_t kIndex = 0>
bool get_event(LogReader& r, std::size_t index, Event& event) {
  if constexpr (kIndex == std::variant_size_v<Event>) {
    return false;
  } else {
    if (index != kIndex) return get_event<kIndex + 1>(r, index, event);
    get(r, event.emplace<kIndex>());
    return true;
  }
}

}  // namespace

void encode_event(const Event& event, std::string& out) {
  LogWriter w(out);
  w.number(static_cast<std::uint8_t>(event.index()));
  std::visit([&](const auto& e) { put(w, e); }, event);
}

Result<Event> decode_event(std::string_view bytes) {
  LogReader r(bytes);
  const auto index = r.number<std::uint8_t>("event");
  Event event;
  if (!get_event(r, index, event)) {
    return data_loss(fmt::format("expected a kind below {}, found {}", std::variant_size_v<Event>, index),
                     "event");
  }
  LOCI_RETURN_IF_ERROR(r.finish("event"));
  return event;
}

}  // namespace loci
