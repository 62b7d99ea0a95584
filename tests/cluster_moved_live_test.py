# SPDX-License-Identifier: Apache-2.0
"""Replies whose member is killed: another one goes on with them, or makes them anew, and what is stored is stored once."""
import contextlib
import json
import signal

import pytest

from live_client import Server, chat_body, expect, expect_equal, greedy, killed, read_all, wait_until
from live_cluster import FLAGS, as_a_front_says, events_of, question, texts, told_of, without_chance
from live_members import begun, member_of
from postgres_server import find_binaries

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")

DRAWN = {"temperature": 1, "seed": 5, "ignore_eos": True, "stream": True}
CALL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string", "maxLength": 600, "minLength": 500}},
                                                           "required": ["at"], "additionalProperties": False}}
# What is streamed: a path, its body, and which part of the events is the reply.
STREAMS = {
    "chat": ("/v1/chat/completions", chat_body("Long?", stream_options={"include_usage": True}, max_tokens=900, **DRAWN)),
    "chat without a seed": ("/v1/chat/completions", chat_body("Long?", max_tokens=900, **DRAWN | {"seed": None})),
    "chat, greedy": ("/v1/chat/completions", chat_body("Long?", max_tokens=900, **DRAWN | {"temperature": 0})),
    "chat, three choices": ("/v1/chat/completions", chat_body("Long?", n=3, max_tokens=300, frequency_penalty=0.5, **DRAWN)),
    "chat, a call": ("/v1/chat/completions", chat_body("Look!", max_tokens=800, tools=[{"type": "function", "function": {
        name: value for name, value in CALL.items() if name != "type"}}], tool_choice="required", **DRAWN | {"ignore_eos": False})),
    "completions with logprobs": ("/v1/completions", {"prompt": "Once", "logprobs": 2, "max_tokens": 900, **DRAWN}),
    "messages": ("/v1/messages", chat_body("Long?", max_tokens=900, **DRAWN)),
    "a response that is not stored": ("/v1/responses", {"input": "Long?", "store": False, "max_output_tokens": 900, **DRAWN}),
    "a response": ("/v1/responses", {"input": "Long?", "max_output_tokens": 900, **DRAWN}),
    "a turn": ("/v1/responses", {"input": "Long?", "max_output_tokens": 900, **DRAWN}),
    "a response, a call": ("/v1/responses", {"input": "Look!", "max_output_tokens": 800, "tools": [CALL], "tool_choice": "required",
                                             **DRAWN | {"ignore_eos": False}}),
}


def by_choice(events):
    """Events of different choices come in any order."""
    index = [event["choices"][0]["index"] if isinstance(event, dict) and event.get("choices") else 99 for event in events]
    return [event for _, event in sorted(zip(index, events), key=lambda pair: pair[0])]


def expect_events(got, wanted, what):
    for place, (one, other) in enumerate(zip(got, wanted)):
        expect_equal(one, other, f"{what}: event {place} of {len(got)} and {len(wanted)}")
    expect_equal(len(got), len(wanted), f"{what}: how many events")


def talk_at(server, kind):
    return {"conversation": server.post("/v1/conversations", {}).json["id"]} if kind == "a turn" else {}


def check_stream(kind, data, wanted):
    """All that came is what a lone server says; returns its events."""
    expect(b": loci-" not in data, "what instances tell the front")
    got = events_of(data)
    numbers = [event["sequence_number"] for event in got if "sequence_number" in event]
    expect_equal(numbers, list(range(len(numbers))), "numbers of events")
    if kind != "chat without a seed":
        expect_events(by_choice(without_chance(got)), by_choice(without_chance(wanted)), kind)
    for name in ("id", "created"):
        expect(len({event[name] for event in got if name in event}) <= 1, f"more than one {name}")
    if kind == "chat":
        expect_equal(got[-2]["usage"]["completion_tokens"], 900, "tokens of the reply")
    return got


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_whose_member_is_killed_goes_on_elsewhere(fresh, kind):
    """Its client has the bytes of a lone server, but for counts of tokens found, times and names."""
    path, body = STREAMS[kind]
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(Server(fresh.binary, fresh.model, *FLAGS))
        wanted = events_of(read_all(alone.send(path, body | talk_at(alone, kind))))
        left = stack.enter_context(killed(fresh.server()))
        front = stack.enter_context(fresh.front())
        for _ in range(10):  # until the front had not had all of the reply yet
            members = [left, stack.enter_context(killed(fresh.server()))]
            front.wait_for(2)
            talk = talk_at(front, kind)
            before = {member: member.metrics()["loci_generated_tokens_total"] for member in members}
            stream, data = begun(front, path, body | talk, 60)
            home = member_of(members, data)
            home.process.send_signal(signal.SIGKILL)
            left = next(member for member in members if member is not home)
            data += read_all(stream)
            stream.close()
            got = check_stream(kind, data, wanted)
            if path == "/v1/responses" and body.get("store", True):
                final = got[-1]["response"]
                stored = left.get(f"/v1/responses/{final['id']}")
                expect_equal(stored.status, 200, "it is stored under its name")
                expect_equal(stored.json["output"], final["output"], "what is stored")
            if talk:
                expect_equal([role for role, _ in texts(left, talk["conversation"])], ["user", "assistant"], "the turn is there once")
            if kind == "chat, greedy":
                # It goes on from the tokens that the first one told: they are not sampled again.
                sampled = left.metrics()["loci_generated_tokens_total"] - before[left]
                expect(sampled < 900 - 40, f"tokens that the other member sampled: {sampled}")
            moved = front.metrics()["loci_front_streams_moved_total"]
            if moved > 0:
                expect_equal(moved, 1, "streams that another member went on with")
                return
            front.wait_for(1)
        pytest.fail("the front had all of every reply before its member was killed")


