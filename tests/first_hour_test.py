# SPDX-License-Identifier: Apache-2.0
"""What people who come from other servers try in their first hour."""
import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import time

from live_client import chat_body, expect, expect_equal, greedy, Keys, Server, wait_until

SMALL = ("--threads", "1", "--device-memory", "256MiB", "--store", "")


def run(binary, *arguments, text="", **environment):
    return subprocess.run([binary, *arguments], input=text, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "LOCI_CONFIG": "", **environment})


# --- help ---

def test_help_fits_a_screen_and_says_what_people_want_first(binary):
    first = run(binary, "--help").stdout
    expect(len(first.splitlines()) <= 42 and max(map(len, first.splitlines())) <= 80, first)
    commands = re.findall(r"^  ([a-z-]+)  +[a-z]", first.split("Examples:")[0], re.M)
    expect_equal(len(commands), len(set(commands)), "each command once")
    expect({"serve", "chat", "pull", "list", "rm", "inspect", "forget", "keys", "warm", "cluster", "route", "options",
            "profile", "bench", "bench-compute", "replay", "sim"} == set(commands), first)
    for command in commands:
        if command != "bench-compute":  # has a help of its own
            expect_equal(run(binary, command, "--help").returncode, 0, command)
    expect_equal(len(re.findall(r"^  loci ", first.split("Examples:")[1], re.M)), 5, first)

    often, every = (run(binary, "serve", flag).stdout for flag in ("--help", "--help-all"))
    flags = [re.findall(r"^  (--[a-z-]+)", text, re.M) for text in (often, every)]
    expect(len(flags[0]) <= 15 and {"--host", "--port", "--disk", "--api-keys", "--help-all"} <= set(flags[0]), often)
    table = re.findall(r"^(--[a-z-]+)", run(binary, "options").stdout, re.M)
    expect(len(table) > 60 and set(table) <= set(flags[1]), set(table) - set(flags[1]))


def test_what_is_misspelt_is_answered_with_the_nearest_name(binary):
    for words, near in ((["sreve", "default"], "serve"), (["serve", "default", "--prot", "1"], "--port"),
                        (["serve", "default", "--api-kes", "x"], "--api-keys"), (["keys", "ad", "x"], "add")):
        done = run(binary, *words)
        expect(done.returncode == 2 and f"is {near} meant?" in done.stderr, f"{words}: {done.stderr}")


def test_a_limit_of_files_sizes_is_an_error_of_the_file(binary, model, tmp_path):
    """Not the end of the process, by a signal and without a word."""
    command = [binary, "serve", model, *SMALL, "--port", "0", "--disk", f"{tmp_path}/state:64MiB"]
    done = subprocess.run(["bash", "-c", 'ulimit -f 64 && exec "$@"', "limited", *command], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 1 and f"{tmp_path}/state" in done.stderr and "File too large" in done.stderr, f"{done.returncode}: {done.stderr}")


