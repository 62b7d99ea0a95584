# SPDX-License-Identifier: Apache-2.0
"""The server on a GPU.

--loci names loci on a machine with a GPU; else it is loci-simulated-gpu: the server with the CUDA backend over a device that the
processor simulates (src/loci/compute/cuda/simulated), which alone can be lost on demand. With --deterministic a reply
is the same in every way that its context came to be there, in any batch. The model is a tiny one.
"""
import json
import os
import re
import subprocess
import tempfile
import threading

import pytest

from live_client import expect, expect_equal, killed, moved, Server, wait_recovered, wait_saved

pytestmark = pytest.mark.serve(model="tiny", program="loci-simulated-gpu")
CONVERSATIONS, TURNS = 5, 3
ROOM = "2MiB"   # for all conversations
TIGHT = "160KiB"  # for two
# The same for the model whose hidden states are smaller than its keys and values. WIDE_ROOM has room for all of either
# model, so right() takes it for both.
WIDE_ROOM, WIDE_TIGHT = "6MiB", "480KiB"


def flags(memory, *more, host="0", deterministic=True):
    return ["--device", "cuda:0", "--device-memory", memory, "--host-memory", host, "--store", "",
            *(["--deterministic"] if deterministic else []), *more]


def question(conversation, turn):
    return f" {conversation}.{turn}: " + " ".join(f"{(conversation * 31 + turn * 7 + i * 13) % 97}" for i in range(50))


def completion(server, prompt, **fields):
    reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True} | fields)
    expect_equal(reply.status, 200, f"status ({reply.text[:300]})")
    return reply.json


def talk(server, conversation, history="", turns=range(TURNS), **fields):
    """The texts (and log-probabilities) of the turns, and the history after them."""
    said = []
    for turn in turns:
        prompt = history + question(conversation, turn)
        choice = completion(server, prompt, **fields)["choices"][0]
        said.append((choice["text"], choice["logprobs"]))
        history = prompt + choice["text"]
    return said, history


def talk_at_once(server, **fields):
    said = [None] * CONVERSATIONS
    failed = []

    def one(i):
        try:
            said[i] = talk(server, i, **fields)[0]
        except Exception as error:  # noqa: BLE001
            failed.append(error)
    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(CONVERSATIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failed, failed)
    return said


def turn_by_turn(server, **fields):
    """Each conversation's turn after all others' before it, so that what does not fit has to go: when it is saved, where there is a tier
    to save it to, however slow the disk is."""
    said, histories = [[] for _ in range(CONVERSATIONS)], [""] * CONVERSATIONS
    for turn in range(TURNS):
        for i in range(CONVERSATIONS):
            more, histories[i] = talk(server, i, histories[i], [turn], **fields)
            said[i] += more
            wait_saved(server)
    return said


def expect_same(said, wanted, what):
    """Of conversations' turns: names the first that differs."""
    for i, (conversation, right_one) in enumerate(zip(said, wanted, strict=True)):
        for turn, (got, right_turn) in enumerate(zip(conversation, right_one, strict=True)):
            expect_equal(got[0], right_turn[0], f"{what}: the text of turn {turn} of conversation {i}")
            if got[1] is not None:
                for token, pair in enumerate(zip(got[1]["token_logprobs"], right_turn[1]["token_logprobs"], strict=True)):
                    expect_equal(*pair, f"{what}: the log-probability of token {token} of turn {turn} of conversation {i}")


RIGHT = {}


def right(binary, model, **fields):
    """What a server says with room for everything, one conversation after the other."""
    key = json.dumps([model, fields], sort_keys=True)
    if key not in RIGHT:
        with Server(binary, model, *flags(WIDE_ROOM)) as server:
            RIGHT[key] = [talk(server, i, **fields)[0] for i in range(CONVERSATIONS)]
    return RIGHT[key]


def test_says_what_computes(binary, model):
    with Server(binary, model, *flags(ROOM)) as server:
        expect(re.search(r"device +cuda:0 \(.+\)", server.banner), server.banner)
        expect(len(completion(server, question(0, 0))["choices"][0]["text"]) > 0, "a reply")


