# SPDX-License-Identifier: Apache-2.0
"""Members of a cluster that give one another computed state, without a shared store (docs/cluster.md)."""
import itertools
import os
import signal
import statistics
import time

import pytest

from live_client import Server, expect, expect_equal, first_token_ms, killed, moved, stop_process, wait_saved, wait_until
from live_cluster import Cluster
from postgres_server import find_binaries

FLAGS = ("--threads", "1", "--context", "2048", "--restore", "kv", "--store", "")
BLOCK_TOKENS = 32

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")


class Peers(Cluster):
    """Servers that join a cluster of their own."""

    def __init__(self, binary, model, folder, postgres):
        super().__init__(binary, model, folder, postgres, FLAGS)

    def server(self, *flags, secret=None, memory="4MiB"):
        return super().server("--device-memory", memory, *flags, secret=secret)


def story(number):
    return f"Story {number}. " + "A conversation that is long enough to fill some blocks of thirty-two tokens each. " * 6


def say(server, text, tokens=12):
    """A reply, and the tokens of its prompt by where their state came from."""
    body = {"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "loci": {"explain": True}}
    reply = server.post("/v1/completions", body)
    expect_equal(reply.status, 200, reply.text)
    return reply.json["choices"][0]["text"], reply.json["loci"]["tokens"]


def parts(server, result):
    return server.metrics()[f'loci_peer_parts_total{{result="{result}"}}']


def sum_of(server, name):
    return sum(value for key, value in server.metrics().items() if key.startswith(name))


def knows(server, count=1):
    wait_until(lambda: server.metrics().get('loci_peers{state="up"}') == count, f"it knows {count} peers")


def goes_on_elsewhere(one, other, plain, enough=4 * BLOCK_TOKENS, computed=None, between=lambda: None):
    """What one member has begun another goes on with, until it had so many tokens' state from a peer, and (if that is given) computed
    fewer than so many. A busy machine may keep a peer from answering in time, which costs an attempt; what is said is always what a
    server alone says."""
    end = time.monotonic() + 120
    for number in itertools.count(100):
        text = story(number)
        first = say(one, text)[0]
        expect_equal(first, say(plain, text)[0], "the first turn")
        between()
        text += first + " And then?"
        said, tokens = say(other, text)
        expect_equal(said, say(plain, text)[0], "the next turn elsewhere, and by a server alone")
        if tokens["shared"] >= enough and (computed is None or tokens["computed"] < computed):
            return tokens
        expect(time.monotonic() < end, f"no peer had what it needs within two minutes: {tokens}")
    return None


@pytest.fixture()
def place(binary, tiny_model, tmp_path, postgres):
    return Peers(binary, tiny_model, str(tmp_path), postgres)


@pytest.fixture(scope="module")
def plain(binary, tiny_model):
    with Server(binary, tiny_model, *FLAGS, "--device-memory", "4MiB", "--disk", "none") as server:
        yield server


def test_another_member_goes_on_with_the_conversation(place, plain):
    with place.server("--disk", "none") as one, place.server("--disk", "none") as other:
        knows(one)
        knows(other)
        tokens = goes_on_elsewhere(one, other, plain, computed=3 * BLOCK_TOKENS)  # what is computed is the new turn
        expect(parts(other, "read") * BLOCK_TOKENS >= tokens["shared"], "parts that came from the peer")
        expect(moved(one, "peer_serve") > 0 and moved(other, "shared_load") > 0, "bytes went from one to the other")
        wait_until(lambda: f"shared_tokens={tokens['shared']}" in other.log_text(), "the access log tells")
        expect("peers" in one.banner, one.banner)
        expect("loci_shared_up" not in other.metrics(), "there is no shared store")
        wait_until(lambda: one.metrics()["loci_feed_chunks"] > 0 and one.metrics()["loci_feed_changes_total"] > 0, "it tells what it has")
        # And back: what the other one computed is there for the first.
        goes_on_elsewhere(other, one, plain)
        for server in (one, other):
            wait_until(lambda server=server: not server.metrics()["loci_moves_in_flight"], "nothing is left under way")


def test_state_comes_from_a_members_disk(place, plain):
    with place.server("--disk", place.path("disk") + ":64MiB", memory="300KiB") as one, place.server("--disk", "none") as other:
        knows(other)

        def push_out():
            wait_saved(one)
            for number in range(3):
                say(one, f"Something else, {number}. " + story(number), 2)
        goes_on_elsewhere(one, other, plain, between=push_out)


def test_what_a_member_has_evicted_is_computed(place, plain):
    with place.server("--disk", "none", "--eviction", "lru", memory="300KiB") as one, place.server("--disk", "none") as other:
        knows(other)
        text = story(1)
        first = say(one, text)[0]
        for number in range(2, 6):
            say(one, story(number), 2)
        text += first + " And then?"
        said, tokens = say(other, text)
        expect_equal((said, tokens["shared"]), (say(plain, text)[0], 0), "the next turn of what is gone")


def test_a_member_that_is_stopped_or_killed_is_computed_around(place, plain):
    with killed(place.server("--disk", "none")) as one, place.server("--disk", "none") as other:
        knows(other)
        goes_on_elsewhere(one, other, plain)
        texts = [story(number) for number in range(2)]
        texts = [text + say(one, text)[0] + " And then?" for text in texts]
        stop_process(one.process)
        said, tokens = say(other, texts[0])
        expect_equal((said, tokens["shared"]), (say(plain, texts[0])[0], 0), "with the peer stopped")
        one.process.send_signal(signal.SIGKILL)
        said, tokens = say(other, texts[1])
        expect_equal((said, tokens["shared"]), (say(plain, texts[1])[0], 0), "with the peer dead")
        wait_until(lambda: other.metrics()['loci_peers{state="up"}'] == 0, "it is off the list, or left alone")
        with place.server("--disk", "none") as reborn:
            knows(other)
            goes_on_elsewhere(reborn, other, plain)


def test_a_public_prefix_comes_from_a_member_that_has_it(place, plain, tmp_path):
    """From the start, and later; what is said behind it is what a server alone says."""
    text, later = story(900), story(901)
    file = tmp_path / "public.txt"
    file.write_text(text)
    end = time.monotonic() + 120
    with place.server("--disk", "none", "--public", str(file)) as one:
        expect_equal(one.post("/v1/loci/warm", {"name": "later", "prompt": later}).status, 200, "a second one")
        while True:  # a busy machine may keep a peer from answering in time
            with place.server("--disk", "none", "--public", str(file)) as other:
                at_start, computed = parts(other, "read"), sum_of(other, "loci_computed_tokens_total")
                knows(other)
                expect_equal(other.post("/v1/loci/warm", {"name": "later", "prompt": later}).status, 200, "the second one there")
                for words in (text, later):
                    said, tokens = say(other, words + " And then?")
                    expect_equal(said, say(plain, words + " And then?")[0], "behind a public prefix, and by a server alone")
                    expect(tokens["device"] >= 4 * BLOCK_TOKENS, f"the prefix is there: {tokens}")
                if at_start >= 4 and computed < 3 * BLOCK_TOKENS and parts(other, "read") >= at_start + 4:
                    break
                expect(time.monotonic() < end, f"{at_start} parts were read at the start, {parts(other, 'read')} in all, {computed} tokens computed")


def test_who_takes_no_part_gets_and_gives_nothing(place, plain):
    stranger = place.new_secret("other.secret")
    with place.server("--disk", "none") as one, place.server("--disk", "none", secret=stranger) as other, \
            place.server("--disk", "none", "--peer-port", "none") as apart:
        expect("loci_peers" not in str(sorted(apart.metrics())), "it asks nobody")
        expect("loci_feed_chunks" not in apart.metrics(), "it tells nobody")
        text = story(1)
        text += say(one, text)[0] + " And then?"
        wanted = say(plain, text)[0]
        for server, what in ((other, "another secret"), (apart, "no part")):
            said, tokens = say(server, text)
            expect_equal((said, tokens["shared"]), (wanted, 0), what)
        expect_equal(moved(one, "peer_serve"), 0, "bytes that it gave")


@pytest.mark.measures
def test_next_turn_at_another_member_measured(request, binary, postgres, tmp_path):
    """The next turn of a conversation of 4,000 tokens at a member that has never seen it, with peers and without, in pairs; and
    the next turn where the conversation is. With --measure alone. Only what no load of the machine can explain fails."""
    if not request.config.getoption("--measure"):
        pytest.skip("measures, and takes minutes: --measure")
    place = Peers(binary, request.getfixturevalue("model"), str(tmp_path), postgres)
    flags = ("--threads", str(os.cpu_count() or 1), "--context", "6000", "--device-memory", "256MiB", "--store", "", "--disk", "none")
    join = ("--join", place.url, "--cluster-secret", place.secret)
    text = " ".join(f"On day {i} the keeper of lighthouse {i * 7 % 90} counted {i * 13 % 50} ships." for i in range(250))
    times, tokens, here = {"peers": [], "none": []}, {}, []
    with Server(binary, place.model, *flags, *join) as one:
        first_token_ms(one, text)
        for turn in range(5):
            for name, more in (("peers", ()), ("none", ("--peer-port", "none"))):
                if name == "none" and turn > 1:
                    continue  # it takes long, and is no close call
                with Server(binary, place.model, *flags, *join, *more) as server:
                    first_token_ms(server, "A word first, of the model's pages.")
                    if name == "peers":
                        knows(server)
                    took, tokens[name] = first_token_ms(server, text + f" And then they slept for {turn} days.")
                    times[name].append(took)
                    if name == "peers":
                        size = moved(server, "shared_load")
            here.append(first_token_ms(one, text + f" And then the storm came {turn} times.")[0])
    peers, none, warm = (statistics.median(one) for one in (times["peers"], times["none"], here))
    print(f"\n      {sum(tokens['peers'].values())} tokens, {tokens['peers']['shared']} of them from the peer ({size / 2**20:.0f} MiB), "
          f"{tokens['peers']['computed']} computed: first token {peers:.0f} ms ({min(times['peers']):.0f}-{max(times['peers']):.0f}) with "
          f"peers, {none:.0f} ms ({min(times['none']):.0f}-{max(times['none']):.0f}) without; where the conversation is {warm:.0f} ms "
          f"({min(here):.0f}-{max(here):.0f})")
    expect(tokens["peers"]["shared"] > 0, f"{tokens}")
    expect(peers < none, f"{peers:.0f} ms with peers, {none:.0f} ms without")
