// SPDX-License-Identifier: Apache-2.0
// Where a URL of PostgreSQL's leads. Thread-safe. No error shows what may be a password.
#pragma once

#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

// The URL as libpq's keywords and values, with limits on waiting where it names none. Errors:
// kInvalidArgument.
Result<std::string> connection_settings(const std::string& url, Nanos lock_timeout);

// Whether whoever that URL names (or the environment, where it names no host) is on this machine: by a
// loopback address or a Unix-domain socket, all of them where there are several. Errors: kInvalidArgument.
Result<bool> is_local_database(const std::string& url);
// "localhost", and addresses of 127.0.0.0/8 and ::1. No name is looked up.
bool is_loopback_host(std::string_view host);

}  // namespace loci
