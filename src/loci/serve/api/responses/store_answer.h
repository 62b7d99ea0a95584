// SPDX-License-Identifier: Apache-2.0
// How an endpoint of stored responses and conversations answers its call.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>

#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"

namespace loci {

// What a request asks of the store, once its body and query are read. Called on a thread of the store's. What
// may be large it reads only where `room` has room for it.
using StoreJob =
    std::function<Answer(ConversationStore& store, const std::string& tenant, const ReadRoom& room)>;

// Answers the call with the body, or refuses it with the error. The body counts among those of
// ApiServices::answers until the client has taken it; where there is no room for it, it is refused (503),
// but never what a write answers.
boost::asio::awaitable<void> answer_call(ApiServices& services, Call& call, Answer answer);
// Answers with what the job returns; where the server has no store, with the error that says so.
boost::asio::awaitable<void> answer_from_store(ApiServices& services, Call& call, StoreJob job);

}  // namespace loci
