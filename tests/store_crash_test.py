# SPDX-License-Identifier: Apache-2.0
"""kill -9 under load.

A live server with a small random model; clients hold chains (previous_response_id) and conversations, whole and
streamed. The server is killed at a random moment and started again on the same store, N times. Each turn that a
client has seen end is there, each chain and conversation goes on, a turn that no client has seen end is there whole
or not at all, and SQLite's integrity_check is clean.
"""
import http.client
import json
import random
import threading
import time

from live_client import check_integrity, expect, Server

CLIENTS = 6
ENDED = ("completed", "incomplete")


def output_text(response):
    return [part.get("text") for item in response["output"] for part in item.get("content", [])]


class Turn:
    """One that a client has seen end."""

    def __init__(self, response, said):
        self.id, self.previous = response["id"], response.get("previous_response_id")
        self.status, self.text, self.said = response["status"], output_text(response), said


class Client:
    """Holds one chain or one conversation at a time; begins another now and then."""

    def __init__(self, number, seed):
        self.draw = random.Random(f"{seed}/{number}")
        self.uses_conversations = number % 3 == 2
        self.number, self.count = number, 0
        self.turns = []          # acknowledged, all
        self.unseen = []         # ids of responses whose end was not seen
        self.last = None         # the chain's last acknowledged turn
        self.conversation = None
        self.said = []           # in the conversation, acknowledged
        self.unsure = False      # a turn of the conversation has an unknown end

    def begin_anew(self, server):
        self.last, self.conversation, self.said, self.unsure = None, None, [], False
        if self.uses_conversations:
            reply = server.post("/v1/conversations", {})
            expect(reply.status == 200, f"a conversation is made: {reply.status} {reply.text}")
            self.conversation = reply.json["id"]

    def work(self, server, until):
        """Turn after turn, until the server is gone (OSError, or a reply that breaks off)."""
        while not until.is_set():
            try:
                self.turn(server)
            except (OSError, http.client.HTTPException):
                if until.is_set():
                    return
                raise

    def turn(self, server):
        if self.last is None and self.conversation is None or self.draw.random() < 0.1:
            self.begin_anew(server)
        self.count += 1
        said = f"{self.number}.{self.count} " + "word " * self.draw.randrange(12)
        body = {"input": said, "max_output_tokens": self.draw.randrange(1, 24), "temperature": 1}
        if self.conversation:
            body["conversation"] = self.conversation
        elif self.last:
            body["previous_response_id"] = self.last.id
        response = self.streamed(server, body) if self.draw.random() < 0.5 else self.whole(server, body)
        if response is None:  # the context is full
            self.begin_anew(server)
            return
        expect(response["status"] in ENDED, f"it ends: {response}")
        self.last = Turn(response, said)
        self.turns.append(self.last)
        self.said.append(said)

    def whole(self, server, body):
        self.unsure = True
        reply = server.post("/v1/responses", body)
        self.unsure = False
        if reply.status == 400 and reply.json["error"]["code"] == "context_length_exceeded":
            return None
        expect(reply.status == 200, f"{reply.status} {reply.text}")
        return reply.json

    def streamed(self, server, body):
        self.unsure = True
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        seen = None
        try:
            connection.request("POST", "/v1/responses", json.dumps(body | {"stream": True}),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                error = json.loads(reply.read())["error"]
                expect(error["code"] == "context_length_exceeded", f"{reply.status} {error}")
                self.unsure = False
                return None
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event["type"] == "response.created":
                    seen = event["response"]["id"]
                if event["type"] in ("response.completed", "response.incomplete"):
                    self.unsure = False
                    return event["response"]
                expect(event["type"] != "response.failed" and event["type"] != "error", f"{event}")
            raise http.client.IncompleteRead(b"")
        except (OSError, http.client.HTTPException):
            if seen:
                self.unseen.append(seen)
            raise
        finally:
            connection.close()

    # --- after a restart ---

    def check(self, server, since):
        for turn in self.turns[since:]:
            check_turn(server, turn)
        for unseen in self.unseen:
            check_unseen(server, unseen)
        self.unseen.clear()
        if self.conversation:
            self.check_conversation(server)
        # Each goes on.
        body = {"input": "and on", "max_output_tokens": 2}
        if self.conversation:
            body["conversation"] = self.conversation
        elif self.last:
            body["previous_response_id"] = self.last.id
        else:
            return
        reply = server.post("/v1/responses", body)
        full = reply.status == 400 and reply.json["error"]["code"] == "context_length_exceeded"
        expect(reply.status == 200 or full, f"it goes on: {reply.status} {reply.text}")
        if not full:
            self.said.append("and on")
            if not self.conversation:
                self.last = Turn(reply.json, "and on")
                self.turns.append(self.last)

    def check_conversation(self, server):
        items, after = [], ""
        while True:
            page = server.get(f"/v1/conversations/{self.conversation}/items?order=asc&limit=100{after}")
            expect(page.status == 200, f"the items of a conversation: {page.status} {page.text}")
            items += page.json["data"]
            if not page.json["has_more"]:
                break
            after = "&after=" + items[-1]["id"]
        said = [item["content"][0]["text"] for item in items if item.get("role") == "user"]
        answers = [item for item in items if item.get("role") == "assistant"]
        kept = said[:len(self.said)]
        expect(kept == self.said, f"a conversation's turns: expected {self.said}, found {said}")
        expect(len(said) - len(self.said) <= (1 if self.unsure else 0), f"turns that nobody asked for: {said}")
        expect(len(answers) == len(said), f"{len(said)} questions and {len(answers)} answers: half a turn is there")
        self.said, self.unsure = said, False


def check_turn(server, turn):
    reply = server.get(f"/v1/responses/{turn.id}")
    expect(reply.status == 200, f"the acknowledged turn {turn.id} is lost: {reply.status} {reply.text}")
    response = reply.json
    expect(response["status"] == turn.status, f"{turn.id}: {turn.status} became {response['status']}")
    expect(output_text(response) == turn.text, f"{turn.id}: another text")
    items = server.get(f"/v1/responses/{turn.id}/input_items").json["data"]
    said = [part["text"] for item in items for part in item["content"]]
    expect(turn.said in said, f"{turn.id}: its input is {said}, without {turn.said!r}")


def check_unseen(server, response_id):
    reply = server.get(f"/v1/responses/{response_id}")
    if reply.status == 404:
        return
    expect(reply.status == 200, f"{response_id}: {reply.status} {reply.text}")
    response = reply.json
    # Committed, and the client could not be told; or interrupted, and said to be.
    expect(response["status"] in ENDED + ("failed",), f"{response_id} is {response['status']}")
    if response["status"] in ENDED:
        expect(response["output"], f"{response_id} has ended without an output")
        expect(server.get(f"/v1/responses/{response_id}/input_items").json["data"], f"{response_id}: no input")


def kill_under_load(server, clients, draw):
    """Runs all clients, kills the server at a random moment, and waits for the clients."""
    killed, failures = threading.Event(), []
    def run(client):
        try:
            client.work(server, killed)
        except Exception as error:  # noqa: BLE001
            failures.append(error)
    threads = [threading.Thread(target=run, args=(client,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(draw.uniform(0.02, 0.8))
    killed.set()
    server.process.kill()
    server.process.wait()
    for thread in threads:
        thread.join()
    server.process.stdout.close()
    server.log.close()
    if failures:
        raise failures[0]


def check_all(server, store, clients, checked):
    check_integrity(store)
    for i, client in enumerate(clients):
        client.check(server, checked[i])
        checked[i] = len(client.turns)


def run(binary, model, store, kills, seed):
    """The number of turns that were acknowledged."""
    draw = random.Random(seed)
    clients = [Client(number, seed) for number in range(CLIENTS)]
    flags = ["--store", store, "--threads", "1", "--device-memory", "64MiB"]
    checked = [0] * CLIENTS
    for kill in range(kills):
        server = Server(binary, model, *flags)
        check_all(server, store, clients, checked)
        kill_under_load(server, clients, draw)
        if kill % 20 == 19:
            print(f"  {kill + 1} kills, {sum(len(client.turns) for client in clients)} turns acknowledged", flush=True)
    with Server(binary, model, *flags) as server:
        check_all(server, store, clients, checked)
        # All of them once more, from the first on.
        for client in clients:
            for turn in client.turns:
                check_turn(server, turn)
    return sum(checked)


def test_no_turn_is_lost_or_half_there(binary, tiny_model, tmp_path, pytestconfig):
    kills, seed = pytestconfig.getoption("--kills"), pytestconfig.getoption("--seed")
    seed = random.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    turns = run(binary, tiny_model, str(tmp_path / "store.db"), kills, seed)
    expect(turns >= kills, f"{turns} turns in {kills} kills: too few to tell anything")
    print(f"{kills} kills, {turns} turns acknowledged, none lost, none half")
