// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the CUDA backend: random tiny models, sequences, spans over them, and the state that
// a backend holds of a sequence.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/compute/backend.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/layer_groups.h"
#include "loci/compute/model_testing.h"

namespace loci::cuda {

inline RandomModelOptions llama(TensorType type, std::uint32_t hidden = 64, std::uint32_t head_dim = 16) {
  RandomModelOptions options;
  options.type = type;
  options.hidden = hidden;
  options.heads = 4;
  options.kv_heads = 2;
  options.head_dim = head_dim;
  options.ffn = hidden == 64 ? 96 : hidden;
  options.layers = 2;
  return options;
}

inline CudaBackendOptions deterministic() {
  CudaBackendOptions options;
  options.deterministic = true;
  return options;
}

inline CudaBackendOptions small_options(CudaBackendOptions options) {
  options.context_tokens = 600;
  options.max_batch_tokens = 160;
  options.max_spans = 8;
  return options;
}

inline std::unique_ptr<Backend> make_backend(const ModelSpec& spec, const CudaBackendOptions& options,
                                             std::uint32_t blocks = 16) {
  Result<std::unique_ptr<Backend>> backend = make_cuda_backend(spec, small_options(options));
  EXPECT_TRUE(backend.ok()) << backend.status().to_string();
  LOCI_CHECK(backend.ok(), "the model is served");
  for (std::uint32_t group = 0; group < (*backend)->info().groups.size(); ++group)
    LOCI_CHECK((*backend)->allocate_blocks(group, blocks).ok(), "there is memory");
  return std::move(*backend);
}

inline std::vector<TokenId> random_tokens(std::uint64_t seed, std::uint32_t count, std::uint32_t vocabulary) {
  Random random(seed);
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i)
    tokens.emplace_back(static_cast<std::uint32_t>(random.below(vocabulary)));
  return tokens;
}

inline std::vector<SlotId> slots(std::uint32_t first, std::uint32_t count) {
  std::vector<SlotId> all;
  for (std::uint32_t i = 0; i < count; ++i) all.emplace_back(first + i);
  return all;
}

using Tables = std::vector<BlockTable>;  // one a group

inline Tables same_slots(const Backend& backend, const std::vector<SlotId>& slots) {
  return Tables(backend.info().groups.size(), BlockTable{slots});
}

inline Span make_span(const std::vector<TokenId>& tokens, std::uint32_t begin, std::uint32_t end,
                      Tables tables, std::uint32_t layers, LogitsWanted logits) {
  Span span;
  span.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
  span.position = begin;
  span.layers = {0, layers};
  span.tables = std::move(tables);
  span.logits = logits;
  return span;
}

