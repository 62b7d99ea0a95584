// SPDX-License-Identifier: Apache-2.0
// The parts of `loci profile`: fitting, the file, the disk; and a measurement of a tiny model.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "loci/base/folder_testing.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/engine/testing/engine_testing.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"
#include "loci/server/profile/profile_disk.h"
#include "loci/server/profile/profile_file.h"
#include "loci/server/profile/profile_measure.h"
#include "loci/server/profile/profile_rough.h"
#include "loci/server/profile/profile_testing.h"

namespace loci {
namespace {

class ProfileFolder : public ::testing::Test {
 protected:
  const TestFolder test_folder_;
  const std::filesystem::path& folder_ = test_folder_.path();
};

TEST(ProfileFit, FindsTheLineThroughItsSamples) {
  // 1 ms a row, and 100 ns for each token before it.
  std::vector<AttentionSample> samples;
  for (std::uint32_t context = 128; context <= 8192; context *= 2)
    samples.push_back({context, 1'000'000 + context * 100});
  const std::vector<Nanos> attention = fit_attention(samples);
  ASSERT_EQ(attention.size(), 14u);
  for (std::size_t i = 0; i < attention.size(); ++i)
    EXPECT_NEAR(static_cast<double>(attention[i]), 100.0 * (1 << i), 2.0) << i;
}

TEST(ProfileFit, KeepsWhatIsMeasuredWhereItIsMoreThanNoise) {
  // Attention grows faster once it does not fit the caches.
  const std::vector<AttentionSample> samples = {{128, 1'010'000},  {256, 1'030'000},  {512, 1'050'000},
                                                {1024, 1'100'000}, {2048, 1'200'000}, {4096, 1'900'000}};
  const std::vector<Nanos> attention = fit_attention(samples);
  ASSERT_EQ(attention.size(), 13u);
  EXPECT_EQ(attention[12] - attention[11], 700'000);
  // A falling line, which noise can give: no attention at all.
  for (const Nanos cost : fit_attention({{128, 500}, {256, 400}})) EXPECT_EQ(cost, 0);
}

// A first step that no line through longer contexts knows, as where state leaves the caches.
TEST(ProfileFit, OfDecodesIsWhatTheyTakeBeyondOneAlone) {
  const std::vector<AttentionSample> samples = {
      {64, 3'300'000}, {128, 3'350'000}, {256, 3'340'000}, {512, 3'700'000}};
  const std::vector<Nanos> attention = decode_attention(samples, 3'200'000);
  ASSERT_EQ(attention.size(), 10u);
  EXPECT_EQ(attention[0], 100'000 / 64);
  EXPECT_EQ(attention[5], 50'000);
  EXPECT_EQ(attention[6], 100'000);
  EXPECT_EQ(attention[7], 150'000);
  EXPECT_EQ(attention[8], 150'000) << "noise makes no curve fall";
  EXPECT_EQ(attention[9], 500'000);
  for (const Nanos cost : decode_attention({{64, 100}}, 200)) EXPECT_EQ(cost, 0);
}

TEST(ProfileFile, ReadsBackWhatItWrote) {
  const CostProfile profile = some_profile();
  const Result<CostProfile> read = parse_profile(format_profile(profile));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, profile);
  // A rough one has no passes.
  CostProfile rough = profile;
  rough.passes = {};
  EXPECT_EQ(format_profile(rough).find("passes"), std::string::npos);
  EXPECT_EQ(parse_profile(format_profile(rough)).value(), rough);
}

TEST(ProfileFile, SaysWhatIsWrongWithIt) {
  const auto expect_refused = [](const std::string& found, const std::string& wrong,
                                 const std::string& field) {
    std::string text = format_profile(some_profile());
    const std::size_t at = text.find(found);
    ASSERT_NE(at, std::string::npos) << found;
    text.replace(at, found.size(), wrong);
    const Result<CostProfile> read = parse_profile(text);
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(read.status().field(), field) << read.status().message();
    EXPECT_NE(read.status().message().find("expected"), std::string::npos) << read.status().message();
  };
  expect_refused("loci-profile-2", "loci-profile-9", "format");
  expect_refused("\"machine\"", "\"machines\"", "machine");
  expect_refused("\"threads\": 8", "\"threads\": 0", "machine.threads");
  expect_refused("\"token_ns\"", "\"tokens_ns\"", "costs.token_ns");
  expect_refused("\"token_ns\": 123456", "\"token_ns\": -1", "costs.token_ns");
  expect_refused("\"token_ns\": 123456", "\"token_ns\": \"x\"", "costs.token_ns");
  expect_refused("\"pass_ns\"", "\"past_ns\"", "costs.pass_ns");
  expect_refused("\"attention_ns\"", "\"attentive_ns\"", "costs.attention_ns");
  expect_refused("\"latency_ns\": 0", "\"latency_ns\": 1.5", "costs.host_load.latency_ns");
  expect_refused("\"bytes_per_second\": 1\n", "\"bytes_per_second\": 0\n",
                 "costs.disk_write.bytes_per_second");
  expect_refused("\"host_charge_ns\": 1111", "\"host_charge_ns\": -1", "costs.host_charge_ns");
  expect_refused("\"disk_reads\"", "\"reads\"", "costs.disk_reads");
  expect_refused("\"rows_ns\"", "\"row_ns\"", "passes.rows_ns");
  expect_refused("\"logits_ns\": [", "\"logits_ns\": [-1,", "passes.logits_ns");
  expect_refused("\"bytes\": 65536", "\"bytes\": 4096", "costs.disk_reads");
  expect_refused("\"bytes_per_second\": 200\n", "\"bytes_per_second\": \"x\"\n", "costs.disk_reads");
  for (const char* text : {"", "[]", "{", "{}", "null"}) EXPECT_FALSE(parse_profile(text).ok()) << text;
}

// A field that is not known is shown in the error, with a call for each of its levels.
TEST(ProfileFile, IsRefusedIfItIsTooDeep) {
  const std::string deep = "{\"format\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}";
  EXPECT_NE(parse_profile(deep).status().message().find("deeper than 64 levels"), std::string::npos);
}

TEST(ProfileFile, IsForOneMachineAndModel) {
  const CostProfile profile = some_profile();
  const std::string model = profile.model_fingerprint;
  EXPECT_TRUE(check_profile(profile, profile.machine, model).ok());
  const auto refused = [&](MachineId machine, const std::string& fingerprint, const std::string& text) {
    const Status status = check_profile(profile, machine, fingerprint);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  refused(profile.machine, fingerprint_text({9}), "another model");
  refused({"Another CPU", 8, "AVX2, 4 threads"}, model, "expected Another CPU, found Some CPU @ 3 GHz");
  refused({"Some CPU @ 3 GHz", 4, "AVX2, 4 threads"}, model, "expected 4 processors, found 8");
  refused({"Some CPU @ 3 GHz", 8, "AVX2, 2 threads"}, model, "another set-up");
}

TEST_F(ProfileFolder, ChoosesTheFileThatWasGivenOrTheModelsOwnOrNone) {
  const CostProfile profile = some_profile();
  const std::array<std::uint8_t, 16> model = {1, 2, 0xab};
  const Result<ChosenCosts> none = choose_costs({.file = {}, .folder = folder_}, profile.machine, model, {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->curves, CostCurves{});
  EXPECT_NE(none->source.find("assumed, not measured here"), std::string::npos) << none->source;
  EXPECT_EQ(none->measure_into, profile_path(folder_, profile.model_fingerprint));
  const Result<ChosenCosts> unwanted =
      choose_costs({.file = "none", .folder = folder_}, profile.machine, model, {});
  ASSERT_TRUE(unwanted.ok());
  EXPECT_EQ(unwanted->source, "assumed");
  EXPECT_FALSE(unwanted->measure_into) << "nor is it to be measured";

  ASSERT_TRUE(write_profile(profile_path(folder_, profile.model_fingerprint), profile).ok());
  const Result<ChosenCosts> own = choose_costs({.file = {}, .folder = folder_}, profile.machine, model, {});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->curves, profile.curves);
  EXPECT_TRUE(own->measured);
  EXPECT_FALSE(own->measure_into);
  EXPECT_NE(own->source.find("measured 2026"), std::string::npos);

  // Another machine's default file is left alone, and said so; given by name it is refused.
  MachineId other = profile.machine;
  other.cpu = "Another CPU";
  const Result<ChosenCosts> ignored = choose_costs({.file = {}, .folder = folder_}, other, model, {});
  ASSERT_TRUE(ignored.ok());
  EXPECT_EQ(ignored->curves, CostCurves{});
  EXPECT_NE(ignored->source.find("is not used: the profile is of another machine"), std::string::npos)
      << ignored->source;
  // So is one of a former format.
  const std::string path = profile_path(folder_, profile.model_fingerprint);
  std::string former = format_profile(profile);
  former.replace(former.find("loci-profile-2"), 14, "loci-profile-1");
  std::ofstream(path, std::ios::trunc) << former;
  const Result<ChosenCosts> passed_over =
      choose_costs({.file = {}, .folder = folder_}, profile.machine, model, {});
  ASSERT_TRUE(passed_over.ok());
  EXPECT_EQ(passed_over->curves, CostCurves{});
  for (const char* said : {"not used", "loci-profile-1", "`loci profile MODEL` measures"})
    EXPECT_NE(passed_over->source.find(said), std::string::npos) << passed_over->source;
  EXPECT_EQ(passed_over->measure_into, "") << "it is measured, and the file left alone";
  EXPECT_EQ(passed_over->source.find(path), passed_over->source.rfind(path)) << "the file is named once";
  ASSERT_TRUE(write_profile(path, profile).ok());
  const Status refused =
      choose_costs({.file = profile_path(folder_, profile.model_fingerprint), .folder = {}}, other, model, {})
          .status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.field(), "profile");
  const Status missing =
      choose_costs({.file = (folder_ / "no.json").string(), .folder = {}}, profile.machine, model, {})
          .status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.field(), "profile");

  std::ofstream(profile_path(folder_, profile.model_fingerprint)) << "{ damaged";
  CostCurves assumed;
  assumed.token = 7;
  EXPECT_EQ(choose_costs({.file = {}, .folder = folder_}, profile.machine, model, assumed)->curves, assumed);
}

// One that was made without a disk.
TEST_F(ProfileFolder, ARoughProfileIsMadeAgainWhereThereIsADisk) {
  const CostProfile profile = some_profile();
  const std::string path = profile_path(folder_, profile.model_fingerprint);
  const auto measured_into = [&](const CostProfile& kept, bool wants_disk) {
    EXPECT_TRUE(write_profile(path, kept).ok());
    const Result<ChosenCosts> costs = choose_costs({.file = {}, .folder = folder_, .wants_disk = wants_disk},
                                                   profile.machine, {1, 2, 0xab}, {});
    EXPECT_TRUE(costs.ok() && costs->measured && costs->curves == profile.curves);
    EXPECT_EQ(costs->lacks_disk, costs->measure_into.has_value());
    return costs->measure_into;
  };
  CostProfile without = profile;
  without.disk_directory.clear();
  EXPECT_EQ(measured_into(without, true), std::nullopt) << "somebody made it thoroughly";
  without.rough = true;
  EXPECT_EQ(measured_into(without, true), path);
  EXPECT_EQ(measured_into(without, false), std::nullopt);
  CostProfile rough = profile;
  rough.rough = true;
  EXPECT_EQ(measured_into(rough, true), std::nullopt);
}

// Renaming a file onto /dev/null would take it from all others.
TEST_F(ProfileFolder, AProfileReplacesFilesAlone) {
  const CostProfile profile = some_profile();
  const std::string file = (folder_ / "real.json").string(), link = (folder_ / "link.json").string();
  std::filesystem::create_symlink("real.json", link);
  ASSERT_TRUE(can_write_profile(link));
  ASSERT_TRUE(write_profile(link, profile).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_profile(file).value().curves, profile.curves);

  // Servers of other users read it, unless its owner forbids that.
  using std::filesystem::perms;
  EXPECT_NE(std::filesystem::status(file).permissions() & perms::others_read, perms::none);
  std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
  ASSERT_TRUE(write_profile(file, profile).ok());
  EXPECT_EQ(std::filesystem::status(file).permissions(), perms::owner_read | perms::owner_write);

  // A link to a device, which stays both: root could replace the device.
  const std::string device = (folder_ / "device").string();
  std::filesystem::create_symlink("/dev/null", device);
  EXPECT_TRUE(can_write_profile(device));
  EXPECT_TRUE(write_profile(device, profile).ok());
  EXPECT_TRUE(std::filesystem::is_character_file(device));
  EXPECT_TRUE(std::filesystem::is_symlink(device));
  EXPECT_FALSE(can_write_profile(folder_.string()));
  EXPECT_EQ(write_profile("/dev/full", profile).message(), "/dev/full: No space left on device");

  // What can't take its place is not left beside it.
  const std::string taken = (folder_ / "taken.json" / "inside").string();
  std::ofstream((folder_ / "taken.json").string()) << "a file";
  EXPECT_EQ(write_profile(taken, profile).message(),
            taken + ": a new file beside it can't be made: Not a directory");
}

TEST_F(ProfileFolder, AnErrorNamesTheFileAndTheField) {
  const std::string path = (folder_ / "p.json").string();
  nlohmann::json json = nlohmann::json::parse(format_profile(some_profile()));
  json["costs"]["pass_ns"] = -1;
  std::ofstream(path) << json;
  EXPECT_TRUE(
      read_profile(path).status().message().starts_with(path + ": costs.pass_ns: expected an integer"))
      << read_profile(path).status().message();
}

TEST_F(ProfileFolder, MeasuresADisk) {
  DiskMeasureOptions options;
  options.directory = (folder_ / "made/for/it").string();
  options.request_bytes = 100'000;
  options.file_bytes = 8 << 20;
  options.read_sizes = {1 << 20, 5000};
  const Result<DiskMeasurement> measured = measure_disk(options);
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  EXPECT_GT(measured->read.bytes_per_second, 1u << 20);
  EXPECT_GT(measured->write.bytes_per_second, 1u << 20);
  EXPECT_GT(measured->read.latency, 0);
  EXPECT_TRUE(std::filesystem::is_empty(options.directory)) << "nothing is left";
  ASSERT_EQ(measured->reads.size(), 3u);
  EXPECT_EQ(measured->reads[0].bytes, 8192u) << "whole pages";
  EXPECT_EQ(measured->reads[1].bytes, 102'400u);
  EXPECT_EQ(measured->reads[1].bytes_per_second, measured->read.bytes_per_second);
  EXPECT_EQ(measured->reads[2].bytes, 1u << 20);
  EXPECT_GT(measured->charge, 0) << "verifying takes time";
  const std::uint64_t fits = std::exchange(options.file_bytes, std::uint64_t{1} << 60);
  const Status full = measure_disk(options).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find(options.directory + ": expected 4096.0 PiB free for a measurement, found "),
            std::string::npos)
      << full.message();
  options.file_bytes = fits;

  int asked = 0;
  options.stop = [&asked] { return ++asked > 3; };
  EXPECT_EQ(measure_disk(options).status().code(), StatusCode::kCancelled);
  options.stop = nullptr;

  options.directory = "/proc/no/such";
  const Status status = measure_disk(options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/proc/no/such"), std::string::npos) << status.message();
}

TEST(ProfileMeasure, MeasuresATinyModel) {
  RandomModelOptions random;
  random.tokenizer = false;
  const std::vector<std::byte> bytes = make_random_model(random).value().to_bytes();
  const GgufFile file = std::move(GgufFile::parse(bytes)).value();
  const ModelSpec spec = read_model_spec(file).value();
  const std::unique_ptr<Backend> backend = std::move(make_cpu_backend(spec, {.threads = 1})).value();
  MeasureOptions options;
  options.batch_tokens = 64;
  options.context_tokens = 1000;
  options.time_limit = 60 * kNanosPerSecond;  // more than one moment of a busy machine takes
  int lines = 0;
  options.say = [&](const std::string&) { ++lines; };
  CostProfile profile;
  ASSERT_TRUE(measure_backend(*backend, options, profile).ok());
  const CostCurves& curves = profile.curves;
  EXPECT_GE(lines, 5);
  EXPECT_GT(curves.pass, 0);
  EXPECT_GT(curves.token, 0);
  EXPECT_GE(curves.attention.size(), 9u) << "to a context of 512 or more";
  EXPECT_LE(curves.attention.size(), 11u);
  EXPECT_GT(curves.host_load.bytes_per_second, 1u << 20);
  EXPECT_GT(curves.host_save.bytes_per_second, 1u << 20);
  EXPECT_EQ(curves.disk_read, CostCurves{}.disk_read) << "the disk is another's business";
  EXPECT_EQ(CostModel(curves).curves(), curves) << "curves that can be";
  const PassCurves& passes = profile.passes;
  EXPECT_EQ(passes.rows.size(), 7u) << "1 to 64 rows";
  EXPECT_EQ(passes.logits.size(), 4u) << "of 1 to 8 decodes, for which there are blocks";
  EXPECT_GE(passes.decode_attention.size(), 9u);
  for (const std::vector<Nanos>* curve : {&passes.rows, &passes.logits, &passes.decode_attention}) {
    EXPECT_TRUE(std::is_sorted(curve->begin(), curve->end()));
    EXPECT_GE(curve->front(), 0);
  }
  EXPECT_GT(passes.rows.front(), 0);
}

struct TinyBackend {
  explicit TinyBackend(RandomModelOptions random = {}, std::uint32_t blocks = 20) {
    random.tokenizer = false;
    bytes = make_random_model(random).value().to_bytes();
    file = std::make_unique<GgufFile>(std::move(GgufFile::parse(bytes)).value());
    spec = read_model_spec(*file).value();
    backend = std::move(make_cpu_backend(spec, {.threads = 1})).value();
    for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group) {
      EXPECT_TRUE(backend->allocate_blocks(group, blocks).ok());
      slots.first.push_back(4);
    }
    slots.count = blocks - 4;
  }
  std::vector<std::byte> bytes;
  std::unique_ptr<GgufFile> file;
  ModelSpec spec;
  std::unique_ptr<Backend> backend;
  SpareSlots slots;
};

TEST(ProfileRough, MeasuresInPiecesAndGoesOnWhereItWasStopped) {
  TinyBackend tiny;
  const CostCurves assumed;
  RoughProfile rough(*tiny.backend, {.slots = tiny.slots, .batch_tokens = 64, .context_tokens = 2000},
                     assumed);
  // Stopped at every place where it asks, one after the other.
  int calls = 0;
  for (bool done = false; !done; ++calls) {
    ASSERT_LT(calls, 1000);
    int left = calls;
    done = rough.measure([&left] { return left-- <= 0; });
  }
  EXPECT_GT(calls, 5);
  const CostCurves& curves = rough.curves();
  EXPECT_NE(curves.pass, assumed.pass);
  EXPECT_NE(curves.token, assumed.token);
  EXPECT_GE(curves.attention.size(), 7u);
  EXPECT_GT(curves.host_load.bytes_per_second, 1u << 20);
  EXPECT_EQ(curves.disk_read, assumed.disk_read) << "no directory was given";
  EXPECT_EQ(curves.projection, 0) << "its hidden states are larger than keys and values";
  EXPECT_EQ(CostModel(curves).curves(), curves) << "curves that can be";

  RoughProfile short_context(*tiny.backend, {.slots = tiny.slots, .batch_tokens = 64, .context_tokens = 100},
                             assumed);
  EXPECT_TRUE(short_context.measure([] { return false; }));
  EXPECT_EQ(short_context.curves(), assumed);
}

TEST(ProfileRough, MeasuresProjectingWhereHiddenStatesAreSmaller) {
  TinyBackend wide({.kv_heads = 4, .head_dim = 32});
  RoughProfile rough(*wide.backend, {.slots = wide.slots, .batch_tokens = 64, .context_tokens = 2000}, {});
  int calls = 0;  // stopped everywhere
  for (bool done = false; !done; ++calls) {
    ASSERT_LT(calls, 1000);
    int left = calls;
    done = rough.measure([&left] { return left-- <= 0; });
  }
  EXPECT_GT(rough.curves().projection, 0);
}

// Its passes compute nothing, so that any number of blocks has time; it keeps the end of the longest.
class NotingBackend : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  void begin(Pass pass) override {
    for (const Span& span : pass.spans)
      context_tokens_ =
          std::max(context_tokens_, span.position + static_cast<std::uint32_t>(span.tokens.size()));
  }
  void finish(std::vector<SpanResult>&) override {}
  Projected projected() const override { return {}; }
  void begin_fill(std::uint32_t, SlotId) override {}
  void load_hidden(std::uint32_t, SlotId, std::uint32_t, std::uint32_t, std::span<const std::byte>) override {
  }
  std::uint32_t context_tokens() const { return context_tokens_; }

 private:
  std::uint32_t context_tokens_ = 0;
};

// A backend's positions end with its context (cuda_pass_plan.h).
TEST(ProfileRough, NothingIsMeasuredBehindTheContext) {
  TinyBackend wide({.kv_heads = 4, .head_dim = 32}, 36);  // 32 spare slots
  for (const std::uint32_t context : {160u, 177u}) {
    NotingBackend backend(*wide.backend);
    RoughProfile rough(backend, {.slots = wide.slots, .batch_tokens = 64, .context_tokens = context}, {});
    EXPECT_TRUE(rough.measure([] { return false; }));
    EXPECT_GT(rough.curves().projection, 0);
    EXPECT_GT(backend.context_tokens(), context - kBlockTokens);
    EXPECT_LE(backend.context_tokens(), context);
  }
}

// A disk that answers when it is let to. Each call owns a share of it.
struct HungDisk {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  bool answers = false;

  Result<DiskMeasurement> measure(const DiskMeasureOptions&) {
    std::unique_lock lock(mutex);
    ++calls;
    changed.notify_all();
    changed.wait(lock, [this] { return answers; });
    return DiskMeasurement{.read = {1, 2}, .write = {3, 4}, .reads = {}};
  }
  bool wait_for_a_call() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), [this] { return calls > 0; });
  }
  void answer() {
    std::lock_guard lock(mutex);
    answers = true;
    changed.notify_all();
  }
};

RoughOptions rough_options(const TinyBackend& tiny, std::shared_ptr<HungDisk> disk, Nanos patience) {
  return {
      .slots = tiny.slots,
      .batch_tokens = 64,
      .context_tokens = 200,
      .disk = "/hung",
      .measure_disk = [disk = std::move(disk)](const DiskMeasureOptions& of) { return disk->measure(of); },
      .disk_patience = patience};
}

constexpr Nanos kForEver = 1000 * 60 * kNanosPerSecond;

TEST(ProfileRough, ADiskThatNeverAnswersHoldsUpNoRequestAndNoEnd) {
  const auto disk = std::make_shared<HungDisk>();
  TinyBackend tiny;
  RoughProfile rough(*tiny.backend, rough_options(tiny, disk, kForEver), CostCurves{});
  World world(options(64));
  world.engine->when_idle(kNanosPerMilli, [&](const IdleStop& stop) { return rough.measure(stop); });
  ASSERT_TRUE(disk->wait_for_a_call());
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto prompt = some_prompt(i, 50);
    Record record;
    world.engine->submit(greedy(prompt, 5), record.listener());
    EXPECT_TRUE(record.wait().status.ok());
    EXPECT_EQ(record.tokens(), expected_reply(prompt, 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // idle again: it waits for the disk again
  }
  world.engine.reset();
  EXPECT_EQ(disk->calls, 1) << "nothing else is begun on a disk that hangs";
  EXPECT_FALSE(disk->answers);
  EXPECT_EQ(rough.curves().disk_read, CostCurves{}.disk_read);
  disk->answer();
}

TEST(ProfileRough, ADiskThatTakesTooLongKeepsItsAssumedCosts) {
  const auto disk = std::make_shared<HungDisk>();
  TinyBackend tiny;
  const CostCurves assumed;
  RoughProfile rough(*tiny.backend, rough_options(tiny, disk, 10 * kNanosPerMilli), assumed);
  EXPECT_TRUE(rough.measure([] { return false; }));
  EXPECT_EQ(rough.disk_trouble(), "/hung: no answer in 10.0 ms");
  EXPECT_EQ(rough.curves().disk_read, assumed.disk_read);
  EXPECT_EQ(rough.curves().disk_charge, assumed.disk_charge);
  EXPECT_NE(rough.curves().pass, assumed.pass) << "the rest is measured";
  disk->answer();
}

TEST(ProfileRough, AStoppedMeasurementOfTheDiskIsBegunAgain) {
  const auto disk = std::make_shared<HungDisk>();
  TinyBackend tiny;
  RoughProfile rough(*tiny.backend, rough_options(tiny, disk, kForEver), CostCurves{});
  EXPECT_FALSE(rough.measure([&] {
    std::lock_guard lock(disk->mutex);
    return disk->calls > 0;
  }));
  disk->answer();
  EXPECT_TRUE(rough.measure([] { return false; }));
  EXPECT_EQ(disk->calls, 2) << "what a request interrupted is not used";
  EXPECT_EQ(rough.disk_trouble(), "");
  EXPECT_EQ(rough.curves().disk_read, (LinkCost{1, 2}));
  EXPECT_EQ(rough.curves().disk_write, (LinkCost{3, 4}));
}

TEST(ProfileRough, LayersThatStandForAllHaveEachGroupsShare) {
  BackendInfo info;
  info.layers = 26;  // as of Gemma 3: five with a window, then one without
  info.groups.resize(2);
  for (std::uint32_t layer = 0; layer < info.layers; ++layer)
    info.groups[layer % 6 == 5 ? 0 : 1].layers.push_back(layer);
  EXPECT_EQ(representative_layers(info, 1), 6u);
  EXPECT_EQ(representative_layers(info, 9), 12u);
  EXPECT_EQ(representative_layers(info, 100), 26u);
  info.groups = {info.groups[0]};
  info.groups[0].layers = {0, 1, 2, 3};
  info.layers = 4;
  EXPECT_EQ(representative_layers(info, 1), 1u);
}

TEST(AssumedCosts, GrowWithAGpusWeightsAndState) {
  BackendInfo backend;
  backend.name = "cpu";
  EXPECT_EQ(assumed_costs(backend), CostCurves{});
  backend.name = "cuda";
  EXPECT_GT(assumed_costs(backend).token, 0) << "of a model without weights, too";
  EXPECT_EQ(assumed_costs(backend).host_charge, 0);
  EXPECT_EQ(assumed_costs(backend).disk_charge, 0);
  backend.weight_bytes = std::uint64_t{16} << 30;  // 8 billion parameters
  backend.block_bytes = std::uint64_t{4} << 20;
  const CostCurves curves = assumed_costs(backend);
  EXPECT_NEAR(static_cast<double>(curves.pass), 17.3e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(curves.token), 86e3, 1e3);
  const CostModel model(curves);
  // A block that is computed behind a long context costs more than one at the begin, and than its loading.
  EXPECT_GT(model.compute(100'000, kBlockTokens), model.compute(0, kBlockTokens));
  EXPECT_GT(model.compute(0, kBlockTokens), model.load(Tier::kHost, backend.block_bytes));
}

}  // namespace
}  // namespace loci
