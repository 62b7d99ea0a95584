// SPDX-License-Identifier: Apache-2.0
// Plans are only compared, so they are written and never read.
#include "loci/engine/log/event_log_codec.h"

#include <xxhash.h>

#include <variant>

#include "loci/engine/log/log_bytes.h"

namespace loci {
namespace {

// As a plan names it. Keys follow from the tokens and the secret, and say nothing of what was decided.
void put_named(LogWriter& w, const BlockEntry& e) {
  w.number(static_cast<std::uint8_t>(e.parent_kind));
  w.number(e.depth);
  for (const TokenId token : e.tokens) w.id(token);
}
void put(LogWriter& w, const ContextSources& sources) {
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
void put(LogWriter& w, const Started& o) {
  w.id(o.request);
  w.number(o.cached_tokens);
  put(w, o.sources);
}
void put(LogWriter& w, const Restored& o) {
  w.id(o.request);
  put(w, o.sources);
}
void put(LogWriter& w, const TokenSampled& o) {
  w.id(o.request);
  w.id(o.token);
}
void put(LogWriter& w, const Finished& o) {
  w.id(o.request);
  w.number(static_cast<std::uint8_t>(o.reason));
  w.number(o.usage.prompt_tokens);
  w.number(o.usage.cached_tokens);
  w.number(o.usage.completion_tokens);
  w.number(o.usage.suspensions);
}
void put(LogWriter& w, const Rejected& o) {
  w.id(o.request);
  w.number(static_cast<std::uint8_t>(o.status.code()));
  w.text(o.status.field());
  w.text(o.status.message());
  w.number(o.retry_after);
}

void put_groups(LogWriter& w, const std::vector<BlockTable>& tables) {
  for (std::size_t group = 0; group < tables.size(); ++group) {
    if (group > 0) w.ids(tables[group].blocks);
    w.number(tables[group].write_from);
  }
}

void put(LogWriter& w, const Pass& pass) {
  w.id(pass.id);
  w.number(pass.patience);
  w.list(pass.copies, [&](const BlockCopy& copy) {
    w.id(copy.from);
    w.id(copy.to);
    w.number(copy.tokens);
    if (copy.group > 0) w.number(copy.group);
  });
  w.list(pass.spans, [&](const Span& span) {
    w.ids(span.tokens);
    w.number(span.position);
    w.number(span.layers.begin);
    w.number(span.layers.end);
    w.ids(span.tables.front().blocks);
    w.number(static_cast<std::uint8_t>(span.logits));
    put_groups(w, span.tables);
    if (span.token_of) w.number(*span.token_of);
  });
}

void put(LogWriter& w, const PeerPlace& place) {
  w.id(place.read);
  w.number(place.index);
  w.number(place.rounds.begin);
  w.number(place.rounds.end);
  w.number(place.rounds.of);
}

void put(LogWriter& w, const Move& move) {
  w.id(move.id);
  w.number(static_cast<std::uint8_t>(move.from));
  w.number(static_cast<std::uint8_t>(move.to));
  w.list(move.parts, [&](const MovePart& part) {
    w.number(part.group);
    w.id(part.from);
    w.id(part.to);
  });
  w.number(static_cast<std::uint8_t>(move.form));
  w.number(move.rotate_by);
  w.id(move.together);
  w.number(move.time_limit);
  put_named(w, move.entry);
  if (move.peer) put(w, *move.peer);
}

void put(LogWriter& w, const RecordChange& change) {
  w.number(static_cast<std::uint8_t>(change.kind));
  w.number(change.group);
  w.id(change.slot);
  put_named(w, change.entry);
}

}  // namespace

void encode_plan(const Plan& plan, std::string& out) {
  LogWriter w(out);
  w.flag(plan.pass.has_value());
  if (plan.pass) put(w, *plan.pass);
  w.list(plan.spans, [&](const SpanPlan& span) {
    w.id(span.request);
    w.flag(span.sample);
  });
  w.list(plan.moves, [&](const Move& move) { put(w, move); });
  w.list(plan.give_back, [&](const FreedSlot& freed) {
    w.number(freed.group);
    w.id(freed.slot);
  });
  w.list(plan.record_changes, [&](const RecordChange& change) { put(w, change); });
  w.list(plan.asks, [&](const SharedAsk& ask) {
    w.id(ask.request);
    w.number(static_cast<std::uint32_t>(ask.keys.size()));
    w.number(ask.time_limit);
  });
  w.number(static_cast<std::uint32_t>(plan.shared_forgets.size()));
  w.list(plan.peer_answers, [&](const PeerAnswer& answer) {
    w.id(answer.id);
    for (const std::uint8_t groups : answer.groups) w.number(groups);
  });
  w.list(plan.peer_gone, [&](const PeerGone& gone) {
    put(w, gone.place);
    w.number(gone.groups);
  });
  w.flag(plan.hidden_share.has_value());
  if (plan.hidden_share) {
    w.number(plan.hidden_share->percent);
    w.number(plan.hidden_share->from_block);
  }
  w.list(plan.outputs, [&](const Output& output) {
    w.number(static_cast<std::uint8_t>(output.index()));
    std::visit([&](const auto& o) { put(w, o); }, output);
  });
  w.number(plan.wake_at);
  w.flag(plan.drained);
}

std::uint64_t plan_digest(const Plan& plan) {
  std::string bytes;
  encode_plan(plan, bytes);
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace loci
