# SPDX-License-Identifier: Apache-2.0
"""`loci bench` against live servers: Loci, and stand-ins that refuse, break off and speak as llama.cpp does."""
import http.server
import json
import signal
import subprocess
import threading
import time

import pytest

from live_client import expect, expect_equal, Server, wait_until
from redis_server import free_port

SMALL = ("--threads", "1", "--device-memory", "256MiB")
DIALOGUES = "\n".join(json.dumps({"messages": [{"role": role, "content": f"{role} {d}.{i}, and more words"}
                                               for i in range(3) for role in ("user", "assistant")]})
                      for d in range(8))


@pytest.fixture(params=["tiny", "default"])
def model(request):
    """With the tiny model too, whose replies come faster than the client reads them."""
    named = request.config.getoption("--model") or request.param
    if named != request.param and (named in ("tiny", "default") or request.param == "tiny"):
        pytest.skip(f"--model {named} was asked for")
    return request.getfixturevalue("tiny_model") if named == "tiny" else named


def bench(binary, *arguments, text=None):
    return subprocess.run([binary, "bench", *arguments], input=text, capture_output=True, text=True, timeout=300)


def bench_json(binary, *arguments, text=None, code=0):
    done = bench(binary, *arguments, "--json", "-", text=text)
    expect_equal(done.returncode, code, f"exit code ({done.stderr})")
    return json.loads(done.stdout)


def undisturbed(run, seconds_more, seconds_max):
    """What `run` gives; once more where by `seconds_more` it took longer than it may: the machine may have been busy."""
    for _ in range(10):
        out = run()
        if seconds_more(out) < seconds_max:
            return out
    raise AssertionError(f"ten runs took too long, the last one by {seconds_more(out)} s, expected less than {seconds_max}")


