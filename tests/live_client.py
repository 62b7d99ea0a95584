# SPDX-License-Identifier: Apache-2.0
"""A server process, its keys and the clients that the live suites and benchmarks need; Python's standard library alone."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import tempfile
import time


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode("utf-8")

    @property
    def json(self):
        return json.loads(self.text)


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def expect_equal(got, wanted, what):
    expect(got == wanted, f"{what}: expected {wanted!r}, got {got!r}")


def expect_error(reply, status, param=None, code=None):
    """The message of an error of OpenAI's form."""
    expect_equal(reply.status, status, f"status of {reply.text[:300]}")
    error = reply.json["error"]
    expect(error["message"] and error["type"], f"an error object: {reply.text}")
    if param is not None:
        expect_equal(error["param"], param, f"param of {reply.text}")
    if code is not None:
        expect_equal(error["code"], code, f"code of {reply.text}")
    return error["message"]


def wait_until(condition, what, seconds=120):
    """`seconds`: a patience, not a promise: a busy machine may take many times what an idle one does."""
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(0.02)


def read_terminal(leader):
    """All that programs write to a pseudo-terminal (pty.openpty()) until the last of them ends; closes it."""
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # the terminal's end
        pass
    os.close(leader)
    return shown


def stop_process(process):
    """Until SIGCONT. Its threads stop a moment after the signal was sent."""
    process.send_signal(signal.SIGSTOP)

    def states():
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{task}/stat", encoding="utf-8") as file:
                yield file.read().rpartition(")")[2].split()[0]
    wait_until(lambda: set(states()) <= {"T"}, "all threads stand still")


def wait_idle(server):
    def idle():
        metrics = server.metrics()
        return (metrics["loci_requests_running"] == 0 and metrics["loci_requests_queued"] == 0
                and metrics['loci_blocks{state="pinned"}'] == 0)
    wait_until(idle, "nothing running, nothing queued, no block pinned")


def wait_saved(server):
    """Everything that is to be saved is on the disk."""
    def ended():
        metrics = server.metrics()
        return metrics["loci_moves_in_flight"] == 0 and metrics["loci_saves_waiting"] == 0
    wait_until(ended, "all saves ended")


def wait_recovered(server):
    """A server that began with a disk has taken over all that there is of before, and there is some."""
    def ended():
        metrics = server.metrics()
        return metrics["loci_recovering"] == 0 and metrics["loci_recovered_entries_total"] > 0
    wait_until(ended, "state of before is found")


def moved(server, link, what="bytes"):
    return server.metrics().get(f'loci_tier_{what}_total{{link="{link}"}}', 0)


