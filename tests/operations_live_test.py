# SPDX-License-Identifier: Apache-2.0
"""How a server is run: configuration from flags, environment and file; logs; levels at run time; graceful stops."""
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import time

from live_client import chat_body, dechunk, event_blocks, expect, expect_equal, read_all, send_unread, Server, wait_until

SMALL = ("--threads", "1", "--device-memory", "256MiB")


def log_lines(server):
    """Those that are there whole."""
    return [json.loads(line) for line in server.log_text().rpartition("\n")[0].splitlines()]


def access_lines(server, **fields):
    return [line for line in log_lines(server)
            if line["message"] == "access" and all(line.get(name) == value for name, value in fields.items())]


def run(binary, *arguments, environment=None):
    return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "LOCI_CONFIG": "", **(environment or {})})


# --- version ---

def test_every_place_tells_the_version_of_cmakelists(binary, model):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as file:
        version = re.search(r"^project\(loci VERSION (\S+)", file.read(), re.M).group(1)
    expect_equal(run(binary, "--version").stdout, version + "\n", "loci --version")
    with Server(binary, model, *SMALL) as server:
        expect(server.banner.startswith(f"Loci {version}\n"), server.banner)
        expect_equal(server.get("/openapi.json").json["info"]["version"], version, "/openapi.json")
        expect(f'version="{version}"' in server.get("/metrics").text, "/metrics: build_info")
        reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).json
        expect(reply["system_fingerprint"].startswith(f"loci-{version}-"), reply)


# --- configuration ---

def test_configuration_prints_and_reads_back(binary):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "loci.toml")
        first = run(binary, "serve", "default", "--port", "9001", "--cors-origin", "", "--print-config",
                    environment={"LOCI_MAX_RUNNING": "7"})
        expect_equal(first.returncode, 0, first.stderr)
        expect("port = 9001  # --port" in first.stdout, first.stdout)
        expect("max_running = 7  # LOCI_MAX_RUNNING" in first.stdout, first.stdout)
        with open(path, "w", encoding="utf-8") as out:
            out.write(first.stdout)
        second = run(binary, "serve", "--config", path, "--print-config")
        expect_equal(second.returncode, 0, second.stderr)
        without = [re.sub(r"  # .*", "", text) for text in (first.stdout, second.stdout)]
        expect_equal(without[1], without[0], "the configuration that was read back")
        expect(f"port = 9001  # {path}:5" in second.stdout, second.stdout)
        # The user's own file is found without being named.
        os.makedirs(os.path.join(folder, "loci"))
        os.rename(path, os.path.join(folder, "loci", "loci.toml"))
        third = run(binary, "serve", "--print-config", environment={"XDG_CONFIG_HOME": folder})
        expect("port = 9001" in third.stdout, third.stdout + third.stderr)


def test_configuration_faults_name_their_source(binary):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "loci.toml")
        with open(path, "w", encoding="utf-8") as out:
            out.write("[network]\nprot = 80\n")
        for arguments, environment, wanted in (
                (["--port", "x"], {}, '--port: expected an integer from 0 to 65535, found "x"'),
                ([], {"LOCI_PORT": "x"}, 'LOCI_PORT: expected an integer from 0 to 65535, found "x"'),
                (["--config", path], {}, f"{path}:2: network.prot: there is no option of that name; is network.port"),
                (["--config", folder + "/absent"], {}, f"--config: {folder}/absent is not there"),
                (["--config", folder], {}, f"--config: {folder} cannot be read: Is a directory"),
                ([], {"LOCI_CONFIG": folder}, f"--config: {folder} cannot be read: Is a directory"),
                (["--config", "/proc/self/mem"], {}, "--config: /proc/self/mem cannot be read: ")):
            done = run(binary, "serve", "default", *arguments, environment=environment)
            expect(done.returncode == 2 and wanted in done.stderr, f"{done.returncode} {done.stderr}")


def test_mistyped_words_get_the_nearest(binary, model):
    for arguments, wanted in (
            (["sevre"], "loci: there is no command sevre; is serve meant?"),
            (["keys", "ad"], "loci keys: there is no command ad; is add meant?"),
            (["ps"], "loci: there is no command ps; here it is: curl http://127.0.0.1:8080/health"),
            ([], "loci: expected a command"),
            (["serve", "default", "--ctx-size", "5"], "loci serve: --ctx-size: there is no option of that name; here it is: --context"),
            (["serve", "default", "--port", "1", "--port", "2"], "loci serve: --port: expected once, found 2 times"),
            (["serve", "default", "--prot=1"], "loci serve: --prot: there is no option of that name; is --port meant?"),
            (["keys", "add", "--tennant", "a"], "loci keys add: --tennant: there is no option of that name; is --tenant meant?")):
        done = run(binary, *arguments)
        expect(done.returncode == 2 and done.stderr.startswith(wanted), f"{arguments}: {done.returncode} {done.stderr}")
    done = run(binary, "keys", "add", "--help")
    expect("loci keys add alice" in done.stdout, f"examples of its own: {done.stdout}")


