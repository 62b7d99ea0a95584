# SPDX-License-Identifier: Apache-2.0
"""Plants faults in a clone, so that its tests can be seen to fail (docs/testing.md, "Planted faults").

    python3 tests/planted_faults.py server|memory|race|gpu|arm FOLDER [--find]

FOLDER: of a clone that nobody needs. `server`: faults that the parts of `make test` meet which run the server, the simulator,
pages and manifests; `memory`: reads behind a buffer, for the two parts of the address sanitizer. `race`, `gpu` and `arm`:
one each for the thread sanitizer, kernels on the simulated GPU and Arm's kernels. With --find, the one test program that
each of these three is for is built and run there as its part runs it: it must pass without the fault, and fail with it.
"""
import argparse
import os
import subprocess
import sys

OVERREAD = """  const auto planted = std::make_unique<char[]>(16);
  if (planted.get()[16] == 77) std::abort();
"""
# (file, what stands there, what is planted)
FAULTS = {
    "server": [
        ("src/loci/serve/http/exchange.cc", "  const auto reason = http::obsolete_reason",
         '  if (status == 200 && request_.target != "/health" && request_.target != "/metrics") status = 501;\n'
         "  const auto reason = http::obsolete_reason"),
        ("src/loci/cli/sim_command.cc", "  const Result<nlohmann::json> json_in = fields_of(flags);",
         "  return 3;\n  const Result<nlohmann::json> json_in = fields_of(flags);"),
        ("src/loci/cli/pull/file_download.cc", "return hash == file.sha256", "return hash != file.sha256"),
        ("docs/grafana/loci.json", "loci_http_requests_total", "loci_http_request_total"),
        ("deploy/kubernetes/front.yaml", "  name: loci-front", "  nam: loci-front"),
        ("src/loci/base/ascii.h", "// SPDX-License-Identifier: Apache-2.0\n", ""),
        ("src/loci/base/hex.cc", "{", "{ "),
    ],
    "memory": [
        ("src/loci/serve/wire/json_parse.cc", "  const std::string_view prefix = utf8_prefix(text, bytes_max);\n",
         OVERREAD + "  const std::string_view prefix = utf8_prefix(text, bytes_max);\n"),
        ("src/loci/serve/wire/json_parse.cc", "\n#include <", "\n#include <cstdlib>\n#include <memory>\n#include <"),
        ("src/loci/policy/admission.cc", "  const std::uint64_t more = a->second.waiting.size()",
         OVERREAD + "  const std::uint64_t more = a->second.waiting.size()"),
        ("src/loci/policy/admission.cc", "\n#include <", "\n#include <cstdlib>\n#include <memory>\n#include <"),
    ],
    # Two threads count in a variable that no mutex guards.
    "race": [
        ("src/loci/serve/workers/worker_pool.cc", "  next->job();\n", "  static std::uint64_t planted = 0;\n  ++planted;\n  next->job();\n"),
    ],
    # A sum over a block of threads is read before all warps have written theirs.
    "gpu": [
        ("src/loci/compute/cuda/rows/add_norm.cu", "    __syncthreads();\n    v = warp_sum(", "    v = warp_sum("),
    ],
    # The smaller one of two values, by the kernels for Arm alone.
    "arm": [
        ("src/loci/compute/cpu/simd_neon.inl", "vcltq_f32(x.v[q], y.v[q])", "vcgtq_f32(x.v[q], y.v[q])"),
    ],
}


def ctest(preset, program, labels):
    """Builds the program and runs it where its labels make it one of the part's tests."""
    return (f"scripts/build.sh {preset} {program} && "
            f"ctest --test-dir build/{preset} {labels} -R '^{program}$' --output-on-failure --no-tests=error")


# (what its part in scripts/test.sh runs of the one program, what it says of the fault, what runs the same and does not find it)
FINDERS = {
    "race": (ctest("tsan", "worker_pool_test", "-L threads -LE 'slow|gpu'"), "ThreadSanitizer: data race",
             ctest("asan", "worker_pool_test", "-L upper -LE 'slow|gpu'")),
    "gpu": (ctest("asan-lower", "compute_cuda_rows_test", "-L gpu"), "[  FAILED  ]", None),
    "arm": ("scripts/test-neon.sh --gtest_filter='Elementwise*'", "[  FAILED  ]", None),
}


def plant(name, folder):
    for path, old, new in FAULTS[name]:
        path = os.path.join(folder, path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if old not in text:
            sys.exit(f"{path}: expected {old!r}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))


def run(command, folder):
    """(status, what it said)"""
    print(command, flush=True)
    done = subprocess.run(["bash", "-c", command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def find(name, folder):
    """Plants the fault between two runs of what must find it."""
    finds, says, passes = FINDERS[name]
    status, said = run(finds, folder)
    if status != 0:
        sys.exit(f"{said}\nit fails without the fault")
    plant(name, folder)
    status, said = run(finds, folder)
    if status == 0 or says not in said:
        sys.exit(f"{said}\n{name}: expected a failure that says {says!r}, found status {status}")
    print("\n".join(line for line in said.splitlines() if says in line))
    if passes:
        status, said = run(passes, folder)
        if status != 0:
            sys.exit(f"{said}\n{name}: expected that it is not found there")
    print(f"{name}: found by its part")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=FAULTS)
    parser.add_argument("folder")
    parser.add_argument("--find", action="store_true", help="build and run what must find it")
    arguments = parser.parse_args()
    if not arguments.find:
        plant(arguments.name, arguments.folder)
    elif arguments.name not in FINDERS:
        parser.error(f"--find: expected one of {', '.join(FINDERS)}: what \"{arguments.name}\" plants is found by many parts (docs/testing.md)")
    else:
        find(arguments.name, arguments.folder)


if __name__ == "__main__":
    main()
