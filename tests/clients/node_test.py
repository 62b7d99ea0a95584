# SPDX-License-Identifier: Apache-2.0
"""Programs for Node against the server: OpenAI's client, and the web page. Each of their checks is a test."""
import os
import re
import shutil
import subprocess

import pytest

from checks import KEY

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "build", "clients-node")
WEB = os.path.join(HERE, "..", "..", "web")


def checks_of(program):
    with open(os.path.join(HERE, program), encoding="utf-8") as text:
        return re.search(r"^const checks = \{ (.*) \};$", text.read(), re.M).group(1).split(", ")


CHECKS = [(program, check) for program in ("openai_client.mjs", "page.mjs") for check in checks_of(program)]
PACKAGES = [os.path.join(FOLDER, "node_modules", package) for package in ("openai", "happy-dom")]
pytestmark = pytest.mark.skipif(not (shutil.which("node") and all(map(os.path.isdir, PACKAGES))),
                                reason="node or its packages are missing: scripts/clients.sh node")


@pytest.mark.parametrize("program, check", CHECKS)
def test_check(url, program, check):
    ended = subprocess.run(["node", os.path.join(HERE, program), url, KEY, check], cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_modules_of_the_page():
    """What the page makes of texts and answers, without a server: web/*_test.js."""
    tests = sorted(os.path.join(WEB, name) for name in os.listdir(WEB) if name.endswith("_test.js"))
    ended = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
