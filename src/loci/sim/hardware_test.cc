// SPDX-License-Identifier: Apache-2.0
// Passes and links against closed forms.
#include "loci/sim/hardware.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/sim/links.h"

namespace loci::sim {
namespace {

constexpr std::uint64_t kGiga = 1'000'000'000;

ModelShape small_model() {
  ModelShape model;
  model.parameters = 1e9;
  model.weight_bytes = 2e9;
  model.layers = 10;
  model.width = 1000;
  model.state_width = 500;
  return model;
}

Machine small_machine() {
  Machine machine;
  machine.product_flops = 1e12;
  machine.attention_flops = 5e11;
  machine.memory_bandwidth = 1e11;
  machine.fixed = 1'000'000;
  machine.host_load = machine.host_save = {0, kGiga};
  machine.disk_read = machine.disk_write = {0, kGiga / 2};
  return machine;
}

TEST(PassModel, DecodesReadTheWeights) {
  const PassModel model(small_model(), small_machine());
  // 20 ms for 2 GB, 1 ms fixed; 20,000 bytes a token of state: 100 of them take 0.02 ms and 4 ms of products
  // are hidden behind the weights. Attention's products: 4 * 1 * 99.5 * 1000 * 10 / 5e11 = 0.008 ms.
  const SpanShape span{99, 1, true};
  const PassTime time = model.time({&span, 1});
  EXPECT_EQ(time.prompts, 0);
  EXPECT_NEAR(static_cast<double>(time.decodes), 21.02e6, 10);
}

TEST(PassModel, PromptsAreProductsAndAttention) {
  const PassModel model(small_model(), small_machine());
  // 2e9 * 1000 / 1e12 = 2 s; 4 * 1000 * (500 + 500) * 1000 * 10 / 5e11 = 80 ms.
  EXPECT_NEAR(static_cast<double>(model.prefill(500, 1000)), 2.081e9, 10);
  EXPECT_GT(model.prefill(5000, 1000), model.prefill(500, 1000));
}

TEST(PassModel, SplitPassesReadTheWeightsTwice) {
  Machine machine = small_machine();
  const SpanShape spans[] = {{99, 1, true}, {0, 4, false}};
  const Nanos together = PassModel(small_model(), machine).time(spans).total();
  machine.split_passes = true;
  const Nanos apart = PassModel(small_model(), machine).time(spans).total();
  EXPECT_NEAR(static_cast<double>(apart - together), 21e6, 1e4);
}

// HCache §3.2: 4 n D² operations in a layer, where keys and values are as wide as the hidden state.
TEST(PassModel, HiddenStatesAreTwoProductsALayer) {
  Machine machine = small_machine();
  const PassModel model(small_model(), machine);
  // 4 * 32 * 1000 * 500 * 10 / 1e12 = 0.64 ms; 8 rows have 160,000 bytes.
  EXPECT_EQ(model.projecting(32), 640'000);
  EXPECT_EQ(model.curves().projection, 20'000) << "of a token";
  EXPECT_EQ(model.capturing(8), 160'000);
  machine.projection_flops = 2e12;
  machine.hidden_saving = HiddenSaving::kDirect;
  const PassModel other(small_model(), machine);
  EXPECT_EQ(other.projecting(32), 320'000);
  EXPECT_EQ(other.capturing(8), 8 * 10 * machine.small_write + 320'000) << "each row, one after another";
  ModelShape narrow = small_model();
  narrow.hidden_row_bytes = 500;
  EXPECT_EQ(PassModel(narrow, small_machine()).capturing(8), 40'000);
}

// AttentionStore §2.4: LLaMA-65B on four A100 computes 2K tokens in 360 ms and loads 5 GB in 192 ms.
TEST(PassModel, ReachesACalibrationPoint) {
  const ModelShape* model = nullptr;
  for (const ModelShape& preset : model_presets()) {
    if (preset.name == "llama-65b") model = &preset;
  }
  ASSERT_NE(model, nullptr);
  const Machine machine = machine_of(machine_presets().front(), 4, {.products = 0.61, .attention = 0.61});
  EXPECT_NEAR(static_cast<double>(PassModel(*model, machine).prefill(0, 2048)) * 1e-9, 0.360, 0.02);
  EXPECT_NEAR(static_cast<double>(model->token_bytes()) * 2048 / 26e9, 0.2, 0.01);
}

TEST(PassModel, MeasuredCostsAreTheMachine) {
  Machine machine = small_machine();
  CostCurves curves;
  curves.token = 1'000;
  curves.pass = 50'000;
  curves.attention = {10};
  machine.measured = curves;
  const PassModel model(small_model(), machine);
  const CostModel costs(curves);
  EXPECT_EQ(model.prefill(100, 200), machine.fixed + costs.compute(100, 200));
  EXPECT_EQ(model.prefill(100, 1), machine.fixed + costs.curves().pass + costs.attention(100));
  CostCurves believed = costs.curves();
  believed.host_load = believed.host_save = machine.host_load;
  believed.disk_read = believed.disk_write = machine.disk_read;
  EXPECT_EQ(model.curves(), believed) << "its links are the machine's";
}

// rows, logits and the attention of decodes at powers of two; between them straight, beyond in proportion.
TEST(PassModel, MeasuredPassesAreFinerThanTheCosts) {
  Machine machine = small_machine();
  machine.fixed = 0;
  machine.measured = CostCurves{.token = 1'000, .attention = {10}, .pass = 50'000};
  machine.passes = {
      .rows = {50'000, 60'000, 70'000, 110'000}, .logits = {1'000, 3'000}, .decode_attention = {0, 8, 16}};
  const PassModel model(small_model(), machine);
  const auto decodes = [&](std::size_t count, bool sampled) {
    const std::vector<SpanShape> spans(count, {100, 1, true, sampled});
    return model.time(spans).total();
  };
  const Nanos attention = 16 * 100 / 4;
  EXPECT_EQ(decodes(1, false), 50'000 + attention);
  EXPECT_EQ(decodes(1, true), 51'000 + attention);
  EXPECT_EQ(decodes(2, true), 63'000 + 2 * attention);
  EXPECT_EQ(decodes(6, true), 90'000 + 9'000 + 6 * attention);
  EXPECT_EQ(decodes(16, false), 220'000 + 16 * attention);
  // A prompt's rows share their context's reading, as the costs say.
  const CostModel costs(*machine.measured);
  const SpanShape prompt{100, 8, false, true};
  EXPECT_EQ(model.time({&prompt, 1}).total(), 110'000 + costs.compute(100, 8) - 8'000 + 1'000);
}

// --- links ---

std::map<std::uint64_t, Nanos> run_out(Links& links) {
  std::map<std::uint64_t, Nanos> ends;
  while (const auto next = links.next()) {
    for (const Transfer& transfer : links.end(*next)) {
      for (const std::uint64_t move : transfer.moves) {
        EXPECT_TRUE(ends.emplace(move, *next).second) << "a move ends once";
      }
    }
  }
  EXPECT_EQ(links.in_flight(), 0u);
  return ends;
}

TEST(Links, OneWayTakesItsTurns) {
  Links links(small_machine());
  links.add(0, {Tier::kHost, Tier::kDevice, kGiga, {1, 2}});
  links.add(0, {Tier::kHost, Tier::kDevice, kGiga / 2, {3}});
  const auto ends = run_out(links);
  EXPECT_EQ(ends.at(1), kNanosPerSecond);
  EXPECT_EQ(ends.at(2), kNanosPerSecond) << "what travels together ends together";
  EXPECT_EQ(ends.at(3), 1'500'000'000);
}

// Pensieve §5: both ways at once each lose 18 to 20 %.
TEST(Links, BothWaysAtOnceAreSlower) {
  Links links(small_machine());
  links.add(0, {Tier::kDevice, Tier::kHost, kGiga, {1}});
  links.add(0, {Tier::kHost, Tier::kDevice, kGiga, {2}});
  const auto ends = run_out(links);
  EXPECT_NEAR(static_cast<double>(ends.at(1)), 1e9 / 0.81, 3);
  EXPECT_NEAR(static_cast<double>(ends.at(2)), 1e9 / 0.81, 3);
}

// Half of the save moves alone, then both share until the load ends, then the save is alone again.
TEST(Links, RatesChangeOnTheWay) {
  Links links(small_machine());
  links.add(0, {Tier::kDevice, Tier::kHost, kGiga, {1}});
  links.add(kNanosPerSecond / 2, {Tier::kHost, Tier::kDevice, kGiga * 81 / 1000, {2}});
  const auto ends = run_out(links);
  EXPECT_NEAR(static_cast<double>(ends.at(2)), 0.6e9, 3);
  EXPECT_NEAR(static_cast<double>(ends.at(1)), 0.6e9 + (0.5 - 0.081) * 1e9, 3);
}

TEST(Links, LoadsComeBeforeSaves) {
  Links links(small_machine());
  links.add(0, {Tier::kHost, Tier::kDevice, kGiga, {1}});
  links.add(0, {Tier::kDevice, Tier::kHost, kGiga, {2}});
  links.add(0, {Tier::kHost, Tier::kDevice, kGiga, {3}});
  const auto ends = run_out(links);
  EXPECT_EQ(ends.at(3), 2 * kNanosPerSecond);
  EXPECT_EQ(ends.at(2), 3 * kNanosPerSecond);
}

TEST(Links, ADiskIsShared) {
  Machine machine = small_machine();
  for (const bool shared : {true, false}) {
    machine.disk_shared = shared;
    Links links(machine);
    links.add(0, {Tier::kHost, Tier::kDisk, kGiga / 2, {1}});
    links.add(0, {Tier::kDisk, Tier::kHost, kGiga / 2, {2}});    // a prefetch
    links.add(0, {Tier::kDisk, Tier::kDevice, kGiga / 2, {3}});  // passes it where it has not begun
    links.add(0, {Tier::kHost, Tier::kDisk, kGiga / 2, {4}});
    const auto ends = run_out(links);
    EXPECT_EQ(ends.at(1), kNanosPerSecond);
    EXPECT_EQ(ends.at(3), 2 * kNanosPerSecond);
    EXPECT_EQ(ends.at(2), (shared ? 3 : 1) * kNanosPerSecond);
    EXPECT_EQ(ends.at(4), (shared ? 4 : 2) * kNanosPerSecond);
  }
}

// A disk of which a block takes 20 ms, with a limit of a second.
class DiskLinks : public testing::Test {
 protected:
  static constexpr Nanos kSecond = kNanosPerSecond, kTakes = kSecond / 50;

  void open(bool disk_shared) {
    Machine machine = small_machine();
    machine.disk_shared = disk_shared;
    links.emplace(machine, kSecond);
  }
  void read(Nanos now, std::vector<std::uint64_t> moves) {
    links->add(now, {Tier::kDisk, Tier::kDevice, moves.size() * kGiga / 100, std::move(moves)});
  }
  void write(Nanos now, std::uint64_t move) {
    links->add(now, {Tier::kHost, Tier::kDisk, kGiga / 100, {move}});
  }
  void stop(Nanos now, Links::Way way) { links->set_speed(now, way, 0); }
  // What ends next: when, which, and how long each took.
  void expect_next(Nanos at, const std::vector<std::uint64_t>& moves, bool given_up, Nanos took) {
    ASSERT_EQ(links->next(), at);
    std::vector<std::uint64_t> ended;
    for (const Transfer& transfer : links->end(at)) {
      EXPECT_EQ(transfer.given_up, given_up);
      EXPECT_EQ(transfer.ended - transfer.began, took);
      ended.push_back(transfer.moves.front());
    }
    EXPECT_EQ(ended, moves);
  }
  // One that is read now is told at once that the disk does not answer.
  void expect_closed(Nanos now) {
    read(now, {99});
    expect_next(now, {99}, true, 0);
  }

  std::optional<Links> links;
};

// Reads of a disk that has stopped are given up at the limit, and after three of them refused; of those that
// still come one in each limit is tried. When the disk has answered, all of them are.
TEST_F(DiskLinks, ADiskThatDoesNotAnswerIsGivenUp) {
  open(true);
  stop(0, Links::kDiskRead);
  read(0, {1});
  read(0, {2});
  links->add(0, {Tier::kHost, Tier::kDevice, kGiga / 2, {3}});
  expect_next(kSecond / 2, {3}, false, kSecond / 2);
  expect_next(kSecond, {1, 2}, true, kSecond);
  EXPECT_EQ(links->next(), std::nullopt);
  read(2 * kSecond, {4});
  expect_next(3 * kSecond, {4}, true, kSecond);
  expect_closed(3 * kSecond);
  expect_closed(4 * kSecond);
  read(4 * kSecond + 1, {5});
  read(4 * kSecond + 1, {6});
  expect_next(4 * kSecond + 1, {6}, true, 0);
  links->set_speed(4 * kSecond + 2, Links::kDiskRead, 1);
  expect_next(4 * kSecond + 2 + kTakes, {5}, false, kTakes + 1);
  read(5 * kSecond, {7});
  expect_next(5 * kSecond + kTakes, {7}, false, kTakes);
  EXPECT_EQ(links->in_flight(), 0u);
}

// The blocks of a transfer are reads of their own, and who waits behind it is given up with it.
TEST_F(DiskLinks, AReadOfManyBlocksClosesADiskAlone) {
  open(true);
  stop(0, Links::kDiskRead);
  read(0, {1, 2, 3});
  read(kSecond / 2, {4});
  ASSERT_EQ(links->next(), kSecond);
  EXPECT_EQ(links->end(kSecond).size(), 2u);
  expect_closed(kSecond);
}

TEST_F(DiskLinks, AWriteThatIsAnsweredOpensADisk) {
  for (const bool shared : {true, false}) {
    open(shared);
    stop(0, Links::kDiskRead);
    read(0, {1, 2, 3});
    expect_next(kSecond, {1}, true, kSecond);
    expect_closed(kSecond);
    write(kSecond, 4);
    expect_next(kSecond + kTakes, {4}, false, kTakes);
    links->set_speed(kSecond + kTakes, Links::kDiskRead, 1);
    read(kSecond + kTakes, {5});
    expect_next(kSecond + 2 * kTakes, {5}, false, kTakes);
  }
}

// One that is let through waits for the write that moves, whatever else ends meanwhile.
TEST_F(DiskLinks, AReadThatIsTriedMayWait) {
  open(true);
  stop(0, Links::kDiskRead);
  stop(0, Links::kDiskWrite);
  read(0, {1, 2, 3});
  expect_next(kSecond, {1}, true, kSecond);
  write(2 * kSecond, 4);
  read(2 * kSecond + 1, {5});
  links->add(2 * kSecond + 1, {Tier::kHost, Tier::kDevice, kGiga / 100, {6}});
  expect_next(2 * kSecond + 1 + kTakes / 2, {6}, false, kTakes / 2);
  EXPECT_EQ(links->in_flight(), 2u) << "the write moves, and the read waits for it";
  constexpr Nanos kWell = 5 * kSecond / 2;
  for (const Links::Way way : {Links::kDiskRead, Links::kDiskWrite}) links->set_speed(kWell, way, 1);
  expect_next(kWell + kTakes, {4}, false, kSecond / 2 + kTakes);
  expect_next(kWell + 2 * kTakes, {5}, false, kTakes);
}

// A disk that needs two seconds for what is given up after one has answered it then.
TEST_F(DiskLinks, ALateAnswerOpensADisk) {
  open(true);
  links->set_speed(0, Links::kDiskRead, 0.01);
  read(0, {1});
  read(0, {2, 3});
  ASSERT_EQ(links->next(), kSecond);
  EXPECT_EQ(links->end(kSecond).size(), 2u);
  expect_closed(2 * kSecond - 1);
  read(2 * kSecond, {4});
  expect_next(3 * kSecond, {4}, true, kSecond);
  EXPECT_EQ(links->in_flight(), 0u);
}

TEST(Links, EachEndsOnceAndNoSoonerThanItsBytesAllow) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    Links links(small_machine());
    std::map<std::uint64_t, Nanos> ends, least;
    Nanos now = 0;
    const auto take = [&](Nanos at) {
      for (const Transfer& transfer : links.end(at)) {
        EXPECT_LE(transfer.began, transfer.ended);
        for (const std::uint64_t move : transfer.moves) EXPECT_TRUE(ends.emplace(move, at).second);
      }
    };
    for (std::uint64_t move = 0; move < 60; ++move) {
      const Nanos then = now + static_cast<Nanos>(random.below(50'000'000));
      while (const auto next = links.next()) {
        if (*next > then) break;
        take(*next);
      }
      now = then;
      const auto from = static_cast<Tier>(random.below(3));
      auto to = static_cast<Tier>(random.below(3));
      if (to == from) to = static_cast<Tier>((static_cast<int>(from) + 1) % 3);
      const std::uint64_t bytes = random.below(40'000'000);
      least[move] = now + static_cast<Nanos>(bytes);  // a gigabyte a second at most
      links.add(now, {from, to, bytes, {move}});
    }
    while (const auto next = links.next()) take(*next);
    EXPECT_EQ(ends.size(), 60u);
    for (const auto& [move, end] : ends) EXPECT_GE(end + 1, least.at(move));
  }
}

}  // namespace
}  // namespace loci::sim
