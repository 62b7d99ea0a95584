// SPDX-License-Identifier: Apache-2.0
// What a turn costs to make durable and to read back, on a file in the folder for temporary files.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "loci/model/test_folder.h"
#include "loci/serve/store/sqlite_store.h"
#include "loci/serve/store/test_stores.h"

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

void history_of_1000_items(benchmark::State& state) {
  const TestFolder folder;
  const auto store = SqliteStore::open(folder.file("store.db"), {}).value();
  for (int i = 0; i < 500; ++i) {
    StoredTurn turn = realistic_turn(i, 8'000);
    if (i > 0) turn.response.previous = fmt::format("resp_{:06}", i - 1);
    if (!store->commit_turn("ann", turn).ok()) state.SkipWithError("a commit failed");
  }
  for (auto _ : state) {
    const auto items = store->response_history("ann", "resp_000499");
    if (!items.ok() || items->size() != 1'000) state.SkipWithError("a history of 1,000 items");
    const auto response = store->response("ann", "resp_000499");
    if (!response.ok() || response->tokens.size() != 8'000) state.SkipWithError("8,000 tokens");
  }
}
BENCHMARK(history_of_1000_items)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