# --- one store, one server ---

def test_a_second_server_on_one_store_is_refused(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "conversations.db")
        with Server(binary, model, *SMALL, "--store", store) as first:
            second = run(binary, "serve", model, *SMALL, "--disk", "none", "--port", "0", "--store", store)
            expect_equal(second.returncode, 1, second.stderr)
            expect(f"--store: {store}: another server (process {first.process.pid})" in second.stderr, second.stderr)
        with Server(binary, model, *SMALL, "--store", store):
            pass


# --- logs ---

def test_json_log_has_typed_fields(binary, model):
    with Server(binary, model, *SMALL, "--log-format", "json") as server:
        body = chat_body("Say hello.", max_tokens=8, temperature=0)
        reply = server.request("POST", "/v1/chat/completions", json.dumps(body), {"X-Request-Id": "log-1"}).json
        server.get("/nothing%0a\\\"here", {"X-Request-Id": "log-2"})
        server.raw(b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wait_until(lambda: len(access_lines(server)) >= 3, "three lines of access")
        (line,) = access_lines(server, request_id="log-1")
        usage = reply["usage"]
        expect_equal([line["method"], line["path"], line["status"], line["tenant"]],
                     ["POST", "/v1/chat/completions", 200, "default"], "the request")
        expect_equal([line["prompt_tokens"], line["cached_tokens"], line["output_tokens"]],
                     [usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                      usage["completion_tokens"]], "tokens")
        expect(0 < line["first_token_ms"] <= line["duration_ms"], f"durations: {line}")
        (other,) = access_lines(server, request_id="log-2")
        expect_equal([other["status"], other["path"]], [404, "/nothing%0a\\\"here"], "a request that finds nothing")
        expect("prompt_tokens" not in other, f"no tokens: {other}")


def test_access_log_off(binary, model):
    with Server(binary, model, *SMALL, "--access-log", "off") as server:
        server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        server.get("/v1/models")
        server.process.terminate()
        server.process.wait(120)
        text = server.log_text()
        expect("stopped" in text and "access" not in text, text)
    with Server(binary, model, *SMALL) as server:
        server.get("/v1/models", {"X-Request-Id": "seen"})
        wait_until(lambda: "access request_id=seen tenant=default method=GET path=/v1/models status=200" in server.log_text(), "a line of text")


def get_until_closed(server, request_id):
    """The server closes the connection behind the request's line of access."""
    server.raw(f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {request_id}\r\nConnection: close\r\n\r\n".encode())


def test_log_level_at_run_time(binary, model):
    with Server(binary, model, *SMALL, "--log-level", "warn", "--log-format", "json") as server:
        get_until_closed(server, "before")
        server.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: any(line["message"] == "log level" and line["level"] == "info"
                               for line in log_lines(server)), "the level is info")
        server.get("/v1/models", {"X-Request-Id": "now"})
        wait_until(lambda: access_lines(server, request_id="now"), "what is info is logged")
        expect_equal(len(access_lines(server)), 1, "lines of access")
        server.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: log_lines(server)[-1].get("level") == "warning", "the level is warn")
        get_until_closed(server, "after")
        expect_equal(len(access_lines(server)), 1, "lines of access")


def test_refused_requests_say_why_and_polls_are_quiet(binary, model):
    with Server(binary, model, *SMALL, "--log-format", "json") as server:
        wrong = server.request("POST", "/v1/completions", '{"prompt": "x", "max_tokens": -2}', {"X-Request-Id": "wrong"})
        for path in ("/health", "/v1/health", "/live", "/metrics"):
            expect_equal(server.get(path).status, 200, path)
        server.get("/v1/models", {"X-Request-Id": "last"})
        wait_until(lambda: len(access_lines(server)) == 6, "a line of access for each")
        (line,) = access_lines(server, request_id="wrong")
        error = wrong.json["error"]
        expect_equal([line["status"], line["field"], line["reason"]], [400, error["param"], error["message"]], "the refusal")
        expect("reason" not in access_lines(server, request_id="last")[0], "what went well has no reason")
        # The harness asks for debug lines.
        for path in ("/health", "/v1/health", "/live", "/metrics"):
            levels = {line["level"] for line in access_lines(server, path=path, status=200)}
            expect_equal(levels, {"debug"}, f"levels of polls of {path} that went well")


def test_lines_are_short_whatever_is_asked_for(binary, model):
    """Whoever has no key could fill the log's disk with one line of 200 KB for each request."""
    with Server(binary, model, *SMALL) as server:
        for method, path in (("GET", "/" + "a" * 60_000), ("GET", "/v1/\xff" + "\xff" * 30_000), ("A" * 60_000, "/v1/models")):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=120)
            with connection:
                connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"))
                expect(b" 40" in read_all(connection)[:13], "it is refused")
        wait_until(lambda: server.log_text().count(" access ") == 3, "a line of access for each")
        longest = max(len(line) for line in server.log_text().splitlines())
        expect(longest < 8_000, f"a line of the log has {longest} bytes")


# --- a core that stands still ---

