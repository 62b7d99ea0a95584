// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes decode to an event that encodes to the same bytes, or are refused; the same for
// configurations.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/check.h"
#include "loci/engine/log/event_log_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string again;
  if (const auto event = loci::decode_event(bytes); event.ok()) {
    loci::encode_event(*event, again);
    LOCI_CHECK(again == bytes, "an event has one encoding");
  }
  again.clear();
  if (const auto config = loci::decode_config(bytes); config.ok()) {
    loci::encode_config(config->core, config->secret, again);
    LOCI_CHECK(again == bytes, "a configuration has one encoding");
  }
  return 0;
}
