// SPDX-License-Identifier: Apache-2.0
// The whole of a generation: what its tenant's limits allow, its prompts computed at another member where
// that is sooner, the reply, and what it cost.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "loci/serve/generation/generation_services.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/generation/reply_sink.h"

namespace loci {

// Answers the sink, which must outlive it, with what the model says. Returns whether somebody waited to the
// end.
boost::asio::awaitable<bool> run_generation(GenerationServices& services, ReplySink& sink,
                                            PreparedGeneration prepared);

}  // namespace loci