PIPE_BYTES = 4096


def test_health_and_metrics_wait_for_nobody(binary, tiny_model, tmp_path):
    """The event log is a pipe that nobody reads: a step of the core waits in the middle, holding its lock."""
    path = str(tmp_path / "events")
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    over = threading.Event()

    def waiting():
        return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0]

    def read_on():
        while not over.is_set():
            if waiting():
                os.read(pipe, PIPE_BYTES)
            else:
                time.sleep(0.001)

    reader, answers = threading.Thread(target=read_on, daemon=True), []
    with Server(binary, tiny_model, *SMALL, "--event-log", path, "--yield-memory", "off") as server:
        talks = [threading.Thread(target=lambda i=i: answers.append(server.post("/v1/completions", {"prompt": [7 + i] * 200, "max_tokens": 3})), daemon=True)
                 for i in range(8)]
        for talk in talks:
            talk.start()
        try:
            seen = []  # what all of them say does not fit: the core waits when the pipe stands still

            def answers_beside_it():
                seen.append(waiting())
                if len(seen) < 25 or seen[-1] == 0 or len(set(seen[-25:])) > 1:
                    return False
                for path_of in ("/health", "/metrics", "/v1/models"):
                    expect_equal(server.get(path_of).status, 200, path_of)
                return waiting() == seen[-1]  # else the machine had put the server aside, and it has gone on since

            wait_until(answers_beside_it, "the core stands still while three paths answer")
            expect(len(answers) < len(talks), "the core stands still all the while")
        finally:
            reader.start()
            for talk in talks:
                talk.join()
        expect_equal([answer.status for answer in answers], [200] * len(talks), answers[0].text)
        server.process.terminate()
        expect_equal(server.process.wait(120), 0, "exit code")
        over.set()
        reader.join()
    os.close(pipe)


# --- stopping ---

def long_body(**fields):
    return {"prompt": "Once", "max_tokens": 6000, "ignore_eos": True, **fields}


def read_begin(connection, events):
    """What a stream says until so many events are there."""
    data = b""
    while data.count(b"data: ") < events:
        piece = connection.recv(65536)
        expect(piece, f"the stream ends after {data[-500:]}")
        data += piece
    return data


def test_stop_cuts_off_with_a_proper_event(binary, model):
    with Server(binary, model, *SMALL, "--drain-timeout", "1s", "--log-format", "json") as server:
        whole = server.send("/v1/completions", long_body())
        streams = [server.send("/v1/completions", long_body(stream=True)),
                   server.send("/v1/chat/completions", chat_body("Go on.", max_tokens=6000, ignore_eos=True, stream=True))]
        wait_until(lambda: server.metrics()["loci_requests_running"] == 3, "all run")
        said = [read_begin(connection, 3) for connection in streams]
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for connection, first in zip(streams, said):
            head, _, body = (first + read_all(connection)).partition(b"\r\n\r\n")
            connection.close()
            expect(b" 200 " in head.splitlines()[0], head)
            events = [block.removeprefix("data: ") for block in event_blocks(dechunk(body).decode())]
            expect_equal(events[-1], "[DONE]", "the stream's end")
            error = json.loads(events[-2])["error"]
            expect("stopping" in error["message"], error)
            expect(len(events) > 3, "what was said before is there")
        head, _, body = read_all(whole).partition(b"\r\n\r\n")
        whole.close()
        expect(b" 503 " in head.splitlines()[0] and b"Retry-After" in head, head)
        expect("stopping" in json.loads(body)["error"]["message"], body)
        expect_equal(server.process.wait(120), 0, "exit code")
        expect(time.monotonic() - begin > 0.9, "it took the drain's time")
        cut_off = [line for line in access_lines(server) if line.get("output_tokens", 0) > 0]
        expect_equal(len(cut_off), 3, f"lines of access of what was cut off: {cut_off}")


def test_stop_lets_turns_end_and_refuses_new_ones(binary, model):
    with Server(binary, model, *SMALL, "--drain-timeout", "600s", "--write-timeout", "600s") as server:
        whole = server.send("/v1/completions", long_body(max_tokens=60))
        unread = send_unread(server)
        wait_until(lambda: server.metrics()["loci_time_to_first_token_seconds_count"] == 2, "both have begun")
        expect_equal(server.metrics()["loci_ready"], 1, "loci_ready")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/health").status == 503, "health is 503")
        expect_equal(server.metrics()["loci_ready"], 0, "loci_ready of a server that drains")
        for reply in (server.post("/v1/completions", {"prompt": "x"}), server.get("/v1/models"),
                      server.post("/tokenize", {"prompt": "x"})):
            expect_equal(reply.status, 503, reply.text)
            expect_equal(reply.json["error"]["code"], "draining", "code")
            expect(int(reply.headers["Retry-After"]) >= 1, "Retry-After")
        for connection in (unread, whole):
            text = read_all(connection).decode()
            connection.close()
            expect('"finish_reason":"length"' in text.replace(" ", ""), text[-400:])
        expect_equal(server.process.wait(120), 0, "exit code")
