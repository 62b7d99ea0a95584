// SPDX-License-Identifier: Apache-2.0
// `loci bench-compute` as a program of its own.
#include "loci/cli/bench_compute.h"

int main(int count, char** arguments) { return loci::run_bench_compute(count, arguments); }
