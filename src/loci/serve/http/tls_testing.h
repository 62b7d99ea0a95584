// SPDX-License-Identifier: Apache-2.0
// For tests of TLS.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "loci/serve/http/tls.h"

namespace loci {

// A certificate for 127.0.0.1 that signs itself, and its key; `name` tells it from others.
inline TlsFiles make_certificate(const std::filesystem::path& folder, const std::string& name) {
  TlsFiles files{.certificate = folder / (name + ".pem"), .key = folder / (name + ".key")};
  const std::string command = fmt::format(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={} "
      "-addext subjectAltName=IP:127.0.0.1 -keyout {} -out {} 2>/dev/null",
      name, files.key, files.certificate);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return files;
}

}  // namespace loci
