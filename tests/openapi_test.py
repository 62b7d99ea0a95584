#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests generated from /openapi.json against the live server: openapi_test.py BINARY [--model FILE]
[--examples N] [--seed N].

For each operation schemathesis makes requests that follow the document and requests that break it (one test
each). No answer may be a 5xx, break the schema that the document gives for its status, or accept what the
document forbids. What follows the document may still be refused: some rules join fields (min_tokens and
max_tokens) or depend on the model. The server runs a tiny random model, so that a reply is cheap. Needs
build/openapi-venv (scripts/clients.sh openapi). Prints "N passed, N failed".
"""
import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from live_client import Server  # noqa: E402

VENV = os.path.join(HERE, "..", "build", "openapi-venv", "bin", "schemathesis")
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_headers_conformance", "response_schema_conformance", "negative_data_rejection",
          "unsupported_method"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--model", help="a GGUF file instead of a tiny random one")
    parser.add_argument("--examples", type=int, default=30, help="requests of each kind for each operation")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if not model:
            model = os.path.join(folder, "tiny.gguf")
            maker = os.path.join(os.path.dirname(os.path.abspath(options.binary)), "loci-random-model")
            subprocess.run([maker, model, "--shape", "tiny"], check=True, stdout=subprocess.DEVNULL)
        # The small context bounds every reply.
        with Server(os.path.abspath(options.binary), model, "--device-memory", "64MiB", "--context", "256",
                    "--threads", "1") as server:
            ended = subprocess.run(
                [VENV, "run", server.url + "/openapi.json", "--checks", ",".join(CHECKS), "--mode", "all",
                 "--phases", "examples,coverage,fuzzing", "--max-examples", str(options.examples),
                 "--seed", str(options.seed), "--request-timeout", "30", "--no-shrink",
                 "--suppress-health-check", "all", "--no-color", "--continue-on-failure"],
                cwd=folder, env={**os.environ, "SCHEMATHESIS_HOOKS": os.path.join(HERE, "openapi_hooks.py")}).returncode
            alive = server.process.poll() is None and server.get("/health").status == 200
            metrics = server.metrics()
    answered = {name: count for name, count in metrics.items() if name.startswith("loci_http_requests_total")}
    for name in sorted(answered):
        print(f"{answered[name]:8.0f}  {name.removeprefix('loci_http_requests_total')}")
    faults = [name for name in metrics if 'code="5' in name and metrics[name] > 0]
    results = {"every answer follows the document": ended == 0, "the server lives": alive,
               f"no server error {' '.join(faults)}": not faults}
    for name, passed in results.items():
        print("ok   " if passed else "FAIL ", name)
    failed = list(results.values()).count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