def test_errors_of_commands_name_what_is_wrong(binary, tmp_path):
    folder, text, secret = tmp_path / "folder", tmp_path / "text.txt", tmp_path / "secret"
    folder.mkdir()
    text.write_text("You answer briefly.")
    join = ("--join", "mysql://ann:hidden@db", "--cluster-secret", str(secret))
    for words, code, message in (
            (["serve"], 2, "MODEL: expected a model's file or directory, or `default`"),
            (["serve", str(folder)], 1, f"{folder} is a folder without config.json; give a GGUF file"),
            (["forget"], 2, "expected a model's name or --all (see `loci inspect`)"),
            (["forget", "none-such", "--disk", str(folder)], 1, f"{folder}: no state of a model none-such"),
            (["forget", "--all", "--disk", f"{folder}/misspelt"], 1, f"--disk: there is no directory {folder}/misspelt"),
            (["forget", "--all", "--disk", str(text)], 1, f"--disk: there is no directory {text}"),
            (["inspect", str(folder / "none.gguf")], 1, "there is no file"),
            (["warm"], 2, "FILE: expected a file, --list or --release NAME"),
            (["warm", str(text)], 2, "--public: expected this flag, by which you say that all tenants may share the prefix"),
            (["warm", "--list", "--url", "http://x/v1"], 2, "URL: expected http://HOST:PORT or https://HOST:PORT; got 'http://x/v1'"),
            (["warm", "--release", "a b"], 2, "--release: expected 1 to"),
            (["pull", "o/n", "--stall-timeout", "x"], 2, "--stall-timeout: expected"),
            (["rm", "nonsense"], 2, "expected OWNER/NAME"),
            (["forget", "--all", "--disk", "x:0"], 2, "--disk: "),
            (["profile", "none", "--svg", str(folder)], 2, f"--svg: expected a file that can be written, found {folder}"),
            (["cluster", *join], 2, "--join: expected postgresql://..., found something else"),
            (["route", *join], 2, "--join: expected postgresql://..., found something else"),
            (["route", "--join", "postgresql://db", *join[2:], "--policy", "any"], 2,
             '--policy: expected first-token, prompt-tree, session or least-load, found "any"'),
            (["route", "--join", "postgresql://db", *join[2:], "--max-body", "many"], 2, "--max-body: expected"),
            (["route", "--join", "postgresql://db", *join[2:], "--access-log", "no"], 2, "--access-log: no not in {on,off}"),
            (["cluster", "--join", "postgresql://db", *join[2:]], 1,
             f"{secret} is not there; `loci keys cluster {secret}` makes one, for all servers of a cluster"),
            (["bench", "http://127.0.0.1:1", "--dialogues", str(folder / "none")], 2, f"--dialogues: {folder}/none is not there"),
            (["bench", "http://127.0.0.1:1", "--dialogues", str(folder)], 2, f"--dialogues: {folder} cannot be read: Is a directory"),
            (["bench", "http://127.0.0.1:1", "--dialogues", "/proc/self/mem"], 2, "--dialogues: /proc/self/mem cannot be read: "),
            (["keys", "add", "a b", "--file", str(folder / "keys.toml")], 2, "NAME: expected 1 to"),
            (["keys", "remove", "nobody", "--file", str(folder / "keys.toml")], 1, "is not there"),
            (["replay", str(text)], 1, "expected an event log, which begins with LOCILOG")):
        done = run(binary, *words, LOCI_MODEL="")
        expect(done.returncode == code and message in done.stderr, f"{words}: {done.returncode} {done.stderr}")
        expect("hidden" not in done.stderr, f"{words}: a password is shown: {done.stderr}")


def test_what_is_served_and_where_the_default_is_are_two_variables(binary):
    done = run(binary, "inspect", "default", LOCI_MODEL="/none.gguf")
    expect_equal(done.returncode, 0, done.stderr)
    done = run(binary, "inspect", "default", LOCI_DEFAULT_MODEL="/none.gguf")
    expect(done.returncode == 1 and "there is no default model at /none.gguf" in done.stderr, done.stderr)


# --- sampling ---

def test_sampling_defaults_are_shown_and_can_be_set(binary, model):
    with Server(binary, model, *SMALL) as server:
        shown = server.get("/v1/models").json["data"][0]["meta"]["default_sampling"]
        expect_equal(shown["temperature"], 0.8, "the built-in one, as the file names none")
        expect_equal((shown["top_p"], shown["top_k"], shown["min_p"]), (0.95, 40, 0.05), "the others")
        expect(re.search(r"sampling +temperature 0.8, top-p 0.95, top-k 40, min-p 0.05", server.banner), server.banner)
    with Server(binary, model, *SMALL, "--temperature", "0", "--top-k", "7") as server:
        shown = server.get("/v1/models").json["data"][0]["meta"]["default_sampling"]
        expect_equal((shown["temperature"], shown["top_k"]), (0, 7), "given by flags")
        texts = {server.post("/v1/chat/completions", chat_body("Name a colour.", max_tokens=8)).text.split('"content"')[1][:60]
                 for _ in range(3)}
        expect_equal(len(texts), 1, "a server that is greedy says the same")
        reply = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "store": False}).json
        expect_equal((reply["temperature"], reply["top_p"]), (0, 0.95), "a response tells what it was drawn with")
        reply = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "store": False, "temperature": 0.7})
        expect_equal(reply.json["temperature"], 0.7, "what a request says wins")


