# SPDX-License-Identifier: Apache-2.0
"""Requests generated from /openapi.json against the live server.

For each operation schemathesis makes requests that follow the document and requests that break it (one test
each). No answer may be a 5xx, break the schema that the document gives for its status, or accept what the
document forbids. What follows the document may still be refused: some rules join fields (min_tokens and
max_tokens) or depend on the model. The model is a tiny random one, so that a reply is cheap. Needs
build/openapi-venv (scripts/clients.sh openapi).
"""
import os
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMATHESIS = os.path.join(HERE, "..", "build", "openapi-venv", "bin", "schemathesis")
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_headers_conformance", "response_schema_conformance", "negative_data_rejection",
          "unsupported_method"]
# The small context bounds every reply.
pytestmark = pytest.mark.serve("--device-memory", "64MiB", "--context", "256", "--threads", "1", model="tiny")


@pytest.fixture(scope="module")
def asked(server, request, tmp_path_factory):
    """schemathesis's exit status, once it has made all requests."""
    examples, seed = request.config.getoption("--examples"), request.config.getoption("--seed")
    return subprocess.run(
        [SCHEMATHESIS, "run", server.url + "/openapi.json", "--checks", ",".join(CHECKS), "--mode", "all",
         "--phases", "examples,coverage,fuzzing", "--max-examples", str(examples),
         "--seed", str(1 if seed is None else seed), "--request-timeout", "120", "--no-shrink",
         "--suppress-health-check", "all", "--no-color", "--continue-on-failure"],
        cwd=tmp_path_factory.mktemp("openapi"), env={**os.environ, "SCHEMATHESIS_HOOKS": os.path.join(HERE, "openapi_hooks.py")}).returncode


def test_every_answer_follows_the_document(asked):
    assert asked == 0, "schemathesis has said which answers do not"


def test_the_server_lives(server, asked):
    assert server.process.poll() is None and server.get("/health").status == 200


def test_no_server_error(server, asked):
    metrics = server.metrics()
    answered = {name: count for name, count in metrics.items() if name.startswith("loci_http_requests_total")}
    for name in sorted(answered):
        print(f"{answered[name]:8.0f}  {name.removeprefix('loci_http_requests_total')}")
    assert answered, "nothing was asked"
    assert not [name for name in metrics if 'code="5' in name and metrics[name] > 0]
