#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official clients against the live server: run.py BINARY [--model MODEL] [--only NAME].

Each program beside this file is one client's (their versions: scripts/clients.sh). The model is small, so what is
looked at is the shape and validity of what it says, not its sense. The server has a key, so that the clients' ways of
sending one are used. Prints "N passed, N failed".
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "..", "build")
sys.path.insert(0, os.path.join(HERE, ".."))
from live_client import Server  # noqa: E402

PYTHON = os.path.join(BUILD, "clients-venv", "bin", "python")
NODE = os.path.join(BUILD, "clients-node")
KEY = "key-of-the-clients-test"


def programs():
    """Name, command and folder of each client that is installed."""
    for name in ("openai_client", "openai_responses", "anthropic_client", "langchain_client"):
        yield name + ".py", [PYTHON, os.path.join(HERE, name + ".py")], HERE
    if shutil.which("node") and os.path.isdir(os.path.join(NODE, "node_modules", "openai")):
        yield "openai_client.mjs", ["node", os.path.join(HERE, "openai_client.mjs")], NODE
    else:
        print("openai_client.mjs is left out: node or its package is missing (scripts/clients.sh node)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--model", default="default")
    parser.add_argument("--only", default="", help="part of a program's name")
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        os.environ["LOCI_API_KEY"] = KEY
        with Server(os.path.abspath(options.binary), options.model, "--device-memory", "192MiB", "--context", "2048") as server:
            for name, command, folder in programs():
                if options.only not in name:
                    continue
                print(f"--- {name}", flush=True)
                ended = subprocess.run(command + [server.url, KEY], cwd=folder, stdout=subprocess.PIPE, text=True, timeout=600)
                print(ended.stdout, end="", flush=True)
                counts = re.search(r"(\d+) passed, (\d+) failed\s*$", ended.stdout)
                passed += int(counts[1]) if counts else 0
                failed += int(counts[2]) if counts else 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
