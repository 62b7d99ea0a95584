// SPDX-License-Identifier: Apache-2.0
// The prompt of a generation, computed at another member of the cluster (prefill.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>

#include "loci/serve/generation/early_reads.h"
#include "loci/serve/generation/generation_services.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/generation/reply_sink.h"

namespace loci {

struct ComputedElsewhere {
  PrefillOutcome outcome;
  std::shared_ptr<const EarlyReads> early;  // not null
};

// Has another member compute the prompt, where a front says so; absent: nobody was asked. Whatever goes wrong
// costs time alone. Network thread only; `sink` and `prepared` must outlive the wait.
boost::asio::awaitable<std::optional<ComputedElsewhere>> compute_elsewhere(
    GenerationServices& services, ReplySink& sink, const PreparedGeneration& prepared);

}  // namespace loci
