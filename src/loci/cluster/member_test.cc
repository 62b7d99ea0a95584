// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/member.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>

#include <atomic>
#include <chrono>
#include <pqxx/pqxx>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/member_watch.h"
#include "loci/cluster/membership.h"
#include "loci/serve/store/postgres_testing.h"

// libpqxx 6.4 forgets the last result of a connection that was lost: tests stop their server.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx\n"; }

namespace loci {
namespace {

MemberKey test_key(std::uint8_t first) {
  MemberKey key{};
  key[0] = first;
  return key;
}

Member test_member(const std::string& id) {
  return {.id = id,
          .host = "10.0.0.7",
          .port = 8080,
          .models = {"tiny", "gpt"},
          .fingerprint = "00ff",
          .numerics = "2 f16",
          .block_tokens = 32,
          .running = 3,
          .queued = 1,
          .version = "1"};
}

TEST(Member, IsReadAsItWasWritten) {
  Member member = test_member("0123456789abcdef");
  member.tls = member.draining = member.any_model = true;
  member.slots = {MemberSlots{.held = 7, .all = 64}, MemberSlots{}, MemberSlots{.held = 0, .all = 1'000}};
  const std::string text = write_member(member, 1'700'000'000'123);
  const SaidMember said = read_member(text).value();
  EXPECT_EQ(said.at_ms, 1'700'000'000'123);
  EXPECT_EQ(write_member(said.member, said.at_ms), text);
  EXPECT_EQ(said.member.address(), "10.0.0.7:8080");
  EXPECT_EQ(said.member.serves("anything"), ServedAs::kAnything);
  EXPECT_EQ(said.member.serves("tiny"), ServedAs::kNamed);
  EXPECT_EQ(test_member("0123456789abcdef").serves("anything"), ServedAs::kNothing);
  EXPECT_EQ(said.member.slots[0].held, 7u);
  EXPECT_EQ(said.member.slots[1].all, 0u);
  EXPECT_EQ(said.member.slots[2].all, 1'000u);
}

TEST(Member, HasARoleAndOneOfAnOlderVersionHasBoth) {
  for (const MemberRole role : {MemberRole::kBoth, MemberRole::kPrefill, MemberRole::kDecode}) {
    Member member = test_member("0123456789abcdef");
    member.role = role;
    EXPECT_EQ(read_member(write_member(member, 5)).value().member.role, role);
    EXPECT_EQ(parse_member_role(member_role_name(role)).value(), role);
  }
  Member member = test_member("0123456789abcdef");
  member.role = MemberRole::kPrefill;
  std::string old = write_member(member, 5);
  const std::string field = ",\"role\":\"prefill\"";
  ASSERT_NE(old.find(field), std::string::npos) << old;
  old.erase(old.find(field), field.size());
  EXPECT_EQ(read_member(old).value().member.role, MemberRole::kBoth);
  EXPECT_EQ(parse_member_role("prompts").status().field(), "role");
}

TEST(Member, WrongTextsAreRefusedByField) {
  const std::string good = write_member(test_member("0123456789abcdef"), 5);
  const auto field_of = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return read_member(text).status().field();
  };
  EXPECT_EQ(field_of("8080", "0"), "port");
  EXPECT_EQ(field_of("8080", "65536"), "port");
  EXPECT_EQ(field_of("\"10.0.0.7\"", "\"a b\""), "host");
  EXPECT_EQ(field_of("\"10.0.0.7\"", "7"), "host");
  EXPECT_EQ(field_of("0123456789abcdef", "0123456789ABCDEF"), "id");
  EXPECT_EQ(field_of("[\"tiny\",\"gpt\"]", "[]"), "models");
  EXPECT_EQ(field_of("\"version\":1", "\"version\":2"), "version");
  EXPECT_EQ(field_of("\"queued\":1", "\"queued\":-1"), "queued");
  EXPECT_EQ(field_of("\"tls\":false,", ""), "tls");
  EXPECT_EQ(field_of("\"role\":\"both\"", "\"role\":\"all\""), "role");
  EXPECT_EQ(field_of("\"role\"", "\"disk_slots\":5,\"disk_held\":6,\"role\""), "disk_held");
  EXPECT_EQ(field_of("\"role\"", "\"disk_slots\":5,\"role\""), "disk_held");
  EXPECT_FALSE(read_member("[]").ok());
  EXPECT_FALSE(read_member(std::string(kMemberBytesMax + 1, ' ')).ok());
}

TEST(Member, NamesThatFitNoRowAreRefused) {
  Member member = test_member("0123456789abcdef");
  member.models.assign(64, "tiny");
  EXPECT_TRUE(check_names(member).ok());
  const auto expect_refused = [&](const char* limit) {
    const Status status = check_names(member);
    EXPECT_EQ(status.field(), "alias");
    EXPECT_NE(status.message().find(limit), std::string::npos) << status.message();
  };
  member.models.emplace_back("one more");
  expect_refused("at most 64");
  member.models = {"tiny", std::string(513, 'x')};
  expect_refused("at most 512 bytes");
  member.models = {std::string(512, 'x')};
  EXPECT_TRUE(check_names(member).ok());
  member.models.assign(40, std::string(500, 'x'));
  expect_refused("at most 16384 bytes");
}

TEST(Member, AddressesAreHostAndPort) {
  EXPECT_EQ(parse_member_address("node-3:80").value(), std::pair(std::string("node-3"), std::uint16_t{80}));
  EXPECT_EQ(parse_member_address("[::1]:8080").value(), std::pair(std::string("::1"), std::uint16_t{8080}));
  for (const char* wrong : {"node", "node:", "node:0", "node:70000", "::1:80", ":80", "a b:80", "node:8o"})
    EXPECT_FALSE(parse_member_address(wrong).ok()) << wrong;
}

TEST(Member, ASealIsOfItsKeyPurposeAndText) {
  const std::string made = seal(test_key(1), "member", "text");
  EXPECT_TRUE(is_sealed(test_key(1), "member", "text", made));
  EXPECT_FALSE(is_sealed(test_key(2), "member", "text", made));
  EXPECT_FALSE(is_sealed(test_key(1), "drain", "text", made));
  EXPECT_FALSE(is_sealed(test_key(1), "member", "texT", made));
  EXPECT_FALSE(is_sealed(test_key(1), "member", "text", ""));
  EXPECT_FALSE(is_sealed(test_key(1), "member", "text", made.substr(1)));
}

TEST(Member, OneNameStandsForOneModel) {
  const Member one = test_member("0000000000000001");
  Member other = test_member("0000000000000002");
  EXPECT_TRUE(check_alike(one, other).ok());
  other.fingerprint = "aa11";
  const Status unlike = check_alike(one, other);
  EXPECT_NE(unlike.message().find("aa11"), std::string::npos) << unlike.message();
  EXPECT_NE(unlike.message().find("00ff"), std::string::npos) << unlike.message();
  other.models = {"other"};
  EXPECT_TRUE(check_alike(one, other).ok()) << "another name may stand for another model";
  other = test_member("0000000000000002");
  other.block_tokens = 64;
  EXPECT_NE(check_alike(one, other).message().find("64"), std::string::npos);
  other = test_member("0000000000000002");
  other.numerics = "3 f16";
  EXPECT_NE(check_alike(one, other).message().find("3 f16"), std::string::npos);
}

// A server's tries, a second apart, by a clock of the database's that is set at times.
TEST(RowTrust, IsNotGivenForAWhileAfterGapsAndSteps) {
  RowTrust trust;
  std::int64_t at = 1'000'000, ahead = 1'700'000'000'000;
  const auto renew = [&](int times) {
    for (int i = 0; i < times; ++i) {
      at += 1'000;
      trust.note_try(at, at + ahead, 0);
    }
  };
  EXPECT_FALSE(trust.is_given(at));
  renew(7);
  EXPECT_FALSE(trust.is_given(at));
  renew(1);
  EXPECT_TRUE(trust.is_given(at));
  trust.note_try(at += 1'000, std::nullopt, 0);
  EXPECT_FALSE(trust.is_given(at + 60'000)) << "the database did not answer";
  renew(8);
  EXPECT_TRUE(trust.is_given(at));
  at += 3'000;
  renew(7);
  EXPECT_FALSE(trust.is_given(at)) << "this server stood still";
  renew(1);
  EXPECT_TRUE(trust.is_given(at));
  // By the new time all rows are too old, or of the future.
  for (const std::int64_t step : {6'000, -6'000, 86'400'000}) {
    ahead += step;
    renew(1);
    EXPECT_FALSE(trust.is_given(at)) << step;
    renew(6);
    EXPECT_FALSE(trust.is_given(at)) << step;
    renew(1);
    EXPECT_TRUE(trust.is_given(at)) << step;
  }
  // Nor is a slow answer a step, nor the quick one behind it.
  at += 2'500;
  trust.note_try(at, at + ahead - 1'500, 1'600);
  EXPECT_TRUE(trust.is_given(at));
  renew(1);
  EXPECT_TRUE(trust.is_given(at));
  // Answers that take a while, and clocks that drift, are no steps.
  for (const std::int64_t late : {400, -400, 300, 0}) {
    ahead += late;
    renew(1);
    EXPECT_TRUE(trust.is_given(at)) << late;
  }
}

// No call is given up, and no row grows old by itself, however long this process or the database stands
// still.
constexpr MemberTableOptions kPatient = {.answer_timeout = 600 * kNanosPerSecond,
                                         .lifetime = 3'600 * kNanosPerSecond};

class MemberTableTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = TestPostgres::shared();
    if (server_ == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    url_ = server_->new_database();
    table_ = open(1);
  }
  std::unique_ptr<MemberTable> open(std::uint8_t key, const MemberTableOptions& options = kPatient) {
    auto table = MemberTable::open(url_, test_key(key), options);
    EXPECT_TRUE(table.ok()) << table.status().to_string();
    return std::move(table).value();
  }
  // When a row was written that is just too old now, by the database's clock.
  std::int64_t too_old_ms() { return table_->now_ms().value() - kPatient.lifetime / kNanosPerMilli - 1; }
  std::string sql(const std::string& statement) { return TestPostgres::run(url_, statement); }

  TestPostgres* server_ = nullptr;
  std::string url_;
  std::unique_ptr<MemberTable> table_;
};

TEST_F(MemberTableTest, MembersJoinRenewAndLeave) {
  Member member = test_member("0000000000000001");
  const MemberRenewal joined = table_->join(member).value();
  ASSERT_EQ(table_->list()->members.size(), 1u);
  EXPECT_EQ(table_->list()->members[0].running, 3u);
  member.running = 5;
  ASSERT_TRUE(table_->renew(member, joined.now_ms).ok());
  EXPECT_EQ(table_->list()->members[0].running, 5u);
  EXPECT_TRUE(table_->list()->old.empty());
  ASSERT_TRUE(table_->renew(member, too_old_ms()).ok());
  EXPECT_TRUE(table_->list()->members.empty());
  EXPECT_EQ(table_->list()->old, std::vector<std::string>{member.id});
  ASSERT_TRUE(table_->renew(member, table_->now_ms().value()).ok());
  EXPECT_EQ(table_->list()->members.size(), 1u);
  EXPECT_TRUE(table_->list()->old.empty());
  ASSERT_TRUE(table_->leave(member.id).ok());
  EXPECT_TRUE(table_->list()->members.empty());
}

TEST_F(MemberTableTest, RowsLiveForFiveSecondsUnlessTheTableIsToldOtherwise) {
  const Member member = test_member("0000000000000001");
  ASSERT_TRUE(table_->join(member).ok());
  ASSERT_TRUE(table_->renew(member, table_->now_ms().value() - 5'001).ok());
  EXPECT_EQ(table_->list()->members.size(), 1u);
  EXPECT_TRUE(open(1, {.answer_timeout = kPatient.answer_timeout})->list()->members.empty());
}

TEST_F(MemberTableTest, WhoEndedWithoutLeavingIsKnownByItsSealedRow) {
  Member member = test_member("0000000000000001");
  member.store = "12345";
  ASSERT_TRUE(table_->join(member).ok());
  const auto ended = [&] { return table_->ended_stores().value(); };
  EXPECT_TRUE(ended().empty());
  sql("UPDATE loci.members SET written_at = 0");
  EXPECT_TRUE(ended().empty()) << "anybody may write that";
  ASSERT_TRUE(table_->renew(member, too_old_ms()).ok());
  sql("UPDATE loci.members SET written_at = 0");
  EXPECT_EQ(ended(), std::vector<std::string>{"12345"});
  EXPECT_TRUE(open(2)->ended_stores().value().empty()) << "another cluster's";
  ASSERT_TRUE(table_->renew(member, table_->now_ms().value()).ok());
  EXPECT_TRUE(ended().empty()) << "it is back";
}

TEST_F(MemberTableTest, WhoLacksTheSecretIsNotBelieved) {
  ASSERT_TRUE(table_->join(test_member("0000000000000001")).ok());
  const auto stranger = open(2);
  ASSERT_TRUE(stranger->join(test_member("0000000000000002")).ok()) << "the row can be written";
  const MemberList list = table_->list().value();
  ASSERT_EQ(list.members.size(), 1u);
  EXPECT_EQ(list.members[0].id, "0000000000000001");
  EXPECT_EQ(list.refused, 1u);
  // A true row under another id, and one that was changed.
  sql("INSERT INTO loci.members SELECT 'ffffffffffffffff', body, seal, '', written_at FROM loci.members "
      "WHERE id = '0000000000000001'");
  EXPECT_EQ(table_->list()->members.size(), 1u);
  sql("UPDATE loci.members SET body = replace(body, '10.0.0.7', '10.6.6.6')");
  EXPECT_TRUE(table_->list()->members.empty());
  // Nor is a wish of theirs.
  ASSERT_TRUE(table_->join(test_member("0000000000000001")).ok());
  sql("UPDATE loci.members SET drain = 'yes'");
  EXPECT_FALSE(table_->renew(test_member("0000000000000001"), table_->now_ms().value())->is_asked_to_drain);
}

TEST_F(MemberTableTest, AMemberIsAskedToDrain) {
  const Member member = test_member("0000000000000001");
  ASSERT_TRUE(table_->join(member).ok());
  ASSERT_TRUE(table_->ask_to_drain(member.id, true).ok());
  EXPECT_TRUE(table_->renew(member, table_->now_ms().value())->is_asked_to_drain);
  ASSERT_TRUE(table_->ask_to_drain(member.id, false).ok());
  EXPECT_FALSE(table_->renew(member, table_->now_ms().value())->is_asked_to_drain);
  EXPECT_EQ(table_->ask_to_drain("ffffffffffffffff", true).code(), StatusCode::kNotFound);
}

TEST_F(MemberTableTest, OfUnlikeOnesThatBeginAtOnceOneJoins) {
  std::atomic<int> joined = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      Member member = test_member("000000000000000" + std::to_string(i));
      member.fingerprint = std::to_string(i);
      const auto table = open(1);
      const Result<MemberRenewal> done = table->join(member);
      if (done.ok()) ++joined;
      if (done.status().code() == StatusCode::kInvalidArgument) ++refused;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(joined, 1);
  EXPECT_EQ(refused, 5);
}

// Away for longer than its lifetime: another one of the same name may have come.
TEST_F(MemberTableTest, WhoWasTakenForDeadIsCheckedAgain) {
  const Member away = test_member("0000000000000001");
  Member other = test_member("0000000000000002");
  other.fingerprint = "aa11";
  ASSERT_TRUE(table_->join(away).ok());
  EXPECT_EQ(table_->join(other).status().code(), StatusCode::kInvalidArgument) << "while the first one lives";
  for (const bool is_gone : {false, true}) {
    if (is_gone) {
      ASSERT_TRUE(table_->leave(away.id).ok());
    } else {
      ASSERT_TRUE(table_->renew(away, too_old_ms()).ok());
    }
    ASSERT_TRUE(table_->join(other).ok());
    const Status back = table_->renew(away, table_->now_ms().value()).status();
    EXPECT_EQ(back.code(), StatusCode::kInvalidArgument) << is_gone;
    EXPECT_NE(back.message().find("aa11"), std::string::npos) << back.message();
    EXPECT_NE(back.message().find("00ff"), std::string::npos) << back.message();
    ASSERT_EQ(table_->list()->members.size(), 1u);
    EXPECT_EQ(table_->list()->members[0].id, other.id);
    ASSERT_TRUE(table_->renew(other, table_->now_ms().value()).ok()) << "who is in stays in";
    ASSERT_TRUE(table_->leave(other.id).ok());
    EXPECT_TRUE(table_->renew(away, table_->now_ms().value()).ok()) << "nobody differs any more";
  }
}

// After the database was away all rows are old. A thousand members that each waited for the one row that
// those who join write would be back only after minutes.
TEST_F(MemberTableTest, WhoseRowIsThereComesBackWithoutWaitingForWhoJoins) {
  const Member member = test_member("0000000000000001");
  ASSERT_TRUE(table_->join(member).ok());
  ASSERT_TRUE(table_->renew(member, too_old_ms()).ok());
  ASSERT_TRUE(table_->list()->members.empty());
  pqxx::connection joins(url_);
  pqxx::work joining(joins);
  joining.exec0("UPDATE loci.member_joins SET joins = joins + 1");
  const Status back = table_->renew(member, table_->now_ms().value()).status();
  EXPECT_TRUE(back.ok()) << back.to_string();
  EXPECT_EQ(table_->list()->members.size(), 1u);
  // Nor where the row is another model's, under the same id.
  Member changed = member;
  changed.fingerprint = "aa11";
  const auto impatient = open(1, {.answer_timeout = 200 * kNanosPerMilli, .lifetime = kPatient.lifetime});
  EXPECT_EQ(impatient->renew(changed, table_->now_ms().value()).status().code(), StatusCode::kUnavailable)
      << "this is a join, and waits";
}

// Each of them sees the other, or finds its row changed.
TEST_F(MemberTableTest, OfARenewalAndOfAnUnlikeOneThatJoinsAtOnceOneWins) {
  const Member away = test_member("0000000000000001");
  Member other = test_member("0000000000000002");
  other.fingerprint = "aa11";
  const auto second = open(1);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(table_->join(away).ok());
    ASSERT_TRUE(table_->renew(away, too_old_ms()).ok());
    Status renewal, joined;
    std::thread joins([&] { joined = second->join(other).status(); });
    renewal = table_->renew(away, table_->now_ms().value()).status();
    joins.join();
    EXPECT_NE(renewal.ok(), joined.ok()) << renewal.to_string() << ", " << joined.to_string();
    EXPECT_EQ(table_->list()->members.size(), 1u);
    ASSERT_TRUE(table_->leave(away.id).ok());
    ASSERT_TRUE(table_->leave(other.id).ok());
  }
}

TEST_F(MemberTableTest, AMembershipIsOutUntilMembersAgree) {
  const auto said = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const auto log = std::make_shared<spdlog::logger>("test", said);
  const auto text = [&] {
    std::string all;
    for (const std::string& line : said->last_formatted()) all += line;
    return all;
  };
  const std::string has_left = "has left the cluster because it differs";
  const std::string id = "0000000000000001";
  auto membership = Membership::join(open(1), test_member(id), [] { return MemberLoad(); }, log).value();
  Member other = test_member("0000000000000002");
  other.fingerprint = "aa11";
  const auto list = [&] { return table_->list().value().members; };
  // As if the first one had been away: its row goes, and the other one takes its place.
  bool joined = false;
  for (int i = 0; i < 6'000 && !joined; ++i) {
    sql("DELETE FROM loci.members WHERE id = '" + id + "'");
    joined = table_->join(other).ok();
  }
  ASSERT_TRUE(joined);
  // Three renewals, and on a busy machine until one has said so.
  for (int i = 0; i < 30 || (i < 600 && text().find(has_left) == std::string::npos); ++i) {
    ASSERT_TRUE(table_->renew(other, table_->now_ms().value()).ok());
    ASSERT_EQ(list().size(), 1u);
    EXPECT_EQ(list()[0].id, other.id);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_TRUE(table_->leave(other.id).ok());
  EXPECT_TRUE(eventually([&] { return text().find("in the cluster again") != std::string::npos; })) << text();
  EXPECT_TRUE(eventually([&] { return list().size() == 1; }));
  membership.reset();
  const std::size_t out = text().find(has_left);
  ASSERT_NE(out, std::string::npos) << text();
  EXPECT_EQ(text().find(has_left, out + 1), std::string::npos) << "said once: " << text();
  EXPECT_NE(text().find("aa11"), std::string::npos) << text();
  EXPECT_NE(text().find("00ff"), std::string::npos) << text();
}

TEST_F(MemberTableTest, AMembershipRenewsItsRowUntilItEnds) {
  const MemberTableOptions real = {.answer_timeout = kPatient.answer_timeout};  // its row is to grow old
  table_ = open(1, real);
  const auto log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  std::atomic<std::uint32_t> running = 1;
  std::atomic<bool> stalls = false;
  const auto load = [&] {
    return MemberLoad{.running = running.load(), .queued = 0, .stalls = stalls.load()};
  };
  auto membership = Membership::join(open(1, real), test_member("0000000000000001"), load, log).value();
  const auto wait_for = [&](const auto& is_so) {
    for (int i = 0; i < 12'000; ++i) {
      const Result<MemberList> list = table_->list();
      if (list.ok() && is_so(list->members)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  running = 7;
  EXPECT_TRUE(wait_for([](const auto& all) { return all.size() == 1 && all[0].running == 7; }));
  // A device that stands still leaves the row to grow old, and what goes on renews it.
  stalls = true;
  EXPECT_TRUE(wait_for([](const auto& all) { return all.empty(); }));
  stalls = false;
  EXPECT_TRUE(wait_for([](const auto& all) { return all.size() == 1; }));
  // A row that somebody deleted is there again.
  sql("DELETE FROM loci.members");
  EXPECT_TRUE(wait_for([](const auto& all) { return all.size() == 1; }));
  ASSERT_TRUE(table_->ask_to_drain("0000000000000001", true).ok());
  EXPECT_TRUE(wait_for([](const auto& all) { return all.size() == 1 && all[0].draining; }));
  ASSERT_TRUE(table_->ask_to_drain("0000000000000001", false).ok());
  EXPECT_TRUE(wait_for([](const auto& all) { return all.size() == 1 && !all[0].draining; }));
  auto begin = std::chrono::steady_clock::now();
  membership->drain();
  // (It waits for two seconds at most until the database has it.)
  if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
    const MemberList list = table_->list().value();
    ASSERT_EQ(list.members.size(), 1u);
    EXPECT_TRUE(list.members[0].draining) << "at once";
  }
  begin = std::chrono::steady_clock::now();
  membership.reset();
  // (A stop waits no longer for the database.)
  if (std::chrono::steady_clock::now() - begin < std::chrono::nanoseconds(kMemberStopWait)) {
    EXPECT_TRUE(table_->list()->members.empty());
  }
}

TEST_F(MemberTableTest, AStopDoesNotWaitForADatabaseThatStandsStill) {
  const auto log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  auto membership =
      Membership::join(open(1), test_member("0000000000000001"), [] { return MemberLoad{}; }, log).value();
  auto watch = std::make_unique<MemberWatch>(open(1), [](const MemberList&) {}, log);
  TestPostgres::shared()->pause();
  std::thread other([&] { watch.reset(); });
  membership.reset();
  other.join();
  TestPostgres::shared()->go_on();
  pqxx::connection connection(url_);
  EXPECT_EQ(pqxx::nontransaction(connection).exec1("SELECT COUNT(*) FROM loci.members")[0].as<int>(), 1)
      << "the database said nothing of it";
}

}  // namespace
}  // namespace loci
