// SPDX-License-Identifier: Apache-2.0
// What truncation costs in perplexity; bench/truncation.py runs it and prints the table.
#include "bench_truncation.h"

int main(int count, char** arguments) { return loci::run_bench_truncation(count, arguments); }
