# SPDX-License-Identifier: Apache-2.0
"""Parts of a run (scripts/parts.sh): one that hangs is ended with all that it started, and the run goes on."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A part of a budget of a second hangs after (3 + 60) / 50 seconds.
BUDGETS = "0.02"
# Seconds are counted whole, so a part that is to pass has a budget of which a 50th is some.
ANSWERS = "200 answers true"


def start(script, budgets=BUDGETS):
    """A run of the parts that the script names, in a session of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCI_")}
    return subprocess.Popen(["bash", "-c", f"source scripts/common.sh\nsource scripts/parts.sh\n{script}"], cwd=ROOT, text=True,
                            env={**environment, "LOCI_BUDGETS": budgets}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def run(script, budgets=BUDGETS):
    """(status, what it said)"""
    process = start(script, budgets)
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


def running(mark):
    """Processes that have the mark as an argument; those that have ended and wait for their parent have none left."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            pass
    return found


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def mark(request):
    """An argument for programs of this test alone."""
    return f"{request.node.name}-{os.getpid()}"


def row(said, name):
    """The table's line of a part, which is the last line that begins with its name."""
    return [line for line in said.splitlines() if line.startswith(name)][-1]


def test_a_part_that_hangs_is_ended_and_the_next_ones_run(mark):
    status, said = run(f"part 1 sleeps bash -c 'sleep 600; true' {mark}\npart {ANSWERS}\nparts_done")
    assert status == 1, said
    assert row(said, "sleeps").endswith("FAILED: it hung, and was ended"), said
    assert row(said, "answers").endswith("passed"), said
    assert "sleep 600" in said and "1 passed, 1 failed" in said
    assert not running(mark)


def test_parts_beside_and_behind_others_are_ended_too(mark):
    status, said = run(f"behind 1 back bash -c 'sleep 600; true' {mark}\nbeside 1 side bash -c 'sleep 600; true' {mark}\n"
                       f"beside {ANSWERS}\nbeside_done\nbehind_done\nparts_done")
    assert status == 1, said
    assert [row(said, name).endswith("it hung, and was ended") for name in ("back", "side", "answers")] == [True, True, False], said
    assert not running(mark)


def test_what_ignores_the_signal_or_left_the_parts_processes_is_ended_too(mark):
    status, said = run(f"""part 1 deaf bash -c 'trap "" TERM
      setsid bash -c "trap true TERM; while sleep 1; do true; done" {mark} &
      while true; do sleep 600; done' {mark}\nparts_done""")
    assert status == 1 and "it hung, and was ended" in row(said, "deaf"), said
    assert not running(mark)


def test_children_of_others_environment_are_ended_too(mark):
    """As a database's are, whose server left the part's processes: one stands still, one stays when its parent has ended."""
    status, said = run(f"""part 1 strangers bash -c '
      (setsid bash -c "env -i bash -c \\"kill -STOP \\\\$\\\\$; true\\" {mark} &
        env -i bash -c \\"trap true TERM; while sleep 1; do true; done\\" {mark} &
        wait" {mark} &)
      while true; do sleep 600; done' {mark}\nparts_done""")
    assert status == 1 and "it hung, and was ended" in row(said, "strangers"), said
    assert not running(mark), said
    assert "have not ended" not in said, said


def test_where_pytest_hangs_is_said(tmp_path):
    (tmp_path / "sleeps_test.py").write_text("import time\n\n\ndef test_of_sleep():\n    time.sleep(600)\n")
    status, said = run(f"part 120 suite suite -p no:cacheprovider {tmp_path}/sleeps_test.py\nparts_done")
    assert status == 1 and "it hung, and was ended" in row(said, "suite"), said
    assert "in test_of_sleep" in said, said


def test_budgets_that_are_off_end_nothing():
    # It works, and does not sleep: of a busy machine sleep is time that others took.
    works = "part 0 slow python3 -c 'while __import__(\"time\").process_time() < 3: pass'\nparts_done"
    assert run(works, "off")[0] == 0
    assert run(works, "0.01")[0] == 1


def test_a_run_that_is_ended_ends_its_part(mark):
    process = start(f"part 100 sleeps bash -c 'setsid bash -c \"sleep 600; true\" {mark} & sleep 600; true' {mark}", "1")
    wait_for(lambda: any(os.getsid(one) == one for one in running(mark)))
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=120)
    wait_for(lambda: not running(mark))
