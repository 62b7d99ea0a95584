# SPDX-License-Identifier: Apache-2.0
"""Clients of a cluster's fronts. Each reply must have the bits of a lone server's, or be an error that says what is wrong."""
import json
import random
import re
import threading
import time
import traceback

from live_client import chat_body, dechunk, expect, expect_equal, read_all, wait_until
from live_cluster import question, texts

PATIENCE_SECONDS = 60   # no reply takes longer, whatever becomes of the cluster
LONG_TOKENS = 1000       # of a stream that takes long enough for a fault to meet it
TURNS_MAX = 20          # of one conversation
PAUSE_SECONDS = 0.05    # between a client's requests
ENDED = ("response.completed", "response.incomplete")


def story(number):
    return f"Story {number}. " + "A conversation that is long enough to fill some blocks of thirty-two tokens each. " * 4


def whole_message(data):
    """(status, body) of a message that ended as it should."""
    head, _, body = data.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.1 (\d+) ", head)
    expect(status, f"an answer that breaks off in its head: {data[:300]!r}")
    try:
        if b"chunked" in head.lower():
            body = dechunk(body)
        else:
            expect_equal(len(body), int(re.search(rb"(?i)content-length: (\d+)", head).group(1)), "bytes of an answer")
    except ValueError as error:
        raise AssertionError(f"an answer that breaks off: {head!r} ... {data[-300:]!r}") from error
    return int(status.group(1)), body.decode()


class Answer:
    """What came of one request: its events (of a reply that is not streamed: one), or an error's status, code and message."""

    def __init__(self, server, path, body):
        begin = time.monotonic()
        connection = server.send(path, body)
        try:
            connection.settimeout(PATIENCE_SECONDS)
            status, text = whole_message(read_all(connection))
        finally:
            connection.close()
        self.seconds = time.monotonic() - begin
        expect(self.seconds < PATIENCE_SECONDS, f"an answer after {self.seconds:.0f} s")
        streamed = status == 200 and body.get("stream")
        events = [event.partition("data: ")[2] for event in text.split("\n\n") if "data: " in event] if streamed else [text]
        self.events = [json.loads(event) for event in events if event != "[DONE]"]
        self.error = None
        failed = self.events[-1].get("error") or (self.events[-1].get("response") or {}).get("error")
        if status != 200 or failed or self.events[-1].get("type") == "error":
            failed = failed or self.events[-1]
            expect(failed.get("code") and failed.get("message"), f"an error that says nothing: {status} {text[-500:]}")
            self.error = status, failed["code"], failed["message"]

    def choice(self):
        """(text, tokens, their probabilities, why it ended) of a completion."""
        choices = [event["choices"][0] for event in self.events if event.get("choices")]
        text = "".join(one.get("text") or (one.get("delta") or one.get("message") or {}).get("content") or "" for one in choices)
        marks = [one["logprobs"] for one in choices if one.get("logprobs")]
        return (text, [token for mark in marks for token in mark["tokens"]], [p for mark in marks for p in mark["token_logprobs"]],
                choices[-1]["finish_reason"])

    def response(self):
        """A response's text; nothing where it has not ended as it should."""
        last = self.events[-1]
        if last.get("type") in ENDED:
            last = last["response"]
        expect(last.get("status") in ("completed", "incomplete"), f"how a response ended: {str(last)[-500:]}")
        return "".join(part.get("text", "") for item in last["output"] for part in item["content"])


class Lone:
    """What a server alone says."""

    def __init__(self, server):
        self.server, self.known, self.lock = server, {}, threading.Lock()

    def choice(self, path, body):
        key = json.dumps([path, body])
        with self.lock:
            if key not in self.known:
                answer = Answer(self.server, path, body)
                expect(answer.error is None, f"a lone server: {answer.error}")
                self.known[key] = answer.choice()
            return self.known[key]


class Client(threading.Thread):
    """Asks, again and again, until it is told to stop."""

    def __init__(self, load, number):
        super().__init__(daemon=True)
        self.load, self.number, self.draw = load, number, random.Random(f"{load.seed}/{type(self).__name__}/{number}")
        self.turns, self.answered, self.refused, self.failure = 0, 0, [], None
        self.slowest = 0

    def run(self):
        try:
            while not self.load.stop.is_set():
                self.turn(self.draw.choice(self.load.fronts))
                self.turns += 1
                time.sleep(PAUSE_SECONDS)
        except Exception:  # of whatever kind: it is the test's
            self.failure = traceback.format_exc()

    def ask(self, front, path, body):
        answer = Answer(front, path, body)
        self.slowest = max(self.slowest, answer.seconds)
        if answer.error:
            self.refused.append(answer.error)
            time.sleep(0.2)
            return None
        self.answered += 1
        return answer


