# SPDX-License-Identifier: Apache-2.0
"""Servers that share a PostgreSQL database: one turn of a conversation at a time, members, and a front before them."""
import contextlib
import json
import re
import signal
import subprocess
import threading

import pytest

from live_client import Server, chat_body, expect, expect_equal, greedy, killed, read_all, stop_process, wait_until
from live_cluster import FLAGS, Cluster, as_a_front_says, events_of, question, texts, told_of, without_chance
from live_members import begun, listed, member_of, name_of, paused_in_a_turn
from postgres_server import Postgres, find_binaries

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory, postgres):
    return Cluster(binary, tiny_model, str(tmp_path_factory.mktemp("cluster")), postgres)


@pytest.fixture(scope="module")
def pair(binary, tiny_model, postgres):
    """Two servers that share a store."""
    store = postgres.url(postgres.new_database())
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Server(binary, tiny_model, *FLAGS, "--store", store)) for _ in range(2)]


def test_a_conversation_goes_on_at_any_server(pair, binary, tiny_model, tmp_path):
    conversation = pair[0].post("/v1/conversations", {}).json["id"]
    with Server(binary, tiny_model, *FLAGS, "--store", str(tmp_path / "alone.db")) as alone:
        same = alone.post("/v1/conversations", {}).json["id"]
        for turn in range(4):
            for server, talk in ((pair[turn % 2], conversation), (alone, same)):
                reply = server.post("/v1/responses", question(talk, f"Question {turn}?"))
                expect_equal(reply.status, 200, reply.text)
        expect_equal(texts(pair[0], conversation), texts(alone, same), "what was said, and by a server alone")


def asked_in(server, conversation):
    return [text for role, text in texts(server, conversation) if role == "user"]


def test_one_turn_at_a_time_over_all_servers(pair):
    first, second = pair

    def ask(conversation):
        return (second.post("/v1/responses", question(conversation, "Too early?")), second.request("DELETE", f"/v1/conversations/{conversation}"))

    for _ in range(10):
        with paused_in_a_turn(first, second, ask) as (conversation, stream, (busy, refused)):
            expect_equal((busy.status, (busy.json["error"] or {}).get("code")), (409, "conversation_locked"), "a turn elsewhere meanwhile")
            expect_equal(refused.status, 409, "its deletion meanwhile")
            stream.close()  # the client leaves, and the turn ends
        wait_until(lambda talk=conversation: second.post("/v1/responses", question(talk, "Now?")).status == 200, "the next turn")
        asked = asked_in(first, conversation)
        if asked == ["Now?"]:
            return
        expect_equal(asked, ["Long?", "Now?"], "what was asked, where the turn ended before the server saw its client leave")
    pytest.fail("each turn ended before its server saw the client leave")


def test_a_paused_server_commits_nothing_that_another_took_over(pair):
    paused, other = pair
    early = paused_in_a_turn(paused, other, lambda conversation: other.post("/v1/responses", question(conversation, "Early?")).status)
    with early as (conversation, stream, status):
        expect_equal(status, 409, "before the lease has run out")
        wait_until(lambda: other.post("/v1/responses", question(conversation, "Other?")).status == 200, "the claim is taken over")
    data = read_all(stream)
    stream.close()
    expect(b"response.completed" not in data and b"taken over" in data, f"how it ended: {data[-600:]}")
    expect_equal(asked_in(paused, conversation), ["Other?"], "what was asked")
    expect_equal(paused.post("/v1/responses", question(conversation, "Again?")).status, 200, "the next turn there")


# --- members ---

