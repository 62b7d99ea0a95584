// SPDX-License-Identifier: Apache-2.0
// Replies of Anthropic's /v1/messages: one message of content blocks, whole or as named events.
//
// A stream is message_start, ping, then for each block content_block_start, content_block_delta ...,
// content_block_stop, then message_delta (why it ended, the usage) and message_stop; or an error event.
#pragma once

#include <memory>
#include <string>

#include "loci/serve/generation/reply_format.h"

namespace loci {

// Of a reply with one choice. `id`: "msg_...".
std::unique_ptr<ReplyFormat> make_messages_format(std::string id, std::string model);

}  // namespace loci
