// SPDX-License-Identifier: Apache-2.0
// Ends of background responses that the store did not take: it can't be reached, or its disk is full. They
// are tried again until the store takes them, so that no response stays in progress for ever.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loci/serve/call/services.h"
#include "loci/serve/store/conversation_store.h"

namespace loci {

// Network thread only. The services have a store. Tries again until the network ends: what is left then was
// interrupted, and is failed at the next start.
class UnstoredEnds : public std::enable_shared_from_this<UnstoredEnds> {
 public:
  // Of all ends that wait. One that comes when they are too many is lost: the log says so.
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;

  explicit UnstoredEnds(ApiServices& services) : services_(services) {}

  // Stores the end of a response that was stored as queued or in progress: "failed" or "cancelled". Returns
  // after the first attempt.
  boost::asio::awaitable<void> store(std::string tenant, StoredTurn end);
  // The response as it will be stored. Absent: the store has its end.
  std::optional<StoredResponse> find(std::string_view tenant, std::string_view id) const;
  // Of all that wait.
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  struct End {
    std::string tenant;
    StoredTurn turn;
    std::size_t size_bytes = 0;
  };

  boost::asio::awaitable<Status> commit(const std::string& tenant, const StoredTurn& turn);
  // For an end that waited: its response may have been deleted meanwhile, and does not come back.
  boost::asio::awaitable<Status> commit_late(const End& end);
  boost::asio::awaitable<void> try_again();

  ApiServices& services_;
  std::deque<End> ends_;  // the next to be tried first
  std::size_t size_bytes_ = 0;
  bool is_trying_ = false;
};

}  // namespace loci