class StandIn:
    """Answers every POST by `reply(handler, number)`; a context."""

    def __init__(self, reply):
        outer = self
        self.bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_error(404)

            def do_POST(self):
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                reply(self, len(outer.bodies))

            def log_message(self, *_):
                pass

            def events(self, *events):
                self.send_response(200)
                self.end_headers()
                for event in events:
                    self.wfile.write(f"data: {event}\n\n".encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def text_event(text):
    return json.dumps({"choices": [{"delta": {"content": text}}]})


# --- against Loci ---

def test_a_closed_loop_from_a_file(binary, model):
    def run_once():
        before = server.metrics()
        out = bench_json(binary, server.url, "--dialogues", "-", "--conversations", "4", "--turns", "5", "--max-tokens",
                         "6", "--ignore-eos", "--concurrency", "2", "--private-prefix-tokens", "80", "--warmup", "0",
                         text=DIALOGUES)
        return out["servers"][0], before, server.metrics()

    def more(ran):
        turns = ran[0]["turns"]
        return ran[0]["seconds"] - (max(turn["ended_ns"] for turn in turns) - min(turn["sent_ns"] for turn in turns)) / 1e9

    with Server(binary, model, *SMALL) as server:
        run, before, after = undisturbed(run_once, more, 0.5)
    expect_equal(run["requests"], {"completed": 20, "failed": 0, "skipped": 0}, "requests")
    expect_equal(run["remarks"], [], "remarks")
    expect_equal([turn["output_tokens"] for turn in run["turns"]], [6] * 20, "lengths of replies")
    order = [(turn["turn"], turn["conversation"]) for turn in sorted(run["turns"], key=lambda turn: turn["sent_ns"])]
    expect_equal([turn for turn, _ in order], sorted(turn for turn, _ in order), "turns in the order of sending")
    for turn in run["turns"]:
        expect(0 < turn["sent_ns"] < turn["first_ns"] <= turn["ended_ns"], f"times in order: {turn}")
        if turn["turn"] > 0:
            expect(turn["cached_tokens"] >= 80, f"later turns find their document: {turn}")
    for name, key in (("prompt_tokens", "prompt_tokens"), ("prompt_tokens_cached", "cached_tokens"),
                      ("generated_tokens", "output_tokens")):
        counted = after[f"loci_{name}_total"] - before[f"loci_{name}_total"]
        expect_equal(sum(turn[key] for turn in run["turns"]), counted, f"{key} as the server counts")
    rate = run["throughput"]["output_tokens_per_second"]
    expect(abs(rate * run["seconds"] - 120) < 1e-6, "throughput is tokens over seconds")
    expect(0 <= more((run,)), "seconds are those of the run")


def test_sessions_one_after_the_other(binary, model):
    with Server(binary, model, *SMALL) as server:
        out = bench_json(binary, server.url + "/v1", "--conversations", "3", "--turns", "3", "--max-tokens", "3",
                         "--concurrency", "1", "--order", "sessions", "--warmup", "0", "--api", "completions")
    order = [(turn["conversation"], turn["turn"]) for turn in out["servers"][0]["turns"]]
    expect_equal(order, sorted(order), "order")
    expect_equal(len(order), 9, "turns")


def test_an_open_loop(binary, model):
    with Server(binary, model, *SMALL) as server:
        out = bench_json(binary, server.url, "--conversations", "5", "--turns", "2", "--rate", "10", "--think-time",
                         "0.05", "--max-tokens", "4")
    run = out["servers"][0]
    expect_equal(run["requests"]["completed"], 10, "completed")
    first = {turn["conversation"]: turn for turn in run["turns"] if turn["turn"] == 0}
    for turn in run["turns"]:
        if turn["turn"] == 1:
            expect(turn["sent_ns"] > first[turn["conversation"]]["ended_ns"], "the second turn comes after the reply")
    expect_equal(out["workload"]["rate"], 10.0, "rate")


TRACE = "\n".join(json.dumps(line) for line in (
    {"time_ms": 0, "conversation": "a", "prompt_tokens": 60, "reply_tokens": 5},
    {"time_ms": 200, "prompt_tokens": 70, "reply_tokens": 3, "block_tokens": 32, "hashes": [1, 2, 3]},
    {"time_ms": 600, "prompt_tokens": 80, "reply_tokens": 4, "block_tokens": 32, "hashes": [1, 2, 4]},
    {"time_ms": 900, "conversation": "a", "prompt_tokens": 100, "reply_tokens": 6, "think_ms": 800}))


def test_a_trace_at_its_times(binary, model, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)

    def turns_of(out):
        return {(turn["conversation"], turn["turn"]): turn for turn in out["servers"][0]["turns"]}

    def thought_seconds(out):
        return (turns_of(out)[0, 1]["due_ns"] - turns_of(out)[0, 0]["ended_ns"]) / 1e9

    def beside_the_turn(out):
        (turn,) = out["servers"][0]["turns"]
        return abs(out["servers"][0]["seconds"] - (turn["ended_ns"] - turn["sent_ns"]) / 1e9)

    with Server(binary, model, *SMALL) as server:
        # The second turn is due as long after the reply as the client thought.
        out = undisturbed(lambda: bench_json(binary, server.url, "--trace", str(path), "--time-scale", "0.5", "--ignore-eos",
                                             "--warmup", "0", "--objective", "ttft=1h,latency=1h"), thought_seconds, 0.45)
        table = bench(binary, server.url, "--trace", str(path), "--trace-requests", "2", "--ignore-eos")
        path.write_text('{"time_ms": 700, "conversation": "a", "prompt_tokens": 6, "reply_tokens": 2}')
        # Seconds are from the first request on.
        undisturbed(lambda: bench_json(binary, server.url, "--trace", str(path)), beside_the_turn, 0.3)
        path.write_text('{"time_ms": 2000, "conversation": "a", "prompt_tokens": 6, "reply_tokens": 5}')
        refused = bench(binary, server.url, "--trace", str(path), "--time-scale", "1e9")
    expect_equal(table.returncode, 0, table.stderr)
    expect("ms late on average" in table.stdout and "2 turns of" in table.stdout, table.stdout)
    expect_equal(refused.returncode, 2, refused.stderr)
    expect(f"loci bench: --time-scale: {path}: expected turns due within 10^12 ms of the begin, found one at 2e+12 ms" in refused.stderr, refused.stderr)
    run = out["servers"][0]
    turns = turns_of(out)
    expect_equal({place: turn["output_tokens"] for place, turn in turns.items()},
                 {(0, 0): 5, (1, 0): 3, (2, 0): 4, (0, 1): 6}, "replies as long as the trace says")
    due = [turns[place]["due_ns"] / 1e6 for place in ((0, 0), (1, 0), (2, 0))]
    expect_equal(due, [0, 100, 300], "times are scaled")
    expect(thought_seconds(out) >= 0.4, f"the second turn is due as long after the reply as the client thought: {thought_seconds(out)}")
    for turn in turns.values():
        expect(turn["due_ns"] <= turn["sent_ns"] < turn["first_ns"], f"none is sent before it is due: {turn}")
    expect(turns[2, 0]["cached_tokens"] >= 32, "equal hashes are equal words")
    ttft = sorted((turn["first_ns"] - turn["due_ns"]) / 1e6 for turn in turns.values())
    expect(abs(run["all_turns"]["ttft_ms"]["mean"] - sum(ttft) / 4) < 1e-6, "times count from when a turn was due")
    expect_equal(run["lateness_ms"]["count"], 4, "lateness")
    expect_equal((run["goodput"]["good"], run["goodput"]["of"]), (4, 4), "goodput")


def test_responses_go_on_by_their_ids(binary, model):
    with Server(binary, model, *SMALL) as server:
        out = bench_json(binary, server.url, "--api", "responses", "--conversations", "6", "--turns", "3", "--max-tokens", "4",
                         "--ignore-eos", "--warmup", "0")
    run = out["servers"][0]
    expect_equal(run["requests"], {"completed": 18, "failed": 0, "skipped": 0}, "requests")
    expect_equal(run["remarks"], [], "remarks")
    prompts = {(turn["conversation"], turn["turn"]): turn["prompt_tokens"] for turn in run["turns"]}
    for (conversation, turn), tokens in prompts.items():
        expect(turn == 0 or tokens > prompts[conversation, turn - 1] + 4, "a turn is behind all before it")
    interval = run["all_turns"]["latency_ms"]["interval_95"]
    for figure in ("mean", "p50", "p90", "p99"):
        low, high = interval[figure]
        expect(low <= run["all_turns"]["latency_ms"][figure] <= high, f"{figure} is in its interval")


def test_two_servers_in_turns(binary, model, tmp_path):
    with Server(binary, model, *SMALL) as one, Server(binary, model, *SMALL) as two:
        arguments = ("--compare", two.url, "--conversations", "4", "--turns", "3", "--max-tokens", "4", "--concurrency",
                     "2", "--ignore-eos")
        out = bench_json(binary, one.url, *arguments)
        picture = tmp_path / "times.svg"
        table = bench(binary, one.url, *arguments, "--seed", "2", "--svg", str(picture))
    runs = out["servers"]
    for run in runs:
        expect_equal(run["requests"]["completed"], 12, "completed")
    spans = sorted([(turn["sent_ns"], turn["ended_ns"], which) for which, run in enumerate(runs) for turn in run["turns"]])
    for (_, ended, which), (sent, _, other) in zip(spans, spans[1:]):
        expect(which == other or sent >= ended, "one server alone is loaded at a time")
    ratio = out["second_over_first"]["all_turns"]["ttft_ms"]
    expect_equal(ratio["pairs"], 12, "pairs")
    expect(ratio["low"] <= ratio["ratio"] <= ratio["high"], "interval")
    expect_equal(out["second_over_first"]["throughput"]["pairs"], 6, "rounds")
    expect_equal(table.returncode, 0, table.stderr)
    expect("2nd / 1st" in table.stdout and "later turns (8)" in table.stdout, table.stdout)
    drawn = picture.read_text()
    for text in ("<svg ", "first server, later turns (8)", "second server, median", "time between tokens over turns"):
        expect(text in drawn, text)


def test_waits_while_the_model_loads(binary, model):
    for _ in range(10):  # until nobody else took the port before the server
        port = free_port()
        process = subprocess.Popen([binary, "serve", model, "--port", str(port), *SMALL], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while True:
                done = bench(binary, f"http://127.0.0.1:{port}", "--conversations", "1", "--turns", "1", "--max-tokens", "2")
                has_ended = process.poll() is not None
                if "Connection refused" not in done.stderr or has_ended or time.monotonic() > deadline:
                    break
        finally:
            process.terminate()
            process.wait(120)
        if not has_ended:
            expect_equal(done.returncode, 0, done.stderr)
            return
    raise AssertionError(f"the server ended at each of ten starts: {process.returncode}")


def test_an_interrupt_shows_what_there_is(binary, model, tmp_path):
    with Server(binary, model, *SMALL) as server:
        file = tmp_path / "bench.json"
        process = subprocess.Popen([binary, "bench", server.url, "--conversations", "4", "--turns", "30", "--think-time", "2", "--warmup",
                                    "0", "--max-tokens", "2", "--json", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Who sends a conversation's second turn has had the first one's end.
        wait_until(lambda: server.metrics()["loci_time_to_first_token_seconds_count"] > 4, "a second turn")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        expect_equal(process.returncode, 1, err)
        expect("interrupted" in out and "TTFT" in out, out)
        expect(json.loads(file.read_text())["interrupted"], "the JSON says so")


def interrupted(binary, *arguments, when):
    """What `loci bench` says and ends with, when SIGINT comes after `when`."""
    process = subprocess.Popen([binary, "bench", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    when()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


# --- against others ---

def test_an_interrupt_inside_a_round_counts_its_time(binary):
    over, ended = threading.Event(), threading.Semaphore(0)

    def reply(handler, number):
        if number == 4:
            over.wait(120)
        handler.events(text_event("x"), "[DONE]")
        ended.release()

    def three_have_ended():
        for _ in range(3):
            expect(ended.acquire(timeout=60), "three replies")

    with StandIn(reply) as first, StandIn(reply) as second:
        code, out, err = interrupted(binary, first.url, "--compare", second.url, "--conversations", "4", "--turns", "1", "--warmup", "0",
                                     "--json", "-", when=three_have_ended)
        over.set()
    expect_equal(code, 1, err)
    run = json.loads(out)["servers"][0]
    completed = run["requests"]["completed"]  # those that the client has read
    expect(completed <= 3 and run["seconds"] > 0, run)
    expect(abs(run["throughput"]["requests_per_second"] * run["seconds"] - completed) < 1e-6, "throughput is replies over seconds")


def test_an_interrupt_before_the_first_request_is_told(binary):
    over, asked = threading.Event(), threading.Event()

    def reply(_handler, _number):
        asked.set()
        over.wait(120)
    with StandIn(reply) as server:
        code, out, err = interrupted(binary, server.url, "--warmup", "1", when=lambda: expect(asked.wait(60), "a warm-up"))
        over.set()
    expect_equal((code, out, err), (1, "", "loci bench: interrupted before the first request that counts\n"), "what is told")


def test_a_server_that_refuses(binary):
    def reply(handler, number):
        if number % 2 == 0:
            handler.events(text_event("x"), "[DONE]")
            return
        body = b'{"error": {"message": "the queue is full"}}'
        handler.send_response(429)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
    with StandIn(reply) as server:
        arguments = (server.url, "--conversations", "4", "--turns", "1", "--warmup", "0", "--concurrency", "1")
        done = bench(binary, *arguments)
        expect_equal(done.returncode, 1, done.stderr)
        expect("2 requests failed" in done.stdout and "the queue is full" in done.stdout, done.stdout)
        out = bench_json(binary, *arguments, code=1)
    expect_equal(out["servers"][0]["requests"], {"completed": 2, "failed": 2, "skipped": 0}, "requests")
    expect_equal(server.bodies[0]["model"], "default", "the model of a server that names none")


def test_streams_that_break_off_or_are_none(binary):
    def reply(handler, number):
        if number == 1:
            handler.events(text_event("x"))  # and no end
        elif number == 2:
            handler.events('{"error": {"message": "out of memory"}}')
        elif number == 3:
            handler.events("<html>")
        else:
            handler.wfile.write(b"this is no HTTP\r\n\r\n")
    with StandIn(reply) as server:
        out = bench_json(binary, server.url, "--conversations", "4", "--turns", "2", "--warmup", "0", "--concurrency", "1",
                         code=1)
    run = out["servers"][0]
    expect_equal(run["requests"], {"completed": 0, "failed": 4, "skipped": 4}, "requests")
    errors = [turn["error"] for turn in run["turns"]]
    expect_equal(errors[0], "the reply broke off", "first error")
    expect_equal(errors[1], "out of memory", "second error")


def test_a_server_that_hangs(binary):
    over = threading.Event()
    with StandIn(lambda _handler, _number: over.wait(120)) as server:
        out = bench_json(binary, server.url, "--conversations", "1", "--turns", "1", "--warmup", "0", "--timeout", "0.2",
                         code=1)
        over.set()
    expect("did not finish its answer within" in out["servers"][0]["turns"][0]["error"], out["servers"][0]["turns"])


def test_llama_cpps_counts_and_history(binary):
    def reply(handler, _number):
        end = {"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 2}, "timings": {"cache_n": 40}}
        handler.events(text_event("good"), text_event(" day"), json.dumps(end), "[DONE]")
    with StandIn(reply) as server:
        out = bench_json(binary, server.url, "--conversations", "1", "--turns", "2", "--warmup", "0", "--api-key", "k",
                         "--ignore-eos", "--max-tokens", "2")
    first, second = out["servers"][0]["turns"]
    expect_equal((first["prompt_tokens"], first["cached_tokens"], first["output_tokens"]), (50, 40, 2), "counts")
    expect_equal([message["role"] for message in server.bodies[1]["messages"]], ["user", "assistant", "user"], "history")
    expect_equal(server.bodies[1]["messages"][1]["content"], "good day", "the server's own reply")
    expect_equal((server.bodies[0]["ignore_eos"], server.bodies[0]["min_tokens"]), (True, 2), "fixed length")
    expect(second["turn"] == 1, "order")


def test_responses_of_a_stand_in(binary):
    def reply(handler, number):
        done = {"id": f"resp_{number}", "usage": {"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 8}}}
        handler.events(json.dumps({"type": "response.created", "response": {"id": f"resp_{number}"}}),
                       json.dumps({"type": "response.output_text.delta", "delta": "x"}),
                       json.dumps({"type": "response.completed" if number < 3 else "response.failed", "response": done}))
    with StandIn(reply) as server:
        out = bench_json(binary, server.url, "--api", "responses", "--conversations", "1", "--turns", "4", "--warmup", "0",
                         "--objective", "ttft=1h", code=1)
    expect_equal([body.get("previous_response_id") for body in server.bodies], [None, "resp_1", "resp_2"], "ids")
    run = out["servers"][0]
    expect_equal(run["requests"], {"completed": 2, "failed": 1, "skipped": 1}, "requests")
    expect_equal(run["turns"][2]["error"], "the response failed", "error")
    expect_equal((run["goodput"]["good"], run["goodput"]["of"]), (2, 4), "what failed or was not sent is not good")


def test_traces_of_other_projects(binary, model, tmp_path):
    files = {"azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,9,2\n2023-11-16 18:15:46.78,12,3\n",
             "arena-clients": "req_time,client,prompt_len,output_len\n0.5,13,9,2\n0.6,2,12,3\n",
             "weka": json.dumps({"block_size": 4, "requests": [
                 {"t": 0, "in": 8, "out": 2, "hash_runs": [[1, 2]]}, {"t": 1, "in": 12, "out": 3, "hash_runs": [[1, 3]], "think_time": 0.1}]}),
             "servegen": json.dumps({"model": "m", "trace": [[0, 20, 1, "Gamma", 1, 1]],
                                     "windows": {"0": {"input_tokens": [[9, 1]], "output_tokens": [[2, 1]]}}})}
    options = {"weka": ("--trace-rate", "100"), "servegen": ("--trace-model", "m", "--trace-from", "60")}
    lengths = {"servegen": [2, 2]}
    path = tmp_path / "trace"
    with Server(binary, model, *SMALL) as server:
        for form, text in files.items():
            path.write_text(text)
            out = bench_json(binary, server.url, "--trace", str(path), "--trace-format", form, "--trace-requests", "2", "--ignore-eos",
                             *options.get(form, ()))
            expect_equal(sorted(turn["output_tokens"] for turn in out["servers"][0]["turns"]), lengths.get(form, [2, 3]), form)
            expect_equal(out["workload"]["trace_format"], form, "format")
    for arguments, message in ((("--trace-rate", "2"), "expected --trace-format weka beside it, found loci"),
                               (("--trace-rate", "0.1", "--trace-format", "azure"), "expected --trace-format weka beside it, found azure"),
                               (("--trace-from", "2", "--trace-format", "weka"), "expected --trace-format servegen beside it, found weka"),
                               (("--trace-model", "n", "--trace-format", "servegen"), f"loci bench: --trace-model: {path}: expected one of m, found 'n'"),
                               (("--trace-format", "azure"), f"loci bench: --trace: {path}:1: header: expected 'TIMESTAMP,ContextTokens,GeneratedTokens', found")):
        done = bench(binary, "http://127.0.0.1:1", "--trace", str(path), *arguments)
        expect_equal(done.returncode, 2, done.stderr)
        expect(message in done.stderr, done.stderr)


def test_bad_flags_and_no_server(binary):
    for arguments in (("http://127.0.0.1:1", "--objective", "ttft"), ("http://127.0.0.1:1", "--trace", "/nowhere"),
                      ("http://127.0.0.1:1", "--trace", "/nowhere", "--rate", "1"), ("http://127.0.0.1:1", "--time-scale", "2"),
                      ("ftp://x",), ("http://x:port",), ("http://127.0.0.1:1", "--compare", "http://y", "--rate", "1"),
                      ("http://127.0.0.1:1", "--dialogues", "/nowhere"), ("http://127.0.0.1:1", "--turns", "0"), ()):
        done = bench(binary, *arguments)
        expect_equal(done.returncode, 2, f"{arguments}: {done.stderr}")
        expect("loci bench: " in done.stderr, done.stderr)
    done = bench(binary, "http://127.0.0.1:1")
    expect_equal(done.returncode, 1, done.stderr)
    expect("Connection refused" in done.stderr, done.stderr)
