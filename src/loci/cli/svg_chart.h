// SPDX-License-Identifier: Apache-2.0
// Charts as SVG documents: rows of panels, each with lines over two axes and a legend below. All pictures
// that the program draws are drawn here. Pure; thread-safe.
//
//     title of the document
//     +-- panel --+   +-- panel --+
//     |   lines   |   |   lines   |
//     +-----------+   +-----------+
//        x name          x name
//     -- a line's name
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace loci {

struct ChartLine {
  std::string name, colour;
  std::vector<std::pair<double, double>> points;  // in the order of x; logarithmic axes need them above 0
};

struct ChartAxis {
  std::string name;                       // empty: none is written
  std::string (*text)(double) = nullptr;  // of a tick
  double factor = 10;                     // from one tick of a logarithmic axis to the next; 0: it is linear
  bool whole = false;                     // a logarithmic axis begins and ends at powers of the factor
};

struct ChartPanel {
  std::string title;
  ChartAxis x, y;
  std::vector<ChartLine> lines;
};

std::string svg_chart(const std::string& title, const std::vector<std::vector<ChartPanel>>& rows);

}  // namespace loci
