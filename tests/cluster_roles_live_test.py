# SPDX-License-Identifier: Apache-2.0
"""Prompts and replies on separate servers: a prefill member, a decode member and a front (docs/cluster.md)."""
import concurrent.futures
import contextlib
import copy
import itertools
import json
import random
import re
import signal
import time

import pytest

from live_client import Keys, Server, expect, expect_equal, killed, moved, stop_process, wait_until
from live_cluster import Cluster
from live_members import listed, name_of
from postgres_server import Postgres, find_binaries

FLAGS = ("--threads", "1", "--device-memory", "192MiB", "--context", "4096")
# Long words, each a token: what a front hands over has more than 4 KiB, and what it costs follows from the tokens.
WORDS = ("information development international government understanding environmental communication relationship traditional temperature "
         "opportunities agricultural independence significant professional organization community technology education experience").split()
COUNT = 360  # words of a prompt: about as many tokens, and more than 4 KiB
NUMBERS = itertools.count(1)  # of stories: nobody has seen the next one

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")


class Roles(Cluster):
    """A cluster of one prefill and one decode member behind two fronts, and a server that is alone.

    The first front hands over each prompt, and waits as long as a front ever does: what is handed over does not hang on
    what a busy machine's members say that they cost. The second one predicts (predicting())."""

    def __init__(self, binary, model, folder, postgres, stack):
        super().__init__(binary, model, folder, postgres, FLAGS)
        self.stack, self.keys = stack, Keys(binary)
        self.key = {name: self.keys.add(name, *flags) for name, flags in (("free", ()), ("limited", ()))}
        self.keys.append(f"[tenants.limited]\ntokens_per_minute = {COUNT + 100}\n")
        keys = ("--api-keys", self.keys.path)
        self.decode = stack.enter_context(self.server("--role", "decode", *keys))
        self.prefill = self.new_prefill()
        self.alone = stack.enter_context(Server(binary, model, *FLAGS, "--store", self.path("alone.db"), *keys))
        self.route = stack.enter_context(self.handing_front())
        self.predicts = stack.enter_context(self.front())
        self.wait_for_members()

    def handing_front(self):
        return self.front("--handover", "always", "--policy", "prompt-tree")

    def predicting(self):
        """The same place, whose front hands over what is predicted to be sooner there."""
        other = copy.copy(self)
        other.route = self.predicts
        return other

    def new_prefill(self):
        return self.stack.enter_context(killed(self.server("--role", "prefill", "--api-keys", self.keys.path)))

    def wait_for_members(self):
        """Until both fronts know both members, one reads what they have, and the decode member knows the other one."""
        self.route.wait_for(2)
        wait_until(lambda: self.predicts.metrics()['loci_front_feeds{state="read"}'] == 2, "the front reads of two")
        wait_until(lambda: self.decode.metrics().get('loci_peers{state="up"}') == 1, "they know each other")

    def ask(self, server, path, body, tenant="free"):
        return server.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {self.key[tenant]}"})

    def look(self, server, path, method="GET"):
        reply = server.request(method, path, headers={"Authorization": f"Bearer {self.key['free']}"})
        expect_equal(reply.status, 200, reply.text)
        return reply.json

    def failures(self):
        return sum(self.prefills(result) for result in ("refused", "late", "quiet", "unreached", "lost"))

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


def stories_until(what):
    """Numbers of new stories, until `what` has happened. A busy machine may keep a member from answering in time, which costs an
    attempt and a pause; what is said is always what a lone server says."""
    end = time.monotonic() + 120
    for tries in itertools.count(1):
        yield next(NUMBERS)
        expect(tries < 10 or time.monotonic() < end, f"not with {tries} stories: {what}")