class Reader(Client):
    """Asks for what needs no store: about a few stories that all readers share, so that their state is wanted everywhere."""

    def turn(self, front):
        if self.number % 2:
            text = story(self.load.seed * 100 + self.draw.randrange(6)) + "Tell it to its end."
            path, body = "/v1/chat/completions", chat_body(text, max_tokens=LONG_TOKENS, ignore_eos=True, temperature=1, seed=1, stream=True)
        else:
            text = story(self.load.seed * 100 + self.draw.randrange(6)) + self.draw.choice(("And then?", "Who was it?", "Why?"))
            path, body = "/v1/completions", {"prompt": text, "max_tokens": 24, "temperature": 1, "seed": self.draw.randrange(3), "logprobs": 1,
                                             "stream": self.turns % 2 == 0}
        wanted = self.load.lone.choice(path, body)
        answer = self.ask(front, path, body)
        if answer:
            expect_equal(answer.choice(), wanted, f"{path} through a front, and by a lone server")


class Talker(Client):
    """Holds stored conversations, a turn at a time."""

    def __init__(self, load, number):
        super().__init__(load, number)
        self.conversations = []  # (id, [(what was asked, the reply if it was acknowledged)])
        self.begin()

    def begin(self):
        made = self.load.fronts[0].post("/v1/conversations", {})
        if made.status == 200:
            self.conversations.append((made.json["id"], []))
        else:
            self.refused.append((made.status, made.json["error"]["code"], made.json["error"]["message"]))
            time.sleep(0.2)

    def turn(self, front):
        conversation, said = self.conversations[-1]
        if len(said) == TURNS_MAX:
            self.begin()
            return
        text = f"Turn {len(said)} of talker {self.number}: what did the keeper of the lighthouse count?"
        said.append((text, None))
        answer = self.ask(front, "/v1/responses", question(conversation, text, max_output_tokens=16, stream=len(said) % 2 == 0))
        if answer:
            said[-1] = text, answer.response()

    def check(self, front, lone):
        """What is stored: each acknowledged turn once, in order, each other one at most once, all with a lone server's replies."""
        for conversation, said in self.conversations:
            stored = texts(front, conversation)
            expect_equal([role for role, _ in stored], ["user", "assistant"] * (len(stored) // 2), "whose turns are stored")
            turns = [(stored[i][1], stored[i + 1][1]) for i in range(0, len(stored), 2)]
            asked = dict(turns)
            expect_equal(len(asked), len(turns), f"turns that are stored once, of {[text for text, _ in turns]}")
            expect_equal([text for text, _ in said if text in asked], [text for text, _ in turns], "the order of turns")
            for text, reply in said:
                expect(reply is None or asked.get(text) == reply, f"an acknowledged turn, {text!r}: {reply!r}, stored {asked.get(text)!r}")
            alone = lone.post("/v1/conversations", {}).json["id"]
            for text, reply in turns:
                same = Answer(lone, "/v1/responses", question(alone, text, max_output_tokens=16)).response()
                expect_equal(reply, same, f"{text!r}, and by a lone server")


class Load:
    """A context in which clients ask; its end checks what they were told."""

    def __init__(self, fronts, lone, seed, readers=4, talkers=3):
        self.fronts, self.lone, self.seed, self.stop = fronts, lone, seed, threading.Event()
        self.readers = [Reader(self, number) for number in range(readers)]
        self.talkers = [Talker(self, number) for number in range(talkers)]
        self.clients = self.readers + self.talkers

    def __enter__(self):
        self.begun_at = time.monotonic()
        for client in self.clients:
            client.start()
        self.advance(1)
        return self

    def broken(self):
        return next((client.failure for client in self.clients if client.failure), None)

    def advance(self, answers=2, seconds=60, clients=None):
        """Until each client has got so many more replies."""
        wanted = {client: client.answered + answers for client in clients or self.clients}
        wait_until(lambda: self.broken() or all(client.answered >= count for client, count in wanted.items()),
                   f"{answers} more replies for each client", seconds)
        expect(not self.broken(), self.broken())

    def __exit__(self, kind, *_):
        self.stop.set()
        self.seconds = time.monotonic() - self.begun_at
        for client in self.clients:
            client.join(PATIENCE_SECONDS + 10)
            expect(kind or not client.is_alive(), "a client waits for its reply yet")
        expect(kind or not self.broken(), self.broken())

    def errors(self, clients):
        """The codes of what was refused."""
        return {code for client in clients for _, code, _ in client.refused}

    def check(self, stateless=(), stored=()):
        """That nothing was refused for other reasons, and no turn is lost or doubled; to be called when the cluster is at rest."""
        for name, clients, allowed in (("stateless", self.readers, stateless), ("stored", self.talkers, stored)):
            refused = [error for client in clients for error in client.refused]
            expect(self.errors(clients) <= set(allowed), f"{name} requests were refused: {sorted(set(refused))}, allowed: {sorted(allowed)}")
        begin = time.monotonic()
        for talker in self.talkers:
            talker.check(self.fronts[0], self.lone.server)
        checked = time.monotonic() - begin
        print(f"  {self.seconds:.0f} s: {sum(client.answered for client in self.clients)} replies, the slowest after "
              f"{max(client.slowest for client in self.clients):.1f} s; errors: {sum(len(client.refused) for client in self.clients)} "
              f"{sorted(self.errors(self.clients))}; compared in {checked:.0f} s")
