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

// The version of the format, and of the decisions: a core that decides otherwise for the same events has
// another one. Logs of other versions are refused, as nothing could be learnt from replaying them.
inline constexpr std::uint32_t kLogVersion = 21;

// A secret that is left out is zero when it is read: no plan depends on it but those that follow a disk's
// entries, or what peers ask for by key.
void encode_config(const CoreConfig& config, LoggedSecret secret, std::string& out);
// Errors: kDataLoss naming the field.
Result<LoggedConfig> decode_config(std::string_view bytes);

void encode_event(const Event& event, std::string& out);
// Errors: kDataLoss naming the field. All of `bytes` must be the event.
Result<Event> decode_event(std::string_view bytes);

// The canonical encoding of all that a plan says; equal plans, equal bytes.
void encode_plan(const Plan& plan, std::string& out);
// XXH3 of it.
std::uint64_t plan_digest(const Plan& plan);

}  // namespace loci
