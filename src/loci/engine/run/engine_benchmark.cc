// SPDX-License-Identifier: Apache-2.0
// The gap between two passes, in which the compute threads have nothing to do but sample: the time from
// the end of a pass to the next one's begin, while 1 and 8 streams decode, with a grammar and without, on
// a tiny model with a large vocabulary. Medians, in microseconds, with the pass beside them.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "loci/compute/backend_testing.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/engine/run/engine.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kVocabulary = 49152;

// Notes when passes begin and end.
class TimedBackend final : public WrappedBackend {
 public:
  TimedBackend(Backend& backend, const Clock& clock) : WrappedBackend(backend), clock_(clock) {}
  void begin(Pass pass) override {
    begun_ = clock_.now();
    full_ = pass.spans.size() == streams;
    if (full_ && last_end_ != 0) gaps.push_back(begun_ - last_end_);
    inner_.begin(std::move(pass));
  }
  void finish(std::vector<SpanResult>& results) override {
    inner_.finish(results);
    last_end_ = full_ ? clock_.now() : 0;
    if (full_) passes.push_back(last_end_ - begun_);
  }

  std::size_t streams = 1;
  std::vector<Nanos> gaps, passes;

 private:
  const Clock& clock_;
  Nanos begun_ = 0, last_end_ = 0;
  bool full_ = false;  // the pass that runs has every stream
};

double median_micros(std::vector<Nanos> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return static_cast<double>(times[times.size() / 2]) / 1000;
}

void measure(const ModelSpec& spec, std::size_t streams, bool greedy,
             const std::shared_ptr<const Grammar>& grammar) {
  const SystemClock clock;
  const std::unique_ptr<Backend> cpu = std::move(make_cpu_backend(spec, {.threads = 2})).value();
  TimedBackend backend(*cpu, clock);
  backend.streams = streams;
  LOCI_CHECK(backend.allocate_blocks(0, 400).ok(), "there is memory");
  EngineOptions options;
  options.core.groups = {{.window = 0, .block_count = 400}};
  options.core.layers = spec.layer_count();
  options.core.context_tokens = 1500;
  const std::unique_ptr<Engine> engine = std::move(Engine::start(std::move(options), backend, clock)).value();
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < streams; ++i) {
    GenerationRequest request;
    request.prompt.assign(20, TokenId(static_cast<std::uint32_t>(i)));
    request.max_new_tokens = 400;
    request.sampling.temperature = greedy ? 0.0f : 0.8f;
    request.sampling.top_p = greedy ? 1.0f : 0.95f;
    request.grammar = grammar;
    engine->submit(std::move(request), [&](const GenerationEvent& event) {
      if (!std::holds_alternative<GenerationEnded>(event)) return;
      const std::lock_guard lock(mutex);
      ++ended;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == streams; });
  fmt::print("{} streams, {:<12}{:<14} gap {:7.1f} us, pass {:7.1f} us, {} passes\n", streams,
             greedy ? "greedy" : "top-p 0.95", grammar ? " with a schema" : "", median_micros(backend.gaps),
             median_micros(backend.passes), backend.gaps.size());
}

}  // namespace
}  // namespace loci

int main() {
  using namespace loci;
  RandomModelOptions options;
  options.type = TensorType::kQ8_0;
  options.vocabulary = kVocabulary;
  const std::vector<std::byte> bytes = make_random_model(options).value().to_bytes();
  const GgufFile file = std::move(GgufFile::parse(bytes)).value();
  const ModelSpec spec = std::move(read_model_spec(file)).value();
  const Tokenizer tokenizer = std::move(Tokenizer::from_gguf(file)).value();
  GrammarCompiler grammars(tokenizer);
  const char* const schema = R"({"type":"array","items":{"type":"string"},"minItems":400})";
  const auto grammar = grammars.compile({GrammarKind::kJsonSchema, schema}).value();
  for (const std::size_t streams : {std::size_t{1}, std::size_t{8}}) {
    for (const bool greedy : {true, false}) {
      measure(spec, streams, greedy, nullptr);
      measure(spec, streams, greedy, grammar);
    }
  }
}
