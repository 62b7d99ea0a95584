# SPDX-License-Identifier: Apache-2.0
"""A server's process from its start to its end: stops while it is busy, a device that stands still, faults on the command line; and
`loci chat` beside it."""
import http.client
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import threading
import time

import pytest

from live_client import expect, expect_equal, expect_error, greedy, Place, send_unread, Server, stream_events, wait_until
from redis_server import free_port

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")


def test_stop_while_busy(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "events")
        with Server(binary, model, "--event-log", log, "--drain-timeout", "600s", "--write-timeout", "600s") as server:
            body = {"prompt": "Once", "max_tokens": 100, "ignore_eos": True, "stream": True}
            connections = [server.send("/v1/completions", body) for _ in range(7)] + [send_unread(server)]
            wait_until(lambda: server.metrics()["loci_time_to_first_token_seconds_count"] == len(connections), "all have begun")
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.get("/health").status == 503, "health is 503")
            refused = server.post("/v1/completions", {"prompt": "x"})
            expect_error(refused, 503, code="draining")
            expect("Retry-After" in refused.headers, "Retry-After")
            for connection in connections:
                events = stream_events(connection)
                expect_equal(events[-1]["choices"][0]["finish_reason"], "length", "what runs goes on to its end")
            expect_equal(server.process.wait(120), 0, "exit code")
        replayed = subprocess.run([binary, "replay", log], capture_output=True, text=True)
        expect_equal(replayed.returncode, 0, f"replay: {replayed.stdout}{replayed.stderr}")


def test_a_terminal_that_closes_stops_as_others_do(binary, model):
    with Server(binary, model, "--drain-timeout", "600s", "--write-timeout", "600s") as server:
        connection = send_unread(server)
        wait_until(lambda: server.metrics()["loci_time_to_first_token_seconds_count"] == 1, "it runs")
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):  # of who ends the session, the system, a shell
            server.process.send_signal(number)
        wait_until(lambda: server.get("/health").status == 503, "it drains")
        expect_equal(stream_events(connection)[-1]["choices"][0]["finish_reason"], "length", "what runs goes on to its end")
        expect_equal(server.process.wait(120), 0, "exit code")
    with Server(binary, model, place=Place(enter=["nohup"])) as server:
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        expect_equal(server.get("/health").status, 200, "health of a server that ignores it")


def test_stop_at_once(binary, model):
    with Server(binary, model, "--drain-timeout", "600s") as server:
        body = {"prompt": "Once", "max_tokens": 5000, "ignore_eos": True, "stream": True}
        connections = [server.send("/v1/completions", body) for _ in range(4)]
        wait_until(lambda: server.metrics()["loci_requests_running"] == 4, "all run")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/health").status == 503, "the first signal was taken")
        server.process.send_signal(signal.SIGTERM)
        expect_equal(server.process.wait(120), 1, "exit code of a server that does not wait")
        expect("stopping at once" in server.log_text(), server.log_text()[-1000:])
        for connection in connections:
            connection.close()
    with Server(binary, model, "--drain-timeout", "300ms") as server:
        connection = server.send("/v1/completions", body)
        wait_until(lambda: server.metrics()["loci_requests_running"] == 1, "it runs")
        server.process.send_signal(signal.SIGINT)
        expect_equal(server.process.wait(120), 0, "exit code after the drain's time")
        connection.close()


def test_a_log_that_nobody_reads_holds_up_nothing(binary, model, tmp_path):
    pipe, script = tmp_path / "log", tmp_path / "logs_into_a_pipe"
    os.mkfifo(pipe)
    script.write_text(f'#!/bin/bash\nexec "{binary}" "$@" 2<> "{pipe}"\n')
    script.chmod(0o700)
    with Server(str(script), model) as server:
        unread = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        for size in (4096, 1):  # until it is full
            try:
                while True:
                    os.write(unread, b"x" * size)
            except BlockingIOError:
                pass
        for _ in range(3):
            expect_equal(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 1}).status, 200, "it is answered")
        server.process.send_signal(signal.SIGTERM)
        expect_equal(server.process.wait(120), 0, "exit code")
        os.close(unread)


