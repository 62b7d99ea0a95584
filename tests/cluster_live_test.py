# SPDX-License-Identifier: Apache-2.0
"""Servers that share a PostgreSQL database: one turn of a conversation at a time, members, and a front before them."""
import json
import contextlib
import re
import signal
import subprocess
import threading

import pytest

from live_client import Server, expect, expect_equal, greedy, killed, read_all, stop_process, wait_until
from live_cluster import FLAGS, Cluster, events_of, question, texts
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
        for flag in ("--drain", "--undrain"):
            for name in ("f" * 16, ""):
                refused = place.cluster(flag, name)
                expect(refused.returncode == 1 and f"{flag}:" in refused.stderr and f"'{name}'" in refused.stderr, refused.stderr)
    listed(place)  # who has left is not


def test_who_cannot_join_says_why(place):
    start = ["serve", place.model, "--port", "0", "--disk", "none", *FLAGS, "--join"]
    cases = {(place.url,): ("--cluster-secret", "keys cluster"),
             ("mysql://x", "--cluster-secret", place.secret): ("--join", "postgresql://"),
             ("postgresql://127.0.0.1:1/x", "--cluster-secret", place.secret): ("--join", "127.0.0.1"),
             ("postgresql://192.0.2.1/x", "--cluster-secret", place.secret): ("--advertise", "would be 127.0.0.1,"),
             ("postgresql://u:se/cret@127.0.0.1:1/x", "--cluster-secret", place.secret): ("--join", "written %2F"),
             ("postgresql://u:s@cret@127.0.0.1:1/x", "--cluster-secret", place.secret): ("--join", "@ %40"),
             (place.url, "--cluster-secret", place.secret, "--alias", "x" * 600): ("--alias", "at most 512 bytes"),
             (place.url, "--cluster-secret", place.secret, "--advertise", "nowhere"): ("--advertise", "HOST:PORT")}
    for flags, parts in cases.items():
        ended = place.command(*start, *flags)
        expect(ended.returncode in (1, 2), f"{flags}: exit code {ended.returncode}")
        for part in parts:
            expect(part in ended.stderr, f"{flags}: {part!r} in {ended.stderr!r}")
        expect("cret@" not in ended.stderr and '"se"' not in ended.stderr, f"part of a password: {ended.stderr!r}")


def test_what_a_member_alone_has_needs_a_cluster(place):
    for flags in (("--role", "prefill"), ("--advertise", "127.0.0.1:7000"), ("--peer-port", "7001")):
        ended = place.command("serve", place.model, "--port", "0", "--disk", "none", "--store", "", *flags)
        expect(ended.returncode == 1 and f"{flags[0]}:" in ended.stderr and "join" in ended.stderr, ended.stderr)


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
    own = {"Origin": front.url}
    for headers, wanted in ((own, 200), ({"Origin": "https://stranger.example"}, 403)):
        reply = front.request("POST", "/v1/chat/completions", json.dumps(chat("Hello?")), {"Content-Type": "application/json", **headers})
        expect_equal(reply.status, wanted, f"a page of {headers['Origin']}: {reply.text}")
    wrong = front.post("/v1/chat/completions", {"messages": 5})
    expect_equal((wrong.status, wrong.json["error"]["param"]), (400, "messages"), "an instance's own refusal")
    # (When an instance loaded it is its own.)
    models = [re.sub(r'"created(_at)?":("[^"]*"|\d+)', "", server.get("/v1/models").text) for server in (front, *members)]
    expect_equal(models[0], models[1], "models")
    # (On a busy machine a member may be silent for five seconds, and is off the front's list for a while.)
    wait_until(lambda: front.get("/health").json == {"status": "ok", "instances": 2}, "health")
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
    counted = front.post("/v1/responses/input_tokens", {"input": "And?", "previous_response_id": first.json["id"]})
    expect_equal(counted.json, {"object": "response.input_tokens", "input_tokens": second.json["usage"]["input_tokens"]}, "counted")


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


def test_a_front_says_where_it_listens(fresh):
    refused = fresh.command("route", "--join", fresh.url, "--cluster-secret", fresh.secret, "--host", "")
    expect(refused.returncode == 2 and "--host: expected an address" in refused.stderr, refused.stderr)
    refused = fresh.command("route", "--join", fresh.url, "--cluster-secret", fresh.secret, "--port", "99999")
    expect(refused.returncode != 0 and "--port" in refused.stderr and "65535" in refused.stderr, refused.stderr)


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