# --- names ---

def test_names(binary, model):
    with Server(binary, model, *SMALL, "--alias", "gpt-4o,small") as server:
        ids = [one["id"] for one in server.get("/v1/models").json["data"]]
        expect_equal(ids[1:], ["gpt-4o", "small"], "aliases are listed")
        for name in (*ids, "default"):
            reply = server.post("/v1/chat/completions", greedy("Hi", model=name, max_tokens=1))
            expect_equal(reply.status, 200, name)
        reply = server.post("/v1/chat/completions", greedy("Hi", model="claude-x", max_tokens=1))
        expect_equal(reply.status, 404, reply.text)
        expect("claude-x" in reply.text and "any_model" in reply.text, reply.text)
    with Server(binary, model, *SMALL, "--any-model", "on") as server:
        for path, body in (("/v1/chat/completions", greedy("Hi", model="gpt-5", max_tokens=1)),
                           ("/v1/messages", greedy("Hi", model="claude-x", max_tokens=1))):
            expect_equal(server.post(path, body).status, 200, path)


def test_chat_sends_its_key_and_forks(binary, model):
    keys = Keys(binary)
    key = keys.add("alice")
    with Server(binary, model, *SMALL, "--api-keys", keys.path, "--temperature", "0") as server:
        refused = run(binary, "chat", server.url, "--max-tokens", "4", text="Hi\n", LOCI_API_KEY="")
        expect(refused.returncode == 1 and "key" in refused.stderr, refused.stderr)
        for how in ({"LOCI_API_KEY": key}, {}):
            flags = [] if how else ["--api-key", key]
            done = run(binary, "chat", server.url, "--max-tokens", "4", *flags, text="Hi\n", **how)
            expect_equal(done.returncode, 0, done.stderr)
        text = "/help\nName a colour.\n/regenerate\nAnother one.\n/fork 1\n/forks\n/state\n/forks 1\n"
        done = run(binary, "chat", server.url, "--max-tokens", "4", "--api-key", key, text=text)
        expect_equal(done.returncode, 0, done.stderr)
        for part in ("/regenerate", "/fork [N]", "/state", "going on after turn 1", "1: 4 messages",
                     "where their state came from: device", "fork 1 goes on"):
            expect(part in done.stderr, f"{part} is not in {done.stderr}")


# --- nothing is silently ignored ---

def test_what_is_not_served_is_refused_or_named(binary, model):
    fields = {"dry_multiplier": 0.8, "typical_p": 0.9, "lora": [{"id": 0, "scale": 1}], "priority": 3}
    with Server(binary, model, *SMALL) as server:
        for name, value in fields.items():
            for path, body in (("/v1/chat/completions", greedy("Hi", max_tokens=1)),
                               ("/v1/completions", {"prompt": "Hi", "max_tokens": 1}),
                               ("/v1/messages", greedy("Hi", max_tokens=1)),
                               ("/v1/responses", {"input": "Hi", "max_output_tokens": 1, "store": False})):
                reply = server.post(path, {**body, name: value})
                expect_equal(reply.status, 400, f"{path} {name}")
                expect(name in reply.text, reply.text)
    with Server(binary, model, *SMALL, "--lenient", "on") as server:
        for number in range(2):
            reply = server.request("POST", "/v1/chat/completions", json.dumps(greedy("Hi", max_tokens=1, **fields)), {"X-Request-Id": f"lenient-{number}"})
            expect_equal(reply.status, 200, "lenient")
        wait_until(lambda: "access request_id=lenient-1 " in server.log_text(), "all that is said of both is in the log")
        for name in fields:
            lines = [line for line in server.log_text().splitlines() if f"'{name}' is not supported" in line]
            expect(len(lines) == 1 and " warning " in lines[0], f"one warning for {name}: {lines}")