def test_members_are_listed_while_they_live(place):
    with place.server() as first, killed(place.server("--alias", "other")) as second:
        members = listed(place, first, second)
        expect("serving" in members[first.port] and "other" in members[second.port], members)
        second.process.send_signal(signal.SIGKILL)
        member = name_of(place, first)  # who was killed is listed no more
        expect_equal(place.cluster("--drain", member).returncode, 0, "it is asked to drain")
        wait_until(lambda: "draining" in listed(place, first)[first.port], "it drains")
        expect_equal(first.get("/v1/models").status, 200, "whoever still asks it is answered")
        expect_equal(place.cluster("--undrain", member).returncode, 0, "it is asked to serve again")
        wait_until(lambda: "serving" in listed(place, first)[first.port], "it serves again")
        refused = place.cluster("--drain", "f" * 16)
        expect(refused.returncode == 1 and "--drain" in refused.stderr and "f" * 16 in refused.stderr, refused.stderr)
    listed(place)  # who has left is not


def test_who_cannot_join_says_why(place):
    start = ["serve", place.model, "--port", "0", "--disk", "none", *FLAGS, "--join"]
    cases = {(place.url,): ("--cluster-secret", "keys cluster"),
             ("mysql://x", "--cluster-secret", place.secret): ("--join", "postgresql://"),
             ("postgresql://127.0.0.1:1/x", "--cluster-secret", place.secret): ("--join", "127.0.0.1"),
             ("postgresql://192.0.2.1/x", "--cluster-secret", place.secret): ("--advertise", "would be 127.0.0.1,"),
             (place.url, "--cluster-secret", place.secret, "--advertise", "nowhere"): ("--advertise", "HOST:PORT")}
    for flags, parts in cases.items():
        ended = place.command(*start, *flags)
        expect(ended.returncode in (1, 2), f"{flags}: exit code {ended.returncode}")
        for part in parts:
            expect(part in ended.stderr, f"{flags}: {part!r} in {ended.stderr!r}")


def test_another_model_under_a_members_name_is_refused(place, binary):
    other = place.path("other.gguf")
    subprocess.run([binary.removesuffix("loci") + "loci-random-model", other, "--shape", "tiny", "--seed", "7"], check=True,
                   stdout=subprocess.DEVNULL)
    with place.server("--alias", "chat") as first:
        ended = place.command("serve", other, "--port", "0", "--disk", "none", *FLAGS, "--join", place.url, "--cluster-secret", place.secret,
                              "--alias", "chat")
        expect_equal(ended.returncode, 1, ended.stderr)
        prints = re.findall(r"[0-9a-f]{32}", ended.stderr)
        expect("--join" in ended.stderr and "'chat'" in ended.stderr and len(set(prints)) == 2, ended.stderr)
        listed(place, first)
        with place.server(model=other) as second:
            listed(place, first, second)  # under a name of its own it joins


# --- a front ---

def chat(text, **fields):
    return greedy(text, max_tokens=8, **fields)


def reply_text(reply):
    expect_equal(reply.status, 200, reply.text)
    return reply.json["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def behind(binary, tiny_model, tmp_path_factory, postgres):
    """Two members and a front, of a cluster of their own."""
    place = Cluster(binary, tiny_model, str(tmp_path_factory.mktemp("behind")), postgres)
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(place.server()) for _ in range(2)]
        front = stack.enter_context(place.front())
        front.wait_for(2)
        yield front, members


def test_a_front_passes_replies_on_as_they_are(behind):
    front, members = behind
    for path, body in (("/v1/chat/completions", chat("Hello?")), ("/v1/completions", {"prompt": "Once", "max_tokens": 8, "temperature": 0}),
                       ("/v1/messages", chat("Hello?")), ("/tokenize", {"content": "Once"})):
        direct, passed = members[0].post(path, body), front.post(path, body)
        expect_equal(passed.status, direct.status, passed.text)
        plain = [re.sub(r'"(id|created|\w*cache\w*|input_tokens)":("[^"]*"|\d+)', "", reply.text) for reply in (direct, passed)]
        expect_equal(plain[1], plain[0], path)
        expect(passed.headers["X-Loci-Member"], "the member is named")
    stream = [{"choices": event["choices"]} for event in front.stream("/v1/chat/completions", chat("Hello?"))]
    expect_equal(stream, [{"choices": event["choices"]} for event in members[0].stream("/v1/chat/completions", chat("Hello?"))], "events")
    wrong = front.post("/v1/chat/completions", {"messages": 5})
    expect_equal((wrong.status, wrong.json["error"]["param"]), (400, "messages"), "an instance's own refusal")
    # (When an instance loaded it is its own.)
    models = [re.sub(r'"created":\d+', "", server.get("/v1/models").text) for server in (front, *members)]
    expect_equal(models[0], models[1], "models")
    expect_equal(front.get("/health").json, {"status": "ok", "instances": 2}, "health")
    expect_equal(front.get("/v1/loci/warm").status, 404, "what is an operator's alone")