def test_batched(binary, model):
    with Server(binary, model, *flags(ROOM)) as server:
        expect_same(talk_at_once(server), right(binary, model), "replies that were computed together")


def test_batched_with_log_probabilities(binary, model):
    """These are sampled on the host, those above on the device, a pass ahead."""
    with Server(binary, model, *flags(ROOM)) as server:
        said = talk_at_once(server, logprobs=3)
    expect_same(said, right(binary, model, logprobs=3), "log-probabilities of replies that were computed together")
    expect_equal([[text for text, _ in turns] for turns in said], [[text for text, _ in turns] for turns in right(binary, model)],
                 "texts sampled on the host and on the device")


def test_sampled(binary, model):
    fields = {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "seed": 11}
    with Server(binary, model, *flags(ROOM)) as server:
        expect_same(talk_at_once(server, **fields), right(binary, model, **fields), "sampled replies")
    expect(right(binary, model, **fields) != right(binary, model), "sampling is not greedy")


def test_chunked(binary, model):
    with Server(binary, model, *flags(ROOM, "--max-batch-tokens", "48")) as server:
        expect_same(talk_at_once(server), right(binary, model), "replies whose prompts came in small pieces")


def test_recomputed(binary, model):
    with Server(binary, model, *flags(TIGHT)) as server:
        expect_same(turn_by_turn(server, logprobs=3), right(binary, model, logprobs=3), "recomputed")
        expect(sum(value for name, value in server.metrics().items() if "evictions_total" in name) > 0, "nothing was evicted")


def test_from_host_memory(binary, model):
    with Server(binary, model, *flags(TIGHT, host=ROOM)) as server:
        expect_same(turn_by_turn(server, logprobs=3), right(binary, model, logprobs=3), "from host memory")
        expect(moved(server, "host_load") > 0, "nothing came from host memory")


PROFILES = {}


