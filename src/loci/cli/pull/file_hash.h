// SPDX-License-Identifier: Apache-2.0
// The hashes by which a registry names its files' contents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// SHA-1 (FIPS 180-4), for git's names alone: it protects from damage, not from an adversary.
class Sha1 {
 public:
  void update(std::string_view data);
  std::string hex();  // ends it

 private:
  void block(const unsigned char* bytes);

  std::uint32_t state_[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  unsigned char buffer_[64] = {};
  std::size_t filled_ = 0;
  std::uint64_t bytes_ = 0;
};

// Hex, of the file's content. Errors: kNotFound, kInternal (it cannot be read).
Result<std::string> sha256_of_file(const std::string& path);
// Hex, of the git blob with the file's content.
Result<std::string> git_sha1_of_file(const std::string& path);

}  // namespace loci
