#include "loci/base/clock.h"

#include <chrono>

namespace loci {

Nanos SystemClock::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace loci
