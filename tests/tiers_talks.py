# SPDX-License-Identifier: Apache-2.0
"""What the suites of tiers share: conversations whose state leaves the device, folders that outlive servers, and what
the replies must be."""
import glob
import json
import os
import random
import shutil
import subprocess
import tempfile

from live_client import expect, expect_equal, killed, Server, wait_recovered, wait_saved

TALKS = 4
TURNS = 3
REPLY_TOKENS = 16
COMMON = ("--threads", "1", "--context", "2048", "--max-running", "4")
# Of the default model's blocks, 720 KiB each: room for about 600 tokens, one and a half of the conversations.
SMALL = ("--device-memory", "14MiB")
LARGE = ("--device-memory", "256MiB")
WORDS = ("river castle winter letter window garden music paper silver engine market shadow bridge forest candle "
         "harbour mirror village orchard thunder").split()
Q8 = ("--state-type", "q8")
HIDDEN = ("--hidden", "on")
# On a slow disk a server would rather compute state than load it.
LOAD = ("--restore", "kv")


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

    def turn(self, server, turn, settled=False):
        """One turn of every conversation, in turn; each reply is what it must be. Settled: what one of them computed is
        saved before the next one can evict it, however slow the disk is."""
        for talk in self.talks:
            expect_equal(talk.turn, turn, "turn")
            expect_equal(talk.go_on(server), Tiers.expected[self.state_type][talk.number][turn],
                         f"talk {talk.number}, turn {turn}")
            if settled:
                wait_saved(server)

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


def learn_all(binary, model):
    """Once for all suites of one run."""
    if not Tiers.expected:
        learn_what_is_right(binary, model)
        learn_what_is_right(binary, model, *Q8)


# --- restarts and refusals ---

def check_restart(binary, model, harm=None, least=0.5, flags=(), after=None):
    is_found = least > 0 or after is not None  # else there may be nothing to find
    with Tiers(binary, model) as tiers:
        with killed(tiers.server(*small(flags), *tiers.disk(), *flags)) as server:
            for turn in range(TURNS - 1):
                tiers.turn(server, turn, settled=is_found and turn == TURNS - 2)
            wait_saved(server)
        if harm:
            harm(os.path.join(tiers.folder, "disk"))
        with tiers.server(*small(flags), *tiers.disk(), *(LOAD if is_found else ()), *flags) as server:
            if is_found:
                wait_recovered(server)
            tiers.turn(server, TURNS - 1)
            if after:
                after(server)
        expect(tiers.cached(TURNS - 1) >= least, f"cached: {[talk.cached for talk in tiers.talks]}")


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


def refused(binary, model, *flags, names="--disk"):
    done = subprocess.run([binary, "serve", model, "--port", "0", "--store", "", *COMMON, *LARGE, *flags],
                          capture_output=True, text=True, timeout=300, env={**os.environ, "LOCI_CONFIG": ""})
    expect_equal(done.returncode, 1, f"exit code: {done.stderr[-500:]}")
    # The log has a thread of its own: a line of it may come after the reason.
    reason = next((line for line in done.stderr.splitlines() if line.startswith("loci serve: ")), "")
    expect(names in reason, done.stderr)
    return reason
