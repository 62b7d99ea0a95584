# SPDX-License-Identifier: Apache-2.0
"""OpenAI's client for Node against the server: each check of openai_client.mjs is a test."""
import os
import re
import shutil
import subprocess

import pytest

from checks import KEY

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "build", "clients-node")
PROGRAM = os.path.join(HERE, "openai_client.mjs")
with open(PROGRAM, encoding="utf-8") as program:
    CHECKS = re.search(r"^const checks = \{ (.*) \};$", program.read(), re.M).group(1).split(", ")
pytestmark = pytest.mark.skipif(not (shutil.which("node") and os.path.isdir(os.path.join(FOLDER, "node_modules", "openai"))),
                                reason="node or its package is missing: scripts/clients.sh node")


@pytest.mark.parametrize("check", CHECKS)
def test_check(url, check):
    ended = subprocess.run(["node", PROGRAM, url, KEY, check], cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