def test_a_conversation_goes_on_where_it_was_and_anywhere(behind):
    front, members = behind
    conversation = front.post("/v1/conversations", {}).json["id"]
    homes = set()
    for turn in range(4):
        reply = front.post("/v1/responses", question(conversation, f"Question {turn}? " + "And more of it. " * 8))
        expect_equal(reply.status, 200, reply.text)
        homes.add(reply.headers["X-Loci-Member"])
        if turn > 0:
            expect(reply.json["usage"]["input_tokens_details"]["cached_tokens"] > 0, "its state is found")
    expect_equal(len(homes), 1, "instances")
    reply = members[1].post("/v1/responses", question(conversation, "Elsewhere?"))
    expect_equal(reply.status, 200, reply.text)
    expect_equal(len(texts(front, conversation)), 10, "items")
    # By the response before it too.
    first = front.post("/v1/responses", {"input": "Hello? " * 40, "max_output_tokens": 8})
    second = front.post("/v1/responses", {"input": "And?", "previous_response_id": first.json["id"], "max_output_tokens": 8})
    expect_equal(second.headers["X-Loci-Member"], first.headers["X-Loci-Member"], "where the response before was made")


def test_prompts_go_to_who_publishes_to_have_them(fresh):
    """What members were asked directly, or by another front, a front that comes later reads from them."""
    def prompt(number, more=""):  # two chunks of 256 bytes
        story = f"Story {number}. " + f"The keeper of lighthouse {number} counted the ships again. " * 14
        return {"prompt": story + more, "max_tokens": 2, "temperature": 0}

    def rest():
        wait_until(lambda: all(line.split()[2:4] == ["0", "0"] for line in fresh.members().values()), "rows say that nothing runs")

    with fresh.server("--disk", "none") as one, fresh.server("--disk", "none") as other:
        homes = {number: (one, other)[number % 2] for number in range(6)}
        for number, home in homes.items():
            expect_equal(home.post("/v1/completions", prompt(number)).status, 200, "a story")
        rest()
        ids = {port: line.split()[0] for port, line in listed(fresh, one, other).items()}
        with fresh.front() as front:
            front.wait_for(2)
            wait_until(lambda: front.metrics()["loci_front_held_chunks"] == 6 * 2, "the front has read what they hold")
            for number, home in homes.items():
                reply = front.post("/v1/completions", prompt(number, "And then?"))
                expect_equal((reply.status, reply.headers["X-Loci-Member"]), (200, ids[home.port]), f"story {number}: {reply.text}")
            metrics = front.metrics()
            expect_equal(metrics['loci_front_feeds{state="read"}'], 2, "feeds that are read")
            expect_equal(metrics['loci_front_choices_total{why="device"}'], 6, "who was chosen has the prompt on its device")
            # A turn through this front is heard of by another one.
            told = front.post("/v1/completions", prompt(7))
            expect_equal(told.status, 200, "a new story")
            home = told.headers["X-Loci-Member"]
        rest()
        with fresh.front() as later:
            later.wait_for(2)
            wait_until(lambda: later.metrics()["loci_front_held_chunks"] == 7 * 2, "the later front has read it too")
            expect_equal(later.post("/v1/completions", prompt(7, "And then?")).headers["X-Loci-Member"], home, "where the new story goes on")