def test_closed_streams_are_nobodys(binary, model, tmp_path):
    """Whoever starts it has closed its output: what it says must not go into the next file that it opens."""
    port = free_port()
    command = [binary, "serve", model, "--port", str(port), "--disk", "none", "--store", str(tmp_path / "talks.db")]
    process = subprocess.Popen(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command], stdin=subprocess.DEVNULL, env={**os.environ, "LOCI_CONFIG": "", "LOCI_PROFILE": "none"})

    def is_ready():
        expect(process.poll() is None, "it runs")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except ConnectionError:
            return False
    try:
        wait_until(is_ready, "it answers")
        for stream in range(3):
            expect_equal(os.readlink(f"/proc/{process.pid}/fd/{stream}"), "/dev/null", f"its stream {stream}")
        process.terminate()
        expect_equal(process.wait(120), 0, "its exit code")
    finally:
        process.kill()
        process.wait()


def write_over(path, content):
    """As `cp` does: into the file that is there."""
    with open(path, "r+b") as file:
        file.write(content)


def test_a_model_that_is_written_over(binary, tiny_model, tmp_path):
    """Neither its replies nor the state that it keeps are those of a mixture of two models."""
    path, disk = tmp_path / "m.gguf", tmp_path / "disk"
    body = {"prompt": "All that was ever said of ships and the sea. " * 5, "max_tokens": 8, "temperature": 0}
    other = tmp_path / "other.gguf"
    subprocess.run([os.path.join(os.path.dirname(binary), "loci-random-model"), other, "--shape", "tiny", "--seed", "2"], check=True, stdout=subprocess.DEVNULL)
    with open(tiny_model, "rb") as file:
        content = file.read()
    path.write_bytes(content)
    expect_equal(len(content), other.stat().st_size, "sizes")
    with Server(binary, str(path)) as server:
        wanted = server.post("/v1/completions", body).json["choices"]
    with Server(binary, str(path), "--disk", str(disk)) as server:
        write_over(path, other.read_bytes())
        expect_error(server.post("/v1/completions", body), 503, code="device_lost")
        expect_equal(server.get("/live").status, 503, "only a restart helps")
        expect("the model's file was written to" in server.log_text(), server.log_text())
        write_over(path, content)
    with Server(binary, str(path), "--disk", str(disk)) as server:
        expect_equal(server.post("/v1/completions", body).json["choices"], wanted, "the reply after a restart")


def test_a_model_that_is_cut_short(binary, tiny_model, tmp_path):
    path = tmp_path / "m.gguf"
    with open(tiny_model, "rb") as file:
        path.write_bytes(file.read())
    with pytest.raises(AssertionError, match=rf"(?s)ended by signal {signal.SIGBUS:d}:.*has become shorter"):
        with Server(binary, str(path)) as server:
            os.truncate(path, 0)
            with pytest.raises((OSError, http.client.HTTPException)):
                server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 1})
            server.process.wait(120)


def test_a_device_that_stands_still(binary, model):
    # A pass of a long prompt takes longer than this limit.
    with Server(binary, model, "--stall-limit", "1ms") as server:
        over = threading.Event()

        def client():
            number = 0
            while not over.is_set():
                number += 1
                server.post("/v1/completions", {"prompt": f"{number} " + "and so on " * 300, "max_tokens": 1})
        busy = threading.Thread(target=client, daemon=True)
        busy.start()
        answers = []
        wait_until(lambda: answers.append(server.get("/live")) or answers[-1].status == 503, "it says so")
        expect_equal(answers[-1].json["error"]["code"], "device_stalled", "why")
        # Who writes it down looks at its own times, which a pass may be between.
        wait_until(lambda: "the device stands still" in server.log_text(), "the log says so too")
        over.set()
        busy.join(120)
        wait_until(lambda: server.get("/live").status == server.get("/health").status == 200, "it goes on")


