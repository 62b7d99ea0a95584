// SPDX-License-Identifier: Apache-2.0
// A core's log, read as a trace: run again it does the same, to the token and the nanosecond.
#include "loci/sim/trace_of_log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/engine/log/event_log.h"
#include "loci/sim/said_tokens.h"
#include "loci/sim/trace_readers.h"
#include "loci/sim/trace_writer.h"
#include "loci/sim/world.h"
#include "loci/sim/world_testing.h"

namespace loci::sim {
namespace {

// Conversations behind one system prompt, which part inside a block.
Trace three_turns_each() {
  Trace trace;
  for (std::uint64_t c = 0; c < 12; ++c) {
    Conversation talk;
    for (std::uint64_t t = 0; t < 3; ++t) {
      Turn turn{.at = t == 0 ? static_cast<Nanos>(c) * 700'000'011 : 0,
                .after = t == 0 ? 0 : kNanosPerSecond + static_cast<Nanos>(c * 13),
                .pieces = {{c * 10 + t + 1, 200 + static_cast<std::uint32_t>(c * 7 % 90)}},
                .reply_tokens = 20 + static_cast<std::uint32_t>(t)};
      if (t == 0) turn.pieces.insert(turn.pieces.begin(), {4242, 45});
      talk.turns.push_back(std::move(turn));
    }
    trace.conversations.push_back(std::move(talk));
  }
  return trace;
}

WorldReport run_whole(const Trace& trace, const WorldOptions& options) {
  Result<WorldReport> report = run_world(trace, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(report).value();
}

TEST(TraceOfLog, ARunOfItIsTheRunThatWasLogged) {
  const TestFolder folder;
  const std::string log = folder.file("events");
  WorldOptions options = small_world_with_host(2000, 0);  // where nothing is evicted
  options.event_log = log;
  const WorldReport logged = run_whole(three_turns_each(), options);
  options.event_log.clear();
  const auto trace = trace_of_log(log);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->conversations.size(), 12u) << "turns are found to belong together";
  EXPECT_TRUE(trace->notes.empty());
  // As it is, and written and read.
  const auto read = parse_trace(trace_text(*trace, {9}), "again");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Nanos begin = logged.requests[0].arrived;
  for (const Trace* one : {&*trace, &*read}) {
    const WorldReport again = run_whole(*one, options);
    ASSERT_EQ(again.requests.size(), logged.requests.size());
    std::uint32_t cached = 0;
    for (std::size_t i = 0; i < again.requests.size(); ++i) {
      const RequestRecord &was = logged.requests[i], &is = again.requests[i];
      EXPECT_EQ(is.arrived, was.arrived - begin) << i;
      EXPECT_EQ(is.first_token, was.first_token - begin) << i;
      EXPECT_EQ(is.ended, was.ended - begin) << i;
      EXPECT_EQ(is.prompt_tokens, was.prompt_tokens) << i;
      EXPECT_EQ(is.reply_tokens, was.reply_tokens) << i;
      EXPECT_EQ(is.from, was.from) << i;
      cached += is.from[0];
    }
    EXPECT_GT(cached, 3000u) << "or it shows nothing";
  }
}

// Builds a log of events by hand, around a core.
class Logged {
 public:
  explicit Logged(const std::string& path)
      : config_(small_world_with_host(200, 0).core),
        core_(Core::make(config_).value()),
        log_(EventLogWriter::create(path, config_, LoggedSecret::kKept).value()) {
    step(0, Recovered{.last = true});
  }
  void step(Nanos now, const Event& event) {
    ASSERT_TRUE(log_.append_event(now, event).ok());
    plan_ = core_.step(now, event);
    ASSERT_TRUE(log_.append_plan(plan_).ok());
  }
  // Passes until nothing is planned; each says `token`.
  void serve(Nanos now, std::uint32_t token) {
    while (plan_.pass) {
      PassDone done{plan_.pass->id, {}};
      for (const SpanPlan& span : plan_.spans) {
        done.spans.emplace_back();
        if (span.sample) done.spans.back().sample = TokenId(token);
      }
      step(now, done);
    }
  }
  const CoreConfig& config() const { return config_; }

