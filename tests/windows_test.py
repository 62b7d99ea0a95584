# SPDX-License-Identifier: Apache-2.0
"""Conversations that outgrow the device with a model of Gemma 3's kind: of six layers five see only 512 tokens.

Every reply has the text and the very log-probabilities of a server with room for all. What a reply explains adds up, and
behind the windows no more is read than the layers that see all need. With `--model FILE` it is Gemma 3 270M
(tests/golden/fetch_gemma3.sh), whose blocks are twelve times as large; with `-s` each turn says where its state came from.
"""
import json
import os
import shutil
import tempfile

import pytest

from live_client import expect, expect_equal, killed, moved, Server, wait_recovered, wait_saved
from live_explain_test import check_explanation, EXPLAIN
from tiers_talks import LOAD, Q8, story

TALKS = 3
TURNS = 4
WINDOW = 512
REPLY_TOKENS = 12
BLOCK = 32
HOST = ("--host-memory", "500MiB")
AUTO = ("--restore", "auto")


class Kind:
    """A model, and what state it has."""

    def __init__(self, binary, path, words, scale, layers, windowed):
        self.binary, self.path, self.words, self.scale = binary, path, words, scale
        self.layers, self.windowed = layers, windowed

    def memory(self, kib):
        return ("--device-memory", f"{kib * self.scale}KiB")

    def large(self):
        return self.memory(32 << 10)

    def small(self, flags=()):
        """For the windows of all, and half of what the other layers see."""
        return self.memory(SMALL_KIB // 2 + 100 if flags[:2] == Q8 else SMALL_KIB)


SMALL_KIB = 2600


@pytest.fixture(scope="module")
def kind(request, binary, narrow_model):
    file = request.config.getoption("--model")
    if file:
        return Kind(binary, file, words=1100, scale=12, layers=18, windowed=15)
    return Kind(binary, narrow_model, words=330, scale=1, layers=6, windowed=5)


class Talk:
    """A conversation: what each reply was, and how it explained itself. A model without template gets its text."""

    def __init__(self, number, words, is_text):
        self.number, self.words, self.is_text, self.previous, self.text = number, words, is_text, None, ""
        self.replies, self.cached, self.prompts, self.explained = [], [], [], []

    def ask_text(self, turn):
        if turn == 0:
            return f"Here are words: {story(7 + self.number, self.words)}. Which of them do you like?"
        return f"And which of {story(100 * self.number + turn, self.words // 5)}?"

    def go_on(self, server):
        ask = self.go_on_with_text if self.is_text else self.go_on_stored
        reply, cached, prompt, explained = ask(server, self.ask_text(len(self.replies)))
        self.replies.append(reply)
        self.cached.append(cached)
        self.prompts.append(prompt)
        self.explained.append(explained)
        print(f"talk {self.number}, turn {len(self.replies)}: {explained['tokens']} {explained['computed_because']} "
              f"{explained['restore']} {explained['real_ms']}")
        check_explanation(explained, prompt, cached)

    def go_on_stored(self, server, text):
        body = {"input": text, "temperature": 0, "max_output_tokens": REPLY_TOKENS, "ignore_eos": True,
                "include": ["message.output_text.logprobs"], "top_logprobs": 2, **EXPLAIN}
        if self.previous:
            body["previous_response_id"] = self.previous
        reply = server.post("/v1/responses", body)
        expect_equal(reply.status, 200, reply.text[:300])
        body = reply.json
        self.previous, usage, part = body["id"], body["usage"], body["output"][0]["content"][0]
        return ((part["text"], json.dumps(part["logprobs"])), usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"],
                body["loci"])

    def go_on_with_text(self, server, text):
        self.text += text
        reply = server.post("/v1/completions", {"prompt": self.text, "temperature": 0, "max_tokens": REPLY_TOKENS, "ignore_eos": True,
                                                "logprobs": 2, **EXPLAIN})
        expect_equal(reply.status, 200, reply.text[:300])
        body = reply.json
        usage, (choice,) = body["usage"], body["choices"]
        self.text += choice["text"] + "\n"
        return ((choice["text"], json.dumps(choice["logprobs"])), usage["prompt_tokens_details"]["cached_tokens"],
                usage["prompt_tokens"], body["loci"])


class Talks:
    """Conversations in turn, and a folder for their state."""

    def __init__(self, kind):
        self.kind = kind
        self.folder = tempfile.mkdtemp(prefix="loci_windows_")
        self.talks = [Talk(number, kind.words, is_text=kind.scale > 1) for number in range(TALKS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def server(self, *flags):
        return Server(self.kind.binary, self.kind.path, "--threads", "1", "--context", "4096", "--max-running", "2",
                      "--store", os.path.join(self.folder, "talks.db"), *flags)

    def disk(self):
        return ["--disk", f"{os.path.join(self.folder, 'disk')}:{64 * self.kind.scale}MiB"]

    def turn(self, server, wanted=None):
        for talk in self.talks:
            talk.go_on(server)
            wait_saved(server)  # before the next one can evict it, however slow the disk is
            if wanted is not None:
                turn = len(talk.replies) - 1
                expect_equal(talk.replies[-1], wanted.talks[talk.number].replies[turn], f"talk {talk.number}, turn {turn}")

    def sum_of(self, source):
        """In all turns but the first."""
        return sum(explained["tokens"][source] for talk in self.talks for explained in talk.explained[1:])


@pytest.fixture(scope="module")
def right(kind):
    """By the type of state: what a server with room for all replies."""
    known = {}

    def get(flags=()):
        key = flags if flags == Q8 else ()
        if key not in known:
            with Talks(kind) as talks, talks.server(*kind.large(), *key) as server:
                for _ in range(TURNS):
                    talks.turn(server)
                for talk in talks.talks:
                    expect(talk.prompts[0] > 2 * WINDOW, f"windows are narrow: {talk.prompts}")
                    expect(talk.cached[-1] > talk.prompts[-2], f"nothing was lost: {talk.cached} of {talk.prompts}")
            known[key] = talks
        return known[key]
    return get


@pytest.mark.parametrize("flags", [LOAD, Q8 + LOAD, AUTO, HOST, ("--host-memory", "2MiB") + LOAD],
                         ids=["disk", "q8", "auto", "host", "host-and-disk"])
def test_replies_are_those_of_a_large_server(kind, right, flags):
    wanted = right(flags[:2])
    with Talks(kind) as talks:
        disk = [] if flags == HOST else talks.disk()
        with talks.server(*kind.small(flags), *disk, *flags) as server:
            for _ in range(TURNS):
                talks.turn(server, wanted)
        loaded = talks.sum_of("disk") + talks.sum_of("host")
        expect(loaded > WINDOW or flags == AUTO, f"the device is small: {talks.talks[-1].explained[-1]}")
        if LOAD[-1] in flags:
            for talk, at_best in zip(talks.talks, wanted.talks):
                lost = [best - cached for cached, best in zip(talk.cached, at_best.cached)]
                expect(max(lost) < BLOCK, f"less than a block is computed again: {lost}")


def test_no_more_is_read_than_layers_see(kind):
    """Of the tokens behind the windows only the state of layers that see all."""
    with Talks(kind) as talks:
        with killed(talks.server(*kind.large(), *talks.disk())) as server:
            for _ in range(2):
                talks.turn(server)
        with talks.server(*kind.large(), *talks.disk(), *LOAD) as server:
            wait_recovered(server)
            talks.turn(server)
            read = moved(server, "disk_load")
        tokens = sum(talk.explained[-1]["tokens"]["disk"] for talk in talks.talks)
        expect(tokens > 2 * TALKS * WINDOW, f"{tokens} tokens came from the disk")
        layer = 256 if kind.scale == 1 else 1024  # bytes of a token
        least = layer * (kind.layers - kind.windowed) * tokens
        windows = layer * kind.windowed * TALKS * (WINDOW + 64)
        print(f"{read} bytes were read for {tokens} tokens, of {layer * kind.layers * tokens} that they have in all layers")
        expect(least < read < 1.1 * (least + windows), f"{read} bytes for {tokens} tokens: {least} and {windows}")


@pytest.mark.parametrize("flags", [(), Q8, HOST], ids=["f16", "q8", "host"])
def test_nothing_is_computed_again_after_kills(kind, right, flags):
    wanted = right(flags)
    with Talks(kind) as talks:
        for turn in range(TURNS):
            with killed(talks.server(*kind.large(), *talks.disk(), *LOAD, *flags)) as server:
                if turn > 0:
                    wait_recovered(server)
                talks.turn(server, wanted)
        for talk, at_best in zip(talks.talks, wanted.talks):
            expect_equal(talk.cached, at_best.cached, "cached")
