// SPDX-License-Identifier: Apache-2.0
// What the tests of a store's promises (conversation_store.h) share: each runs on every kind of store.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/store/stores_testing.h"

namespace loci {

inline constexpr const char* kTenant = "ann";

inline std::string ids_of(const std::vector<StoredItem>& items) {
  std::string out;
  for (const StoredItem& item : items) out += (out.empty() ? "" : " ") + item.id;
  return out;
}

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    place_ = make_store_place(GetParam());
    if (place_ == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    reopen();
  }
  void reopen() {
    store_.reset();
    StoreOptions options;
    options.now_seconds = [this] { return now_.load(); };
    options.quota_of = [this](std::string_view tenant) { return tenant == "bob" ? StoreQuota() : quota_; };
    options.said_tokens_max = said_tokens_max_;
    options.made_room = [this](std::string_view tenant, std::uint64_t gone) {
      EXPECT_EQ(tenant, kTenant);
      made_room_ += gone;
    };
    auto opened = place_->open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    store_ = std::move(opened).value();
  }
  void commit(const StoredTurn& turn) {
    const Status status = store_->commit_turn(kTenant, turn);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void create(const std::string& id, const std::vector<StoredItem>& items = {}) {
    const Status status = store_->create_conversation(kTenant, {.id = id, .created_at = 5}, items);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::string page(const std::string& conversation, const ItemPage& page) {
    const auto list = store_->conversation_items(kTenant, conversation, page);
    if (!list.ok()) return list.status().to_string();
    return ids_of(list->items) + (list->has_more ? " ..." : "");
  }
  std::string history(const std::string& response) {
    const auto items = store_->response_history(kTenant, response, UINT64_MAX);
    return items.ok() ? ids_of(*items) : items.status().message();
  }
  std::string conversation_history(const std::string& id) {
    const auto items = store_->conversation_history(kTenant, id, UINT64_MAX);
    return items.ok() ? ids_of(*items) : items.status().message();
  }

  std::atomic<std::int64_t> now_ = 10'000;
  StoreQuota quota_;  // of all but bob
  std::size_t said_tokens_max_ = StoreOptions().said_tokens_max;
  std::atomic<std::uint64_t> made_room_ = 0;
  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<ConversationStore> store_;
};

}  // namespace loci
