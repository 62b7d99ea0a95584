// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/layer_groups.h"

#include <algorithm>
#include <cstdint>

namespace loci {
namespace {

// A window of 0 is the widest of all.
std::uint32_t width(std::uint32_t window) { return window == 0 ? UINT32_MAX : window; }

}  // namespace

std::vector<LayerGroup> layer_groups(const ModelSpec& spec) {
  std::vector<std::uint32_t> widths;
  for (const LayerSpec& layer : spec.layers) widths.push_back(width(layer.window));
  std::sort(widths.begin(), widths.end(), std::greater<>());
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  widths.resize(std::min<std::size_t>(widths.size(), kLayerGroupsMax));
  std::vector<LayerGroup> groups(widths.size());
  for (std::size_t g = 0; g < groups.size(); ++g) groups[g].window = widths[g] == UINT32_MAX ? 0 : widths[g];
  for (std::uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    // The narrowest group that sees what the layer sees.
    std::size_t g = groups.size() - 1;
    while (widths[g] < width(spec.layers[layer].window)) --g;
    groups[g].layers.push_back(layer);
  }
  return groups;
}

}  // namespace loci
