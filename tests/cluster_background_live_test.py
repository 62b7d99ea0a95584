# SPDX-License-Identifier: Apache-2.0
"""Responses in the background, and conversations without a store, through any of several fronts; and what becomes of such
responses when their server ends."""
import contextlib
import itertools
import json
import signal
import time

import pytest

from live_client import Server, expect, expect_equal, killed, stop_process, wait_until
from live_cluster import FLAGS, Cluster
from postgres_server import find_binaries

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")

ENDED = {"code": "server_error", "message": "the server ended before the response was finished"}


@pytest.fixture(scope="module")
def behind(binary, tiny_model, tmp_path_factory, postgres):
    """Three fronts of two members."""
    place = Cluster(binary, tiny_model, str(tmp_path_factory.mktemp("behind")), postgres)
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(place.server()) for _ in range(2)]
        fronts = [stack.enter_context(place.front()) for _ in range(3)]
        for front in fronts:
            front.wait_for(2)
        yield fronts, members


def begin(server, text="Long?", tokens=900):
    """The name of a response in the background, and who makes it, where a front says that."""
    reply = server.post("/v1/responses", {"input": text, "background": True, "max_output_tokens": tokens, "ignore_eos": True})
    expect_equal(reply.status, 200, reply.text)
    return reply.json["id"], reply.headers.get("X-Loci-Member")


def status(server, response):
    return server.get(f"/v1/responses/{response}").json["status"]


def events(reply):
    return [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: ")]


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def redirected(front):
    return front.metrics()["loci_front_redirects_total"]


def until_redirected(fronts, ask):
    """Begins responses through the first front, and asks of each through the second: until that one asked the other member first and
    `ask` saw what it was to see, which it returns."""
    for number in itertools.count():
        expect(number < 30, "the second front never asked the wrong member first")
        name, member = begin(fronts[0], f"Story {number}?")
        before = redirected(fronts[1])
        has_seen = ask(name, member)
        if has_seen and redirected(fronts[1]) > before:
            return


def test_a_stream_is_read_through_another_front(behind):
    fronts, _ = behind

    def read(name, member):
        stream = fronts[1].get(f"/v1/responses/{name}?stream=true")
        expect_equal((stream.status, stream.headers["X-Loci-Member"]), (200, member), stream.text[:300])
        expect("Loci-Owner" not in stream.headers, "what is between fronts and members")
        said = events(stream)
        expect_equal([event["sequence_number"] for event in said], list(range(len(said))), "all events")
        whole = fronts[2].get(f"/v1/responses/{name}").json
        expect_equal(said[-1]["response"]["output"], whole["output"], "the end of the stream, and what is stored")
        deltas = "".join(event["delta"] for event in said if event["type"] == "response.output_text.delta")
        expect_equal(deltas, text_of(whole), "what the events say")
        # It has ended: only its server has its events.
        again = fronts[2].get(f"/v1/responses/{name}?stream=true&starting_after=1")
        expect_equal(again.status, 200, again.text)
        expect_equal(events(again), said[2:], "the events, once more")
        return True
    until_redirected(fronts, read)


def test_it_is_cancelled_and_deleted_through_another_front(behind):
    fronts, _ = behind

    def cancel(name, member):
        reply = fronts[1].request("POST", f"/v1/responses/{name}/cancel")
        if reply.status == 400:  # it had ended
            expect("incomplete" in reply.text, reply.text)
            return False
        expect_equal((reply.status, reply.json["status"], reply.headers["X-Loci-Member"]), (200, "cancelled", member), reply.text)
        expect_equal(status(fronts[2], name), "cancelled", "what is stored")
        again = fronts[2].request("POST", f"/v1/responses/{name}/cancel")
        expect_equal((again.status, again.json["status"]), (200, "cancelled"), "once more")
        return True
    until_redirected(fronts, cancel)

    def delete(name, _):
        reply = fronts[1].request("DELETE", f"/v1/responses/{name}")
        expect_equal((reply.status, reply.json["deleted"]), (200, True), reply.text)
        expect_equal(fronts[2].get(f"/v1/responses/{name}").status, 404, "it does not come back")
        return True
    until_redirected(fronts, delete)


def test_a_member_says_who_makes_a_response(behind):
    _, members = behind
    for method, query in (("GET", "?stream=true"), ("POST", "/cancel"), ("DELETE", "")):
        for number in range(20):  # until the response had not ended before it was asked after
            name, _ = begin(members[0], f"Tale {number}?")
            reply = members[1].request(method, f"/v1/responses/{name}{query}")
            if reply.status == 409:
                break
        expect_equal((reply.status, reply.json["error"]["code"]), (409, "response_running"), f"{method} {query}: {reply.text}")
        expect(reply.headers["Loci-Owner"], "the other member is named")
    other = members[1].get("/v1/responses/resp_none?stream=true")
    expect_equal((other.status, other.headers.get("Loci-Owner")), (404, None), "what nobody has")


def test_what_another_member_deleted_is_not_streamed(behind):
    """Its maker keeps its events for a while."""
    _, members = behind
    name, _ = begin(members[0], tokens=4)
    wait_until(lambda: status(members[1], name) == "incomplete", "it has ended")
    expect_equal(members[0].get(f"/v1/responses/{name}?stream=true").status, 200, "its events, while it is there")
    expect_equal(members[1].request("DELETE", f"/v1/responses/{name}").status, 200, "its deletion at the other member")
    for _ in range(2):
        expect_equal(members[0].get(f"/v1/responses/{name}?stream=true").status, 404, "its events")


def test_whose_member_was_killed_is_failed(fresh):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(fresh.server())
        fronts = [stack.enter_context(fresh.front()) for _ in range(2)]
        for _ in range(10):  # until the response had not ended before its server
            with killed(fresh.server()) as member:
                for front in fronts:
                    front.wait_for(2)
                name, _ = begin(member)
            if status(other, name) != "incomplete":
                break
        for front in fronts:
            for method, path in (("GET", f"/v1/responses/{name}?stream=true"), ("POST", f"/v1/responses/{name}/cancel")):
                reply = front.request(method, path)
                expect(reply.status in (400, 409), f"{method} {path}: {reply.text}")
        wait_until(lambda: status(fronts[0], name) == "failed", "it has failed")
        refused = fronts[1].request("POST", f"/v1/responses/{name}/cancel")
        expect(refused.status == 400 and "it is failed" in refused.json["error"]["message"], refused.text)


FAILED_SECONDS = 10  # what a dead server left has failed by then, where the machine has time for those that live
LOOK_SECONDS, BUSY_SECONDS = 0.5, 1


def until_failed(server, names, since):
    """The seconds since then until all of them had failed, and, apart from these, those that looks took too long: what the machine did
    for others, or did not do for the server and its database."""
    seconds, busy = 0, 0
    while True:
        states = {status(server, name) for name in names}
        now = time.monotonic()
        seconds += min(now - since, LOOK_SECONDS)
        busy += max(0, now - since - LOOK_SECONDS)
        if states == {"failed"}:
            return seconds, busy
        expect(seconds + busy < 120, f"they have not failed: {states}")
        since = now
        time.sleep(0.1)


def test_background_responses_of_a_dead_member_fail_within_ten_seconds(fresh):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(fresh.server())
        was_busy = False
        for _ in range(10):  # until no response had ended before its server, and the machine had time
            member, paused = (stack.enter_context(killed(fresh.server())) for _ in range(2))
            begun = [begin(server)[0] for server in (member, member, paused)]
            dead_since = time.monotonic()
            # One ends; of the other, which keeps its connections to the database, its row alone says that it has.
            stop_process(paused.process)
            member.process.send_signal(signal.SIGKILL)
            if "incomplete" not in [status(other, name) for name in begun]:
                own, _ = begin(other)
                seconds, busy = until_failed(other, begun, dead_since)
                expect(seconds <= FAILED_SECONDS or busy >= BUSY_SECONDS, f"it took {seconds:.1f} s, while {busy:.1f} s were others'")
                for name in begun:
                    expect_equal(other.get(f"/v1/responses/{name}").json["error"], ENDED, "why")
                if seconds <= FAILED_SECONDS:
                    break
                was_busy = True
            paused.process.kill()
        else:
            expect(was_busy, "in each of ten tries a response had ended before its server did")
            pytest.skip("the machine was too busy to tell")
        wait_until(lambda: status(other, own) == "incomplete", "who lives makes its own to the end")
        paused.process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(fresh.members()) == 2, "the paused one is back")
        expect_equal(status(other, begun[2]), "failed", "what it would have stored afterwards")