using Bits = std::vector<std::uint32_t>;
inline Bits bits_of(std::span<const float> values) {
  Bits bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

inline std::uint32_t greatest(std::span<const float> logits) {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

// [layer][token][kv head][key, value][dim], 16-bit: the state of tokens [0, count), of each layer as far as
// its group's table reaches.
inline std::vector<std::uint16_t> state_of(const Backend& backend, const ModelSpec& spec,
                                           const Tables& tables, std::uint32_t count) {
  std::vector<std::uint16_t> all;
  std::vector<std::byte> slice(backend.info().groups[0].layer_slice_bytes);
  const auto* values = reinterpret_cast<const std::uint16_t*>(slice.data());
  for (std::uint32_t group = 0; group < tables.size(); ++group) {
    for (const std::uint32_t layer : backend.info().groups[group].layers) {
      for (std::uint32_t token = 0; token < count; ++token) {
        if (token % kBlockTokens == 0)
          save_slice(backend, tables[group].blocks[token / kBlockTokens], layer, slice);
        for (std::uint32_t head = 0; head < 2 * spec.kv_heads; ++head) {
          const auto* at = values + (head * kBlockTokens + token % kBlockTokens) * spec.head_dim;
          all.insert(all.end(), at, at + spec.head_dim);
        }
      }
    }
  }
  return all;
}

// Buffers for Span::capture of `tokens` tokens: one for each layer, of memory that the device copies into.
class CaptureBuffers {
 public:
  CaptureBuffers(Backend& backend, std::uint32_t tokens)
      : row_bytes_(backend.info().hidden_row_bytes),
        layer_bytes_(tokens * row_bytes_),
        memory_(std::move(backend.allocate_host(layer_bytes_ * backend.info().layers)).value()) {}
  // Of tokens [begin, begin + count).
  std::vector<std::span<std::byte>> tokens(std::uint32_t begin, std::uint32_t count) const {
    std::vector<std::span<std::byte>> layers;
    for (std::uint64_t at = 0; at < memory_.size(); at += layer_bytes_)
      layers.emplace_back(memory_.data() + at + begin * row_bytes_, count * row_bytes_);
    return layers;
  }
  std::span<std::byte> layer(std::uint32_t layer) const {
    return {memory_.data() + layer * layer_bytes_, layer_bytes_};
  }

 private:
  std::uint64_t row_bytes_, layer_bytes_;
  HostMemory memory_;
};

// The logits of every token of a sequence, and its state, computed in a pass of its own.
struct Expected {
  std::vector<TokenId> tokens;
  Bits logits;  // [token, vocabulary]
  std::vector<std::uint16_t> state;

  Expected(const ModelSpec& spec, std::uint32_t count, std::uint64_t seed)
      : tokens(random_tokens(seed, count, spec.vocabulary)) {
    const auto backend = make_backend(spec, deterministic());
    const Tables tables = same_slots(*backend, slots(0, (count + 31) / 32));
    std::vector<SpanResult> results;
    run_pass(*backend,
             {{}, {}, {make_span(tokens, 0, count, tables, spec.layer_count(), LogitsWanted::kAll)}},
             results);
    LOCI_CHECK(results[0].status.ok(), "nothing fails here");
    logits = bits_of(results[0].logits);
    state = state_of(*backend, spec, tables, count);
  }
  Bits rows(std::uint32_t begin, std::uint32_t end) const {
    const std::size_t vocabulary = logits.size() / tokens.size();
    return {logits.begin() + static_cast<std::ptrdiff_t>(begin * vocabulary),
            logits.begin() + static_cast<std::ptrdiff_t>(end * vocabulary)};
  }
};

// The expected values of a shape, computed once for all its tests.
inline const Expected& expected_of(const std::string& shape, const ModelSpec& spec, std::uint32_t count) {
  static std::map<std::pair<std::string, std::uint32_t>, std::unique_ptr<Expected>> all;
  std::unique_ptr<Expected>& made = all[{shape, count}];
  if (made == nullptr) made = std::make_unique<Expected>(spec, count, count);
  return *made;
}

class CudaBackendTest : public testing::TestWithParam<NamedShape> {
 protected:
  const std::unique_ptr<TestModel> model_ = GetParam().make();
  const ModelSpec& spec_ = model_->spec;
  const std::uint32_t layers_ = spec_.layer_count();
  std::vector<SpanResult> results_;

  const Expected& expected(std::uint32_t count) const { return expected_of(GetParam().name, spec_, count); }
  // The tables without the blocks that a span from `position` on cannot see.
  static Tables without_unseen(const Backend& backend, Tables tables, std::uint32_t position) {
    for (std::size_t group = 0; group < tables.size(); ++group) {
      const std::uint32_t first = first_visible(backend.info().groups[group].window, position);
      drop_slots(tables[group], first / kBlockTokens);
    }
    return tables;
  }
  // Moves layers [first, end) of `count` blocks, from slot `from` on, to the slots from `to` on, as a mover
  // does.
  void move_layers(Backend& backend, std::uint32_t from, std::uint32_t to, std::uint32_t count,
                   std::uint32_t first) const {
    std::vector<std::byte> slice(backend.info().groups[0].layer_slice_bytes);
    for (std::uint32_t layer = first; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < count; ++block) {
        save_slice(backend, SlotId(from + block), layer, slice);
        load_slice(backend, SlotId(to + block), layer, slice);
      }
    }
  }
  static void begin_fill(Backend& backend, SlotId slot) {
    for (std::uint32_t group = 0; group < backend.info().groups.size(); ++group)
      backend.begin_fill(group, slot);
  }
};

}  // namespace loci::cuda
