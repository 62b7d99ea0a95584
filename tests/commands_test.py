# SPDX-License-Identifier: Apache-2.0
"""What commands print, and how they end where it cannot be printed; `loci chat` with a server that says what a test wants."""
import http.server
import json
import os
import pty
import re
import struct
import subprocess
import threading

import pytest

from live_client import expect, expect_equal, read_terminal

HOSTILE = "a\x1b]0;title\x07\x9b2J\x7fb"
HARMLESS = "a?]0;title??2J?b"


def run(binary, *arguments, text="", **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([binary, *arguments], input=text.encode(), timeout=120, env={**os.environ, "LOCI_CONFIG": "", "LOCI_MODEL": ""},
                          check=False, **streams)


def on_a_terminal(binary, *arguments, text=""):
    """What a terminal gets from a command whose input is a pipe; without the returns that the terminal adds to line ends."""
    leader, follower = pty.openpty()
    with subprocess.Popen([binary, *arguments], stdin=subprocess.PIPE, stdout=follower, stderr=subprocess.DEVNULL,
                          env={**os.environ, "LOCI_CONFIG": ""}) as process:
        os.close(follower)
        process.stdin.write(text.encode())
        process.stdin.close()
        shown = read_terminal(leader)
    return process.returncode, shown.decode().replace("\r\n", "\n")


# --- standard output ---

def test_what_cannot_be_printed_fails(binary, tmp_path):
    gone, ended = os.pipe()
    os.close(gone)
    with open("/dev/full", "wb") as full, open("/dev/null", "wb") as nowhere:
        for words in (["options"], ["--help"], ["--version"], ["serve", "--print-config"]):
            done = run(binary, *words, stdout=full)
            expect(done.returncode == 1 and re.match(rb"loci: (cannot write to file|standard output could not be written): ", done.stderr), f"{words}: {done}")
            expect_equal(run(binary, *words, stdout=nowhere).returncode, 0, words)
        path = tmp_path / "keys.toml"
        for out in (full, ended):
            done = run(binary, "keys", "add", "alice", "--file", str(path), stdout=out)
            expect(done.returncode == 1 and b"so nobody has the key; it was removed again" in done.stderr, done)
            expect(b"alice" not in path.read_bytes(), "the file has no key that nobody knows")
        os.close(ended)
        done = run(binary, "keys", "add", "alice", "--file", str(path))
        expect(done.returncode == 0 and done.stdout.startswith(b"loci-"), done)


def test_keys_are_listed_with_every_limit(binary, tmp_path):
    path = tmp_path / "keys.toml"
    run(binary, "keys", "add", "alice", "--file", str(path))
    with path.open("a") as file:
        file.write("[tenants.alice]\nrequests_per_minute = 60\ntokens_per_minute = 9000\nconcurrent_requests = 4\nconcurrent_reads = 7\nweight = 2\nqueue_percent = 50\n")
    shown = run(binary, "keys", "list", "--file", str(path)).stdout.decode()
    for limit in ("weight 2", "60 requests a minute", "9000 tokens a minute", "4 requests at once", "7 reads at once", "50 % of the queue"):
        expect(limit in shown, f"{limit}: {shown}")


def test_keys_that_are_made_at_the_same_time_are_all_kept(binary, tmp_path):
    path, link = tmp_path / "keys.toml", tmp_path / "link.toml"
    link.symlink_to("keys.toml")
    words = [["keys", "add", f"user{i}", "--file", str(link if i % 2 else path)] for i in range(12)]
    run(binary, "keys", "add", "leaked", "--file", str(path))
    words.insert(6, ["keys", "remove", "leaked", "--file", str(path)])
    started = [subprocess.Popen([binary, *one], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for one in words]
    for process in started:
        _, told = process.communicate(timeout=120)
        expect_equal(process.returncode, 0, told)
    shown = run(binary, "keys", "list", "--file", str(link)).stdout.decode()
    expect_equal({line.split()[0] for line in shown.splitlines()[1:]}, {f"user{i}" for i in range(12)}, shown)
    expect(link.is_symlink() and not path.is_symlink(), "a link stays one")


def test_what_is_wrong_in_a_file_of_keys_is_told_with_its_name(binary, tmp_path):
    path = tmp_path / "keys.toml"
    for text, told in (("[[keys]\n", "line 1: "), ('[limits]\nstored_bytes = "-1GiB"\n', "stored_bytes: [limits]: line 2: expected a size above 0, as 1073741824 or \"1GiB\", found '-1GiB'\n")):
        path.write_text(text)
        for words in (["list"], ["add", "alice"], ["remove", "alice"]):
            done = run(binary, "keys", *words, "--file", str(path))
            expect(done.returncode == 1 and done.stderr.decode().startswith(f"loci keys: {path}: {told}"), f"{words}: {done}")
    for words in (["list"], ["add", "alice"], ["remove", "alice"]):
        done = run(binary, "keys", *words, "--file", "")
        expect(done.returncode == 2 and b"--file: expected a file's name, found nothing" in done.stderr, done)


# (Of several lengths: what has been freed is written to where other texts have as many bytes.)
@pytest.mark.parametrize("length", range(10, 90, 8))
def test_an_error_names_its_file_once(binary, tmp_path, length):
    log = tmp_path / ("e" * length)
    for text, told in ((None, "No such file or directory"), ("nothing", "expected an event log, which begins with LOCILOG")):
        if text is not None:
            log.write_text(text)
        for name in (str(log), log.name):
            done = run(binary, "replay", name, cwd=tmp_path)
            expect_equal((done.returncode, done.stderr.decode()), (1, f"loci replay: {name}: {told}\n"), text)


# Nothing is measured for a file that cannot be written.
@pytest.mark.parametrize("words", [["bench", "http://127.0.0.1:9", "--json"], ["bench", "http://127.0.0.1:9", "--svg"], ["profile", "no-model", "--svg"],
                                   ["profile", "no-model", "--output"]], ids=["bench --json", "bench --svg", "profile --svg", "profile --output"])
def test_a_result_that_cannot_be_kept_is_refused_at_once(binary, tmp_path, words):
    (tmp_path / "none").write_text("a file, in which no folder can be made")
    file = str(tmp_path / "none" / "file")
    done = run(binary, *words, file)
    told = f"loci {words[0]}: {words[-1]}: expected a file that can be written, found {file}"
    expect(done.returncode != 0 and done.stderr.decode().startswith(told), done)


# --- numbers ---

@pytest.mark.parametrize("words", [*(["bench", "http://127.0.0.1:9", "--trace", "none", flag] for flag in ("--time-scale", "--trace-rate", "--trace-from")),
                                   *(["bench", "http://127.0.0.1:9", flag] for flag in ("--rate", "--think-time", "--temperature", "--timeout", "--wait")),
                                   *(["chat", "http://127.0.0.1:9", flag] for flag in ("--temperature", "--top-p"))], ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_number_is_finite_and_in_its_range(binary, words):
    for value in ("nan", "inf", "-1", "1e999", "many"):
        done = run(binary, *words, value)
        told = rf"loci {words[0]}: {words[-1]}: expected a number from \S+ to \S+, found \"{value}\" \(see loci {words[0]} --help\)\n"
        expect(done.returncode == 2 and re.fullmatch(told, done.stderr.decode()), f"{value}: {done}")


@pytest.mark.parametrize("command", ["bench", "chat"])
def test_a_seed_is_a_whole_number_of_64_bits(binary, command):
    for value in ("-1", "18446744073709551616", "1.5", "many", ""):
        done = run(binary, command, "http://127.0.0.1:9", "--seed", value)
        told = f'loci {command}: --seed: expected a whole number from 0 to 18446744073709551615, found "{value}" (see loci {command} --help)\n'
        expect_equal((done.returncode, done.stderr.decode()), (2, told), value)


@pytest.mark.parametrize("words", [["--trace", "t", "--max-tokens", "3"], ["--trace", "t", "--order", "sessions"], ["--rate", "5", "--order", "sessions"],
                                   ["--dialogues", "f", "--turn-tokens", "9"]], ids=" ".join)
def test_what_would_be_ignored_is_refused(binary, words):
    done = run(binary, "bench", "http://127.0.0.1:9", *words)
    expect(done.returncode == 2 and f"{words[0]} excludes {words[2]}" in done.stderr.decode() or f"{words[2]} excludes {words[0]}" in done.stderr.decode(), done)


@pytest.mark.parametrize("command", ["bench", "chat"])
def test_a_key_begins_no_header_of_its_own(binary, command):
    done = run(binary, command, "http://127.0.0.1:9", "--api-key", "secret\r\nX-Evil: y")
    expect(done.returncode == 2 and b"--api-key: expected visible ASCII characters, found others" in done.stderr and b"secret" not in done.stderr, done)


@pytest.mark.parametrize("flag", ["--max-body", "--max-bodies"])
def test_a_front_that_takes_no_body_is_refused(binary, flag):
    done = run(binary, "route", "--join", "postgresql://x/y", "--cluster-secret", "/nonexistent", flag, "0")
    expect(done.returncode != 0 and f"{flag}: expected more than 0" in done.stderr.decode(), done)


def test_the_benchmark_of_the_backend_reports_as_other_commands_do(binary):
    for words, code, told in [(["--model", "x", "--test", "zz"], 2, "--test: expected one of decode, prefill, streams, found \"zz\""), ([], 2, "--model is required"), (["--model", "/nonexistent"], 1, "")]:
        done = run(binary, "bench-compute", *words)
        error = done.stderr.decode()
        expect(done.returncode == code and error.startswith(f"loci bench-compute: {told}") and error.count("\n") == 1 and len(error) < 300
               and "not_found" not in error, f"{words}: {done}")


# --- passwords ---

def test_no_password_is_printed(binary):
    done = run(binary, "serve", "--shared", "redis://ann:hidden@cache:7000/1", "--print-config")
    expect(done.returncode == 0 and b'shared = "redis://ann:***@cache:7000/1"  # --shared' in done.stdout, done)
    done = run(binary, "serve", "default", "--join", "postgrsql://ann:hidden@db/loci")
    expect(done.returncode == 2 and b"--join: expected postgresql://..., found something else" in done.stderr, done)
    expect(b"hidden" not in done.stderr, done.stderr)


# --- the file of options ---

def test_the_papers_sets_are_those_of_the_documentation(binary):
    """The table of docs/policies.md says what each baseline sets; where a switch has no part in a set, its value is not compared."""
    with open(os.path.join(os.path.dirname(__file__), "..", "docs", "policies.md"), encoding="utf-8") as page:
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.read().split("### The papers' sets")[1].split("\n\n")[2].splitlines()]
    names = [cell.strip("`") for cell in rows[0][1:]]
    table = {row[0]: dict(zip(names, row[1:])) for row in rows[2:]}
    expect_equal(names, ["pensieve", "attentionstore", "berkeley-lru", "stateless"], "the page's columns")
    for name in names:
        done = run(binary, "serve", "default", "--baseline", name, "--print-config")
        expect_equal(done.returncode, 0, done.stderr)
        found = {key: json.loads(value) for key, value in re.findall(r"^(\w+) = (.*?)  # --baseline$", done.stdout.decode(), re.M)}
        ahead = {0: "none", 1 << 20: "unlimited"}[found["lookahead_requests"]]
        tiers = [tier for tier, key, none in (("host", "host_memory", "0"), ("disk", "disk", ["none"])) if found.get(key) != none]
        shown = {
            "eviction": f"`{found['eviction']}`", "admission": f"`{found['admission']}`", "restore": f"`{found['restore']}`",
            "reuse": found["reuse"],
            "save": f"`{found['save']}`" + (f", {found['swap_out_percent']} %" if found["save"] == "ahead" else ""),
            "look-ahead, preload": f"{ahead}, `{found['preload']}`" + (f", {found['preload_retries']} retries" if found["preload"] != "off" else ""),
            "batch": f"`{found['batch']}`",
            "decode reserve": f"{found['decode_reserve_percent']} %" if found["decode_reserve_percent"] else "none",
            "tiers below the device": ", ".join(tiers) or "none",
            "histories that outgrow the context": f"cut by {found['truncation_percent']} %" if found["context_overflow"] == "truncate" else "refused"}
        for row, value in shown.items():
            expect_equal(value, table[row][name], f"{name}: {row}")


def test_sampling_is_written_in_numbers(binary, tmp_path):
    path = tmp_path / "loci.toml"
    path.write_text("[sampling]\ntemperature = 0.7\ntop_p = 1\nmin_p = \"0.05\"\n")
    done = run(binary, "serve", "--config", str(path), "--print-config")
    for line in (f"temperature = 0.7  # {path}:2", f"top_p = 1  # {path}:3", f"min_p = 0.05  # {path}:4"):
        expect(line in done.stdout.decode(), f"{line}: {done}")


# --- a model's file ---

def test_a_file_of_a_model_cannot_write_to_the_terminal(binary, tmp_path):
    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.architecture") + struct.pack("<I", 8) + text(HOSTILE))
    for words in (["inspect"], ["serve", "--port", "0", "--store", "", "--disk", "none", "--threads", "1", "--model"]):
        done = run(binary, *words, str(path))
        shown = (done.stdout + done.stderr).decode()
        expect(HARMLESS in shown and not any(control in shown for control in "\x1b\x07\x9b\x7f"), f"{words}: {done}")


# --- loci chat ---

class Talker:
    """A server of the chat API, a context. Each request takes the next of `replies`: pieces of text, or (status, message); a
    piece that is None breaks the connection off."""

    def __init__(self, *replies, refusal=None):
        """`refusal`: the error that /health answers, where it does."""
        self.replies, self.asked, self.refusal = list(replies), [], refusal
        talker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def send(self, status, body, missing=0):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + missing))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.send(200 if talker.refusal is None else 503, json.dumps({"error": talker.refusal}).encode())

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                talker.asked.append([f"{message['role']} {message['content']}" for message in asked["messages"]])
                reply = talker.replies.pop(0)
                if isinstance(reply, tuple):
                    return self.send(reply[0], json.dumps({"error": {"message": reply[1]}}).encode())
                events = [{"choices": [{"delta": {"content": piece}}]} for piece in reply if piece is not None]
                body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
                return self.send(200, (body + "data: [DONE]\n\n" * (None not in reply)).encode(), missing=int(None in reply))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_a_reply_cannot_write_to_the_terminal(binary):
    pieces = ["one\n\ttwo ě", HOSTILE[:5], HOSTILE[5:]]
    with Talker(pieces, pieces) as talker:
        expect_equal(on_a_terminal(binary, "chat", talker.url, text="Hi\n"), (0, f"one\n\ttwo ě{HARMLESS}\n"), "on a terminal")
        done = run(binary, "chat", talker.url, text="Hi\n")
        expect_equal(done.stdout.decode(), "".join(pieces) + "\n", "a pipe gets it as it is")


