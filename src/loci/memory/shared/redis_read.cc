// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace loci {
namespace {

constexpr std::uint64_t kSlackBytes = 1024;  // of a reply beside its bytes, and of an error

}  // namespace

// The next pack of an item that has not ended: of all items the first, then of all the second.
bool RedisRead::next(const SharedFormat& format, Asked& asked) {
  for (; at_pack_ < packs_max_; ++at_pack_, at_item_ = 0) {
    for (; at_item_ < items_.size(); ++at_item_) {
      Item& item = items_[at_item_];
      if (!item.over && !sink_->wanted(item.place))
        finish(item, {StatusCode::kCancelled, "nobody waits for it"});
      if (item.over || at_pack_ >= format.pack_count(item.group)) continue;
      asked = {.item = &item, .pack = at_pack_, .bytes = format.pack(item.group, at_pack_).bytes};
      ++at_item_;
      return true;
    }
  }
  return false;
}

Status RedisRead::ask(RedisConnection& connection, const SharedFormat& format, const Rules& rules,
                      const Asked& asked) {
  const Item& item = *asked.item;
  const SharedFormat::Pack pack = format.pack(item.group, asked.pack);
  const std::string name = format.name(item.key, item.group);
  const std::string first = fmt::format("{}", pack.offset);
  const std::string last = fmt::format("{}", pack.offset + pack.bytes - 1);
  LOCI_RETURN_IF_ERROR(connection.send({"GETRANGE", name, first, last}, deadline_));
  asked_.push_back(asked);
  asked_bytes_ += asked.bytes;
  if (rules.time_to_live.empty() || asked.pack + 1 < format.pack_count(item.group)) return {};
  LOCI_RETURN_IF_ERROR(connection.send({"EXPIRE", name, rules.time_to_live}, deadline_));
  asked_.push_back({.item = asked.item, .dates = true});
  return {};
}

std::uint64_t RedisRead::bytes(const SharedFormat& format) const {
  std::uint64_t sum = 0;
  for (const Item& item : items_) sum += format.value_bytes(item.group);
  return sum;
}

Status RedisRead::carry_out(RedisConnection& connection, const SharedFormat& format, const Rules& rules,
                            Nanos deadline) {
  deadline_ = deadline;
  for (const Item& item : items_) packs_max_ = std::max(packs_max_, format.pack_count(item.group));
  bool more = true;
  while (true) {
    Asked asked;
    while (more && (asked_bytes_ == 0 || asked_bytes_ < rules.window_bytes)) {
      more = next(format, asked);
      if (more) LOCI_RETURN_IF_ERROR(ask(connection, format, rules, asked));
    }
    if (asked_.empty()) return {};
    LOCI_RETURN_IF_ERROR(take(connection, format));
  }
}

Status RedisRead::take(RedisConnection& connection, const SharedFormat& format) {
  const Asked asked = asked_.front();
  asked_.pop_front();
  asked_bytes_ -= asked.bytes;
  LOCI_RETURN_IF_ERROR(connection.receive(asked.bytes + kSlackBytes, deadline_, reply_));
  if (asked.dates || asked.item->over) return {};
  if (reply_.kind == RedisReply::Kind::kError) return {StatusCode::kUnavailable, reply_.said()};
  take_pack(*asked.item, asked.pack, format);
  return {};
}

void RedisRead::take_pack(Item& item, std::uint32_t index, const SharedFormat& format) {
  if (reply_.bytes.empty()) {
    ++counts_.gone;
    return finish(item, not_found("it is not in the shared store any more"));
  }
  const SharedFormat::Pack pack = format.pack(item.group, index);
  slices_.resize(format.slices_bytes(item.group, pack));
  Status status = format.open(item.key, item.group, pack, reply_.bytes, slices_);
  if (!status.ok()) {
    counts_.damaged.push_back(item.key);
    return finish(item, std::move(status));
  }
  counts_.bytes += reply_.bytes.size();
  sink_->slices(item.place, pack.first, pack.count, slices_);
  if (++item.packs < format.pack_count(item.group)) return;
  ++counts_.read;
  finish(item, {});
}

void RedisRead::finish(Item& item, Status status) {
  item.over = true;
  sink_->done(item.place, std::move(status));
}

void RedisRead::end(const Status& status) {
  for (Item& item : items_) {
    if (!item.over) finish(item, status.ok() ? data_loss("the store did not send it") : status);
  }
}

}  // namespace loci
