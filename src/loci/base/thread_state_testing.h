// SPDX-License-Identifier: Apache-2.0
// Waits until another thread of this process waits: for a test that must go on only when somebody else is
// inside a call that does not return yet.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <fstream>
#include <iterator>
#include <string>

#include "loci/base/eventually_testing.h"

namespace loci {

// As the kernel sees it: a thread that only has no processor does not sleep. `thread`: its gettid().
inline void wait_until_it_sleeps(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  EXPECT_TRUE(eventually([&] {
    std::ifstream file(path);
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_end = stat.rfind(')');  // a name may have any characters
    return name_end != std::string::npos && name_end + 2 < stat.size() && stat[name_end + 2] == 'S';
  }));
}

}  // namespace loci
