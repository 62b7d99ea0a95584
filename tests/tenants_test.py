# SPDX-License-Identifier: Apache-2.0
"""Keys, limits, fairness and isolation of a live server. Any model will do; the tiny one makes 1,000 pairs (--pairs) a
matter of seconds.
"""
import http.client
import json
import math
import os
import random
import re
import select
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import pytest

from live_client import expect, expect_equal, Keys, Server, wait_until

pytestmark = pytest.mark.serve(model="tiny")
ALPHA = 0.01
ALPHA_UNMEASURED = 1e-6  # so that no good server fails by chance; of a cache that shows, p is far smaller still
PROMPT_TOKENS = 1600  # enough that computing them takes longer than all else


def ask(server, key, prompt, max_tokens=1, path="/v1/completions", **fields):
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **fields}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return server.request("POST", path, json.dumps(body), headers)


def cached(reply):
    expect(reply.status == 200, reply.text)
    return reply.json["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)


def fresh(generator, count=PROMPT_TOKENS):
    return [generator.randrange(40, 200) for _ in range(count)]


class Timer:
    """Times of one request after the other on one connection: a reply of one token is its first token."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def time(self, key, prompt):
        body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        begin = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, headers)
        response = self.connection.getresponse()
        text = response.read()
        elapsed = time.perf_counter() - begin
        expect(response.status == 200, text)
        return elapsed


def sign_test(differences):
    """Two-sided p of as many differences above zero, by the normal approximation."""
    signs = [d > 0 for d in differences if d != 0]
    n, above = len(signs), sum(signs)
    z = (abs(above - n / 2) - 0.5) / math.sqrt(n / 4)
    return math.erfc(max(z, 0) / math.sqrt(2))


# --- keys ---

def test_the_report_says_who_may_use_the_server(binary, model):
    keys = Keys(binary)
    key = keys.add("alice")
    with Server(binary, model, "--device-memory", "16MiB") as server:
        expect(re.search(r"clients +everybody who reaches the port, without a key; anyone may read /metrics +--api-keys --metrics-access", server.banner), server.banner)
    with Server(binary, model, "--api-keys", keys.path, "--metrics-access", "operators", "--device-memory", "16MiB") as server:
        expect(re.search(rf"clients +those with a key of {re.escape(keys.path)}; operators may read /metrics", server.banner), server.banner)
        # What the server prints to be copied works with a key.
        hint, *command = [server.process.stdout.readline() for _ in range(3)]
        expect("LOCI_API_KEY" in hint, hint)
        done = subprocess.run(["bash", "-c", "".join(command)], env={**os.environ, "LOCI_API_KEY": key}, capture_output=True, text=True, timeout=60, check=False)
        expect("data: [DONE]" in done.stdout, done.stdout + done.stderr)


def test_keys(binary, model):
    keys = Keys(binary)
    alice, operator = keys.add("alice"), keys.add("root", "--operator")
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "16MiB") as server:
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"x-api-key": alice[:-1]}):
            reply = server.request("POST", "/v1/completions", json.dumps({"prompt": [50]}), headers)
            expect(reply.status == 401, reply.text)
            expect(reply.json["error"]["code"] == "invalid_api_key" and "alice" not in reply.text, reply.text)
        reply = server.request("POST", "/v1/messages", "{}", {})
        expect(reply.status == 401 and reply.json["error"]["type"] == "authentication_error", reply.text)
        expect(server.get("/health").status == 200, "health needs no key")
        expect(ask(server, alice, [50, 51]).status == 200, "a key")
        reply = server.request("POST", "/v1/completions", json.dumps({"prompt": [50], "max_tokens": 1}), {"x-api-key": operator})
        expect(reply.status == 200, "the other header")
        bob = keys.add("bob")
        wait_until(lambda: ask(server, bob, [50]).status == 200, "a new key is read")
        keys.remove("alice")
        wait_until(lambda: ask(server, alice, [50]).status == 401, "a removed key ends")
        keys.append("[limits\n")
        wait_until(lambda: "stay as they were" in server.log_text(), "the broken file is read")
        expect(ask(server, bob, [50]).status == 200, "a broken file changes nothing")


def stranger(server, request, source="127.0.0.1"):
    """A connection with a request of somebody who has no key, and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.bind((source, 0))
    connection.connect(("127.0.0.1", server.port))
    try:
        connection.sendall(request)
    except OSError:  # the server wants no more of it
        pass
    return connection


def test_strangers_take_no_places(binary, model):
    """What needs no key, asked for by somebody who reads no answer or sends a body that nobody wants."""
    keys, places = Keys(binary), 16
    alice = keys.add("alice")
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "16MiB", "--max-connections", str(places),
                "--max-bodies", "32MiB") as server:
        ask(server, alice, [50])
        open_to_all = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200
        half_sent = b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"
        refused = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n{"
        for request in (open_to_all, half_sent, refused):
            strangers = [stranger(server, request) for _ in range(places + 4)]
            statuses = {ask(server, alice, [50]).status for _ in range(25)}
            expect_equal(statuses, {200}, f"answers beside strangers who sent {request[:60]}")
            for connection in strangers:
                connection.close()
        large = b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 7_900_000
        strangers = [stranger(server, large, f"127.0.0.{address}") for address in range(2, 8)]
        reply = ask(server, alice, "x" * 3_000_000)
        expect_equal(reply.json["error"]["code"], "context_length_exceeded", "a large body beside theirs")
        for connection in strangers:
            connection.close()


def test_open_servers(binary, model, monkeypatch):
    with Server(binary, model, "--device-memory", "16MiB") as server:
        expect(ask(server, None, [50]).status == 200, "no keys are asked for")
    monkeypatch.setenv("LOCI_API_KEY", "sesame")
    with Server(binary, model, "--device-memory", "16MiB") as server:
        expect(ask(server, None, [50]).status == 401, "the environment's key is asked for")
        expect(ask(server, "sesame", [50]).status == 200, "and taken")


# --- limits ---

def test_limits(binary, model):
    keys = Keys(binary)
    few, tokens, one, free = (keys.add(name) for name in ("few", "tokens", "one", "free"))
    keys.append("[tenants.few]\nrequests_per_minute = 2\n[tenants.tokens]\ntokens_per_minute = 400\n"
                "[tenants.one]\nconcurrent_requests = 1\n")
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "16MiB") as server:
        begin = time.monotonic()
        replies = [ask(server, few, [50, i + 40]) for i in range(3)]
        most, least = 30, 30 - math.ceil(time.monotonic() - begin)
        expect([r.status for r in replies] == [200, 200, 429], [r.text for r in replies])
        expect(replies[0].headers["x-ratelimit-remaining-requests"] == "1", "headers")
        expect(replies[2].json["error"]["code"] == "rate_limit_exceeded", replies[2].text)
        expect(least <= int(replies[2].headers["Retry-After"]) <= most, "half a minute until the next one")
        reply = ask(server, tokens, [60] * 100, max_tokens=200)
        expect(reply.status == 200 and reply.headers["x-ratelimit-remaining-tokens"] == "100", reply.text)
        reply = ask(server, tokens, [60] * 100, max_tokens=200)
        expect(reply.status == 429 and "400 tokens per minute" in reply.text, reply.text)
        expect(ask(server, tokens, [60] * 50, max_tokens=10).status == 200, "a small one fits")
        reply = ask(server, tokens, [60] * 400)
        expect(reply.status == 429 and "Retry-After" not in reply.headers, "a prompt that can never be admitted")
        results = []
        threads = [threading.Thread(target=lambda: results.append(ask(server, one, [70, 71], max_tokens=60).status), daemon=True)
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(results.count(200) >= 1 and set(results) <= {200, 429}, results)
        # (The last of the eight gives its place back behind its reply.)
        wait_until(lambda: ask(server, one, [70, 71]).status == 200, "its place is free again")
        expect(ask(server, free, [50]).status == 200, "others have no limits")


def test_what_fails_costs_its_tenant_nothing(binary, model):
    keys = Keys(binary)
    key = keys.add("tokens")
    keys.append("[tenants.tokens]\ntokens_per_minute = 400\n")
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "64KiB") as server:
        refused = ask(server, key, [60] * 350, max_tokens=10)
        expect(refused.status == 400 and "memory" in refused.text, refused.text)
        reply = ask(server, key, [60] * 50, max_tokens=10)
        expect(reply.status == 200 and int(reply.headers["x-ratelimit-remaining-tokens"]) == 340, reply.headers)


