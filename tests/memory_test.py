# SPDX-License-Identifier: Apache-2.0
"""A server is a guest on its machine: it keeps to what its control group allows, takes memory as state fills it, and
gives it back while others lack it. In control groups of the tests' own, where the system lets them make some.
"""
import concurrent.futures
import os
import subprocess
import sys
import time

import pytest

from live_client import Server, wait_until

pytestmark = pytest.mark.serve(model="tiny")
MIB = 1 << 20
GROUP_BYTES = 256 * MIB
POOL = "96MiB"
PATH = "/v1/completions"


def own_group(controller):
    """The folder of this process's group that has the controller, and whether it is of version 1."""
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(","):
                return f"/sys/fs/cgroup/{controller}{'' if path == '/' else path}", True
            if names == "":
                unified = f"/sys/fs/cgroup{'' if path == '/' else path}"
    return unified, False


class Group:
    """A control group below this process's own; skips the test where there is no right to make one."""

    def __init__(self, controller, **limits):
        parent, old = own_group(controller)
        self.folder = os.path.join(parent, f"loci-test-{os.getpid()}-{controller}")
        try:
            if not old and controller not in open(os.path.join(parent, "cgroup.subtree_control"), encoding="utf-8").read().split():
                pytest.skip(f"{parent} hands no {controller} on to groups below it")
            os.mkdir(self.folder)
        except OSError as error:
            pytest.skip(f"no right to make a control group: {error}")
        for name, value in limits["old" if old else "new"].items():
            try:
                with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                    file.write(str(value))
            except OSError as error:
                os.rmdir(self.folder)
                pytest.skip(f"no right to limit a control group: {error}")
        self.processes = os.path.join(self.folder, "cgroup.procs")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        wait_until(self.remove, "the group is empty")

    def remove(self):
        try:
            os.rmdir(self.folder)
        except OSError:
            return False
        return True

    def program(self, binary, folder):
        """The path of a program that runs `binary` in the group."""
        path = os.path.join(folder, "in-group.sh")
        with open(path, "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\necho $$ > "{self.processes}" || exit 9\nexec "{binary}" "$@"\n')
        os.chmod(path, 0o755)
        return path


def memory_group(size):
    return Group("memory", old={"memory.limit_in_bytes": size}, new={"memory.max": size})


BALLOON = """
import os, sys, time
processes, size, slow = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
group = os.path.dirname(processes)

def number(name, key=''):
    for line in open(os.path.join(group, name)):
        if line.startswith(key):
            return int(line[len(key):])

def available():
    if os.path.exists(os.path.join(group, 'memory.max')):
        return number('memory.max') - number('memory.current') + number('memory.stat', 'inactive_file ')
    return number('memory.limit_in_bytes') - number('memory.usage_in_bytes') + number('memory.stat', 'total_inactive_file ')

open(processes, 'w').write('0')
held, end = [], time.monotonic() + 120
while len(held) < size >> 20:
    if len(held) << 20 > size - slow:
        time.sleep(0.125)
        if available() < 6 << 20:
            if time.monotonic() > end:
                sys.exit('nobody gives memory back')
            continue
    held.append(bytearray(b'x') * (1 << 20))
    print(len(held), flush=True)
sys.stdin.read()
"""


class Balloon:
    """Another program in the group: takes memory and keeps it until it is told to end. The last of it, `slow` bytes, it takes slowly,
    and only what is there: a server that gets no processor time gives nothing back, and the kernel would kill one of the two."""

    def __init__(self, group, size, slow=0):
        self.process = subprocess.Popen([sys.executable, "-c", BALLOON, group.processes, str(size), str(slow)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.mebibytes = size >> 20

    def grow(self):
        for line in self.process.stdout:
            if int(line) == self.mebibytes:
                return
        raise AssertionError(f"the other program got no memory: it ended with {self.process.wait()}")

    def end(self):
        self.process.communicate()
        return self.process.returncode


def state(server, what):
    return server.metrics()[f'loci_state_bytes{{state="{what}"}}']


def fill(server, until):
    """Conversations, one after the other, until state holds so many bytes."""
    talks = 0
    while state(server, "held") < until:
        talks += 1
        assert talks < 2000
        reply = server.post(PATH, {"prompt": f"talk {talks} " + "and so on " * 150, "max_tokens": 1})
        assert reply.status == 200, reply.text
    return talks


def ask(server):
    reply = server.post(PATH, {"prompt": "The story of the guest, " * 20, "max_tokens": 24, "temperature": 0, "logprobs": 2})
    assert reply.status == 200, reply.text
    return reply.json["choices"][0]["text"], reply.json["choices"][0]["logprobs"]


def test_a_group_s_memory_is_the_machine_s(binary, model, tmp_path):
    """By default state gets half of what the group leaves, however much the machine has."""
    with memory_group(96 * MIB) as group, \
            Server(group.program(binary, str(tmp_path)), model, "--max-running", "1000", "--threads", "1") as server:
        total = state(server, "total")
        assert 0 < total <= 48 * MIB, server.banner
        assert "half of the" in server.banner, server.banner
        ask(server)


def test_memory_goes_to_who_lacks_it_and_comes_back(binary, model, tmp_path):
    with memory_group(GROUP_BYTES) as group, \
            Server(group.program(binary, str(tmp_path)), model, "--device-memory", POOL, "--threads", "1") as server:
        total = state(server, "total")
        first = ask(server)
        assert state(server, "held") < total / 8, "memory is taken as state fills it"
        assert state(server, "room") == total
        fill(server, total * 3 / 4)
        full = state(server, "held")
        # All that the group has left but 56 MiB at once, then more, 8 MiB a second, until 24 are wanted that state has.
        # (The pages of the program's file may be another group's: whoever ran it first.)
        with open(f"/proc/{server.process.pid}/statm", encoding="utf-8") as file:
            resident, of_files = (int(pages) * 4096 for pages in file.read().split()[1:3])
            used = resident - of_files
        balloon = Balloon(group, GROUP_BYTES - used + 24 * MIB, slow=80 * MIB)
        try:
            balloon.grow()
            wait_until(lambda: state(server, "held") < full - 24 * MIB, "state gives memory back")
            assert state(server, "room") < total
            assert server.process.poll() is None and balloon.process.poll() is None, "nobody was killed for memory"
            assert server.metrics()["loci_given_back_blocks_total"] > 0
            assert ask(server) == first, "what was given up is computed again, to the same bits"
            wait_until(lambda: "memory is short" in server.log_text(), "the log says why")
        finally:
            ended = balloon.end()
        assert ended == 0, "it kept its memory"
        wait_until(lambda: state(server, "room") == total, "state may have it again")
        assert ask(server) == first


def test_memory_is_kept_where_the_operator_says_so(binary, model, tmp_path):
    with memory_group(128 * MIB) as group, \
            Server(group.program(binary, str(tmp_path)), model, "--device-memory", "16MiB", "--yield-memory", "off",
                   "--threads", "1") as server:
        balloon = Balloon(group, 64 * MIB)
        balloon.grow()
        assert state(server, "room") == state(server, "total")
        ask(server)
        assert balloon.end() == 0


def test_memory_of_large_requests_goes_back(binary, model, pytestconfig):
    """Tokenising takes a hundred times the text; what it took is the system's again soon after. With --measure the texts
    are of 8 MiB, and what is left a while after them is printed, whatever it is."""
    measure = pytestconfig.getoption("--measure")
    with Server(binary, model, "--device-memory", "16MiB") as server:
        resident = lambda: server.metrics()["process_resident_memory_bytes"]
        ask(server)
        before = resident()
        body = {"content": "flood " * ((8 if measure else 1) * (MIB - 20) // 6)}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda _: server.post("/tokenize", body).status, range(4)))
        assert replies == [200] * 4
        if measure:
            with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as status:
                peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
            time.sleep(20)
            print(f"      resident: {before / MIB:.0f} MiB before, {peak / MIB:.0f} at the peak, {resident() / MIB:.0f} 20 s after")
            return
        wait_until(lambda: resident() < before + 24 * MIB, "what they took is given back")


def test_a_group_s_time_is_the_machine_s(binary, model, tmp_path):
    """By default as many threads compute as the group gives time for."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor has one thread anyway")
    with Group("cpu", old={"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 120000}, new={"cpu.max": "120000 100000"}) as group, \
            Server(group.program(binary, str(tmp_path)), model, "--device-memory", "16MiB") as server:
        assert ", 1 thread" in server.banner and ", 1 threads" not in server.banner, server.banner
