// SPDX-License-Identifier: Apache-2.0
// The value that a body becomes: parsed once, with the members of objects in the order in which the client
// wrote them, because tools and schemas are shown to the model so. Finding a member is linear, and
// parse_json() bounds the members of an object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace loci {

using Json = nlohmann::ordered_json;

// One line. What is no UTF-8, as a part of a character that a token ends in, becomes U+FFFD.
std::string dump_json(const Json& json);

// The number that the shortest decimals of the float are: 0.8, and not 0.800000011920929.
Json decimal_json(float value);

}  // namespace loci