def both(place, send):
    """What send() says of the front and of the lone server. They compute at the same time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(send, (place.route, place.alone)))


def goes_on(place, number, count=COUNT, act=None, front=None):
    """The reply to a story, which a lone server gives too, through the front. act(): called once the prefill member computes the
    story, if it was seen to do so."""
    body = completion(number, prompt=story(number, count))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # the lone server computes it at the same time
        asked = pool.submit(place.ask, front or place.route, "/v1/completions", body)
        alone = pool.submit(place.ask, place.alone, "/v1/completions", body)
        if act:
            wait_until(lambda: place.prefill.metrics()["loci_requests_running"] > 0 or asked.done(), "it computes the prompt")
            act()
    expect_equal(said(asked.result())[0], said(alone.result())[0], "the reply, and by a lone server")
    return asked.result()


def until_read(place, count=COUNT, enough=lambda tokens, line: True):
    """A story whose state came from the prefill member: its number, and what enough() was asked of: the tokens of its prompt and
    the decode member's access line."""
    lines = re.compile(r".*prefill=done.*")
    for number in stories_until("the prefill member's state is read"):
        done, logged = place.prefills(), len(lines.findall(place.decode.log_text()))
        reply = goes_on(place, number, count)
        tokens, kept = said(reply)[1], reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
        print(f"story {number}: {tokens}, kept from before: {kept}")
        # (Where the request begins once more, there is state from before.)
        if place.prefills() == done or tokens["shared"] < 3 * count // 4 or tokens["computed"] >= 64 or kept > 0:
            continue
        expect_equal(place.prefills(), done + 1, "prompts that the prefill member computed")
        wait_until(lambda: len(lines.findall(place.decode.log_text())) > logged, "the access log of the decode member")
        line = lines.findall(place.decode.log_text())[-1]
        if enough(tokens, line):
            return number, reply


def test_members_say_their_role(place):
    members = listed(place, place.prefill, place.decode)
    for server, role in ((place.prefill, "prefill"), (place.decode, "decode")):
        expect(re.search(rf"serving +{role} ", members[server.port]), members[server.port])
    ended = place.command("serve", place.model, "--port", "0", "--disk", "none", *FLAGS, "--join", place.url, "--cluster-secret",
                          place.secret, "--role", "prefill", "--peer-port", "none")
    expect(ended.returncode == 1 and "--role" in ended.stderr and "peer_port" in ended.stderr, ended.stderr)


