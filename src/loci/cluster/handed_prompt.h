// SPDX-License-Identifier: Apache-2.0
// Where a front wants a request's prompt to be computed (serve/generation/prefill.h), in the request that it
// passes on:
//
//   Loci-Prefill: HOST PORT MILLISECONDS SILENCE SEAL
//       HOST, PORT     at which the prefill member serves peers
//       MILLISECONDS   how long the instance waits for that member, before it computes the prompt itself
//       SILENCE        how many milliseconds it waits for a next sign of life
//       SEAL           of the method, the target, these values, and the request's Loci-Reply, if it has one
//
// Nobody without the cluster's secret can seal one. An unsealed one is not looked at.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loci/serve/generation/prefill.h"
#include "loci/serve/http/http_message.h"

namespace loci {

// Of a cluster (cluster_prefill_key(), cluster_secret.h).
using PrefillKey = std::array<std::uint8_t, 32>;

// The header's line, with its end. `reply`: the value of kReplyHeader that the request is sent with.
std::string prefill_header(const PrefillKey& key, const HttpRequest& request, const PrefillPlace& place,
                           std::string_view reply);
// Absent: no front of the cluster says anything.
std::optional<PrefillPlace> read_prefill_header(const PrefillKey& key, const HttpRequest& request);

}  // namespace loci