def test_what_a_client_makes_fail_is_paid(binary, model, tmp_path):
    """A whole reply whose turn cannot be stored, because its client deletes the response that it continues."""
    keys = Keys(binary)
    tries = [keys.add(f"tokens{i}") for i in range(10)]
    for i in range(len(tries)):
        keys.append(f"[tenants.tokens{i}]\ntokens_per_minute = 6000\n")
    with Server(binary, model, "--api-keys", keys.path, "--store", str(tmp_path / "store.db")) as server:
        def send(method, path, body=None):
            return server.request(method, path, body and json.dumps(body), {"Authorization": f"Bearer {key}"})

        def say(**fields):
            return send("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 1, **fields})

        def left(reply):
            return int(reply.headers["x-ratelimit-remaining-tokens"])

        for key in tries:  # of a tenant each, until the reply had not ended before
            first, begin, replies = say(), time.monotonic(), []
            thread = threading.Thread(target=lambda: replies.append(say(
                previous_response_id=first.json["id"], ignore_eos=True, max_output_tokens=1500)), daemon=True)
            thread.start()
            wait_until(lambda: replies or server.metrics()["loci_requests_running"] == 1, "it is made")
            expect(send("DELETE", "/v1/responses/" + first.json["id"]).status == 200, "it can be deleted")
            thread.join()
            if replies[0].status != 200:
                break
        expect(replies[0].status == 404, replies[0].text)
        refilled = 100 * (time.monotonic() - begin)
        expect(left(first) - left(say()) + refilled > 1400, "what was computed was paid")


def test_what_is_too_large_to_store_names_its_field(binary, model):
    keys = Keys(binary)
    key = keys.add("small")
    keys.append('[tenants.small]\nstored_bytes = "20KiB"\n')
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "16MiB") as server:
        def send(path, **fields):
            return server.request("POST", path, json.dumps(fields), {"Authorization": f"Bearer {key}"})

        def turn(text, **fields):
            return send("/v1/responses", input=text, max_output_tokens=1, truncation="auto", **fields)
        message = {"type": "message", "role": "user", "content": "x" * 30_000}
        conversation = send("/v1/conversations").json["id"]
        first = turn("Hi").json["id"]
        for refused, field in ((turn("x" * 30_000), "input"), (turn("x" * 30_000, conversation=conversation), "conversation"),
                               (turn("x" * 30_000, previous_response_id=first), "previous_response_id"),
                               (send("/v1/conversations", items=[message]), "items"),
                               (send(f"/v1/conversations/{conversation}/items", items=[message]), "items")):
            expect(refused.status == 400 and "stored_bytes" in refused.text, refused.text)
            expect(refused.json["error"]["param"] == field, refused.text)