def test_why_the_server_does_not_answer_is_told(binary):
    for code, wait, told in (("device_lost", "60", f"cannot answer: {HARMLESS}"), ("draining", "60", "is stopping"),
                             ("no_instance", "0", f"cannot answer: {HARMLESS}"),
                             ("loading", "0", "is still loading its model; try again later")):
        with Talker(refusal={"message": HOSTILE, "code": code}) as talker:
            done = run(binary, "chat", talker.url, "--wait", wait, text="Hi\n")
            expect_equal((done.returncode, done.stderr.decode()), (1, f"loci chat: the server at {talker.url} {told}\n"), code)
            expect_equal(talker.asked, [], "nothing was sent")


def test_an_error_cannot_write_to_the_terminal(binary):
    with Talker((400, HOSTILE)) as talker:
        done = run(binary, "chat", talker.url, text="Hi\n")
        expect_equal((done.returncode, done.stderr.decode()), (1, f"loci chat: {HARMLESS}\n"), "the error")


@pytest.mark.parametrize("failure", [(500, "no"), ["half of", None]], ids=["refused", "broken"])
def test_a_reply_stays_until_another_one_is_there(binary, failure):
    with Talker(["first"], failure, ["third"], ["fourth"]) as talker:
        run(binary, "chat", talker.url, text="one\n/regenerate\n/regenerate\nmore\n")
        expect_equal(talker.asked, [["user one"], ["user one"], ["user one"], ["user one", "assistant third", "user more"]], "after another one")
    with Talker(["first"], failure, ["third"]) as talker:
        run(binary, "chat", talker.url, text="one\n/regenerate\nmore\n")
        expect_equal(talker.asked[-1], ["user one", "assistant first", "user more"], "after a failure")


