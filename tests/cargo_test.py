# SPDX-License-Identifier: Apache-2.0
"""Crates are one step of a build, which takes minutes: cmake/cargo.sh says meanwhile how far it is."""
import os
import pathlib
import pty
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "cmake/cargo.sh"

# It ends when the test writes a line, as cargo does when it has failed.
CARGO = r"""#!/bin/bash
say() { printf "$1" >&2; }
say '   Compiling one v1.0.0\n    Building [==>  ] 1/3: one, two(build)      \r'
read -r _ < "$1"
say '\e[K   Compiling three v1.0.0\n    Building [===> ] 2/3: three\r'
say '\e[Kwarning: unused\n --> three.rs:1\n\n    Building [===> ] 2/3: three\rerror: broken'
exit 101
"""


@pytest.fixture
def cargo(tmp_path):
    """(a command, what lets it end)"""
    program, gate = tmp_path / "cargo", tmp_path / "gate"
    program.write_text(CARGO)
    program.chmod(0o755)
    os.mkfifo(gate)
    return [SCRIPT, program, gate], gate


def test_says_how_far_it_is_while_ninja_shows_nothing_of_the_step(cargo, tmp_path):
    command, gate = cargo
    (tmp_path / "build.ninja").write_text(f"rule cargo\n  command = {' '.join(map(str, command))}\nbuild all: cargo\n")
    with subprocess.Popen(["bash", "-c", "exec 8>&1; LOCI_PROGRESS=8 ninja"], cwd=tmp_path, text=True, stdout=subprocess.PIPE) as ninja:
        assert re.fullmatch(r"\[crates: 1/3, \d+s\] one, two\(build\)\n", ninja.stdout.readline())
        gate.write_text("\n")
        rest = ninja.stdout.read()
    assert ninja.returncode == 1
    said = rest[rest.index("FAILED"):]
    assert "\nwarning: unused\n --> three.rs:1\nerror: broken\n" in said
    assert "Compiling" not in said and "Building" not in said


def test_a_terminal_has_one_line_that_changes(cargo):
    command, gate = cargo
    terminal, other_end = pty.openpty()
    with subprocess.Popen(command, env={**os.environ, "LOCI_PROGRESS": str(other_end)}, pass_fds=[other_end], stdout=subprocess.DEVNULL) as process:
        os.close(other_end)
        said = ""
        while said.count("[crates: 1/3, ") < 2:  # it goes on saying so, though nothing has changed
            said += os.read(terminal, 1000).decode()
        gate.write_text("\n")
    os.close(terminal)
    assert process.returncode == 101
    assert re.match(r"(\r\x1b\[K\[crates: 1/3, \d+s\] one, two\(build\)){2}", said)
    assert "\n" not in said


def test_without_a_build_that_listens_it_prints_messages_alone(cargo):
    command, gate = cargo
    for progress in ("", "77"):
        with subprocess.Popen(command, env={**os.environ, "LOCI_PROGRESS": progress}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as process:
            gate.write_text("\n")
            assert process.stdout.read() == "warning: unused\n --> three.rs:1\nerror: broken\n"
        assert process.returncode == 101
