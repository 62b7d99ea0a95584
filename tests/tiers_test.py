# SPDX-License-Identifier: Apache-2.0
"""State that leaves the device and comes back, by a live server.

Whatever way a conversation's state has gone (host memory, disk, both, through kill -9, past damaged files), every
greedy reply has the text and the very log-probabilities of a server that never lost any.
"""
import glob
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import pytest

from live_client import expect, expect_equal, killed, moved, Server, wait_recovered, wait_saved, wait_until

TALKS = 4
TURNS = 3
REPLY_TOKENS = 16
COMMON = ("--threads", "1", "--context", "2048", "--max-running", "4")
# Of the default model's blocks, 720 KiB each: room for about 600 tokens, one and a half of the conversations.
SMALL = ("--device-memory", "14MiB")
LARGE = ("--device-memory", "256MiB")
# A prompt of half the device's blocks evicts faster than what is saved ahead is saved.
AHEAD = 0.15
WORDS = ("river castle winter letter window garden music paper silver engine market shadow bridge forest candle "
         "harbour mirror village orchard thunder").split()


def story(seed, words):
    source = random.Random(seed)
    return " ".join(source.choice(WORDS) for _ in range(words))


def ask_text(talk, turn):
    if turn == 0:
        return f"Here are words: {story(talk, 150)}. Which of them do you like?"
    return f"And which of {story(100 * talk + turn, 12)}?"