@pytest.mark.parametrize("kind", ["chat, greedy", "messages", "a response", "a turn"])
def test_a_whole_reply_whose_member_is_killed_comes_from_another(fresh, kind):
    path, body = STREAMS[kind]
    body = body | {"stream": False}

    def said(reply):
        answer = json.loads(reply.partition(b"\r\n\r\n")[2])
        return answer, answer.get("output") or answer.get("choices") or answer.get("content")

    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(Server(fresh.binary, fresh.model, *FLAGS))
        wanted = said(read_all(alone.send(path, body | talk_at(alone, kind))))[1]
        left = stack.enter_context(killed(fresh.server()))
        front = stack.enter_context(fresh.front())
        for _ in range(10):  # until one was killed before its reply's end
            members = [left, stack.enter_context(killed(fresh.server()))]
            front.wait_for(2)
            talk = talk_at(front, kind)
            before = [member.metrics()["loci_generated_tokens_total"] for member in members]
            sent = front.send(path, body | talk)
            begun_at = []
            while not begun_at:
                begun_at = [member for member, tokens in zip(members, before) if member.metrics()["loci_generated_tokens_total"] > tokens]
            begun_at[0].process.send_signal(signal.SIGKILL)
            if begun_at[0] is left:
                left = members[1]
            got, output = said(read_all(sent))
            expect_equal(without_chance(output), without_chance(wanted), kind)
            if path == "/v1/responses":
                expect_equal(left.get(f"{path}/{got['id']}").json["output"], output, "what is stored")
            if talk:
                expect_equal([role for role, _ in texts(left, talk["conversation"])], ["user", "assistant"], "the turn is there once")
            front.wait_for(1)
            if front.metrics()["loci_front_retries_total"] > 0:
                return
        pytest.fail("every reply had ended before its instance was killed")


@pytest.mark.parametrize("kind", ["a response", "a turn", "not streamed"])
def test_what_an_instance_stored_before_it_died_is_not_stored_again(fresh, kind):
    """It ended after the commit and before the reply's end: another one, asked under the same name, has the same answer."""
    path, name = "/v1/responses", "0123456789abcdef" * 2
    with fresh.server() as first, fresh.server() as other:
        body = {"input": "Long?", "max_output_tokens": 40, **DRAWN, "seed": None, "stream": kind != "not streamed"}
        talk = first.post("/v1/conversations", {}).json["id"]
        if kind == "a turn":
            body["conversation"] = talk

        def ask(server, **said):
            headers, behind = as_a_front_says(fresh.secret, path, name, **said)
            return read_all(server.send(path, body, headers=headers, behind=behind))

        def end_of(data):
            return events_of(data)[-1]["response"] if body["stream"] else json.loads(data.partition(b"\r\n\r\n")[2])

        made = ask(first)
        expect_equal(end_of(made)["id"], f"resp_{name}", "its id follows from the name")
        expect_equal(end_of(made)["created_at"], 1700000000, "its time is the front's")
        if kind == "a turn":
            later = other.post(path, question(talk, "And?"))
            expect_equal(later.status, 200, later.text)
        again = {"again": True}
        if body["stream"]:
            again["prompts"], tokens = told_of(made)
            expect_equal(len(tokens), 40, "tokens that are told")
            again["said"] = [tokens[:30]]
        sampled = other.metrics()["loci_generated_tokens_total"]
        end, wanted = end_of(ask(other, **again)), end_of(made)
        expect_equal(end["output"], wanted["output"], "what is said again")
        expect_equal(end["id"], wanted["id"], "the response")
        computed = other.metrics()["loci_generated_tokens_total"] - sampled
        expect_equal(computed, 11 if body["stream"] else 0, "tokens that are sampled: the last that was told, and what follows")
        expect_equal(other.get(f"{path}/resp_{name}").json["output"], wanted["output"], "what is stored")
        if kind == "a turn":
            expect_equal([text for role, text in texts(first, talk) if role == "user"], ["Long?", "And?"], "what was asked")
        # Another name is another response; and whoever cannot seal one names none.
        headers, behind = as_a_front_says(fresh.secret, path, name)
        headers["Loci-Reply"] = headers["Loci-Reply"][:-1] + ("0" if headers["Loci-Reply"][-1] != "0" else "1")
        forged = read_all(other.send(path, body, headers=headers, behind=behind))
        expect(end_of(forged)["id"] != f"resp_{name}" and b": loci-" not in forged, "a forged name")


def test_a_stream_whose_last_member_is_killed_ends_with_an_error(fresh):
    with fresh.front() as front:
        for _ in range(10):  # until the front had not had all of the reply yet
            with killed(fresh.server()):
                front.wait_for(1)
                stream, data = begun(front, "/v1/chat/completions", greedy("Long?", max_tokens=900, ignore_eos=True, stream=True), 2)
            data += read_all(stream)
            stream.close()
            wait_until(lambda: front.post("/v1/chat/completions", greedy("Hello?", max_tokens=8)).status == 503, "nobody is left")
            wait_until(lambda: front.get("/health").status == 503, "health says so")
            if b"instance_lost" in data:
                break
        expect(b"instance_lost" in data and data.rstrip().endswith(b"0"), f"how it ended: {data[-300:]}")
