// SPDX-License-Identifier: Apache-2.0
// A profile of made-up costs for tests.
#pragma once

#include "loci/server/profile/profile_file.h"

namespace loci {

inline CostProfile some_profile() {
  CostProfile profile;
  profile.machine = {"Some CPU @ 3 GHz", 8, "AVX2, 4 threads"};
  profile.model = "model.gguf";
  profile.model_fingerprint = fingerprint_text({1, 2, 0xab});
  profile.measured_at = "2026-01-02T03:04:05Z";
  profile.disk_directory = "/somewhere";
  profile.curves.token = 123'456;
  profile.curves.attention = {1, 2, 5, 5, 90};
  profile.curves.pass = 7;
  profile.curves.host_load = {0, 5'000'000'000};
  profile.curves.host_save = {12, 4'000'000'000};
  profile.curves.disk_read = {90'000, 2'000'000'000};
  profile.curves.disk_write = {91'000, 1};
  profile.curves.host_charge = 1'111;
  profile.curves.disk_charge = 2'222;
  profile.disk_reads = {{4096, 100}, {65536, 200}};
  profile.passes = {.rows = {7, 8, 9}, .logits = {3, 4}, .decode_attention = {1, 1, 2}};
  return profile;
}

}  // namespace loci