def test_from_a_pipe_only_replies_go_to_standard_output(binary):
    with Talker(["first"], ["second"]) as talker:
        done = run(binary, "chat", talker.url, text="/help\n/state\none\n/fork\n/forks\n/reset\n/system Be brief.\ntwo\n")
        expect_equal((done.returncode, done.stdout), (0, b"first\nsecond\n"), done.stderr)
        for said in (b"/regenerate", b"nothing was asked yet", b"going on after turn 0", b"1: 2 messages", b"is forgotten", b"a new conversation"):
            expect(said in done.stderr, f"{said}: {done.stderr}")
    for text in ("/etc/hosts: what is this?\n", "/regenerate\n", "/fork 2\n", "/forks 1\n"):
        with Talker() as talker:
            done = run(binary, "chat", talker.url, text=text)
            expect(done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1, f"{text}: {done}")


def test_a_fork_keeps_its_systems_message(binary):
    with Talker(["first"], ["second"]) as talker:
        done = run(binary, "chat", talker.url, text="one\n/fork\n/forks 1\n/system Be brief.\n/forks 1\n/fork\ntwo\n")
        expect(done.returncode == 1 and b"there is no turn to go back to" in done.stderr, done)
        expect_equal(talker.asked, [["user one"], ["user two"]], "what is said in a fork without a system's message")
