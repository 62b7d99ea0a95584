// SPDX-License-Identifier: Apache-2.0
// How a generation has another member compute its prompt (prefill.h). What asks it is the server's
// (cluster/peers/prefill_calls.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>

#include "loci/base/clock.h"
#include "loci/serve/generation/prefill.h"

namespace loci {

struct PrefillOrder {
  boost::asio::io_context& io;  // of the network thread
  PrefillPlace place;
  PrefillWork work;
  Nanos limit = kPrefillLimitMax;                // of the whole wait
  Nanos progress_limit = 120 * kNanosPerSecond;  // from one pass to the next, once it has begun
  // Is given what ends the wait early, when the client goes.
  std::function<void(std::function<void()>)> watch;
  std::function<bool()> stops;  // true: nobody should wait any more. Asked at each line; may be null
  // Told at each line that the wait goes on; may be null.
  std::function<boost::asio::awaitable<void>()> waits;
  // Is told, while that member computes, how many of the prompt's first tokens have state that can be read
  // there. May be null.
  std::function<boost::asio::awaitable<void>(std::uint32_t tokens)> ready;
};
// Asks that member, and waits for it. Network thread only.
using AskForPrefill = std::function<boost::asio::awaitable<PrefillOutcome>(PrefillOrder)>;

}  // namespace loci
