// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/postgres_database.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <pqxx/pqxx>
#include <thread>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/descriptor.h"
#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/serve/store/postgres_store.h"
#include "loci/serve/store/postgres_testing.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

// Between a pool and its server: a network that may fall silent.
class SilentProxy {
 public:
  // `server`: the folder of the server's socket.
  explicit SilentProxy(const std::string& server) : server_(server) {
    listening_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = address_in(folder_.path().string());
    LOCI_CHECK(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                   ::listen(listening_.get(), 64) == 0,
               "a test can listen");
    thread_ = std::thread([this] { run(); });
  }
  ~SilentProxy() {
    is_over_ = true;
    thread_.join();
  }

  std::string folder() const { return folder_.path().string(); }
  // Of the connections so far, nothing goes through any more, and neither side hears of it.
  void silence() { silenced_ = made_.load(); }
  int made() const { return made_; }

 private:
  struct Link {
    int number = 0;
    std::array<Descriptor, 2> sides;
  };

  static sockaddr_un address_in(const std::string& folder) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder + "/.s.PGSQL.5432").copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
  }

  void accept() {
    Link link{.number = ++made_, .sides = {}};
    link.sides[0] = Descriptor(::accept(listening_.get(), nullptr, nullptr));
    link.sides[1] = Descriptor(::socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = address_in(server_);
    if (::connect(link.sides[1].get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      links_.push_back(std::move(link));
  }

  // False: it has ended.
  static bool pass_on(const Link& link, int from) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::recv(link.sides[from].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN;
    return count > 0 && ::send(link.sides[1 - from].get(), bytes.data(), count, MSG_NOSIGNAL) == count;
  }

  void run() {
    while (!is_over_) {
      std::vector<pollfd> waited = {{.fd = listening_.get(), .events = POLLIN, .revents = 0}};
      for (const Link& link : links_) {
        for (const Descriptor& side : link.sides) {
          if (link.number > silenced_) waited.push_back({.fd = side.get(), .events = POLLIN, .revents = 0});
        }
      }
      ::poll(waited.data(), waited.size(), 10);
      std::erase_if(links_, [&](const Link& link) {
        return link.number > silenced_ && !(pass_on(link, 0) && pass_on(link, 1));
      });
      if ((waited.front().revents & POLLIN) != 0) accept();
    }
  }

  const std::string server_;
  TestFolder folder_;
  Descriptor listening_;
  std::vector<Link> links_;  // the thread's
  std::atomic<int> made_ = 0, silenced_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// What a busy minute needed would else stay for ever, of each server.
TEST(PostgresDatabase, ConnectionsThatNobodyUsesAreClosedButForOne) {
  TestPostgres* const server = TestPostgres::shared();
  if (server == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
  const std::string url = server->new_database();
  const auto opened = PostgresDatabase::open(url, {.idle_limit = 300 * kNanosPerMilli});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  PostgresDatabase& database = **opened;
  std::atomic<int> inside = 0, most = 0;
  const auto use = [&](SqlSession& session) -> Status {
    most = std::max(most.load(), ++inside);
    for (int waited = 0; most < 4 && waited < 60'000; ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
    return session.run("SELECT 1", {}).status();
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { EXPECT_TRUE(database.transact(SqlAccess::kRead, use).ok()); });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(most, 4);
  pqxx::connection other(url);
  pqxx::nontransaction session(other);
  const auto connections = [&] {
    return session
        .exec1(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = "
            "'client backend' AND pid <> pg_backend_pid()")[0]
        .as<int>();
  };
  EXPECT_TRUE(eventually([&] { return connections() == 1; })) << connections();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(connections(), 1) << "its lock says that the server lives";
  EXPECT_TRUE(database.transact(SqlAccess::kRead, [](SqlSession&) { return Status(); }).ok());
}

// A role that may have few connections: those that there are serve all calls, as soon as they are free.
TEST(PostgresDatabase, CallsWaitForTheConnectionsThatTheServerAllows) {
  TestPostgres* const server = TestPostgres::shared();
  if (server == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
  const std::string url = server->new_database();
  TestPostgres::run(url,
                    "DO $$ BEGIN CREATE ROLE few LOGIN CONNECTION LIMIT 2; EXCEPTION WHEN "
                    "duplicate_object THEN NULL; END $$");
  TestPostgres::run(url, "CREATE SCHEMA loci AUTHORIZATION few");
  TestPostgres::run(url, fmt::format("GRANT CREATE ON DATABASE {} TO few",
                                     TestPostgres::run(url, "SELECT current_database()")));
  const std::string as_few = url + (url.find('?') == std::string::npos ? "?" : "&") + "user=few";
  const auto opened = PostgresDatabase::open(as_few, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        const Status status = (*opened)->transact(SqlAccess::kRead, [](SqlSession& session) {
          return session.run("SELECT pg_sleep(0.005)::text", {}).status();
        });
        EXPECT_TRUE(status.ok()) << status.to_string();
        done += status.ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 40);
  // One is lost, and somebody else takes its place at the server: the other one, which is doubted then, is
  // all that there is.
  TestPostgres::run(url, "SELECT pg_terminate_backend(MIN(pid)) FROM pg_stat_activity WHERE usename = 'few'");
  std::optional<pqxx::connection> other;
  ASSERT_TRUE(eventually([&] {
    try {
      other.emplace(as_few);
      return true;
    } catch (const pqxx::broken_connection&) {
      return false;
    }
  }));
  for (int i = 0; i < 4; ++i) {
    const Status status = (*opened)->transact(
        SqlAccess::kRead, [](SqlSession& session) { return session.run("SELECT 1", {}).status(); });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

// As after a failover whose firewall forgot all connections: they look alive.
TEST(PostgresDatabase, OneSilentConnectionEndsTheTrustInItsNeighbours) {
  TestPostgres* const server = TestPostgres::shared();
  if (server == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
  std::string url = server->new_database();
  const std::size_t host = url.find("host=") + 5, end = url.find('&', host);
  SilentProxy proxy(url.substr(host, end - host));
  url.replace(host, end - host, proxy.folder());
  const auto opened = PostgresDatabase::open(
      url, {.lock_timeout = 200 * kNanosPerMilli, .answer_timeout = 2 * kNanosPerSecond});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  PostgresDatabase& database = **opened;

  // So many connections, all used at the same time. (On a busy machine one may be made too late.)
  constexpr int kAtOnce = 8;
  const auto have_been_used = [&] {
    std::atomic<int> begun = 0, done = 0;
    const auto use = [&](SqlSession& session) {
      ++begun;
      for (int waited = 0; begun < kAtOnce && waited < 1'000; ++waited)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return session.run("SELECT 1", {}).status();
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kAtOnce; ++t)
      threads.emplace_back([&] { done += database.transact(SqlAccess::kRead, use).ok() ? 1 : 0; });
    for (std::thread& thread : threads) thread.join();
    return begun == kAtOnce && done == kAtOnce;
  };
  ASSERT_TRUE(eventually(have_been_used));
  const int made = proxy.made();

  proxy.silence();
  const auto ask = [&] {
    return database.transact(SqlAccess::kRead,
                             [](SqlSession& session) { return session.run("SELECT 1", {}).status(); });
  };
  EXPECT_EQ(ask().code(), StatusCode::kUnavailable) << "nobody can know before";
  int failed = 0;
  Status next = ask();
  // (On a busy machine a new connection may be slow, too.)
  for (; !next.ok() && proxy.made() == made && failed < 2 * kAtOnce; ++failed) next = ask();
  EXPECT_EQ(failed, 0) << next.to_string();
  EXPECT_GT(proxy.made(), made) << "it was made anew";
}

// An older server beside this one does not count what it adds.
TEST(PostgresStore, AConversationsItemsAreCountedAnewAtStart) {
  TestPostgres* const server = TestPostgres::shared();
  if (server == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
  const std::string url = server->new_database();
  auto opened = PostgresStore::open(url, {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const std::unique_ptr<ConversationStore> store = std::move(opened).value();
  ASSERT_TRUE(
      store->create_conversation("ann", {.id = "c"}, {test_item("i", "x"), test_item("j", "x")}).ok());
  ASSERT_TRUE(store->create_conversation("ann", {.id = "none"}, {}).ok());
  pqxx::connection connection(url);
  pqxx::nontransaction(connection).exec("UPDATE loci.conversations SET items = 7");
  EXPECT_EQ(store->recount_usage().value(), 0u) << "the sizes are right";
  const ConversationList list = store->conversations("ann", "", 10).value();
  ASSERT_EQ(list.conversations.size(), 2u);
  for (const ConversationSummary& one : list.conversations)
    EXPECT_EQ(one.items, one.conversation.id == "c" ? 2u : 0u);
}

}  // namespace
}  // namespace loci