def chat_body(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def greedy(text, **fields):
    return chat_body(text, temperature=0, **fields)


def read_all(connection, piece_bytes=65536, pause_seconds=0):
    """All that comes. With a pause between pieces it is a client that reads slowly."""
    data = b""
    while piece := connection.recv(piece_bytes):
        data += piece
        if pause_seconds:
            time.sleep(pause_seconds)
    return data


def send_unread(server):
    """A chat whose turn goes on until its stream is read: log-probabilities make more output than the sockets' buffers hold."""
    body = chat_body("Go on.", n=8, max_tokens=75, ignore_eos=True, logprobs=True, top_logprobs=20, stream=True)
    return server.send("/v1/chat/completions", body, receive_buffer=4096)


def dechunk(body):
    out = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            return out
        out, body = out + body[:count], body[count + 2:]


def event_blocks(text):
    """The events of a stream's text, each as its lines. A stream in which nothing was said for long has comments."""
    blocks = ("\n".join(line for line in block.split("\n") if not line.startswith(":")) for block in text.split("\n\n"))
    return [block for block in blocks if block]


def stream_events(connection):
    """All events of a reply on a raw connection that closes at its end; the last must be [DONE]."""
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    connection.close()
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise AssertionError((head + body).decode("utf-8", "replace"))
    events = [block.removeprefix("data: ") for block in event_blocks(dechunk(body).decode("utf-8"))]
    if events[-1] != "[DONE]":
        raise AssertionError(f"the stream ends with {events[-1]!r}")
    return [json.loads(e) for e in events[:-1]]


class Place:
    """Where a process runs: the address that it is reached at, and the words that its command begins with there."""

    def __init__(self, host="127.0.0.1", enter=()):
        self.host, self.enter = host, list(enter)


HERE = Place()


class Server:
    """A server, on a port of its own unless its flags name one; a context that ends it."""

    def __init__(self, binary, model, *flags, environment=None, place=HERE):
        level = [] if "--log-level" in flags else ["--log-level", "debug"]
        # Files of many gigabytes are made for those tests alone that ask for them.
        disk = [] if "--disk" in flags else ["--disk", "none"]
        # What it keeps without being told where goes with it, and never into the user's own folder.
        self.state = tempfile.TemporaryDirectory(prefix="loci_state_")
        # What a server measures when it is idle would come in the midst of what tests compare. A variable that
        # is None is not set.
        values = {**os.environ, "LOCI_CONFIG": "", "LOCI_PROFILE": "none", "XDG_STATE_HOME": self.state.name,
                  **(environment or {})}
        self.start(place, [binary, "serve", model, *level, *disk, *flags],
                   {name: value for name, value in values.items() if value is not None})

    def start(self, place, command, environment):
        """Begins the program, and waits until it says where it is reached."""
        self.place = place
        self.log = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
        where = [] if place is HERE else ["--host", place.host]
        if "--port" not in command:
            where += ["--port", "0"]
        self.process = subprocess.Popen([*place.enter, *command, *where], stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=environment)
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if match := (re.match(r"ready.*: (https?://[\d.]+:(\d+))$", line) or
                         re.search(r'"message":"ready","url":"(https?://[\d.]+:(\d+))"', line)):
                self.url, self.port = match.group(1), int(match.group(2))
                break
        else:
            self.log.seek(0)
            raise AssertionError("the server did not start:\n" + "".join(lines) + self.log.read())
        self.banner = "".join(lines)
        # Trusts its certificate alone; None: plain HTTP.
        self.tls = ssl.create_default_context(cafile=command[command.index("--tls-cert") + 1]) if "--tls-cert" in command else None

    def log_text(self):
        """What the server has logged so far. The file's offset is the server's too, and stays."""
        descriptor = self.log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise AssertionError("the server did not stop")
        self.process.stdout.close()
        self.log.seek(0)
        text = self.log.read()
        if kind is None and self.process.returncode < 0 and "stopping at once" not in text:
            raise AssertionError(f"the server ended by signal {-self.process.returncode}:\n{text[-4000:]}")
        if "ERROR: " in text or "WARNING: ThreadSanitizer" in text or "runtime error" in text:
            raise AssertionError(f"a sanitizer reports:\n{text[-8000:]}")

    def request(self, method, path, body=None, headers=None):
        connection = (http.client.HTTPSConnection(self.place.host, self.port, timeout=120, context=self.tls) if self.tls else
                      http.client.HTTPConnection(self.place.host, self.port, timeout=120))
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, body):
        return self.request("POST", path, json.dumps(body))

    def send(self, path, body, receive_buffer=None, headers=None, behind=b""):
        """A raw connection on which a request was sent, with bytes behind its JSON, and nothing was read."""
        data = json.dumps(body).encode() + behind
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(120)
        connection.connect((self.place.host, self.port))
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_hostname=self.place.host)
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                           f"{more}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return connection

    def stream(self, path, body):
        return stream_events(self.send(path, body | {"stream": True}))

    def raw(self, data):
        connection = socket.create_connection((self.place.host, self.port), timeout=120)
        try:
            connection.sendall(data)
            return read_all(connection).decode("utf-8", "replace")
        finally:
            connection.close()

    def metrics(self):
        out = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out


@contextlib.contextmanager
def killed(server):
    """A server that ends by kill -9."""
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(120)
        server.process.stdout.close()


class Keys:
    """A file of keys, made by the binary itself."""

    def __init__(self, binary):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "keys.toml")

    def add(self, name, *flags):
        done = subprocess.run([self.binary, "keys", "add", name, "--file", self.path, *flags], capture_output=True,
                              text=True, check=True)
        return done.stdout.strip()

    def remove(self, name):
        subprocess.run([self.binary, "keys", "remove", name, "--file", self.path], check=True, capture_output=True)

    def append(self, text):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("\n" + text)


class Workplace:
    """The binary, a model, and a folder for what a suite's servers and commands read and write."""

    def __init__(self, binary, model, folder):
        self.binary, self.model, self.folder = binary, model, folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *words, text=""):
        return subprocess.run([self.binary, *words], input=text, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "LOCI_CONFIG": "", "XDG_STATE_HOME": self.folder})


def check_integrity(path):
    store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found = [row[0] for row in store.execute("PRAGMA integrity_check")]
        expect(found == ["ok"], f"integrity_check: {found}")
        expect(not store.execute("PRAGMA foreign_key_check").fetchall(), "foreign_key_check is clean")
    finally:
        store.close()


def first_token_ms(server, text):
    """Until the first token of a reply, and the tokens of the prompt by where their state came from."""
    begin = time.monotonic()
    connection = server.send("/v1/completions", {"prompt": text, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True,
                                                 "loci": {"explain": True}})
    data, first = b"", None
    while piece := connection.recv(65536):
        data += piece
        if first is None and re.search(rb'"text":"[^"]', data):
            first = (time.monotonic() - begin) * 1000
    connection.close()
    expect(first is not None, data[-500:])
    events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    return first, next(event["loci"]["tokens"] for event in reversed(events) if "loci" in event)