def slow_to_compute(binary, model, folder):
    """A profile by which every token is better loaded than computed: no GPU needs a disk for so small a model."""
    path = os.path.join(folder, "profile.json")
    if model not in PROFILES:
        subprocess.run([binary, "profile", model, "--device", "cuda:0", "--deterministic", "--no-disk", "--output", path],
                       check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            PROFILES[model] = json.load(file)
        PROFILES[model]["costs"]["token_ns"] = 10 ** 9
    with open(path, "w", encoding="utf-8") as file:
        json.dump(PROFILES[model], file)
    return path


def test_from_disk_after_a_kill(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        profile = slow_to_compute(binary, model, folder)
        disk = ["--disk", f"{folder}/disk:16MiB", "--profile", profile]
        with killed(Server(binary, model, *flags(ROOM, *disk))) as server:
            histories = [talk(server, i, turns=range(TURNS - 1), logprobs=3)[1] for i in range(CONVERSATIONS)]
            wait_saved(server)
        with Server(binary, model, *flags(ROOM, *disk)) as server:
            wait_recovered(server)
            for i in range(CONVERSATIONS):
                said, _ = talk(server, i, histories[i], [TURNS - 1], logprobs=3)
                expect_same([said], [right(binary, model, logprobs=3)[i][TURNS - 1:]], f"conversation {i} from disk")
            expect(moved(server, "disk_load") > 0, "nothing came from disk")


def hidden_blocks(server, link):
    return server.metrics()[f'loci_hidden_blocks_total{{link="{link}"}}']


@pytest.mark.parametrize("restore", ["hidden", "hcache"])
def test_hidden_states_from_disk(binary, wide_model, restore):
    with tempfile.TemporaryDirectory() as folder:
        profile = slow_to_compute(binary, wide_model, folder)
        with open(profile, encoding="utf-8") as file:
            expect(json.load(file)["costs"]["projection_ns"] > 0, "the price of projecting is measured")
        hidden = ["--disk", f"{folder}/disk:32MiB", "--profile", profile, "--hidden", "on", "--restore", restore]
        with Server(binary, wide_model, *flags(WIDE_TIGHT, *hidden)) as server:
            expect_same(turn_by_turn(server, logprobs=3), right(binary, wide_model, logprobs=3), f"as hidden states by {restore}")
            saved, loaded = hidden_blocks(server, "disk_save"), hidden_blocks(server, "disk_load")
            expect(saved > 20, f"{saved} blocks went to the disk as hidden states")
            expect(loaded > 20, f"{loaded} blocks came back as hidden states")
            expect_equal(moved(server, "disk_save", "failures"), 0, "saves that failed")


def test_hidden_states_of_passes_ahead(binary, wide_model):
    """Tokens that the device samples are fed to passes that begin before the host sees them: these rows are captured, too."""
    with tempfile.TemporaryDirectory() as folder:
        hidden = ["--disk", f"{folder}/disk:32MiB", "--profile", slow_to_compute(binary, wide_model, folder), "--hidden", "on"]
        with killed(Server(binary, wide_model, *flags(WIDE_ROOM, *hidden))) as server:
            prompts = [completion(server, question(i, 0), max_tokens=1)["choices"][0]["text"] for i in range(CONVERSATIONS)]
            wait_saved(server)
            before = hidden_blocks(server, "disk_save")
            replies = [completion(server, question(i, 0), max_tokens=150)["choices"][0]["text"] for i in range(CONVERSATIONS)]
            wait_saved(server)
            expect(hidden_blocks(server, "disk_save") >= before + 3 * CONVERSATIONS, "the replies' blocks are hidden states")
            expect(all(reply.startswith(prompt) for prompt, reply in zip(prompts, replies)), "the same replies")
        said = []
        for more in ([], hidden):
            with Server(binary, wide_model, *flags(WIDE_ROOM, *more)) as server:
                if more:
                    wait_recovered(server)
                said.append([completion(server, question(i, 0) + replies[i] + question(i, 1), logprobs=3)["choices"][0]
                             for i in range(CONVERSATIONS)])
                if more:
                    expect(hidden_blocks(server, "disk_load") > 3 * CONVERSATIONS, "they came from the disk")
        expect_equal(said[1], said[0], "what is said behind replies that came back as hidden states")


def test_hidden_states_of_requests_at_once(binary, wide_model):
    with tempfile.TemporaryDirectory() as folder:
        hidden = ["--disk", f"{folder}/disk:32MiB", "--profile", slow_to_compute(binary, wide_model, folder), "--hidden", "on"]
        with Server(binary, wide_model, *flags(WIDE_TIGHT, *hidden)) as server:
            for round_ in range(2):
                expect_same(talk_at_once(server), right(binary, wide_model), f"round {round_}")
            expect(hidden_blocks(server, "disk_load") > 0, "some came as hidden states")


def cut_after_a_restart(binary, model, folder, *more):
    """A conversation outgrows the context on a server that has its state on the disk alone: what is kept is rotated. The
    reply, how much of its prompt was there, and how many blocks came as hidden states."""
    serving = flags(WIDE_ROOM, "--context", "1024", "--context-overflow", "truncate", "--disk", f"{folder}/disk:32MiB",
                    "--profile", slow_to_compute(binary, model, folder), *more)
    messages = []

    def chat(server, content):
        messages.append({"role": "user", "content": content})
        reply = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12, "logprobs": True})
        expect_equal(reply.status, 200, reply.text[:300])
        choice, usage = reply.json["choices"][0], reply.json["usage"]
        messages.append({"role": "assistant", "content": choice["message"]["content"]})
        return usage["prompt_tokens"], usage["prompt_tokens_details"], choice
    with killed(Server(binary, model, *serving)) as server:
        turn, size = 0, 0
        while size < 650:
            size, _, _ = chat(server, question(0, turn))
            turn += 1
        wait_saved(server)
    with Server(binary, model, *serving) as server:
        wait_recovered(server)
        _, details, choice = chat(server, question(0, turn) + question(0, turn + 1))
        expect(details.get("dropped_tokens", 0) > 0, f"it was cut: {details}")
        failures = moved(server, "disk_load", "failures")
        expect(details["cached_tokens"] > 100, f"what was kept came back: {details}, {failures} loads failed")
        return (details, choice), hidden_blocks(server, "disk_load")


