# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
ARGS ?=
PARTS ?= $(LOCI_PARTS)

.PHONY: help run build cuda-toolkit gpu-check gpu-server gpu-peers test test-changed cluster-test ci quick neon crash soak bench bench-tiers bench-restore bench-simulator bench-attention bench-cluster reproduce simulate peers fuzz format tidy model setup clean

help: ## this list
	@echo "Loci: a language-model server that remembers."
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'
	@echo
	@echo '  make run ARGS="--port 9000 --threads 4" passes flags to the server.'

run: build model ## build, fetch the default model, serve it and chat with it
	@scripts/run.sh $(ARGS)

build: ## build/release/loci; on a machine with an NVIDIA GPU with CUDA
	@scripts/setup.sh build
	@[[ ! -e /dev/nvidiactl ]] || $(MAKE) --no-print-directory cuda-toolkit || echo "loci: going on without CUDA: the server will compute on the CPU"
	@scripts/build.sh release loci

cuda-toolkit: ## fetch what compiles the GPU's code, where the machine has no CUDA 13; then: make build
	@scripts/setup.sh model
	@scripts/cuda-toolkit.sh

gpu-check: ## build build/gpu-check: all tests and benchmarks of the GPU backend, to be run where a GPU is
	@scripts/setup.sh build test
	@scripts/gpu-check.sh

gpu-server: ## pack build/gpu-server.tar.xz: the whole server and its suites, to be run where a GPU is
	@scripts/setup.sh build test
	@scripts/gpu-server.sh

gpu-peers: ## pack build/gpu-peers.tar.xz: llama.cpp for a GPU, to be measured beside Loci there (takes an hour)
	@scripts/setup.sh model
	@scripts/gpu-peers.sh

test: ## build and test everything; PARTS=live chooses (docs/testing.md lists the parts)
	@LOCI_PARTS='$(PARTS)' scripts/test.sh all

test-changed: ## tests that take longer, where what they test changed since they passed
	@LOCI_PARTS='$(PARTS)' scripts/test.sh changed

ci: test test-changed ## everything that CI runs

quick: ## build and run the fast tests alone
	@scripts/test.sh quick

neon: ## test the kernels for 64-bit Arm by emulation
	@scripts/setup.sh build arm
	@scripts/test-neon.sh

crash: ## kill a server under load KILLS (200) times: no turn that a client saw end is lost
	@scripts/setup.sh build test
	@scripts/build.sh release loci loci-random-model
	@scripts/pytest.sh -s tests/store_crash_test.py --kills $${KILLS:-200}

cluster-test: ## PostgreSQL, Redis, fronts and instances die, stop and lose their links under load: replies stay right, no turn is lost
	@scripts/setup.sh build test
	@scripts/build.sh release loci loci-random-model
	@scripts/clients.sh s3
	@scripts/pytest.sh -s tests/cluster_faults_test.py

soak: ## mixed traffic, kills and damaged disks for MINUTES (60), every reply checked, memory and files flat
	@scripts/setup.sh build test
	@scripts/build.sh release loci loci-random-model
	@python3 tests/soak.py build/release --minutes $${MINUTES:-60}

bench: model ## measure against llama.cpp; writes docs/performance.md
	@scripts/setup.sh build test
	@scripts/build.sh release loci bench_compute loci-random-model machine_rates
	@$(MAKE) --no-print-directory peers
	@python3 bench/compare.py $(ARGS)

bench-tiers: model ## measure conversations that outgrow the device's memory, against llama.cpp
	@scripts/setup.sh build test
	@scripts/build.sh release loci
	@$(MAKE) --no-print-directory peers
	@python3 bench/tiers.py $(ARGS)

bench-restore: model ## measure how fast every named plan brings state back from a disk of several speeds
	@scripts/setup.sh build
	@scripts/build.sh release loci
	@python3 bench/restore.py $(ARGS)

bench-simulator: model ## measure how far the simulator is off from a server on this machine; ARGS=--publish writes docs/simulation.md
	@scripts/setup.sh build test
	@scripts/build.sh release loci
	@python3 bench/simulator.py $(ARGS)

bench-attention: ## measure attention over scattered blocks against Pensieve's figure 12: contiguous, copied out, in rounds
	@scripts/setup.sh build
	@scripts/build.sh release attention_layout_benchmark
	@build/release/attention_layout_benchmark

bench-cluster: ## measure the next turn elsewhere (from a peer, from Redis), peers' rate and cost, what a front adds, policies of fronts, and roles
	@scripts/setup.sh build test
	@scripts/build.sh release loci loci-random-model front_benchmark peers_benchmark
	@python3 bench/cluster.py $(ARGS)

reproduce: ## draw the five papers' figures beside ours: docs/reproduction; ARGS=--quick in three minutes
	@scripts/setup.sh build model
	@scripts/build.sh release loci
	@python3 scripts/reproduce/main.py $(ARGS)

simulate: ## random worlds around the core, faults too: SEEDS (1000) of them from FIRST (1) on; a seed that fails says how to repeat it
	@scripts/setup.sh build test
	@scripts/build.sh release simulate
	@build/release/simulate --seeds $${SEEDS:-1000} --first $${FIRST:-1}

peers: ## build llama.cpp once, for comparison
	@scripts/setup.sh build test
	@scripts/make-peers.sh

fuzz: ## fuzz every target for SECONDS_EACH (60) seconds
	@scripts/setup.sh build fuzz
	@scripts/fuzz.sh $${SECONDS_EACH:-60}

format: ## format the C++ sources
	@scripts/setup.sh lint
	@git ls-files '*.h' '*.cc' '*.inl' '*.cu' '*.cuh' | xargs clang-format-19 -i

tidy: ## the house's rules and clang-tidy
	@scripts/setup.sh build test lint
	@python3 tests/tidy_test.py
	@scripts/clang-tidy.sh

model: ## fetch the default model into the user's cache folder
	@scripts/setup.sh model
	@scripts/fetch-model.sh

setup: ## install every system package that any target needs
	@scripts/setup.sh build test fuzz lint model arm node

clean: ## remove what was built
	@rm -rf build deps/target