def test_a_salt_keeps_state_apart(binary, model):
    text = "The keeper of the lighthouse wrote down each evening which ships had passed. " * 8

    def cached(**fields):
        body = {"prompt": text, "max_tokens": 1, "temperature": 0, **fields}
        return server.post("/v1/completions", body).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    with Server(binary, model, *SMALL) as server:
        expect_equal(cached(cache_salt="a"), 0, "nobody has said it")
        expect(cached(cache_salt="a") > 60, "the same salt finds it")
        expect_equal(cached(cache_salt="b"), 0, "another salt does not")
        expect_equal(cached(), 0, "nor does who has none")


def test_classes_of_expressions_are_ascii(binary, model):
    with Server(binary, model, *SMALL) as server:
        for seed in range(6):
            reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 24, "guided_regex": r"\d{3}-\w{4}",
                                                    "seed": seed, "temperature": 1.5})
            text = reply.json["choices"][0]["text"]
            expect(re.fullmatch(r"[0-9]{3}-[A-Za-z0-9_]{4}", text), text)


# --- stored conversations ---

def test_stored_conversations_are_listed(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "talks.db")
        with Server(binary, model, "--threads", "1", "--device-memory", "256MiB", "--store", store) as server:
            made = []
            for number in range(3):
                body = {"items": [{"role": "system", "content": "Be short."}, {"role": "user", "content": f"Question {number}\nmore"}]}
                made.append(server.post("/v1/conversations", body | ({"metadata": {"title": "Named"}} if number == 1 else {})).json["id"])
            time.sleep(1.1)  # times are seconds
            server.post("/v1/responses", {"conversation": made[0], "input": "Go on", "max_output_tokens": 2})
            page = server.get("/v1/conversations?limit=2").json
            expect_equal([one["id"] for one in page["data"]], [made[0], made[2]], "the last active first")
            expect_equal((page["has_more"], page["last_id"]), (True, made[2]), "there is more")
            rest = server.get(f"/v1/conversations?after={page['last_id']}").json
            expect_equal([one["id"] for one in rest["data"]], [made[1]], "the next page")
            expect_equal(rest["data"][0]["title"], "Named", "a title that it was given")
            expect_equal(page["data"][1]["title"], "Question 2", "else what the user said first")
            expect(page["data"][0]["items"] == 4 and page["data"][0]["size_bytes"] > 100, page["data"][0])
            expect_equal(server.get("/v1/conversations?after=none").status, 400, "an id that is none")
        text = run(binary, "inspect", store).stdout
        expect(all(one in text for one in made), text)


def bytes_of(folder):
    """Of all files that are there; the server may remove some meanwhile."""
    found = []
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError), open(os.path.join(path, name), "rb") as file:
                found.append(file.read())
    return b"".join(found)


def test_what_is_deleted_is_in_no_file(binary, model):
    """A conversation's text and its computed state go from the disk when it is deleted; others' stay."""
    with tempfile.TemporaryDirectory() as folder:
        files = ["--store", os.path.join(folder, "talks.db"), "--disk", os.path.join(folder, "state") + ":40MiB"]
        told = {name: f"My secret is a {name} elephant. " + "It lives by the sea and it likes rain. " * 12 for name in ("purple", "green")}
        with Server(binary, model, "--threads", "1", "--device-memory", "256MiB", *files) as server:
            made = {name: server.post("/v1/conversations", {}).json["id"] for name in told}
            for name, text in told.items():
                reply = server.post("/v1/responses", {"conversation": made[name], "input": text, "max_output_tokens": 2})
                expect_equal(reply.status, 200, reply.text)
            # The name with the token before it or behind it, as a record of the disk has them: one of both is in one block.
            tokens = {name: server.post("/tokenize", {"content": text}).json["tokens"] for name, text in told.items()}
            differs = next(i for i, (a, b) in enumerate(zip(tokens["purple"], tokens["green"])) if a != b)
            pieces = {name: [struct.pack("<2I", *all_of[at:at + 2]) for at in (differs - 1, differs)] for name, all_of in tokens.items()}

            def is_kept(name):
                kept = bytes_of(folder)
                return any(piece in kept for piece in pieces[name])

            wait_until(lambda: all(is_kept(name) for name in pieces), "state is saved")
            expect(all(f"{name} elephant".encode() in bytes_of(folder) for name in told), "text is stored")
            expect_equal(server.request("DELETE", f"/v1/conversations/{made['purple']}").status, 200, "deleted")
            wait_until(lambda: not is_kept("purple"), "state is gone")
            expect(b"purple elephant" not in bytes_of(folder), "text is gone")
            expect(is_kept("green") and b"green elephant" in bytes_of(folder), "the other one's stay")
            again = server.post("/v1/responses", {"input": told["purple"], "max_output_tokens": 2, "store": False}).json
            cached = again["usage"]["input_tokens_details"]["cached_tokens"]
            expect(cached < 64, f"{cached} tokens are found: no more than what the other one shares")


