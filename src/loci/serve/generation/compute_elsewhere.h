// SPDX-License-Identifier: Apache-2.0
// The prompts of a generation, computed at another member of the cluster (prefill.h). Several prompts of one
// request are computed one after the other, so that they take one place there. An example, of four prompts:
//
//     tokens   begins with              handed over
//     3,000                             yes
//     3,020    2,990 of the one above   no: 30 are new
//       200                             no
//     2,500    1,200 of the first one   yes: 1,300 are new
//
// After the first one that fails this server computes the others itself.
//
// A stream says meanwhile that it lives (GenerationServices::quiet_limit). Its header, which tells the front
// how the wait ended, is sent with that, so the front is told by a mark instead (resumed_reply.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>

#include "loci/serve/generation/generation_services.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/generation/reply_sink.h"

namespace loci {

// Of several prompts one is handed over if so many of its tokens are new, behind what it shares with the one
// that was handed over before. Of fewer, messages cost as much as is saved (kHandedBytesMin).
inline constexpr std::size_t kHandedTokensMin = 1'024;

// Has another member compute the prompts, where a front says so; absent: nobody was asked. Whatever goes
// wrong costs time alone. Network thread only; `sink` and `prepared` must outlive the wait.
boost::asio::awaitable<std::optional<ComputedElsewhere>> compute_elsewhere(
    GenerationServices& services, ReplySink& sink, const PreparedGeneration& prepared);

}  // namespace loci