def say(server, messages, seed):
    # Of all tokens: likely ones are tokenised as they were sampled.
    body = {"messages": messages, "temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 24, "seed": seed}
    reply = server.post("/v1/chat/completions", body)
    expect_equal(reply.status, 200, reply.text)
    return reply


def test_a_stateless_client_keeps_its_tokens_at_any_front(behind, binary, tiny_model):
    """Its history is text; the tokens that were sampled are known where they were, and every front sends it there. So it finds as
    much as at a lone server."""
    fronts, members = behind
    for front in fronts:
        wait_until(lambda front=front: front.metrics()['loci_front_feeds{state="read"}'] == 2, "it reads what members have")

    def chunks():
        return [front.metrics()["loci_front_held_chunks"] for front in fronts]

    def remembered():
        return sum(member.metrics()["loci_history_tokens_reused_total"] for member in members)

    def talks(alone, talk):
        """Whether all turns of a talk went to one member, which say what a lone server says. (One that a busy machine keeps from renewing its
        row for five seconds, or from taking a connection, is passed over.)"""
        messages, home = [{"role": "system", "content": f"Poet number {talk}. " + "Say odd things, and few. " * 24}], None
        asked = 0
        for turn in range(4):
            messages.append({"role": "user", "content": f"And what of number {turn}, dear poet?"})
            before, reused = chunks(), remembered()
            reply = say(fronts[turn % 3], messages, 10 * talk + turn)
            member = reply.headers["X-Loci-Member"]
            if turn > 0 and member != home:
                print(f"talk {talk} turn {turn}: another member")
                return False
            wanted = say(alone, messages, 10 * talk + turn).json
            expect_equal(reply.json["choices"], wanted["choices"], f"talk {talk} turn {turn}: the reply")
            if turn > 0:  # (Talks begin alike.)
                expect_equal(reply.json["usage"], wanted["usage"], f"talk {talk} turn {turn}: tokens, and those whose state was found")
                known = remembered() - reused
                expect(known >= asked, f"talk {talk} turn {turn}: {known} tokens are not of the text, but of what was said; {asked} were asked")
            home, asked = member, wanted["usage"]["prompt_tokens"]
            messages.append({"role": "assistant", "content": reply.json["choices"][0]["message"]["content"]})
            if turn == 0:  # members publish what they have a little later
                wait_until(lambda before=before: all(now > then for now, then in zip(chunks(), before)), "every front knows of it")
        return True

    with Server(binary, tiny_model, *FLAGS, "--store", "") as alone:
        done = 0
        for talk in range(12):
            done += talks(alone, talk)
            if done == 3:
                break
        expect(done == 3, f"{done} of 12 talks had all turns at one member")