def test_command_line_faults(binary, model, server):
    def run(*arguments):
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120)
        lines = done.stderr.strip().splitlines()
        expect_equal(len(lines), 1, f"lines of {done.stderr!r}")
        return done.returncode, lines[0]
    code, line = run("serve", model, "--port", str(server.port))
    expect(code == 1 and "in use" in line, line)
    for arguments in (["serve", model, "--port", "70000"], ["serve"], ["serve", model, "--device-memory", "much"],
                      ["serve", model, "--eviction", "best"], ["serve", model, "--nothing"], ["nothing"]):
        code, line = run(*arguments)
        expect(code == 2 and "--help" in line, f"{arguments}: {code} {line}")
    for arguments in (["serve", "/nowhere.gguf"], ["serve", "--port", "1", "/nowhere.gguf"], ["inspect", "/nowhere.gguf"], ["replay", "/nowhere"],
                      ["serve", model, "--port", "0", "--context", "99999999"], ["serve", model, "--host", "192.0.2.1"]):
        code, line = run(*arguments)
        expect(code == 1 and line.startswith("loci "), f"{arguments}: {code} {line}")
    for command in ([], ["serve"], ["chat"], ["inspect"], ["replay"]):
        done = subprocess.run([binary, *command, "--help"], capture_output=True, text=True)
        expect(done.returncode == 0 and "Examples:" in done.stdout, f"help of {command}")


def test_chat_from_a_pipe(binary, server):
    wanted = server.post("/v1/chat/completions", greedy("Say hello.", max_tokens=20)).json
    done = subprocess.run([binary, "chat", server.url, "--temperature", "0", "--max-tokens", "20"], input="Say hello.\n",
                          capture_output=True, text=True, timeout=120)
    expect_equal(done.returncode, 0, done.stderr)
    expect_equal(done.stdout.strip(), wanted["choices"][0]["message"]["content"].strip(), "reply")
    expect("tokens/s" in done.stderr and "cached" in done.stderr, done.stderr)
    absent = subprocess.run([binary, "chat", "http://127.0.0.1:1"], input="x\n", capture_output=True, text=True)
    expect(absent.returncode == 1 and "does not answer" in absent.stderr, absent.stderr)


def test_chat_in_a_terminal(binary, server):
    with tempfile.TemporaryDirectory() as folder:
        child, terminal = pty.fork()
        if child == 0:
            os.environ.update({"XDG_STATE_HOME": folder, "TERM": "xterm"})
            os.execv(binary, [binary, "chat", server.url, "--temperature", "0"])
        screen = ""
        def until(pattern):
            nonlocal screen
            end = time.monotonic() + 120
            while not re.search(pattern, screen):
                expect(time.monotonic() < end, f"no {pattern!r} in {screen!r}")
                if select.select([terminal], [], [], 0.2)[0]:
                    screen += os.read(terminal, 65536).decode("utf-8", "replace")
            screen = ""
        def type_keys(keys):
            os.write(terminal, keys.encode())
        until("> ")
        type_keys("Say hello.\r")
        until(r"prompt tokens cached.*first token after[\s\S]*> ")  # the next line is being read
        # The editor prints its prompt a moment before it takes the keys over.
        wait_until(lambda: not termios.tcgetattr(terminal)[3] & termios.ICANON, "the editor takes keys")
        type_keys("dropped\x03")  # Ctrl-C drops a line
        until("\n> ")
        type_keys("Write a very long story about the sea.\r")
        wait_until(lambda: server.metrics()["loci_requests_running"] == 1, "it runs")
        type_keys("\x03")  # and interrupts a reply
        until(r"interrupted[\s\S]*> ")
        wait_until(lambda: server.metrics()["loci_requests_running"] == 0, "it is cancelled")
        type_keys("/reset\r")
        until(r"forgotten[\s\S]*> ")
        type_keys("\x1b[A")  # the history
        until("/reset")
        type_keys("\x15/quit\r")
        expect_equal(os.waitpid(child, 0)[1], 0, "exit code")
        os.close(terminal)
        expect("Say hello." in open(os.path.join(folder, "loci", "history")).read().replace("\\040", " "), "history is kept")
