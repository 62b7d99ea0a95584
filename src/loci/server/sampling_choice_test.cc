// SPDX-License-Identifier: Apache-2.0
#include "loci/server/sampling_choice.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(SamplingChoice, AModelWithoutAWordIsDrawnFromSanely) {
  const SamplingChoice choice = choose_sampling({}, {});
  EXPECT_EQ(choice.params.temperature, 0.8f);
  EXPECT_EQ(choice.params.top_k, 40u);
  EXPECT_EQ(choice.params.top_p, 0.95f);
  EXPECT_EQ(choice.params.min_p, 0.05f);
  EXPECT_EQ(choice.text, "temperature 0.8, top-p 0.95, top-k 40, min-p 0.05 (the model's file names none)");
}

TEST(SamplingChoice, WhatTheFileLeavesOutIsOffAndWhatIsGivenWins) {
  SamplingDefaults file;
  file.temperature = 0.6f;
  file.repetition_penalty = 1.1f;
  GivenSampling given;
  given.top_k = 20;
  const SamplingChoice choice = choose_sampling(given, file);
  EXPECT_EQ(choice.params.temperature, 0.6f);
  EXPECT_EQ(choice.params.top_p, 1.0f);
  EXPECT_EQ(choice.params.top_k, 20u);
  EXPECT_EQ(choice.params.repetition_penalty, 1.1f);
  EXPECT_EQ(choice.text,
            "temperature 0.6, top-p 1, top-k 20, min-p 0, repeat-penalty 1.1 (the model's; given: top-k)");
  given.temperature = 0.0f;
  EXPECT_EQ(choose_sampling(given, file).params.temperature, 0.0f);
}

}  // namespace
}  // namespace loci
