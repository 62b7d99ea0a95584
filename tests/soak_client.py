# SPDX-License-Identifier: Apache-2.0
"""soak.py's clients and the server that they speak to: what is said comes from soak_talks.py.

A Host is a server that may be killed and started again on the same files. The Reference plays each script once, one
request at a time, on a server without tiers that is never disturbed. A Client plays scripts on a host, whole, streamed,
slowly read, cancelled or in the background, and compares every answer with the reference's.
"""
import collections
import http.client
import json
import random
import threading
import time

from live_client import dechunk, expect, expect_equal, read_all, Server
from soak_talks import asks_stream, CUT, events_of, JOINS, KINDS, LIMIT, Script, Talk

SCRIPTS = 24  # of each kind: few, so that every script comes back, its state from wherever it is by then
# Replies behind a cut differ, and the server remembers the tokens of each (64 MiB at most): few, so that those hide no leak.
WEIGHTS = [1 if kind == "truncated" else 12 for kind in KINDS]
ENDED = ("completed", "incomplete", "failed", "cancelled")


class Gone(Exception):
    """The server ended before its reply did."""


class Host:
    """A server process after another, all on the same files."""

    def __init__(self, binary, model, flags):
        self.start = lambda: Server(binary, model, *flags)
        self.current, self.up = (self.start(), 1), threading.Event()
        self.up.set()

    @property
    def server(self):
        return self.current[0]

    @property
    def lives(self):
        return self.current[1]

    def kill(self, harm):
        """kill -9, `harm` to its files, and the next one."""
        self.up.clear()
        self.server.process.kill()
        self.server.process.wait()
        self.server.process.stdout.close()
        self.server.log.close()
        harm()
        self.current = (self.start(), self.lives + 1)
        self.up.set()

    def now(self):
        """The server and its number, once it is up."""
        expect(self.up.wait(600), "the server is up again")
        return self.current

    def was_killed_since(self, life):
        return life != self.lives or not self.up.is_set()


class Reference:
    """What a lone server says to each script; asked once for each turn."""

    def __init__(self, server):
        self.server, self.lock = server, threading.Lock()
        self.talks, self.answers = {}, collections.defaultdict(list)

    def answer(self, script, turn):
        # A conversation says what a chain of responses says.
        with self.lock:
            key = (script.kind, script.number)
            talk = self.talks.setdefault(key, Talk(script))
            while len(self.answers[key]) <= turn:
                path, body = talk.request()
                reply = self.server.post(path, body)
                expect_equal(reply.status, 200, f"the reference's {path}: {reply.text[:300]}")
                self.answers[key].append(json.loads(json.dumps(talk.take(reply.json))))
            return self.answers[key][turn]


