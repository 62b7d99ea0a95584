// SPDX-License-Identifier: Apache-2.0
// Begins a turn of a conversation: one at a time (store/turn_claims.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <variant>

#include "loci/serve/call/services.h"
#include "loci/serve/store/turn_claims.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

class Exchange;

// Begins a turn of the conversation. Errors: 409 while another turn of it is being made, by this server or
// another one (the error has the field `field` and the message `busy`); the store's. It waits for that other
// turn for as long as `patience`, and not behind its client's end.
boost::asio::awaitable<std::variant<HeldTurn, ApiError>> hold_turn(ApiServices& services, Exchange& exchange,
                                                                   std::string tenant,
                                                                   std::string conversation,
                                                                   std::string field, std::string busy,
                                                                   Nanos patience = 0);

}  // namespace loci
