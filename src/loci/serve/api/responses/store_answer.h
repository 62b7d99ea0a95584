// SPDX-License-Identifier: Apache-2.0
// How an endpoint of stored responses and conversations answers its call.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>

#include "loci/base/clock.h"
#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"

namespace loci {

// A client that has only ended what it sends may still read: its job is waited for so long. (One that has
// gone altogether may look the same.)
inline constexpr Nanos kHalfClosedPatience = kNanosPerSecond;

// What a request asks of the store, once its body and query are read. Called on a thread of the store's. What
// may be large it reads only where `room` has room for it.
using StoreJob =
    std::function<Answer(ConversationStore& store, const std::string& tenant, const ReadRoom& room)>;

// What is too long for a thread of the store's, and is to be done before the answer; on a worker.
using WorkerJob = std::function<void()>;

// Answers the call with the body, or refuses it with the error. The body counts among those of
// ApiServices::answers until the client has taken it; where there is no room for it, it is refused (503),
// but never what a write answers.
boost::asio::awaitable<void> answer_call(ApiServices& services, Call& call, Answer answer);
// Answers with what the job returns; where the server has no store, with the error that says so.
boost::asio::awaitable<void> answer_from_store(ApiServices& services, Call& call, StoreJob job);
// The same; `then`, which may be empty, follows the job, whether or not that was refused.
boost::asio::awaitable<void> answer_from_store(ApiServices& services, Call& call, StoreJob job,
                                               WorkerJob then);

}  // namespace loci