class Talk:
    """A stored conversation; what its replies were, and how much of each prompt came from where."""

    def __init__(self, number):
        self.number = number
        self.previous = None
        self.turn = 0
        self.cached = []
        self.prompts = []

    def go_on(self, server):
        body = {"input": ask_text(self.number, self.turn), "temperature": 0, "max_output_tokens": REPLY_TOKENS,
                "ignore_eos": True, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
        if self.previous:
            body["previous_response_id"] = self.previous
        reply = server.post("/v1/responses", body)
        expect_equal(reply.status, 200, reply.text[:300])
        response = reply.json
        self.previous = response["id"]
        self.turn += 1
        self.cached.append(response["usage"]["input_tokens_details"]["cached_tokens"])
        self.prompts.append(response["usage"]["input_tokens"])
        part = response["output"][0]["content"][0]
        return part["text"], json.dumps(part["logprobs"])


def state_type(flags):
    return flags[flags.index("--state-type") + 1] if "--state-type" in flags else "f16"


def small(flags):
    """Room on the device for as many tokens in either type."""
    return ("--device-memory", "7424KiB") if state_type(flags) == "q8" else SMALL


class Tiers:
    """A folder with a store and disks, for servers one after another; what a server that keeps all would say."""

    expected = {}  # by the type of state
    resident = {}  # the same: how many tokens of each prompt were there

    def __init__(self, binary, model):
        self.binary, self.model, self.state_type = binary, model, "f16"
        self.folder = tempfile.mkdtemp(prefix="loci_tiers_")
        self.talks = [Talk(i) for i in range(TALKS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def disk(self, name="disk", size="120MiB"):
        return ["--disk", f"{os.path.join(self.folder, name)}:{size}"]

    def server(self, *flags):
        self.state_type = state_type(flags)
        return Server(self.binary, self.model, *COMMON, "--store", os.path.join(self.folder, "talks.db"), *flags)

    def turn(self, server, turn):
        """One turn of every conversation, in turn; each reply is what it must be."""
        for talk in self.talks:
            expect_equal(talk.turn, turn, "turn")
            expect_equal(talk.go_on(server), Tiers.expected[self.state_type][talk.number][turn],
                         f"talk {talk.number}, turn {turn}")

    def cached(self, turn):
        """The least share of a prompt that was not computed; the new question is some 40 tokens of over 250."""
        return min(talk.cached[turn] / talk.prompts[turn] for talk in self.talks)


def learn_what_is_right(binary, model, *flags):
    """With room for all state on the device."""
    with Tiers(binary, model) as tiers, tiers.server(*LARGE, "--disk", "none", *flags) as server:
        replies = [[talk.go_on(server) for _ in range(TURNS)] for talk in tiers.talks]
        expect(all(min(talk.cached[1:]) > 200 for talk in tiers.talks), "nothing was lost")
    Tiers.expected[state_type(flags)] = replies
    Tiers.resident[state_type(flags)] = [talk.cached for talk in tiers.talks]


@pytest.fixture(scope="module", autouse=True)
def replies_that_are_right(binary, model):
    learn_what_is_right(binary, model)
    learn_what_is_right(binary, model, "--state-type", "q8")


# --- every path ---

def check_path(binary, model, flags, links, least=0.5):
    with Tiers(binary, model) as tiers:
        flags = [f.replace("FOLDER", tiers.folder) for f in flags]
        with tiers.server(*small(flags), *flags) as server:
            for turn in range(TURNS):
                tiers.turn(server, turn)
            for link in links:
                expect(moved(server, link) > 0, f"{link} moved nothing:\n" + server.get("/metrics").text[-3000:])
                expect_equal(moved(server, link, "failures"), 0, f"failures of {link}")
            expect(server.metrics()["loci_evicted_blocks_total"] > 0, "the device's pool is too small for all")
        expect(tiers.cached(TURNS - 1) > least, f"cached: {[talk.cached for talk in tiers.talks]}")


def test_host(binary, model):
    check_path(binary, model, ["--host-memory", "200MiB", "--disk", "none"], ["host_save", "host_load"])


def test_disk(binary, model):
    check_path(binary, model, ["--disk", "FOLDER/d:120MiB"], ["disk_save", "disk_load"])


def test_two_disks_with_threads(binary, model):
    check_path(binary, model, ["--disk", "FOLDER/d:200MiB", "--disk", "FOLDER/e:200MiB", "--disk-io", "threads"],
               ["disk_save", "disk_load"])


def test_host_and_disk(binary, model):
    check_path(binary, model, ["--host-memory", "16MiB", "--disk", "FOLDER/d:120MiB"],
               ["host_save", "disk_save"])


def test_saved_ahead(binary, model):
    check_path(binary, model, ["--host-memory", "16MiB", "--disk", "FOLDER/d:120MiB", "--save", "ahead"],
               ["host_save", "disk_save"], AHEAD)


def test_disk_saved_ahead(binary, model):
    check_path(binary, model, ["--disk", "FOLDER/d:120MiB", "--save", "ahead"], ["disk_save", "disk_load"], AHEAD)


Q8 = ("--state-type", "q8")


def test_q8_host_and_disk(binary, model):
    check_path(binary, model, [*Q8, "--host-memory", "9MiB", "--disk", "FOLDER/d:60MiB"],
               ["host_save", "disk_save"])


# --- hidden states ---

HIDDEN = ("--hidden", "on")


def hidden_blocks(server, link):
    return server.metrics()[f'loci_hidden_blocks_total{{link="{link}"}}']


def test_hidden_states(binary, model):
    """Of the default model they are 648 bytes a token and layer; its keys and values are 768."""
    with Tiers(binary, model) as tiers, tiers.server(*SMALL, *tiers.disk(), *HIDDEN) as server:
        for turn in range(TURNS):
            tiers.turn(server, turn)
        expect(hidden_blocks(server, "disk_save") > 20, "blocks went to the disk as hidden states")
        expect(hidden_blocks(server, "disk_load") > 20, "and came back")
        expect_equal(moved(server, "disk_save", "failures"), 0, "failures")
        expect(tiers.cached(TURNS - 1) > 0.5, f"cached: {[talk.cached for talk in tiers.talks]}")


def test_hidden_states_kill_and_restart(binary, model):
    def from_disk(server):
        expect(hidden_blocks(server, "disk_load") > 20, "hidden states came from the disk")
    check_restart(binary, model, flags=HIDDEN, after=from_disk)


def test_hidden_states_flipped_bytes(binary, model):
    def counted(server):
        expect(server.metrics()["loci_disk_damaged_total"] > 0, "damaged entries are counted")
    check_restart(binary, model, flip_slots, 0, flags=HIDDEN, after=counted)


def test_hidden_states_that_are_not_smaller(binary, model):
    said = refused(binary, model, "--device", "cpu", *HIDDEN, *Q8, names="--hidden")
    expect("648 bytes" in said and "values 396" in said, said)
    said = refused(binary, model, "--device", "cpu", *HIDDEN, "--host-memory", "64MiB", names="--hidden")
    expect("host memory" in said, said)


def test_hidden_states_are_another_layout(binary, model):
    """Who turns them on or off begins with an empty disk, which is said, and with the same replies."""
    with Tiers(binary, model) as tiers:
        for turn, flags in enumerate([(), HIDDEN, ()]):
            with killed(tiers.server(*LARGE, *tiers.disk(), *flags)) as server:
                tiers.turn(server, turn)
                wait_saved(server)
        expect(all(max(talk.cached) < 60 for talk in tiers.talks), f"cached: {[talk.cached for talk in tiers.talks]}")


# --- restart ---

def check_restart(binary, model, harm=None, least=0.5, flags=(), after=None):
    with Tiers(binary, model) as tiers:
        with killed(tiers.server(*small(flags), *tiers.disk(), *flags)) as server:
            for turn in range(TURNS - 1):
                tiers.turn(server, turn)
            wait_saved(server)
        if harm:
            harm(os.path.join(tiers.folder, "disk"))
        with tiers.server(*small(flags), *tiers.disk(), *flags) as server:
            tiers.turn(server, TURNS - 1)
            if after:
                after(server)
        expect(tiers.cached(TURNS - 1) >= least, f"cached: {[talk.cached for talk in tiers.talks]}")


def test_kill_and_restart(binary, model):
    def from_disk(server):
        expect(moved(server, "disk_load") > 0, "state came from the disk")
    check_restart(binary, model, after=from_disk)


def test_q8_kill_and_restart(binary, model):
    check_restart(binary, model, flags=Q8)


@pytest.mark.parametrize("flags", [(), Q8, HIDDEN, ("--host-memory", "64MiB")],
                         ids=["f16", "q8", "hidden", "host"])
def test_nothing_is_computed_again_after_a_kill(binary, model, flags):
    """Each turn finds as many tokens as if the process had never ended: those of the last block, too."""
    with Tiers(binary, model) as tiers:
        for turn in range(TURNS):
            with killed(tiers.server(*LARGE, *tiers.disk(), "--restore", "kv", *flags)) as server:
                if turn > 0:
                    wait_recovered(server)
                tiers.turn(server, turn)
                wait_saved(server)
                expect(server.metrics()["loci_partial_blocks_saved_total"] >= TALKS - 1, "the ends were saved")
        expect_equal([talk.cached for talk in tiers.talks], Tiers.resident[state_type(flags)], "cached")


def test_each_state_type_has_state_of_its_own(binary, model):
    """What another type left is not used, and is there when its own type comes back."""
    with Tiers(binary, model) as tiers:
        for flags in [(), ("--state-type", "q8"), ()]:
            with killed(tiers.server(*LARGE, *tiers.disk(), *flags)) as server:
                tiers.talks[0].go_on(server)
                wait_saved(server)
        cached = tiers.talks[0].cached
        expect(cached[:2] == [0, 0] and cached[2] > 100, f"cached: {cached}")
        expect_equal(len(slot_files(os.path.join(tiers.folder, "disk"))), 2, "files of slots")


def test_state_types_that_the_cpu_lacks(binary, model):
    expect("bf16" in refused(binary, model, "--device", "cpu", "--state-type", "bf16", names="--state-type"), "by name")


def test_kill_and_restart_with_host_tier(binary, model):
    check_restart(binary, model, flags=("--host-memory", "64MiB"))


def slot_files(folder):
    """Of all models that keep state there."""
    return sorted(glob.glob(os.path.join(folder, "models", "*", "*.slots")))


def flip_slots(folder):
    source = random.Random(7)
    for path in slot_files(folder):
        with open(path, "r+b") as file:
            data = file.read()
            for _ in range(len(data) // 200000):
                at = source.randrange(len(data))
                file.seek(at)
                file.write(bytes([data[at] ^ 0x40]))


def test_flipped_bytes(binary, model):
    """Each slot that has a byte flipped is dropped and counted."""
    def counted(server):
        expect(server.metrics()["loci_disk_damaged_total"] > 0, "damaged entries are counted")
    check_restart(binary, model, flip_slots, 0, after=counted)


def test_flipped_headers(binary, model):
    def flip(folder):
        source = random.Random(8)
        for name in os.listdir(folder):
            if name.endswith(".headers"):
                with open(os.path.join(folder, name), "r+b") as file:
                    data = file.read()
                    for at in range(0, len(data), 700):
                        at += source.randrange(700)
                        if at < len(data):
                            file.seek(at)
                            file.write(bytes([data[at] ^ 1]))
    check_restart(binary, model, flip, 0)


def test_truncated_files(binary, model):
    def truncate(folder):
        for path in slot_files(folder):
            os.truncate(path, os.path.getsize(path) // 3)
    check_restart(binary, model, truncate, 0)


def test_removed_files(binary, model):
    def remove(folder):
        for path in slot_files(folder):
            os.remove(path)
    check_restart(binary, model, remove, 0)


def test_removed_folder(binary, model):
    check_restart(binary, model, shutil.rmtree, 0)


def test_files_removed_under_a_running_server(binary, model):
    with Tiers(binary, model) as tiers, tiers.server(*SMALL, *tiers.disk()) as server:
        tiers.turn(server, 0)
        for path in slot_files(os.path.join(tiers.folder, "disk")):
            with open(path, "r+b") as file:
                file.truncate(4096)
        for turn in range(1, TURNS):
            tiers.turn(server, turn)


def test_another_size_keeps_the_state(binary, model):
    with Tiers(binary, model) as tiers:
        with killed(tiers.server(*SMALL, *tiers.disk())) as server:
            tiers.turn(server, 0)
        with tiers.server(*SMALL, *tiers.disk(size="80MiB")) as server:
            wait_until(lambda: server.metrics()["loci_recovered_entries_total"] > 0, 20, "state is recovered")
            tiers.turn(server, 1)
            expect(moved(server, "disk_load") > 0, "state came from the disk")


# --- what cannot be had ---

def refused(binary, model, *flags, names="--disk"):
    done = subprocess.run([binary, "serve", model, "--port", "0", "--store", "", *COMMON, *LARGE, *flags],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "LOCI_CONFIG": ""})
    expect_equal(done.returncode, 1, f"exit code: {done.stderr[-500:]}")
    # The log has a thread of its own: a line of it may come after the reason.
    reason = next((line for line in done.stderr.splitlines() if line.startswith("loci serve: ")), "")
    expect(names in reason, done.stderr)
    return reason


def test_two_servers_on_one_directory(binary, model):
    with Tiers(binary, model) as tiers, tiers.server(*SMALL, *tiers.disk()) as server:
        line = refused(binary, model, *tiers.disk())
        expect("another server" in line and str(server.process.pid) in line, line)
        tiers.turn(server, 0)


def test_two_servers_with_the_default_disk(binary, model):
    """The second one goes on without, and says so."""
    with tempfile.TemporaryDirectory(prefix="loci_state_") as home:
        def start():
            return subprocess.Popen([binary, "serve", model, "--port", "0", "--store", "", *COMMON, *LARGE],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env={**os.environ, "LOCI_CONFIG": "", "XDG_STATE_HOME": home})

        def banner(server):
            lines = []
            for line in server.stdout:
                lines.append(line)
                if line.startswith("ready"):
                    break
            return "".join(lines)
        first = start()
        try:
            shown = banner(first)
            expect(re.search(r"disk +[\d.]+ [GM]iB for [\d,]+ tokens of state in " + re.escape(home), shown), shown)
            second = start()
            try:
                shown = banner(second)
                expect(re.search(r"disk +none", shown), shown)
            finally:
                second.terminate()
                _, log = second.communicate(timeout=40)
            expect("no disk tier" in log and "another server" in log, log)
        finally:
            first.terminate()
            first.communicate(timeout=40)
        size = sum(e.stat().st_size for e in os.scandir(os.path.join(home, "loci", "state")))
        expect(size <= 16 << 30, f"{size} bytes")


def test_no_room(binary, model):
    line = refused(binary, model, "--disk", "/dev/shm/loci_tiers_test:900TiB")
    shutil.rmtree("/dev/shm/loci_tiers_test", ignore_errors=True)
    expect("TiB" in line or "pace" in line, line)


def test_a_directory_that_cannot_be_written(binary, model):
    expect("/proc/loci" in refused(binary, model, "--disk", "/proc/loci:1GiB"), "the message names it")
    line = refused(binary, model, "--disk", "/tmp:1KiB")
    expect("1.0 KiB" in line or "1 KiB" in line or "1024" in line, line)


# --- costs that nobody measured ---

def test_an_idle_server_measures_by_itself(binary, model):
    """Requests that come meanwhile get the right replies; what is found is kept, used and replayed."""
    with Tiers(binary, model) as tiers:
        events = os.path.join(tiers.folder, "events")
        home = {"LOCI_PROFILE": None, "XDG_STATE_HOME": tiers.folder}

        def start():
            return Server(binary, model, *COMMON, *LARGE, *tiers.disk(), "--store", os.path.join(tiers.folder, "talks.db"),
                          "--event-log", events, "--event-log-secret", "on", environment=home)
        with start() as server:
            expect("assumed, not measured here" in server.banner, server.banner)
            tiers.turn(server, 0)
            time.sleep(1.2)  # so that the next turn comes in the midst of it, on most machines
            tiers.turn(server, 1)
            wait_until(lambda: "costs measured roughly" in server.log_text(), 60, "a profile")
            tiers.turn(server, 2)
            kept = "kept in" in server.log_text()
            expect(kept or re.search(r"not kept: others took \d+ %", server.log_text()), server.log_text()[-2000:])
        replayed = subprocess.run([binary, "replay", events], capture_output=True, text=True, timeout=60)
        expect_equal(replayed.returncode, 0, replayed.stdout + replayed.stderr)
        files = glob.glob(os.path.join(tiers.folder, "loci", "profiles", "*.json"))
        expect_equal(len(files), int(kept), "profiles")
        if not kept:
            return  # the machine is too busy for a profile that is worth keeping
        with open(files[0], encoding="utf-8") as file:
            profile = json.load(file)
        expect_equal((profile["format"], profile["rough"]), ("loci-profile-2", True), "what was written")
        expect_equal(profile["disk_directory"], os.path.join(tiers.folder, "disk"), "the disk that was measured")
        with start() as server:
            expect("measured roughly" in server.banner, server.banner)

        # One of a former format is passed over, and stays.
        with open(files[0], "w", encoding="utf-8") as file:
            file.write(json.dumps(profile | {"format": "loci-profile-1"}))
        with start() as server:
            expect("loci-profile-1" in server.banner and "`loci profile MODEL` measures" in server.banner, server.banner)
            wait_until(lambda: "costs measured roughly" in server.log_text(), 60, "a profile")
        with open(files[0], encoding="utf-8") as file:
            expect_equal(json.load(file)["format"], "loci-profile-1", "the file")


# --- how fast a restart is ---

def disk_rate(path):
    """Bytes a second that `dd` reads past the page cache, in pieces of a mebibyte."""
    done = subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M", "count=200", "iflag=direct"],
                          capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    found = re.search(r"(\d+) bytes .* copied, ([\d.e-]+) s", done.stderr)
    expect(found, done.stderr)
    return int(found.group(1)) / float(found.group(2))


@pytest.mark.measures
def test_restart_measured(binary, model):
    """The next turn of 4,000 tokens after kill -9: its first token's time, beside what its bytes and its new tokens
    cost alone. Printed; only what no load of the machine can explain fails."""
    flags = ("--threads", str(os.cpu_count() or 1), "--context", "6000", "--device-memory", "256MiB")
    body = {"messages": [{"role": "user", "content": story(5, 3950)}], "temperature": 0, "max_tokens": 4,
            "ignore_eos": True}

    def timed(server, request):
        begin = time.monotonic()
        connection = server.send("/v1/chat/completions", request | {"stream": True,
                                                                    "stream_options": {"include_usage": True}})
        data, first = b"", None
        while piece := connection.recv(65536):
            data += piece
            # The first chunk has the role and no text.
            if first is None and re.search(rb'"content":"[^"]', data):
                first = time.monotonic() - begin
        connection.close()
        events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
        expect(first is not None, data[-500:])
        return first, events[-1]["usage"]

    with Tiers(binary, model) as tiers:
        def start():
            return Server(binary, model, *flags, "--store", "", *tiers.disk(size="1GiB"))
        with killed(start()) as server:
            cold, usage = timed(server, body)
            tokens = usage["prompt_tokens"]
            wait_saved(server)
            # The new turn's own cost, with all before it on the device.
            follow = dict(body, messages=body["messages"] + [{"role": "assistant", "content": "Yes."},
                                                             {"role": "user", "content": "And now?"}])
            other = dict(body, messages=body["messages"] + [{"role": "assistant", "content": "Yes."},
                                                            {"role": "user", "content": "But now?"}])
            warm, _ = timed(server, other)
        rate = disk_rate(slot_files(os.path.join(tiers.folder, "disk"))[0])
        times = []
        for _ in range(5):
            with killed(start()) as server:
                back, usage = timed(server, follow)
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                read = moved(server, "disk_load")
                times.append(back)
        back = statistics.median(times)
        best = max(read / rate, warm)
        print(f"      {tokens} tokens: cold {cold * 1000:.0f} ms; after the restart {back * 1000:.0f} ms "
              f"({min(times) * 1000:.0f}-{max(times) * 1000:.0f}) with {cached} tokens, {read / 2**20:.0f} MiB from disk; alone: "
              f"its bytes {read / rate * 1000:.0f} ms at {rate / 2**20:.0f} MiB/s, its new tokens {warm * 1000:.0f} ms; "
              f"bound {1200 * best + 20:.0f} ms")
        expect(tokens > 3500, f"{tokens} tokens")
        # A busy machine may find it sooner to compute some of it meanwhile.
        expect(cached > 0.5 * tokens, f"cached {cached} of {tokens}")
        if cold > 3 * best:  # a GPU computes a small model faster than a disk reads its state
            expect(back < cold / 2, f"{back:.2f} s, computed anew {cold:.2f} s")
