// SPDX-License-Identifier: Apache-2.0
// What a turn costs to make durable and to read back, on a file in the folder for temporary files.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "loci/base/folder_testing.h"
#include "loci/serve/store/schema.h"
#include "loci/serve/store/sqlite_database.h"
#include "loci/serve/store/sqlite_store.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

StoredTurn realistic_turn(int i, std::size_t tokens) {
  StoredTurn turn = test_turn(fmt::format("resp_{:06}", i));
  turn.input = {test_item(fmt::format("msg_in_{:06}", i), std::string(400, 'q'))};
  turn.output = {test_item(fmt::format("msg_out_{:06}", i), std::string(1'600, 'a'))};
  turn.response.json = std::string(3'000, 'j');
  turn.response.tokens.clear();
  for (std::size_t k = 0; k < tokens; ++k)
    turn.response.tokens.push_back(TokenId(static_cast<std::uint32_t>(k)));
  return turn;
}

// A chain, each turn 500 tokens longer than the one before, up to 8,000.
void commit_turns(benchmark::State& state) {
  const TestFolder folder;
  const auto store = SqliteStore::open(folder.file("store.db"), {}).value();
  int i = 0;
  for (auto _ : state) {
    StoredTurn turn = realistic_turn(i, static_cast<std::size_t>(500 * (i % 16 + 1)));
    if (i % 16 != 0) turn.response.previous = fmt::format("resp_{:06}", i - 1);
    if (!store->commit_turn("ann", turn).ok()) state.SkipWithError("a commit failed");
    ++i;
  }
  state.SetItemsProcessed(i);
}
BENCHMARK(commit_turns)->Unit(benchmark::kMicrosecond)->UseRealTime();

// What several clients that wait for their turns commit in a second.
void commit_turns_of_clients(benchmark::State& state) {
  static TestFolder* folder = nullptr;
  static std::unique_ptr<ConversationStore> store;
  if (state.thread_index() == 0) {
    folder = new TestFolder;
    store = SqliteStore::open(folder->file("store.db"), {}).value();
  }
  const std::string tenant = fmt::format("t{}", state.thread_index() % 8);
  int i = 0;
  for (auto _ : state) {
    StoredTurn turn =
        realistic_turn(state.thread_index() * 1'000'000 + i, static_cast<std::size_t>(500 * (i % 16 + 1)));
    if (i % 16 != 0)
      turn.response.previous = fmt::format("resp_{:06}", state.thread_index() * 1'000'000 + i - 1);
    if (!store->commit_turn(tenant, turn).ok()) state.SkipWithError("a commit failed");
    ++i;
  }
  state.SetItemsProcessed(i);
  if (state.thread_index() == 0) {
    store.reset();
    delete folder;
  }
}
BENCHMARK(commit_turns_of_clients)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime()
    ->Threads(1)
    ->Threads(8)
    ->Threads(32)
    ->Threads(64);

// What the disk itself takes for as little.
void write_and_sync(benchmark::State& state) {
  const TestFolder folder;
  std::FILE* file = std::fopen(folder.file("plain").c_str(), "w");
  const std::string page(4'096, 'x');
  for (auto _ : state) {
    if (std::fwrite(page.data(), 1, page.size(), file) != page.size() || std::fflush(file) != 0 ||
        ::fdatasync(::fileno(file)) != 0)
      state.SkipWithError("the disk failed");
  }
  std::fclose(file);
}
BENCHMARK(write_and_sync)->Unit(benchmark::kMicrosecond)->UseRealTime();

// A million conversations, each with an item.
void fill(SqliteDatabase& database) {
  const Status filled = database.transact(SqlAccess::kWrite, [](SqlSession& session) {
    return session.execute(
        "CREATE TEMP TABLE n AS WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < "
        "1000000) "
        "SELECT i FROM c;"
        "INSERT INTO threads (thread, tenant, active_at, size_bytes) SELECT i, 't' || i % 100, i, 700 FROM n;"
        "INSERT INTO conversations (conversation, thread, tenant, id, created_at, metadata, size_bytes) "
        "SELECT i, i, 't' || i % 100, 'conv_' || i, i, '{}', 100 FROM n;"
        "INSERT INTO items (thread, conversation, response, part, id, json, size_bytes) "
        "SELECT i, i, NULL, 0, 'msg_' || i, hex(zeroblob(200)), 500 FROM n;"
        "INSERT INTO tenant_usage SELECT tenant, 0, COUNT(*), SUM(size_bytes) FROM threads GROUP BY tenant;"
        "DROP TABLE n;");
  });
  LOCI_CHECK(filled.ok(), filled.message().c_str());
}

// How long turns take to become durable while a part of a million conversations expires, beside how long they
// take when nothing else happens; in turns, 50 and 50.
void commit_turns_while_a_million_expire(benchmark::State& state) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  {
    auto database = SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite, {}).value();
    LOCI_CHECK(migrate(*database, store_migrations(), 1).ok(), "a new store");
    fill(*database);
  }
  const auto store = SqliteStore::open(path, {}).value();
  std::vector<double> idle, expiring;
  int i = 0;
  const auto commit = [&](std::vector<double>& times) {
    const auto begin = std::chrono::steady_clock::now();
    if (!store->commit_turn("ann", realistic_turn(i++, 4'000)).ok()) state.SkipWithError("a commit failed");
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  };
  std::uint64_t gone = 0;
  for (auto _ : state) {
    for (int k = 0; k < 50; ++k) commit(idle);
    std::atomic<bool> stop = false;
    std::thread expiry([&] {
      while (!stop)
        gone += store->expire(1LL << 40, {.age_seconds_max = (1LL << 40) - 900'000, .bytes_max = {}})
                    .value()
                    .gone;
    });
    for (int k = 0; k < 50; ++k) commit(expiring);
    stop = true;
    expiry.join();
  }
  const auto p99 = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[times.size() * 99 / 100];
  };
  const auto p50 = [](const std::vector<double>& times) { return times[times.size() / 2]; };
  state.counters["idle_p99_us"] = p99(idle);
  state.counters["expiring_p99_us"] = p99(expiring);
  state.counters["idle_p50_us"] = p50(idle);
  state.counters["expiring_p50_us"] = p50(expiring);
  state.counters["expired"] = static_cast<double>(gone);
}
BENCHMARK(commit_turns_while_a_million_expire)->Iterations(20)->Unit(benchmark::kMillisecond)->UseRealTime();

void history_of_1000_items(benchmark::State& state) {
  const TestFolder folder;
  const auto store = SqliteStore::open(folder.file("store.db"), {}).value();
  for (int i = 0; i < 500; ++i) {
    StoredTurn turn = realistic_turn(i, 8'000);
    if (i > 0) turn.response.previous = fmt::format("resp_{:06}", i - 1);
    if (!store->commit_turn("ann", turn).ok()) state.SkipWithError("a commit failed");
  }
  for (auto _ : state) {
    const auto items = store->response_history("ann", "resp_000499", UINT64_MAX);
    if (!items.ok() || items->size() != 1'000) state.SkipWithError("a history of 1,000 items");
    const auto response = store->response("ann", "resp_000499");
    if (!response.ok() || response->tokens.size() != 8'000) state.SkipWithError("8,000 tokens");
  }
}
BENCHMARK(history_of_1000_items)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
