# SPDX-License-Identifier: Apache-2.0
"""Clients that mean harm, or are broken.

Each attack runs while another client asks for replies; with --measure those must come within ANSWER_SECONDS_MAX.
Afterwards the server must live, become idle, and hold no more memory than RSS_GROWTH_MAX above what it had; while it was
attacked it may have held PEAK_GROWTH_MAX more. The model is a tiny random one.
"""
import collections
import contextlib
import json
import os
import random
import resource
import select
import socket
import sqlite3
import ssl
import subprocess
import threading
import time

import pytest

from live_client import Server, wait_until

pytestmark = pytest.mark.serve(model="tiny")
ANSWER_SECONDS_MAX = 10.0
HASTY_SECONDS = 3  # the limits of a server that is to cut slow clients off
RSS_GROWTH_MAX = 64 << 20  # bodies of which malloc has not given all back yet
PEAK_GROWTH_MAX = 160 << 20
IDLE_CONNECTIONS = 2000
PATH = "/v1/completions"
NEVER_READ_GROWTH_MAX = 512 << 10  # for each of them
BUDGET = 32 << 20  # --max-bodies


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=120)


def head(length, more=""):
    return f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n".encode()


class Bystander:
    """An honest client beside an attack: asks again and again, and keeps the longest time to an answer.

    The server's limits may cut it off where it was slow itself: where its request took `limit_seconds` or more.
    """

    def __init__(self, server, limit_seconds):
        self.server, self.limit_seconds, self.stop = server, limit_seconds, threading.Event()
        self.longest, self.count, self.faults = 0.0, 0, []

    def __enter__(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def ask(self):
        """What is wrong with the answer, and whether a client that was too slow gets the like."""
        try:
            reply = self.server.post(PATH, {"prompt": "Hello", "max_tokens": 4})
            return (None, False) if reply.status == 200 else (reply.text, reply.status == 408)
        except Exception as error:  # noqa: BLE001
            return repr(error), isinstance(error, (ConnectionError, ssl.SSLError))

    def run(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            fault, too_slow = self.ask()
            seconds = time.monotonic() - begin
            self.longest = max(self.longest, seconds)
            if fault is None:
                self.count += 1
            elif not too_slow or seconds < self.limit_seconds:
                self.faults.append(fault)
            self.stop.wait(0.05)

    def __exit__(self, kind, *_):
        if kind is None:
            wait_until(lambda: self.count > 2 or self.faults, "three answers beside an attack")
        self.stop.set()
        self.thread.join()
        if kind is None:
            assert not self.faults, self.faults[:3]
            print(f"      {self.count} answers beside it, the slowest after {self.longest:.2f} s")


def memory(server, field):
    """VmRSS or VmHWM, its peak, in bytes."""
    with open(f"/proc/{server.process.pid}/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
    raise AssertionError(f"no {field}")


def gauges(server, *names):
    """Of /metrics; nothing where this client was too slow for the server's limits, and is to ask again."""
    try:
        metrics = server.metrics()
        return [metrics[name] for name in names]
    except (ConnectionError, ssl.SSLError, ValueError, KeyError):
        return []


def wait_until_idle(server):
    """No request runs or waits, and no connection is left but the one that asks."""
    wait_until(lambda: gauges(server, "loci_http_connections", "loci_requests_running", "loci_requests_queued") == [1, 0, 0],
               "one connection, nothing running, nothing queued")


@pytest.fixture(scope="module")
def limit_seconds(request):
    """Of the server, for headers and bodies."""
    return getattr(request, "param", 600)


hasty = pytest.mark.parametrize("limit_seconds", [HASTY_SECONDS], indirect=True)


@pytest.fixture(scope="module")
def server(limit_seconds, binary, model):
    wanted = IDLE_CONNECTIONS + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:  # for this program and the server that it starts
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted, hard))
    limit = f"{limit_seconds}s"
    with Server(binary, model, "--device-memory", "64MiB", "--context", "512", "--threads", "1", "--max-connections",
                str(wanted), "--header-timeout", limit, "--body-timeout", limit, "--body-stall-timeout", limit,
                "--max-bodies", f"{BUDGET >> 20}MiB", "--log-level", "warn") as running:
        with Bystander(running, limit_seconds):  # warms it up
            pass
        yield running


@pytest.fixture(scope="module")
def memory_at_start(server):
    return {field: memory(server, field) for field in ("VmRSS", "VmHWM")}


@pytest.fixture(autouse=True)
def others_are_served(server, limit_seconds, memory_at_start, pytestconfig):
    """Around each attack: another client's answers, and afterwards what is left of the attack."""
    with Bystander(server, limit_seconds) as bystander:
        yield
    assert bystander.longest < ANSWER_SECONDS_MAX or not pytestconfig.getoption("--measure"), bystander.longest
    assert server.process.poll() is None, "the server lives"
    wait_until_idle(server)
    grown = lambda field: memory(server, field) - memory_at_start[field]
    wait_until(lambda: grown("VmRSS") < RSS_GROWTH_MAX, "memory is given back")
    peak = grown("VmHWM")
    assert peak < PEAK_GROWTH_MAX, f"{peak >> 20} MiB more than at the start, at its peak"
    print(f"      {grown('VmRSS') >> 20} MiB above the start, {peak >> 20} at the peak so far")


def status_of(answer):
    return int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else None


def read_to_end(connection):
    """What comes until the server closes; what came before a reset counts."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionError:
        pass
    connection.close()
    return data


def send_what_goes(connection, data):
    """The server may have closed the connection."""
    try:
        connection.sendall(data)
        return True
    except ConnectionError:
        return False


# --- attacks on what waits ---

@hasty
def test_headers_byte_by_byte(server):
    data = b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-Slow: y\r\n" * 1000
    connections = [connect(server) for _ in range(100)]
    at = iter(data)

    def all_are_closed():
        byte = bytes([next(at)])
        connections[:] = [connection for connection in connections if send_what_goes(connection, byte)]
        time.sleep(0.08)
        return not connections

    wait_until(all_are_closed, "who sends a byte now and then is cut off")
    # Who stops in the middle of a header can read why it was cut off. (Who is cut off before the first byte is told nothing.)
    for _ in range(10):
        connection = connect(server)
        send_what_goes(connection, data[:100])
        if (status := status_of(read_to_end(connection))) is not None:
            break
    assert status == 408


@hasty
def test_bodies_byte_by_byte(server):
    for _ in range(10):  # who is slow itself, and sends to a connection that is closed already, can read no answer
        connections = []
        for _ in range(100):
            connections.append(connect(server))
            send_what_goes(connections[-1], head(1 << 20))
        for _ in range(20):
            for connection in connections:
                send_what_goes(connection, b" ")
            time.sleep(0.05)
        answers = [status_of(read_to_end(connection)) for connection in connections]
        assert set(answers) <= {408, None}, answers
        if answers.count(408) >= 90:
            return
    raise AssertionError(f"ten times, the last time with {answers}")


# --- other attacks: the server is patient, so that a slow machine is no attack ---

def test_huge_bodies(server):
    for more, length in (("", 1 << 40), ("", 9 << 20), ("Expect: 100-continue\r\n", 1 << 30)):
        connection = connect(server)
        send_what_goes(connection, head(length, more) + b"x" * (1 << 20))
        assert status_of(read_to_end(connection)) == 413, length
    # Chunks without end.
    connection = connect(server)
    send_what_goes(connection, f"POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                   + (b"10000\r\n" + b" " * 0x10000 + b"\r\n") * 200)
    assert status_of(read_to_end(connection)) in (413, None)


def test_many_large_bodies_are_bounded_together(server):
    """Twice as many bytes as --max-bodies allows, each body without its last byte."""
    size = 4 << 20
    body = json.dumps({"prompt": "x", "max_tokens": 1, "padding": "y" * (size - 60)}).encode()
    connections = []
    refused = 0
    for _ in range(2 * BUDGET // size):
        connections.append(connect(server))
        send_what_goes(connections[-1], head(len(body)) + body[:-1])
    # The server has taken in all that it holds when it has answered the others.
    wait_until(lambda: len(select.select(connections, [], [], 0)[0]) >= len(connections) // 2 - 1, "half of them are refused")
    # Small ones are served meanwhile.
    assert server.post(PATH, {"prompt": "small", "max_tokens": 1}).status == 200
    for connection in connections:
        send_what_goes(connection, body[-1:])
    for connection in connections:
        answer = b""
        try:
            while b"\r\n\r\n" not in answer and (piece := connection.recv(65536)):
                answer += piece
        except ConnectionError:
            pass
        connection.close()
        if status_of(answer) == 503:
            assert b"Retry-After: " in answer and answer.split(b" ")[1] == b"503", answer
            refused += 1
        else:
            assert status_of(answer) in (200, None), answer[:200]
    assert refused >= len(connections) // 2 - 1, (refused, len(connections))
    # Afterwards there is room again.
    assert server.request("POST", PATH, body).status == 200


def test_deep_and_wide_json(server):
    for body in (b"[" * 1_000_000, b'{"a":' * 500_000, b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
                 b"[" + b"1," * 3_000_000 + b"1]", b'{"prompt": [' + b'"",' * 1_500_000 + b'""]}'):
        assert server.request("POST", PATH, body).status == 400, body[:20]


def test_invalid_utf8(server):
    for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"):
        for path, body in ((PATH, b'{"prompt": "a' + bad + b'"}'), ("/v1/chat/completions", b'{"messages": "' + bad + b'"}'),
                           ("/v1/messages", b'{"' + bad + b'": 1}'), ("/tokenize", b'{"content": "' + bad + b'"}')):
            assert server.request("POST", path, body).status == 400, (path, bad)
    raw = server.raw(b"GET /\xff\xfe%ff HTTP/1.1\r\nHost: \xff\r\nX-Request-Id: \xff\r\nConnection: close\r\n\r\n")
    assert raw.split(" ")[1] in ("400", "404"), raw[:100]


def test_idle_connections(server):
    connections = []
    try:
        for _ in range(IDLE_CONNECTIONS):
            connections.append(connect(server))
        wait_until(lambda: server.metrics()["loci_http_connections"] >= IDLE_CONNECTIONS, "all are open at once")
        assert server.post(PATH, {"prompt": "Hello", "max_tokens": 4}).status == 200
    finally:
        for connection in connections:
            connection.close()


def test_clients_that_never_read(binary, tmp_path):
    """What is made for them ends when no more can be written, and goes on where they read after all."""
    clients, tokens_max, most_read = 64, 128 << 10, 3000
    context, model = tokens_max + 1024, str(tmp_path / "long.gguf")
    subprocess.run([os.path.join(os.path.dirname(binary), "loci-random-model"), model, "--context", str(context)], check=True,
                   stdout=subprocess.DEVNULL)
    body = json.dumps({"messages": [{"role": "user", "content": "Count."}], "stream": True, "max_tokens": tokens_max,
                       "ignore_eos": True, "logprobs": True, "top_logprobs": 20}).encode()
    with Server(binary, model, "--device-memory", "64MiB", "--context", str(context), "--write-timeout", "600s",
                "--log-level", "warn") as server:
        server.post(PATH, {"prompt": "warm", "max_tokens": 4})
        held = lambda: server.metrics()['loci_state_bytes{state="held"}']  # --device-memory bounds it
        before = memory(server, "VmRSS") - held()
        connections = []
        try:
            for _ in range(clients):
                connection = socket.socket()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                connection.connect(("127.0.0.1", server.port))
                connection.sendall(head(len(body)).replace(PATH.encode(), b"/v1/chat/completions") + body)
                connections.append(connection)
            wait_until(lambda: server.metrics()["loci_requests_paused"] == clients
                       and server.metrics()["loci_requests_running"] == 0, "all are paused", 600)
            made = server.metrics()["loci_generated_tokens_total"]
            assert made < clients * tokens_max / 100, made
            assert server.metrics()["loci_requests_queued"] == 0, "they wait for nobody"
            state = held()
            grown = int(memory(server, "VmRSS") - state - before)
            print(f"      {made:.0f} tokens made, {grown >> 10} KiB more for {clients} clients, beside {int(state) >> 10} KiB of state")
            assert grown < clients * NEVER_READ_GROWTH_MAX, f"{grown >> 20} MiB more for {clients} clients"
            assert server.post(PATH, {"prompt": "Hello", "max_tokens": 4}).status == 200
            # One of them reads: its reply goes on, far beyond what was made for it.
            connections[0].settimeout(120)
            answer = bytearray()
            while answer.count(b"data: ") < most_read:
                piece = connections[0].recv(1 << 20)
                assert piece, answer[-300:]
                answer += piece
            assert made / clients < most_read / 3, made
        finally:
            for connection in connections:
                connection.close()
        wait_until_idle(server)


def test_readers_of_a_large_response(binary, model, tmp_path):
    """A hundred clients ask for a stored reply of 30 MB and do not read it: most of them are refused."""
    store, large, readers = str(tmp_path / "store.db"), 30_000_000, 100
    with Server(binary, model, "--store", store) as server:
        made = [server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 2}).json["id"] for _ in range(2)]
    with contextlib.closing(sqlite3.connect(store)) as database:
        database.execute("UPDATE responses SET json = ?, size_bytes = ? WHERE id = ?",
                         (json.dumps({"id": made[0], "background": True, "text": "x" * large}), large, made[0]))
        database.commit()
    path = f"/v1/responses/{made[0]}"
    with Server(binary, model, "--store", store, "--log-level", "warn") as server:
        server.get(f"/v1/responses/{made[1]}")
        before = memory(server, "VmRSS")
        assert server.request("POST", path + "/cancel").status == 400
        assert server.get(path + "/input_items").status == 200
        assert memory(server, "VmHWM") - before < large, "neither reads the reply"
        connections = []
        try:
            for _ in range(readers):
                connection = socket.socket()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                connection.settimeout(120)
                connection.connect(("127.0.0.1", server.port))
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                connections.append(connection)
            statuses = collections.Counter(connection.recv(12).decode()[9:] for connection in connections)
            grown = memory(server, "VmRSS") - before
            print(f"      {dict(statuses)}, {grown >> 20} MiB more for {readers} readers")
            assert set(statuses) == {"200", "503"} and statuses["200"] <= 256_000_000 // large, statuses
            assert grown < 600 << 20, grown >> 20
            assert server.get(f"/v1/responses/{made[1]}").status == 200, "a small one has room"
        finally:
            for connection in connections:
                connection.close()
        wait_until(lambda: server.get(path).status == 200, "there is room again")


def test_pipelined_garbage(server):
    chance = random.Random(5)
    good = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(60):
        connection = connect(server)
        garbage = chance.choice([chance.randbytes(chance.randrange(1, 5000)), b"\r\n" * 3000, b"\0" * 3000,
                                 b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                                 b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                                 b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"])
        try:
            connection.sendall(good * 50 + garbage)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            continue
        answer = read_to_end(connection)
        assert answer.count(b"HTTP/1.1 200") >= 1, answer[:200]