def test_a_prompt_is_computed_at_one_and_the_reply_at_the_other(place):
    place = place.predicting()
    number, reply = until_read(place)
    expect(moved(place.prefill, "peer_serve") > 0 and moved(place.decode, "shared_load") > 0, "bytes went from one to the other")
    wait_until(lambda: "prefill=done" in place.route.log_text(), "the access log of the front")
    # The decode member has it now.
    done = place.prefills()
    again = said(place.ask(place.route, "/v1/completions", completion(number)))
    expect_equal((again[0], place.prefills()), (said(reply)[0], done), "the same once more")
    expect(again[1]["shared"] == 0 and again[1]["device"] > 3 * COUNT // 4, again[1])


def test_state_is_read_while_the_rest_is_computed(place):
    def is_early(_, line):
        early = re.search(r"prefill_early=(\d+)", line)
        return early and int(early[1]) >= 256
    until_read(place, 4 * COUNT, is_early)


def test_every_api_that_generates(place):
    def of_responses(server, number, _):
        conversation = place.ask(server, "/v1/conversations", {}).json["id"]
        texts = []
        for turn in range(2):
            reply = place.ask(server, "/v1/responses", {"conversation": conversation, "input": story(f"{number}, part {turn}"),
                                                        "max_output_tokens": 6, "temperature": 0})
            expect_equal(reply.status, 200, reply.text)
            texts.append(reply.json["output"][-1]["content"][0]["text"])
        return texts

    def of(path):
        def send(server, number, stream):
            messages = [{"role": "user", "content": story(number)}]
            reply = place.ask(server, path, {"model": "default", "messages": messages, "max_tokens": 6, "temperature": 0, "stream": stream})
            expect_equal(reply.status, 200, reply.text)
            expect(stream == ("data: " in reply.text), reply.text)
            return re.findall(r'"(?:content|text)":"((?:[^"\\]|\\.)*)"', reply.text)
        return send
    for send, stream in ((of("/v1/chat/completions"), True), (of("/v1/messages"), False), (of_responses, False)):
        for number in stories_until("the prompt is computed at the prefill member"):
            before = place.prefills()
            texts, alone = both(place, lambda server, number=number: send(server, number, stream))
            expect_equal(texts, alone, "what was said, and by a lone server")
            expect(texts, "something was said")
            if place.prefills() > before:
                break


def test_several_prompts_of_one_request(place):
    place = place.predicting()
    for number in stories_until("the long ones are computed at the prefill member"):
        done, there = place.prefills(), computed(place.prefill)
        first, second = (story(f"{number}, {which}", 3 * COUNT) for which in ("first", "second"))
        body = completion(number, prompt=[first, "Hello", second, first + " Why?"], n=2)
        reply, alone = both(place, lambda server, body=body: place.ask(server, "/v1/completions", body))
        expect_equal(reply.status, 200, reply.text)
        alone = alone.json
        expect_equal([one["text"] for one in reply.json["choices"]], [one["text"] for one in alone["choices"]], "the replies, and a lone server's")
        expect_equal(reply.json["usage"]["prompt_tokens"], alone["usage"]["prompt_tokens"], "tokens of the prompts")
        tokens, there = reply.json["loci"]["tokens"], computed(place.prefill) - there
        print(f"{tokens}, of which it has computed {there}")
        if place.prefills() > done and tokens["shared"] > 5 * COUNT and tokens["computed"] < 256:
            break
    expect_equal(place.prefills(), done + 1, "requests that were handed over")
    expect(there < 8 * COUNT, f"what begins like another one is computed once: {there}")
    body = {"prompt": [story(next(NUMBERS), COUNT // 2) for _ in range(3)], "max_tokens": 1}
    expect_equal(place.ask(place.route, "/v1/completions", body).status, 200, "several short prompts")
    expect_equal(place.prefills(), done + 1, "which are all computed at the decode member")


def in_background(place, number, count=COUNT):
    """The id of a response that was begun in the background, and what a lone server says."""
    body = {"input": story(number, count), "max_output_tokens": 8, "temperature": 0}
    reply = place.ask(place.route, "/v1/responses", {**body, "background": True})
    expect_equal(reply.status, 200, reply.text)
    expect_equal(reply.json["status"], "queued", "its status")
    return reply.json["id"], lambda: spoken(place.ask(place.alone, "/v1/responses", body).json)


def spoken(response):
    expect(response["status"] in ("completed", "incomplete"), response)
    return response["output"][-1]["content"][0]["text"]


def has_ended(place, name):
    return place.look(place.route, f"/v1/responses/{name}")["status"] not in ("queued", "in_progress")


def ended(place, name):
    wait_until(lambda: has_ended(place, name), "the response's end")
    return place.look(place.route, f"/v1/responses/{name}")


def test_a_response_in_the_background(place):
    for number in stories_until("its prompt is computed at the prefill member"):
        untold, lines = place.prefills("untold"), place.decode.log_text().count("prefill=done")
        name, alone = in_background(place, number)
        expect_equal(spoken(ended(place, name)), alone(), "what was said, and by a lone server")
        if place.prefills("untold") > untold and place.decode.log_text().count("prefill=done") > lines:
            return


def test_who_cancels_a_response_in_the_background_ends_its_prompt(place):
    for number in stories_until("it is cancelled while the prefill member computes"):
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 0, "it has nothing to do")
        there = computed(place.prefill)
        name, _ = in_background(place, number, 6 * COUNT)
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] > 0 or has_ended(place, name), "it computes the prompt")
        status = place.look(place.route, f"/v1/responses/{name}/cancel", "POST")["status"]
        expect_equal(status, ended(place, name)["status"], "its status, which stays")
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 0, "it gives up what nobody waits for")
        wait_until(lambda: place.route.metrics()["loci_front_requests_running"] == 0, "the front counts it no more")
        if status == "cancelled" and 0 < computed(place.prefill) - there < 5 * COUNT:
            return


def computed(server):
    """Tokens that its model has computed."""
    return sum(value for name, value in server.metrics().items() if name.startswith("loci_computed_tokens_total"))


def test_a_tenant_is_counted_at_the_decode_member_alone(place):
    until_read(place)
    for number in stories_until("a prompt is beyond the tenant's limit"):  # of a minute, which must not pass between two of them
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 0, "it has nothing to do")
        before = place.prefills(), place.failures(), computed(place.prefill)
        expect(before[0] > 0 and before[2] > 0, f"it has computed some: {before}")
        refused = place.ask(place.route, "/v1/completions", completion(number), "limited")
        if refused.status != 200:
            break
    expect_equal(refused.status, 429, "a prompt beyond the tenant's limit")
    expect_equal((place.prefills(), place.failures(), computed(place.prefill)), before, "nobody computes what is refused")
    expect_equal(place.prefill.metrics().get("loci_request_prompt_tokens_count", 0), 0, "prompts of clients at the prefill member")
    # Who asks a member directly names nobody.
    headers = {"Authorization": f"Bearer {place.key['free']}", "Loci-Prefill": f"127.0.0.1 1 1000 300 {'0' * 64}"}
    alone = place.decode.request("POST", "/v1/completions", json.dumps(completion(next(NUMBERS))), headers)
    # (The tokens that all stories begin with may be on their way to another one just then.)
    expect(said(alone)[1]["shared"] < 32, f"nothing came from a peer: {said(alone)[1]}")
    expect(alone.headers.get("Loci-Prefill") is None, "nobody was asked")