def test_hidden_states_at_other_positions(binary, wide_model):
    """The kept part of a history that is cut comes back with the bits that its keys and values have."""
    found = []
    for more in ([], ["--hidden", "on"]):
        with tempfile.TemporaryDirectory() as folder:
            found.append(cut_after_a_restart(binary, wide_model, folder, *more))
    expect_equal(found[1][0], found[0][0], "what is said behind rotated state, in either form")
    expect(found[0][1] == 0 and found[1][1] > 3, f"{found[1][1]} blocks came as hidden states")


def test_hidden_states_that_are_not_smaller(binary, model):
    try:
        with tempfile.TemporaryDirectory() as folder, Server(binary, model, *flags(ROOM, "--disk", f"{folder}/d:16MiB", "--hidden", "on")):
            expect(False, "a server with larger hidden states")
    except AssertionError as error:
        expect("128 bytes" in str(error) and "values 128" in str(error), str(error))


def test_clients_that_leave(binary, model):
    with Server(binary, model, *flags(TIGHT, host=ROOM)) as server:
        leaving = [server.send("/v1/completions", {"prompt": question(9, i), "max_tokens": 200, "stream": True, "ignore_eos": True})
                   for i in range(4)]
        for connection in leaving:
            connection.recv(100)
            connection.close()
        expect_same(talk_at_once(server), right(binary, model), "replies beside clients that left")


def test_grammar_beside_others(binary, model):
    with Server(binary, model, *flags(ROOM)) as server:
        said = []
        beside = threading.Thread(target=lambda: said.extend(talk_at_once(server)), daemon=True)
        beside.start()
        for _ in range(3):
            text = completion(server, "digits: ", max_tokens=40, temperature=1, seed=3,
                              grammar='root ::= "[" [0-9] ("," [0-9]){3} "]"')["choices"][0]["text"]
            expect_equal(len(json.loads(text)), 4, text)
        beside.join()
        expect_same(said, right(binary, model), "replies beside constrained ones")


def test_fast_mode_is_repeatable(binary, model):
    """Without --deterministic the same requests, one at a time, get the same bits."""
    said = []
    for _ in range(2):
        with Server(binary, model, *flags(ROOM, deterministic=False)) as server:
            said.append(talk(server, 0, logprobs=3))
    expect_equal(said[0], said[1], "the same requests, again")


def test_lost_device(binary, model, monkeypatch):
    monkeypatch.setenv("LOCI_SIMULATED_LOST_AFTER", "4000")
    with Server(binary, model, *flags(ROOM)) as server:
        if "simulated" not in server.banner:
            pytest.skip("no way to lose this device")
        for i in range(200):
            reply = server.post("/v1/completions", {"prompt": question(i, 0), "max_tokens": 20, "temperature": 0, "ignore_eos": True})
            if reply.status != 200:
                break
        expect_equal(reply.status, 503, f"the request on which the device was lost ({reply.text[:300]})")
        expect("device is lost" in reply.text, reply.text)
        reply = server.post("/v1/completions", {"prompt": "again", "max_tokens": 2})
        expect_equal(reply.status, 503, f"requests after it ({reply.text[:300]})")
        health = server.get("/health")
        expect_equal(health.status, 503, f"health ({health.text[:300]})")
        expect("device is lost" in health.text, health.text)
        expect("device is lost" in server.log_text(), "the log says it")


def test_no_room(binary, model):
    for memory, wanted in (("1000GiB", "--device-memory"), ("1KiB", "--device-memory")):
        try:
            with Server(binary, model, *flags(memory)):
                expect(False, f"a server with {memory}")
        except AssertionError as error:
            expect(wanted in str(error), f"{memory}: {error}")