def test_a_killed_member_fails_no_request_that_has_not_begun(fresh):
    with fresh.server() as first, killed(fresh.server()) as second, fresh.front("--policy", "least-load") as front:
        front.wait_for(2)
        wanted = reply_text(first.post("/v1/chat/completions", chat("Hello?")))
        second.process.send_signal(signal.SIGKILL)
        for _ in range(6):
            expect_equal(reply_text(front.post("/v1/chat/completions", chat("Hello?"))), wanted, "the reply")
        front.wait_for(1)


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
                stream, data = begun(front, "/v1/chat/completions", chat("Long?", stream=True) | {"max_tokens": 900, "ignore_eos": True}, 2)
            data += read_all(stream)
            stream.close()
            wait_until(lambda: front.post("/v1/chat/completions", chat("Hello?")).status == 503, "nobody is left")
            wait_until(lambda: front.get("/health").status == 503, "health says so")
            if b"instance_lost" in data:
                break
        expect(b"instance_lost" in data and data.rstrip().endswith(b"0"), f"how it ended: {data[-300:]}")


def test_a_member_whose_device_stands_still_leaves(fresh):
    with fresh.server("--stall-limit", "1us") as server:  # every pass stands still for a while
        def is_out():
            server.post("/v1/completions", {"prompt": "Long", "max_tokens": 300, "ignore_eos": True})
            return "leaves the cluster until its device goes on" in server.log_text()
        wait_until(is_out, "it says so")


def test_a_paused_member_is_left(fresh):
    with fresh.server() as first, fresh.server() as paused, fresh.front("--policy", "least-load") as front:
        front.wait_for(2)
        wanted = reply_text(first.post("/v1/chat/completions", chat("Hello?")))
        stop_process(paused.process)
        try:
            replies = []
            threads = [threading.Thread(target=lambda: replies.append(reply_text(front.post("/v1/chat/completions", chat("Hello?")))), daemon=True) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            expect_equal(replies, [wanted] * 6, "replies, those too that waited for the paused one")
            front.wait_for(1)
        finally:
            paused.process.send_signal(signal.SIGCONT)
        front.wait_for(2)


def test_a_rolling_restart_fails_no_request(fresh):
    with contextlib.ExitStack() as stack:
        members = [fresh.server() for _ in range(2)]
        front = stack.enter_context(fresh.front("--policy", "least-load"))
        front.wait_for(2)
        stop, statuses = threading.Event(), []

        def ask():
            while not stop.is_set():
                statuses.append(front.post("/v1/chat/completions", chat("Hello?")).status)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for member in members:
            member.__exit__(None)
            stack.enter_context(fresh.server())
            front.wait_for(2)
        stop.set()
        for thread in threads:
            thread.join()
        expect(len(statuses) > 20 and set(statuses) == {200}, f"{len(statuses)} requests: {set(statuses)}")


def test_a_drained_member_gets_nothing_new(fresh):
    with fresh.server() as first, fresh.server() as second, fresh.front("--policy", "least-load") as front:
        front.wait_for(2)
        drained = name_of(fresh, first, second)
        expect_equal(fresh.cluster("--drain", drained).returncode, 0, "it is asked to drain")
        front.wait_for(1)
        homes = {front.post("/v1/chat/completions", chat(f"Hello {i}?")).headers["X-Loci-Member"] for i in range(6)}
        expect_equal(homes, {name_of(fresh, second, first)}, "who answers")


def test_front_and_members_speak_tls(fresh, tmp_path):
    certificates = {name: [str(tmp_path / (name + ending)) for ending in (".pem", ".key")] for name in ("members", "front", "other")}
    for name, (certificate, key) in certificates.items():
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key], check=True,
                       stderr=subprocess.DEVNULL)

    def tls(name):
        return "--tls-cert", certificates[name][0], "--tls-key", certificates[name][1]

    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(killed(fresh.server(*tls("members")))) for _ in range(2)]
        front = stack.enter_context(fresh.front(*tls("front"), "--tls-ca", certificates["members"][0]))
        front.wait_for(2)
        wanted = reply_text(members[0].post("/v1/chat/completions", chat("Hello?")))
        expect_equal(reply_text(front.post("/v1/chat/completions", chat("Hello?"))), wanted, "the reply")
        long = chat("Long?") | {"max_tokens": 900, "ignore_eos": True, "stream": True}
        whole = [event["choices"] for event in members[0].stream("/v1/chat/completions", long)]
        # One goes on with the other's stream.
        stream = front.send("/v1/chat/completions", long)
        data = b""
        while data.count(b"data: ") < 20:
            data += stream.recv(4096)
        member_of(members, data).process.send_signal(signal.SIGKILL)
        got = events_of(data + read_all(stream))
        expect_equal([event["choices"] for event in got[:-1]], whole, "events")
        with fresh.front("--tls-ca", certificates["other"][0]) as stranger:
            refused = stranger.post("/v1/chat/completions", chat("Hello?"))
            expect_equal((refused.status, refused.json["error"]["code"]), (503, "no_instance"), "of members that are not trusted")
            wait_until(lambda: "is not trusted" in stranger.log_text(), "the log says why")