class Client:
    """Plays one script after the other until the time is over."""

    def __init__(self, number, host, reference, key, seed, counts):
        self.draw = random.Random(f"{seed}/{number}")
        self.host, self.reference, self.counts = host, reference, counts
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def play(self):
        """One script from its first turn to its last."""
        script = Script(self.draw.choices(KINDS, WEIGHTS)[0], self.draw.randrange(SCRIPTS))
        talk = Talk(script)
        while not talk.done:
            server, life = self.host.now()
            try:
                if script.kind == "conversations" and not talk.conversation:
                    talk.conversation = self.call(server, "POST", "/v1/conversations", {}).json["id"]
                if not self.play_turn(server, talk):
                    break
            except (OSError, http.client.HTTPException, Gone) as error:
                self.await_restart(life, error)
                if not script.stored:
                    # What the server remembers of a talk's tokens goes with it; what it stores does not.
                    talk = Talk(script)
                else:
                    self.until_done(lambda: self.find_again(talk))
        if script.stored:
            self.until_done(lambda: self.find_again(talk))
            self.until_done(lambda: self.remove(talk))
        self.counts["talks" if talk.done else "given up"] += 1

    def await_restart(self, life, error):
        """A connection broke: the server was killed, or it is at fault."""
        end = time.monotonic() + 5
        while not self.host.was_killed_since(life):
            if time.monotonic() > end:
                server = self.host.server
                state = "it runs" if server.process.poll() is None else f"it ended with {server.process.returncode}"
                raise AssertionError(f"a connection broke, {state}: {error!r}\n{server.log_text()[-3000:]}") from error
            time.sleep(0.01)
        self.counts["broken off"] += 1

    def until_done(self, work):
        """Does what may be done again, over kills."""
        while True:
            server, life = self.host.now()
            try:
                return work()
            except (OSError, http.client.HTTPException, Gone) as error:
                self.await_restart(life, error)

    # --- one turn ---

    def play_turn(self, server, talk):
        """False: the client has left the talk."""
        path, body = talk.request()
        way = self.draw.random()
        if talk.script.stored and way < 0.08:
            self.cancel_in_background(server, body)
        if way < 0.06 and talk.script.kind != "conversations":
            self.leave(server, path, asks_stream(talk.script, body))
            return self.draw.random() < 0.5  # and asks again, or does not
        if talk.script.stored and way > 0.9 and not talk.conversation:
            reply = self.background(server, body)
        elif way < 0.5:
            reply = self.streamed(server, path, asks_stream(talk.script, body), talk.script.kind)
        else:
            reply = self.call(server, "POST", path, body).json
        self.check(talk, reply)
        return True

    def check(self, talk, reply):
        turn, script = talk.turn, talk.script
        answer = json.loads(json.dumps(talk.take(reply)))
        self.counts["turns"] += 1
        self.counts["tokens"] += answer["output"]
        expected = self.reference.answer(script, turn)
        if script.kind == "truncated" and answer["dropped"]:
            # What is kept has seen what was dropped, unless it had to be computed anew: the text may differ.
            expect(answer["dropped"] % CUT == 0 and answer["prompt"] <= LIMIT, f"{script.number}.{turn}: {answer}")
            before = [self.reference.answer(script, t)["dropped"] for t in range(turn)]
            if not any(before):
                expect_equal((answer["dropped"], answer["prompt"]), (expected["dropped"], expected["prompt"]), "the first cut")
            self.counts["cut"] += 1
            return
        expect_equal(answer, expected, f"{script.kind} {script.number}.{turn}")

    def call(self, server, method, path, body=None):
        """A request that must end with 200; waits where its tenant is over a limit."""
        while True:
            reply = server.request(method, path, None if body is None else json.dumps(body), self.headers)
            if reply.status != 429:
                expect_equal(reply.status, 200, f"{method} {path}: {reply.text[:300]}")
                return reply
            self.counts["refused"] += 1
            time.sleep(0.05)

    def streamed(self, server, path, body, kind):
        slow = self.draw.random() < 0.2
        while True:
            connection = server.send(path, body, 4096 if slow else None, self.headers)
            try:
                data = read_all(connection, 700, 0.005) if slow else read_all(connection)
            finally:
                connection.close()
            head, _, rest = data.partition(b"\r\n\r\n")
            if b" 429 " not in head.split(b"\r\n")[0]:
                break
            self.counts["refused"] += 1
            time.sleep(0.05)
        if not data or not rest.endswith(b"0\r\n\r\n"):
            raise Gone
        expect(b" 200 " in head.split(b"\r\n")[0], data[:500])
        self.counts["slow" if slow else "streamed"] += 1
        return JOINS[kind](events_of(dechunk(rest).decode("utf-8")))

    def leave(self, server, path, body):
        """Begins to read a stream and closes the connection. What was stored of it all the same is removed."""
        connection = server.send(path, body, None, self.headers)
        try:
            data = b""
            while len(data) < 4000 and (piece := connection.recv(300)):
                data += piece
        finally:
            connection.close()
        self.counts["left"] += 1
        if path == "/v1/responses" and b'"id":"resp_' in data:
            identity = "resp_" + data.split(b'"id":"resp_')[1].split(b'"')[0].decode()
            self.remove_response(server, identity)

    def background(self, server, body):
        while True:
            begun = self.call(server, "POST", "/v1/responses", body | {"background": True}).json
            end = time.monotonic() + 600
            while begun["status"] not in ENDED:
                expect(time.monotonic() < end, f"in the background for ten minutes: {begun}")
                time.sleep(0.02)
                begun = self.call(server, "GET", f"/v1/responses/{begun['id']}?include=message.output_text.logprobs").json
            if begun["status"] != "failed" or begun["error"]["code"] != "rate_limit_exceeded":
                break
            self.counts["refused"] += 1  # known only when its turn has come
            self.remove_response(server, begun["id"])
        expect(begun["status"] in ENDED[:2], f"in the background: {begun}")
        self.counts["background"] += 1
        return begun

    def cancel_in_background(self, server, body):
        if "conversation" in body:
            return
        begun = self.call(server, "POST", "/v1/responses", body | {"background": True}).json
        server.request("POST", f"/v1/responses/{begun['id']}/cancel", "{}", self.headers)  # or it had ended
        self.remove_response(server, begun["id"])
        self.counts["cancelled"] += 1

    # --- stored talks ---

    def find_again(self, talk):
        """What was acknowledged is stored as it was sent; a turn that was not is there whole or not at all."""
        server, _ = self.host.now()
        for response in talk.responses:
            stored = self.call(server, "GET", f"/v1/responses/{response['id']}").json
            without = [{**item, "content": [{**part, "logprobs": []} for part in item["content"]]} for item in response["output"]]
            expect(stored["output"] in (response["output"], without), f"stored: {stored}, sent: {response}")
            self.counts["found again"] += 1
        if not talk.conversation:
            return
        items = self.call(server, "GET", f"/v1/conversations/{talk.conversation}/items?order=asc&limit=100").json["data"]
        said = [item["content"][0]["text"] for item in items if item.get("role") == "user"]
        asked = len(said)
        expect(talk.turn <= asked <= talk.turn + 1, f"{talk.turn} turns were acknowledged, found {said}")
        expect_equal(said, talk.script.questions[:asked], "a conversation's questions")
        replies = [[part["text"] for part in item["content"]] for item in items if item.get("role") == "assistant"]
        expected = [self.reference.answer(talk.script, turn)["text"] for turn in range(asked)]
        expect_equal(replies, [text for text in expected if text], "a conversation's replies")
        talk.turn = asked

    def remove(self, talk):
        server, _ = self.host.now()
        for response in talk.responses:
            self.remove_response(server, response["id"])
        if talk.conversation:
            server.request("DELETE", f"/v1/conversations/{talk.conversation}", None, self.headers)

    def remove_response(self, server, identity):
        for _ in range(2000):
            status = server.request("DELETE", f"/v1/responses/{identity}", None, self.headers).status
            if status in (200, 404):
                return
            time.sleep(0.05)
        raise AssertionError(f"{identity} cannot be deleted: {status}")
