// SPDX-License-Identifier: Apache-2.0
// Replies of /v1/chat/completions.
#pragma once

#include <memory>

#include "loci/serve/api/openai/reply_head.h"
#include "loci/serve/generation/reply_format.h"

namespace loci {

std::unique_ptr<ReplyFormat> make_chat_format(ReplyHead head);

}  // namespace loci