def test_a_row_without_the_secret_is_not_believed(fresh, tmp_path):
    with fresh.server() as member, fresh.front() as front:
        front.wait_for(1)
        other = str(tmp_path / "other.secret")
        expect_equal(fresh.command("keys", "cluster", other).returncode, 0, "another secret")
        with Server(fresh.binary, fresh.model, *FLAGS, "--join", fresh.url, "--cluster-secret", other):
            wait_until(lambda: front.metrics()["loci_front_rows_refused"] == 1, "its row is there")
            homes = {front.post("/v1/chat/completions", chat(f"Hello {i}?")).headers["X-Loci-Member"] for i in range(4)}
            expect_equal(homes, {name_of(fresh, member)}, "who answers")
            front.wait_for(1)


def test_a_front_takes_several_names_from_its_variable(fresh, monkeypatch):
    monkeypatch.setenv("LOCI_ALLOWED_HOST", "one.example,two.example")
    with fresh.front("--allowed-host", "three.example") as front:
        expect_equal(front.get("/v1/models", {"Host": "one.example"}).status, 403, "the flag goes before the variable")
    with fresh.front() as front:
        for host in ("one.example", "two.example"):
            expect(front.get("/v1/models", {"Host": host}).status != 403, host)
        expect_equal(front.get("/v1/models", {"Host": "three.example"}).status, 403, "another name")


def test_without_the_database_stateless_requests_go_on(binary, tiny_model, tmp_path):
    with Postgres() as postgres:
        place = Cluster(binary, tiny_model, str(tmp_path), postgres)
        with place.server() as first, place.server() as second, place.front() as front:
            front.wait_for(2)
            wanted = reply_text(first.post("/v1/chat/completions", chat("Hello?")))
            long = chat("Long?", stream=True) | {"max_tokens": 900, "ignore_eos": True}
            stream, data = begun(front, "/v1/chat/completions", long, 2)
            postgres.stop()
            for i in range(4):
                expect_equal(reply_text(front.post("/v1/chat/completions", chat("Hello?"))), wanted, f"reply {i} without the database")
            refused = front.post("/v1/responses", {"input": "Stored?", "max_output_tokens": 4})
            expect_equal(refused.status, 503, "what is stored")
            expect_equal(events_of(data + read_all(stream))[-2]["choices"][0]["finish_reason"], "length", "the stream that ran")
            postgres.start()
            wait_until(lambda: front.post("/v1/responses", {"input": "Stored?", "max_output_tokens": 4}).status == 200, "it is stored again")
            listed(place, first, second)  # they are back
            front.wait_for(2)
