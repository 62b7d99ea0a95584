// SPDX-License-Identifier: Apache-2.0
// Fuzzes what opens a shared store's values: whatever the store says a pack is, nothing but what was sealed
// under its name opens. The first byte chooses the shape; the rest is laid over a genuine value, and is a
// value by itself.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "loci/memory/shared/redis_address.h"
#include "loci/memory/shared/shared_format.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t layers = data[0] % 5 + 1;
  const std::uint64_t slice = data[1] % 64 + 1;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size)).subspan(2);
  const loci::SharedFormat format({}, {{.layers = layers, .layer_slice_bytes = slice}});
  const loci::ChainKey key;
  const std::vector<std::byte> block(layers * slice, std::byte{42});
  const std::vector<std::byte> genuine = format.seal(key, 0, block);
  std::vector<std::byte> value = genuine;
  for (std::size_t i = 0; i < std::min(input.size(), value.size()); ++i) value[i] ^= input[i];
  for (std::uint32_t i = 0; i < format.pack_count(0); ++i) {
    const loci::SharedFormat::Pack pack = format.pack(0, i);
    std::vector<std::byte> slices(format.slices_bytes(0, pack));
    const auto sealed = std::span<const std::byte>(value).subspan(pack.offset, pack.bytes);
    const auto original = std::span<const std::byte>(genuine).subspan(pack.offset, pack.bytes);
    const bool same = std::equal(sealed.begin(), sealed.end(), original.begin());
    expect(format.open(key, 0, pack, sealed, slices).ok() == same);
    if (same) expect(std::equal(slices.begin(), slices.end(), block.begin()));
    expect(!format.open(key, 0, pack, input, slices).ok());
  }
  // A place that parses is shown without its password, and parses again.
  const std::string_view url(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {std::string(url), "redis://" + std::string(url)}) {
    const auto address = loci::parse_redis_address(text);
    if (!address.ok()) continue;
    const auto again = loci::parse_redis_address(address->shown());
    expect(again.ok() && again->host == address->host && again->port == address->port &&
           again->database == address->database && again->tls == address->tls);
  }
  return 0;
}