def test_a_prefill_member_that_is_silent_costs_time_alone(place):
    for number in stories_until("a member is quiet"):
        quiet = place.prefills("quiet")
        try:
            goes_on(place, number, 4 * COUNT, lambda: stop_process(place.prefill.process))
        finally:
            place.prefill.process.send_signal(signal.SIGCONT)
        wait_until(lambda: place.prefill.metrics()["loci_requests_running"] == 0, "it gives up what nobody waits for")
        place.wait_for_members()
        if place.prefills("quiet") > quiet:
            expect_equal(place.prefills("quiet"), quiet + 1, "prompts that the member was quiet about")
            return


def test_what_kills_the_prefill_member_costs_time_alone(place):
    for number in stories_until("a prompt is lost"):
        lost = place.prefills("lost")
        reply = goes_on(place, number, 6 * COUNT, lambda: place.prefill.process.send_signal(signal.SIGKILL))
        # Nobody is there for the next one, and then another member is.
        place.route.wait_for(1)
        failures = place.failures()
        goes_on(place, next(NUMBERS))
        expect_equal(place.failures(), failures, "nobody was asked")
        place.prefill = place.new_prefill()
        place.wait_for_members()
        if place.prefills("lost") > lost:
            break
    expect_equal(place.prefills("lost"), lost + 1, "prompts that were lost")
    tokens = said(reply)[1]
    expect(tokens["computed"] > 0, f"the decode member has computed what it had not read: {tokens}")
    expect_equal(sum(tokens.values()), reply.json["usage"]["prompt_tokens"], "tokens of the prompt")
    until_read(place)  # from the new member


@contextlib.contextmanager
def decode_draining(place):
    """Meanwhile the decode member takes nothing new."""
    member = name_of(place, place.decode, place.prefill)
    expect_equal(place.cluster("--drain", member).returncode, 0, "the decode member is to drain")
    place.route.wait_for(1)
    try:
        yield
    finally:
        expect_equal(place.cluster("--undrain", member).returncode, 0, "it is to serve again")
        place.wait_for_members()


def test_a_prefill_member_answers_where_nobody_else_lives(place):
    with decode_draining(place):
        reply = place.ask(place.route, "/v1/completions", completion(next(NUMBERS), prompt="Hello"))
        said(reply)
        expect_equal(reply.headers["X-Loci-Member"], name_of(place, place.prefill, place.decode), "who answers")


def test_a_decode_member_that_stops_hands_on_who_waits(place):
    """(The other decode member is draining, so the prefill member answers. A front that has seen the prefill member fail passes it over
    for up to half a minute.)"""
    with decode_draining(place):
        for number in stories_until("who waits is handed on"):
            with place.server("--role", "decode", "--api-keys", place.keys.path) as second, place.handing_front() as front:
                front.wait_for(2)
                wait_until(lambda: second.metrics().get('loci_peers{state="up"}', 0) == 2, "it knows its peers")
                reply = goes_on(place, number, 6 * COUNT, second.process.terminate, front)
                expect_equal(second.process.wait(120), 0, "its exit")
            if reply.headers["X-Loci-Member"] == name_of(place, place.prefill, place.decode):
                return


def test_a_decode_member_that_stops_ends_its_responses_in_the_background(place):
    """No front gives them to another one. (The first decode member is draining.)"""
    with decode_draining(place):
        for number in stories_until("one waits for its prompt"):
            with place.server("--role", "decode", "--api-keys", place.keys.path) as second:
                place.route.wait_for(2)
                wait_until(lambda: second.metrics().get('loci_peers{state="up"}', 0) == 2, "it knows its peers")
                untold = place.prefills("untold")
                name, alone = in_background(place, number, 6 * COUNT)
                waits = place.prefills("untold") > untold and not re.search("prefill=", second.log_text())
                second.process.terminate()
                expect_equal(second.process.wait(120), 0, "its exit")
                expect_equal(spoken(ended(place, name)), alone(), "what was said, and by a lone server")
            if waits:
                return