 private:
  CoreConfig config_;
  Core core_;
  EventLogWriter log_;
  Plan plan_;
};

Arrival arrival(std::uint64_t id, const std::string& tenant, std::vector<std::uint32_t> words,
                std::uint32_t most = 4) {
  Arrival one;
  one.request = RequestId(id);
  one.tenant = tenant;
  for (const std::uint32_t word : words) one.prompt.emplace_back(word);
  one.max_new_tokens = most;
  return one;
}

TEST(TraceOfLog, TenantsShareNothingAndForksBeginAnew) {
  const TestFolder folder;
  const std::string file = folder.file("events");
  {
    Logged log(file);
    log.step(100, arrival(1, "a", {1, 2, 3}));
    log.serve(110, 9);
    log.step(200, arrival(2, "b", {1, 2, 3}));
    log.serve(210, 9);
    log.step(300, arrival(3, "a", {1, 2, 3, 9, 9, 9, 9, 5}));  // goes on from the first
    log.serve(320, 8);
    log.step(400, arrival(4, "a", {1, 2, 3, 9, 9, 6}));  // so does this, but somebody has
    log.step(405, Cancel{RequestId(4)});
    log.serve(410, 7);
  }
  const auto trace = trace_of_log(file);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->conversations.size(), 3u);
  const std::vector<Turn>& talk = trace->conversations[0].turns;
  ASSERT_EQ(talk.size(), 2u);
  EXPECT_EQ(talk[0].at, 0) << "times are from the first request";
  EXPECT_EQ(talk[0].reply_tokens, 4u);
  EXPECT_EQ(talk[1].after, 300 - 110);
  EXPECT_EQ(talk[1].noted, 200);
  ASSERT_EQ(talk[1].pieces.size(), 3u) << "prompt, reply, and what is new";
  EXPECT_EQ(talk[1].pieces[0], talk[0].pieces[0]);
  EXPECT_EQ(talk[1].pieces[1], talk[0].reply[0]);
  const Turn& other = trace->conversations[1].turns[0];
  EXPECT_NE(other.pieces[0].content, talk[0].pieces[0].content);
  const Turn& fork = trace->conversations[2].turns[0];
  EXPECT_EQ(fork.at, 300);
  EXPECT_EQ(fork.pieces[1], (Piece{talk[0].reply[0].content, 2})) << "two tokens of the reply";
  EXPECT_EQ(fork.cancel_after, 5);
  EXPECT_EQ(fork.reply_tokens, 4u) << "what was asked for: nobody knows what would have come";
  EXPECT_TRUE(fork.reply.empty());
}

TEST(TraceOfLog, WhatIsPublicIsShared) {
  const TestFolder folder;
  const std::string file = folder.file("events");
  std::vector<std::uint32_t> prefix(40, 1);
  {
    Logged log(file);
    Arrival open = arrival(1, "operator", prefix, 1);
    open.scope = SharingScope::kPublic;
    log.step(10, open);
    log.serve(20, 9);
    prefix.push_back(2);
    log.step(100, arrival(2, "a", prefix));
    log.serve(110, 9);
    log.step(200, arrival(3, "b", prefix));
    log.serve(210, 9);
  }
  const auto trace = trace_of_log(file);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->requests(), 2u);
  ASSERT_EQ(trace->notes.size(), 1u);
  EXPECT_TRUE(trace->notes[0].starts_with("1 prefixes were made public"));
  const std::vector<Piece>&a = trace->conversations[0].turns[0].pieces,
        &b = trace->conversations[1].turns[0].pieces;
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[0].tokens, 32u) << "whole blocks alone";
  EXPECT_NE(a[1].content, b[1].content);
}

// Or the trace would have negative times.
TEST(TraceOfLog, RefusesALogWhoseTimesGoBack) {
  const TestFolder folder;
  const std::string file = folder.file("events");
  {
    const CoreConfig config = small_world_with_host(200, 0).core;
    Core core = Core::make(config).value();
    EventLogWriter writer = EventLogWriter::create(file, config, LoggedSecret::kKept).value();
    ASSERT_TRUE(writer.append_event(500, Recovered{.last = true}).ok());
    ASSERT_TRUE(writer.append_plan(core.step(500, Recovered{.last = true})).ok());
    ASSERT_TRUE(writer.append_event(400, arrival(1, "a", {1, 2, 3}, 1)).ok());
  }
  EXPECT_EQ(trace_of_log(file).status().message(),
            file + ": step 2: expected a time of at least 500 ns, that of the step before, found 400 ns");
}

TEST(TraceOfLog, NamesWhatIsWrongWithTheFile) {
  EXPECT_EQ(trace_of_log("/nowhere").status().code(), StatusCode::kNotFound);
  const TestFolder folder;
  const std::string file = folder.file("events");
  {
    const Logged log(file);
  }
  EXPECT_EQ(trace_of_log(file).status().message(), file + ": expected at least one request, found none");
  {
    std::fstream version(file, std::ios::in | std::ios::out | std::ios::binary);
    version.seekp(8);
    version.put(1);
  }
  const Status status = trace_of_log(file).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(": expected version"), std::string::npos) << status.message();
  EXPECT_TRUE(status.message().starts_with(file));
}

std::vector<TokenId> words(std::initializer_list<std::uint32_t> numbers) {
  std::vector<TokenId> out;
  for (const std::uint32_t number : numbers) out.emplace_back(number);
  return out;
}

// The example at the head of said_tokens.h.
TEST(SaidTokens, WhatBeginsAlikeIsNamedAlike) {
  SaidTokens said;
  std::vector<Piece> a, b, c, again;
  const auto root = said.root("x");
  EXPECT_EQ(said.say(root, words({1, 2, 3, 4, 5}), a).known, 0u);
  EXPECT_EQ(said.say(root, words({1, 2, 3, 9, 9}), b).known, 1u);
  EXPECT_EQ(said.say(root, words({1, 2, 3, 4, 5, 6}), c).known, 1u);
  EXPECT_EQ(a.size(), 1u);
  EXPECT_EQ(b, (std::vector<Piece>{{a[0].content, 3}, {b[1].content, 2}}));
  EXPECT_EQ(c, (std::vector<Piece>{a[0], {c[1].content, 1}}));
  const auto way = said.say(root, words({1, 2, 3, 9, 9}), again);
  EXPECT_EQ(again, b);
  EXPECT_EQ(way.known, 2u);
  std::vector<Piece> rest;
  said.say(said.say(root, words({1, 2}), rest).end, words({3, 4}), rest);
  EXPECT_EQ(rest.back(), (Piece{a[0].content, 2, 2})) << "goes on in the middle of a run";
  std::vector<Piece> other;
  EXPECT_EQ(said.say(said.root("y"), words({1, 2}), other).known, 0u);
}

}  // namespace
}  // namespace loci::sim
