# SPDX-License-Identifier: Apache-2.0
"""Prompts and replies on separate servers: a prefill member, a decode member and a front (docs/cluster.md)."""
import contextlib
import json
import random
import re
import signal
import threading

import pytest

from live_client import Keys, Server, expect, expect_equal, killed, moved, stop_process, wait_until
from live_cluster import Cluster
from postgres_server import Postgres, find_binaries

FLAGS = ("--threads", "1", "--device-memory", "192MiB", "--context", "4096")
WORDS = "the river ran past old stone houses while people talked about weather bread music ships winter gardens and distant hills".split()
COUNT = 800  # words of a prompt: as many tokens, and more than 4 KiB

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")


class Roles(Cluster):
    """A cluster of one prefill and one decode member behind a front; and a server that is alone."""

    def __init__(self, binary, model, folder, postgres, stack):
        super().__init__(binary, model, folder, postgres, FLAGS)
        self.stack, self.keys = stack, Keys(binary)
        self.key = {name: self.keys.add(name, *flags) for name, flags in (("free", ()), ("limited", ()))}
        self.keys.append("[tenants.limited]\ntokens_per_minute = 1000\n")
        keys = ("--api-keys", self.keys.path)
        self.decode = stack.enter_context(self.server("--role", "decode", *keys))
        self.prefill = self.new_prefill()
        self.alone = stack.enter_context(Server(binary, model, *FLAGS, "--store", self.path("alone.db"), *keys))
        self.route = stack.enter_context(self.front())
        self.wait_for_feeds()

    def new_prefill(self):
        return self.stack.enter_context(killed(self.server("--role", "prefill", "--api-keys", self.keys.path)))

    def wait_for_feeds(self):
        """Until the front reads what both members have, and the decode member knows the other one."""
        wait_until(lambda: self.route.metrics()['loci_front_feeds{state="read"}'] == 2, "the front reads of two")
        wait_until(lambda: self.decode.metrics().get('loci_peers{state="up"}') == 1, "they know each other")

    def ask(self, server, path, body, tenant="free"):
        return server.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {self.key[tenant]}"})

    def failures(self):
        return sum(self.prefills(result) for result in ("refused", "late", "unreached", "lost"))

    def prefills(self, result="done"):
        return self.route.metrics()[f'loci_front_prefills_total{{result="{result}"}}']


