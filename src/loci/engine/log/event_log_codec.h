// SPDX-License-Identifier: Apache-2.0
// The bytes of events, configurations and plans, as docs/event-log.md describes them. Little-endian,
// without padding. Every decoder checks every bound: its input is a file that may be damaged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/log/event_log.h"

namespace loci {

// The version of the format and of the decisions: it changes whenever the core decides differently for the
// same events. Logs of other versions are refused, because replaying them would show nothing.
inline constexpr std::uint32_t kLogVersion = 39;

// A secret that is left out reads as zero. Only plans that follow a disk's entries, or blocks that peers ask
// for by key, depend on it.
void encode_config(const CoreConfig& config, LoggedSecret secret, std::string& out);
// Errors: kDataLoss naming the field.
Result<LoggedConfig> decode_config(std::string_view bytes);

void encode_event(const Event& event, std::string& out);
// Errors: kDataLoss naming the field, or if bytes are left after the event.
Result<Event> decode_event(std::string_view bytes);

// The canonical encoding of a whole plan: equal plans have equal bytes.
void encode_plan(const Plan& plan, std::string& out);
// XXH3 of that encoding.
std::uint64_t plan_digest(const Plan& plan);

}  // namespace loci