FLOOD_BODY = json.dumps({"prompt": "flood " * ((8 * 2**20 - 100) // 6), "max_tokens": 1}).encode()
FLOOD_ACCEPTED = 3  # fewer than a flood's connections: the first answer is a refusal, however long a body takes
UNANSWERED = -1  # the connection ended


class Flood:
    """Bodies of 8 MiB from several connections at once, until it is left; a tenant that may send a few a minute."""

    def __init__(self, server, key, connections=6):
        self.port, self.key, self.ended, self.statuses = server.port, key, threading.Event(), []
        self.threads = [threading.Thread(target=self.send, daemon=True) for _ in range(connections)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        try:
            wait_until(lambda: self.statuses.count(429) >= 3, "the flood is over its limit")
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def send(self):
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\nContent-Type: "
                f"application/json\r\nContent-Length: {len(FLOOD_BODY)}\r\n\r\n").encode()
        while not self.ended.is_set():
            try:
                self.statuses.append(self.send_one(head))
            except OSError:
                self.statuses.append(0)

    def send_one(self, head):
        """As most clients do: an answer in the middle of the body is read, and ends it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            data = memoryview(head + FLOOD_BODY)
            while data and not select.select([connection], [], [], 0)[0]:
                data = data[connection.send(data[:65536]):]
            answer = connection.recv(4096)
            return int(answer.split(b" ")[1]) if answer else UNANSWERED


def p90(values):
    return sorted(values)[len(values) * 9 // 10]


@pytest.fixture
def measure(pytestconfig):
    return pytestconfig.getoption("--measure")


@pytest.fixture
def pairs(pytestconfig):
    return pytestconfig.getoption("--pairs")


@pytest.mark.measures
def test_flood_of_bodies(binary, model, measure):
    """A tenant over its limit is told by its headers, whatever it sends; nobody else is refused for it.

    Measured, who sends the flood has processors of this machine too. So the same flood goes to a neighbour, a second
    server: what another tenant's requests take longer beside a flood at their own server is the server's doing."""
    keys = Keys(binary)
    flood, other = keys.add("flood"), keys.add("other")
    keys.append(f"[tenants.flood]\nrequests_per_minute = {FLOOD_ACCEPTED}\n")
    generator = random.Random(3)
    flags = ("--api-keys", keys.path, "--device-memory", "16MiB")
    with Server(binary, model, *flags) as server, Server(binary, model, *flags) as neighbour:
        quiet, aside, flooded, statuses = [], [], [], []
        start = time.monotonic()

        def others():
            timer = Timer(server)  # (a connection for each time: between two, a flood's bodies may take a minute)
            return [timer.time(other, fresh(generator, 400)) for _ in range(40)]

        received = server.metrics()["loci_http_received_bytes_total"]
        # In turns, so that what else the machine does meets both.
        for _ in range(6 if measure else 2):
            quiet += others()
            if measure:
                with Flood(neighbour, flood):
                    aside += others()
            with Flood(server, flood) as bodies:
                flooded += others()
                # Who sends the header alone has the answer: nobody waits for the body.
                head = (f"POST /tokenize HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {flood}\r\nContent-Type: "
                        "application/json\r\nContent-Length: 8388608\r\n\r\n")
                for _ in range(5):  # (One request each twenty seconds is not refused, and its body is waited for.)
                    reply = server.raw(head.encode())
                    if reply.startswith("HTTP/1.1 429 "):
                        break
                expect(reply.startswith("HTTP/1.1 429 "), reply[:200])
            statuses += bodies.statuses
        expect(UNANSWERED not in statuses, f"every body is answered: {statuses}")
        accepted = sum(status not in (0, 429) for status in statuses)
        expect(429 in statuses, f"nothing was refused: {statuses}")
        # A minute's worth at once, and what each minute brings back.
        most = FLOOD_ACCEPTED * (1 + (time.monotonic() - start) / 60)
        expect(accepted <= most, f"{accepted} of {len(statuses)} bodies were taken, at most {most:.1f} wanted")
        wait_until(lambda: server.metrics()["loci_http_connections"] < 20, "refused connections are closed")
        # The counter is of bodies that were read; what was not cannot have been parsed either.
        received = server.metrics()["loci_http_received_bytes_total"] - received
        refused = len(statuses) - accepted
        bodies = received - accepted * len(FLOOD_BODY)
        expect(refused > 0 and bodies / refused < len(FLOOD_BODY) / 8, f"{bodies / refused:.0f} bytes of each refused body were read")
        if measure:
            ratio = p90(flooded) / p90(aside)
            print(f"      {len(statuses)} bodies of 8 MiB, {accepted} taken; another's p90 time to first token "
                  f"{p90(quiet) * 1e3:.1f} ms alone, {p90(aside) * 1e3:.1f} ms beside a flood at a neighbour, "
                  f"{p90(flooded) * 1e3:.1f} ms beside one here: {ratio:.2f} ×")
            expect(ratio < 1.1, f"{ratio:.2f} × instead of at most 1.10")


# --- isolation ---

def test_content(binary, model):
    keys = Keys(binary)
    a, b, operator = keys.add("a"), keys.add("b"), keys.add("root", "--operator")
    generator = random.Random(1)
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "16MiB") as server:
        secret = fresh(generator)
        expect(cached(ask(server, a, secret)) == 0, "nobody has sent it")
        expect(cached(ask(server, b, secret)) == 0, "another tenant never sees it")
        expect(cached(ask(server, a, secret)) == PROMPT_TOKENS - 1, "its own it finds")

        def warm(key, name, text):
            return server.request("POST", "/v1/loci/warm", json.dumps({"name": name, "prompt": text}),
                                  {"Authorization": f"Bearer {key}"})
        text = "You are a helpful assistant of our shop. " * 8
        expect(warm(a, "shop", text).status == 403, "not an operator")
        public = warm(operator, "shop", text)
        expect(public.status == 200 and public.json["tokens"] > 32, public.text)
        expect(warm(operator, "shop", text).status == 409, "the name is taken")
        for body, message in (({"prompt": "x"}, "name: expected the prefix's name, a string"),
                              ({"name": "x"}, "messages: expected the field messages or prompt; got neither")):
            refused = server.request("POST", "/v1/loci/warm", json.dumps(body), {"Authorization": f"Bearer {operator}"})
            expect(refused.status == 400 and message in refused.text, refused.text)
        refused = warm(operator, "long", "x " * 5000)
        expect(refused.json["error"]["code"] == "context_length_exceeded" and refused.json["error"]["param"] == "prompt", refused.text)
        count = public.json["tokens"]
        first = ask(server, a, text + "What is the price of the red one?")
        expect(count - 2 <= cached(first) <= count, f"the public prefix is everybody's: {cached(first)} of {count}")
        second = ask(server, b, text + "What is the price of the red one?")
        expect(cached(second) == cached(first), "but what follows it is not")
        expect(cached(ask(server, a, text + "What is the price of the red one?")) > cached(first), "its own it finds")
        environment = dict(os.environ, LOCI_OPERATOR_KEY=operator)
        done = subprocess.run([binary, "warm", "--list", "--url", server.url], capture_output=True, text=True, env=environment)
        expect(done.returncode == 0 and done.stdout.startswith(f"shop: {count} tokens"), done)
        done = subprocess.run([binary, "warm", "--release", "shop", "--url", server.url], capture_output=True, text=True,
                              env=environment)
        expect(done.returncode == 0, done)
        expect(cached(ask(server, b, text + "And the blue one?")) == 0, "what was public is nobody's")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([binary, "warm", file.name, "--public", "--name", "again", "--url", server.url],
                                  capture_output=True, text=True, env=environment)
            expect(done.returncode == 0 and done.stdout.startswith("public: again"), done)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="shop") as file:
        file.write(text)
        file.flush()
        with Server(binary, model, "--device-memory", "16MiB", "--public", file.name) as server:
            expect(cached(ask(server, None, text + "A question.")) >= count - 2, "public from the start")
            expect(len(server.get("/v1/loci/warm").json["data"]) == 1, "and listed")


@pytest.mark.measures
def test_time(binary, model, pairs, measure):
    """TTFT of B's probe of what A has sent against B's of what nobody has, in random order."""
    keys = Keys(binary)
    a, b = keys.add("a"), keys.add("b")
    generator = random.Random(2)
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "32MiB") as server:
        timer = Timer(server)

        def differences(prober, count):
            out = []
            for _ in range(count):
                sent, new = fresh(generator), fresh(generator)
                timer.time(a, sent)
                times = {}
                for which in generator.sample(["sent", "new"], 2):
                    times[which] = timer.time(prober, sent if which == "sent" else new)
                out.append(times["sent"] - times["new"])
            return out
        differences(b, 20)  # until everything is warm
        of_other, of_self = differences(b, pairs), differences(a, max(pairs // 5, 50))
        p_other, p_self = sign_test(of_other), sign_test(of_self)
        print(f"      {pairs} pairs: median difference {statistics.median(of_other) * 1e6:+.0f} us, p = {p_other:.3f}; "
              f"a tenant and itself: {statistics.median(of_self) * 1e6:+.0f} us, p = {p_self:.2g}")
        expect(p_self < ALPHA and statistics.median(of_self) < 0, "the test sees what a cache does")
        expect(p_other >= (ALPHA if measure else ALPHA_UNMEASURED), "another tenant's prompts do not show in the time")


# --- fairness ---

def test_fairness(binary, model):
    """A heavy tenant keeps the server busy; another's first token comes before its queue is done."""
    keys = Keys(binary)
    heavy, light = keys.add("heavy"), keys.add("light")
    generator = random.Random(3)
    with Server(binary, model, "--api-keys", keys.path, "--device-memory", "32MiB", "--max-running", "4",
                "--max-queued", "64") as server:
        def load():
            statuses.append(ask(server, heavy, fresh(generator, 200), max_tokens=1200).status)

        def answered():
            """Whom the server has answered, in order, by its log: who asks may be told late that it was."""
            return re.findall(r" tenant=(heavy|light) ", server.log_text())
        for _ in range(5):  # until the light one was asked for before most of the others were done
            before, statuses = len(answered()), []
            threads = [threading.Thread(target=load, daemon=True) for _ in range(40)]
            for thread in threads:
                thread.start()
            wait_until(lambda: server.metrics()["loci_requests_running"] == 4, "the batch is full")
            reply = ask(server, light, fresh(generator, 50), max_tokens=1)
            for thread in threads:
                thread.join()
            expect(reply.status == 200, reply.text)
            expect(statuses == [200] * 40, f"and all of them end: {statuses}")
            wait_until(lambda before=before: len(answered()) == before + 41, "the access log has all")
            order = answered()[before:]
            after = len(order) - 1 - order.index("light")
            if after >= 20:
                break
        expect(after >= 20, f"only {after} of 40 requests of the heavy tenant came after the light one's")