@pytest.fixture(scope="module")
def place(binary, model, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(Postgres())
        yield Roles(binary, model, str(tmp_path_factory.mktemp("roles")), postgres, stack)


def story(number, count=COUNT):
    return f"Story {number}. " + " ".join(random.Random(number).choices(WORDS, k=count)) + ". What follows?"


def completion(number, **fields):
    return {"prompt": story(number), "max_tokens": 12, "temperature": 0, "ignore_eos": True, "loci": {"explain": True}, **fields}


def said(reply):
    expect_equal(reply.status, 200, reply.text)
    return reply.json["choices"][0]["text"], reply.json["loci"]["tokens"]


def test_members_say_their_role(place):
    members = place.members()
    for server, role in ((place.prefill, "prefill"), (place.decode, "decode")):
        expect(re.search(rf"serving +{role} ", members[server.port]), members[server.port])
    ended = place.command("serve", place.model, "--port", "0", "--disk", "none", *FLAGS, "--join", place.url, "--cluster-secret",
                          place.secret, "--role", "prefill", "--peer-port", "none")
    expect(ended.returncode == 1 and "--role" in ended.stderr and "peer_port" in ended.stderr, ended.stderr)


def test_a_prompt_is_computed_at_one_and_the_reply_at_the_other(place):
    reply = place.ask(place.route, "/v1/completions", completion(1))
    text, tokens = said(reply)
    expect_equal(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "what was kept from before")
    expect_equal(text, said(place.ask(place.alone, "/v1/completions", completion(1)))[0], "the reply, and by a lone server")
    expect_equal(place.prefills(), 1, "prompts that the prefill member computed")
    expect(tokens["shared"] > 600 and tokens["computed"] < 64, f"its state came from there: {tokens}")
    expect(moved(place.prefill, "peer_serve") > 0 and moved(place.decode, "shared_load") > 0, "bytes went from one to the other")
    expect("prefill=done" in place.decode.log_text(), "the access log of the decode member")
    wait_until(lambda: "prefill=done" in place.route.log_text(), "and that of the front")
    # The decode member has it now.
    again = said(place.ask(place.route, "/v1/completions", completion(1)))
    expect_equal((again[0], place.prefills()), (text, 1), "the same once more")
    expect(again[1]["shared"] == 0 and again[1]["device"] > 600, again[1])


def test_state_is_read_while_the_rest_is_computed(place):
    body = completion(9, prompt=story(9, 4 * COUNT))
    reply = place.ask(place.route, "/v1/completions", body)
    text, tokens = said(reply)
    expect_equal(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "what was kept from before")
    expect_equal(text, said(place.ask(place.alone, "/v1/completions", body))[0], "the reply, and by a lone server")
    expect(tokens["shared"] > 4 * COUNT - 200 and tokens["computed"] < 64, f"its state came from there: {tokens}")
    found = re.compile(r"prefill_early=(\d+)")
    wait_until(lambda: found.search(place.decode.log_text()), "some of it before all was computed, says the decode member's log")
    expect(int(found.search(place.decode.log_text())[1]) >= 256, place.decode.log_text())


def test_every_api_that_generates(place):
    def of_responses(server, stream):
        conversation = place.ask(server, "/v1/conversations", {}).json["id"]
        texts = []
        for turn in range(2):
            reply = place.ask(server, "/v1/responses", {"conversation": conversation, "input": story(20 + turn + 5 * stream),
                                                        "max_output_tokens": 6, "temperature": 0})
            expect_equal(reply.status, 200, reply.text)
            texts.append(reply.json["output"][-1]["content"][0]["text"])
        return texts

    def of(path, **fields):
        def send(server, stream):
            messages = [{"role": "user", "content": story(30 + len(path) + 3 * stream)}]
            reply = place.ask(server, path, {"model": "default", "messages": messages, "max_tokens": 6, "temperature": 0, "stream": stream,
                                             **fields})
            expect_equal(reply.status, 200, reply.text)
            expect(stream == ("data: " in reply.text), reply.text)
            return re.findall(r'"(?:content|text)":"((?:[^"\\]|\\.)*)"', reply.text)
        return send
    for number, send in enumerate((of("/v1/chat/completions"), of("/v1/messages"), of_responses)):
        before = place.prefills()
        texts = send(place.route, number == 0)
        expect_equal(texts, send(place.alone, number == 0), "what was said, and by a lone server")
        expect(texts and place.prefills() >= before + 1, "the prompt was computed at the prefill member")
    before = place.prefills()
    several = {"prompt": [story(1, COUNT // 2), story(2, COUNT // 2)], "max_tokens": 1}
    expect_equal(place.ask(place.route, "/v1/completions", several).status, 200, "several prompts in one request")
    expect_equal(place.prefills(), before, "which are all computed at the decode member")


def computed(server):
    """Tokens that its model has computed."""
    return sum(value for name, value in server.metrics().items() if name.startswith("loci_computed_tokens_total"))


def test_a_tenant_is_counted_at_the_decode_member_alone(place):
    said(place.ask(place.route, "/v1/completions", completion(40), "limited"))
    expect_equal(place.prefill.metrics().get("loci_request_prompt_tokens_count", 0), 0, "prompts of clients at the prefill member")
    wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 0, "it has nothing to do")
    before = place.prefills(), place.failures(), computed(place.prefill)
    expect(before[0] > 0 and before[2] > 0, f"it has computed some: {before}")
    refused = place.ask(place.route, "/v1/completions", completion(41), "limited")
    expect_equal(refused.status, 429, "a prompt beyond the tenant's limit")
    expect_equal((place.prefills(), place.failures(), computed(place.prefill)), before, "nobody computes what is refused")
    # Who asks a member directly names nobody.
    headers = {"Authorization": f"Bearer {place.key['free']}", "Loci-Prefill": f"127.0.0.1 1 1000 {'0' * 64}"}
    alone = place.decode.request("POST", "/v1/completions", json.dumps(completion(42)), headers)
    expect_equal(said(alone)[1]["shared"], 0, "what came from a peer")
    expect(alone.headers.get("Loci-Prefill") is None, "nobody was asked")


def test_a_prefill_member_that_is_silent_costs_time_alone(place):
    failed, outcome = place.prefills("lost"), []
    prompt = {"prompt": story(45, 2 * COUNT)}
    asks = threading.Thread(target=lambda: outcome.append(place.ask(place.route, "/v1/completions", completion(45, **prompt))), daemon=True)
    asks.start()
    try:
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 1, "it computes the prompt")
        stop_process(place.prefill.process)
        asks.join()
    finally:
        place.prefill.process.send_signal(signal.SIGCONT)
    text, _ = said(outcome[0])
    expect_equal(text, said(place.ask(place.alone, "/v1/completions", completion(45, **prompt)))[0], "the reply")
    expect_equal(place.prefills("lost"), failed + 1, "prompts that were lost")
    wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 0, "it gives up what nobody waits for")
    place.wait_for_feeds()


def test_what_kills_the_prefill_member_costs_time_alone(place):
    failed, outcome = place.prefills("lost"), []
    asks = threading.Thread(target=lambda: outcome.append(place.ask(place.route, "/v1/completions", completion(50, prompt=story(50, 3 * COUNT)))), daemon=True)
    asks.start()
    try:
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 1, "it computes the prompt")
        place.prefill.process.send_signal(signal.SIGKILL)
    finally:
        asks.join()
    text, tokens = said(outcome[0])
    expect_equal(tokens["shared"], 0, "the decode member has computed all of it")
    expect_equal(place.prefills("lost"), failed + 1, "prompts that were lost")
    expect_equal(text, said(place.ask(place.alone, "/v1/completions", completion(50, prompt=story(50, 3 * COUNT))))[0], "the reply")
    # Nobody is there for the next one, and then another member is.
    failures = place.failures()
    wait_until(lambda: place.route.metrics()['loci_front_feeds{state="read"}'] == 1, "the front forgets it")
    said(place.ask(place.route, "/v1/completions", completion(51)))
    expect_equal(place.failures(), failures, "nobody was asked")
    done = place.prefills()
    place.prefill = place.new_prefill()
    place.wait_for_feeds()
    said(place.ask(place.route, "/v1/completions", completion(52)))
    expect_equal(place.prefills(), done + 1, "prompts that another prefill member computes")