# --- logs and metrics ---

def test_every_line_of_both_streams_is_json(binary, model):
    with Server(binary, model, *SMALL, "--log-format", "json", "--log-level", "debug") as server:
        lines = [json.loads(line) for line in server.banner.splitlines()]
        expect_equal([line["message"] for line in lines], ["configuration", "ready"], "standard output")
        expect_equal(lines[1]["url"], server.url, "where it listens")
        expect("temperature" in lines[0]["sampling"] and lines[0]["model"], lines[0])
        server.post("/v1/chat/completions", {"messages": 5})
        server.get("/health", {"X-Request-Id": "last"})
        wait_until(lambda: '"request_id":"last"' in server.log_text(), "what is said of both is in the log")
        for line in server.log_text().rpartition("\n")[0].splitlines():  # (another one may be written just now)
            json.loads(line)
    done = run(binary, "serve", "default", "--log-format", "json", "--port", "0", "--disk", "/proc/x", "--store", "")
    expect_equal(done.returncode, 1, done.stderr)
    # The log has a thread of its own: a line of it may come after the reason.
    reasons = [line for line in map(json.loads, done.stderr.splitlines()) if "field" in line]
    expect(len(reasons) == 1 and reasons[0]["field"] == "--disk" and "/proc/x" in reasons[0]["reason"], done.stderr)


def test_a_second_signal_is_told_from_a_client_that_left(binary, model):
    with Server(binary, model, *SMALL, "--drain-timeout", "600s") as server:
        connection = server.send("/v1/completions", {"prompt": "Count:", "max_tokens": 4000, "ignore_eos": True,
                                                     "stream": True})
        connection.recv(2000)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/health").status == 503, "the first signal was taken")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(120)
        connection.close()
        expect_equal(server.process.returncode, 1, "exit code")
        log = server.log_text()
        expect("finish=server_stopped" in log, log[-1500:])
        expect("finish=client_left" not in log, log[-1500:])


def test_metrics_tell_tenants_apart(binary, model):
    keys = Keys(binary)
    alice = keys.add("alice")
    root = keys.add("root", "--operator")
    flags = ("--api-keys", keys.path)
    with Server(binary, model, *SMALL, *flags, "--metrics-access", "operators") as server:
        headers = {"Authorization": f"Bearer {alice}"}
        server.request("POST", "/v1/completions", json.dumps({"prompt": "a b c", "max_tokens": 3, "ignore_eos": True}), headers)

        def is_told(what):
            return what in server.get("/metrics", {"Authorization": f"Bearer {root}"}).text
        for what in ('loci_tenant_requests_total{code="200",tenant="alice"} 1', 'loci_tenant_tokens_total{kind="generated",tenant="alice"} 3',
                     'route="/v1/completions"'):  # as the documentation names it; a request is counted behind its reply
            wait_until(lambda what=what: is_told(what), what)
    with Server(binary, model, *SMALL, *flags) as server:
        server.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1}), headers)
        expect("alice" not in server.get("/metrics").text, "whoever reads all metrics is told no names")