def test_a_prefill_member_answers_where_nobody_else_lives(place):
    member = place.members()[place.decode.port].split()[0]
    expect_equal(place.cluster("--drain", member).returncode, 0, "the decode member is to drain")
    place.route.wait_for(1)
    reply = place.ask(place.route, "/v1/completions", completion(60, prompt="Hello"))
    said(reply)
    expect_equal(reply.headers["X-Loci-Member"], place.members()[place.prefill.port].split()[0], "who answers")


def test_a_decode_member_that_stops_hands_on_who_waits(place):
    """(The other decode member is draining, so the prefill member answers.)"""
    outcome = []
    with place.server("--role", "decode", "--api-keys", place.keys.path) as second:
        wait_until(lambda: place.route.metrics()['loci_front_instances{state="serving"}'] == 2, "the front knows it")
        wait_until(lambda: second.metrics().get('loci_peers{state="up"}', 0) == 2, "it knows its peers")
        wait_until(lambda: place.route.metrics()['loci_front_feeds{state="read"}'] == 3, "the front reads of all")
        prompt = story(70, 3 * COUNT)
        asks = threading.Thread(target=lambda: outcome.append(place.ask(place.route, "/v1/completions", completion(70, prompt=prompt))), daemon=True)
        asks.start()
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 1, "the prompt is computed")
        expect_equal(second.metrics()["loci_requests_running"], 0, "requests at the decode member")
        second.process.send_signal(signal.SIGTERM)
        asks.join()
        expect_equal(second.process.wait(20), 0, "its exit")
    text, _ = said(outcome[0])
    expect_equal(text, said(place.ask(place.alone, "/v1/completions", completion(70, prompt=prompt)))[0], "the reply")
