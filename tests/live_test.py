# SPDX-License-Identifier: Apache-2.0
"""The real binary, a real model, real clients.

Starts servers on free ports, talks to them as clients do (also badly), and looks at /metrics afterwards.
"""
import json
import random
import threading
import time

import pytest

from live_client import chat_body, expect, expect_equal, expect_error, greedy, Server, wait_idle, wait_until

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")
RSS_GROWTH_MAX = 24 << 20  # bytes that a round of load may leave behind: allocator slack, histograms


# --- what is answered ---

def test_small_endpoints(server):
    expect_equal(server.get("/health").json, {"status": "ok"}, "health")
    expect_equal(server.get("/live").json, {"status": "ok"}, "alive")
    models = server.get("/v1/models").json
    model = models["data"][0]["id"]
    expect_equal(server.get("/v1/models/" + model).json["id"], model, "model")
    expect_error(server.get("/v1/models/other"), 404, "model", "model_not_found")
    expect_error(server.get("/nothing"), 404)
    expect_error(server.get("/v1/chat/completions"), 405)
    expect_error(server.post("/health", {}), 405)
    said = server.get("/v1/chat/completions").json["error"]["message"]
    expect(said.startswith("expected a method that /v1/chat/completions takes (") and said.endswith("; got GET"), said)
    options = server.request("OPTIONS", "/v1/chat/completions")
    expect_equal(options.status, 204, "OPTIONS")
    expect("POST" in options.headers["Allow"], "what the path takes")
    head = server.request("HEAD", "/health")
    expect_equal((head.status, head.text), (200, ""), "HEAD")
    expect_equal(server.get("/health", {"X-Request-Id": "abc"}).headers["X-Request-Id"], "abc", "request id")


def test_pages_of_strangers_get_nothing(server):
    chat, body = "/v1/chat/completions", greedy("Hi", max_tokens=1)
    for headers, code in (({"Origin": "https://stranger.example"}, "origin_not_allowed"), ({"Origin": "null"}, "origin_not_allowed"),
                          ({"Host": "stranger.example"}, "host_not_allowed")):
        for method, path in (("POST", chat), ("OPTIONS", chat), ("GET", "/metrics"), ("DELETE", "/v1/loci/warm/x")):
            reply = server.request(method, path, json.dumps(body) if method == "POST" else None, headers)
            expect_error(reply, 403, code=code)
            expect(not [name for name in reply.headers if name.lower().startswith("access-control")], "no permission")
    for headers in ({"Host": "localhost"}, {"Host": f"127.0.0.1:{server.port}", "Origin": f"http://127.0.0.1:{server.port}"}):
        expect_equal(server.request("POST", chat, json.dumps(body), headers).status, 200, f"its own: {headers}")


def test_bodies_are_json(server):
    body = json.dumps({"prompt": "x", "max_tokens": 1})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"):
        reply = server.request("POST", "/v1/completions", body, {"Content-Type": kind})
        expect_error(reply, 415, code="unsupported_media_type")
        expect("-H 'Content-Type: application/json'" in reply.json["error"]["message"], reply.text)
    for kind in ("application/json", "application/json; charset=utf-8"):
        expect_equal(server.request("POST", "/v1/completions", body, {"Content-Type": kind}).status, 200, kind)
    raw = server.raw(f"POST /v1/completions HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    expect(raw.startswith("HTTP/1.1 200"), f"no type: {raw[:200]}")


def test_completions_are_short_unless_asked(server):
    reply = server.post("/v1/completions", {"prompt": "One, two, three,", "ignore_eos": True}).json
    expect_equal(reply["usage"]["completion_tokens"], 16, "completion_tokens")


def test_stream_and_whole_agree(server):
    body = greedy("Name three colours.", max_tokens=40)
    whole = server.post("/v1/chat/completions", body).json
    events = server.stream("/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])
    expect_equal(text, whole["choices"][0]["message"]["content"], "text")
    expect_equal(events[0]["choices"][0]["delta"]["role"], "assistant", "first chunk")
    expect_equal(events[-2]["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"], "finish_reason")
    usage = events[-1]["usage"]
    expect_equal(usage["completion_tokens"], whole["usage"]["completion_tokens"], "completion_tokens")
    expect_equal(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"], "total_tokens")
    expect(all(e["usage"] is None for e in events[:-1]), "usage is null in the other chunks")


def test_every_chunk_has_the_usage_so_far(server):
    body = greedy("Name three colours.", max_tokens=12, n=2)
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    events = server.stream("/v1/chat/completions", body | options)
    counts = [event["usage"]["completion_tokens"] for event in events]
    expect(counts == sorted(counts) and counts[0] <= 1, f"growing counts, got {counts}")
    expect_equal(counts[-2], counts[-1], "the last choice's end and the reply's")
    expect_equal({e["usage"]["prompt_tokens"] for e in events}, {events[-1]["usage"]["prompt_tokens"]}, "prompt_tokens")


def test_a_reply_that_was_cut_off_is_continued(server):
    chat = "/v1/chat/completions"
    whole = server.post(chat, greedy("Tell me about the river Danube.", max_tokens=40)).json["choices"][0]["message"]["content"]
    cut = server.post(chat, greedy("Tell me about the river Danube.", max_tokens=16)).json["choices"][0]["message"]
    body = greedy("Tell me about the river Danube.", max_tokens=24)
    body["messages"].append({"role": "assistant", "content": cut["content"]})
    answered = server.post(chat, body).json
    reply = server.post(chat, body | {"continue_final_message": True}).json
    expect_equal(cut["content"] + reply["choices"][0]["message"]["content"], whole, "the two parts")
    expect(answered["usage"]["prompt_tokens"] > reply["usage"]["prompt_tokens"], "without the field it is a turn that has ended")
    expect_error(server.post(chat, body | {"continue_final_message": True, "add_generation_prompt": True}), 400,
                 "continue_final_message")


def test_second_turn_is_cached(server):
    first = greedy("Tell me about the river Danube in a few sentences.", max_tokens=64)
    reply = server.post("/v1/chat/completions", first).json
    known = reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
    second = dict(first)
    second["messages"] = first["messages"] + [reply["choices"][0]["message"], {"role": "user", "content": "Go on."}]
    second["messages"][1] = {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}
    usage = server.post("/v1/chat/completions", second).json["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    expect(cached >= known - 8, f"cached {cached} of the {known} tokens of the first turn")
    expect(cached < usage["prompt_tokens"], "the new message is computed")


def test_seed_repeats_a_reply(server):
    def text(seed):
        body = chat_body("Write a line of a poem.", temperature=1.2, seed=seed, max_tokens=32)
        return server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
    expect_equal(text(11), text(11), "the same seed")
    expect(len({text(seed) for seed in range(4)}) > 1, "other seeds give other replies")


def test_batch_gives_the_reply_of_one_alone(server):
    bodies = [greedy(f"Count from {i} upwards, in words.", max_tokens=24 + i) for i in range(12)]
    def text(body):
        return server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
    alone = [text(body) for body in bodies]
    together = [None] * len(bodies)
    def run(i):
        together[i] = text(bodies[i])
    run_threads([lambda i=i: run(i) for i in range(len(bodies))])
    expect_equal(together, alone, "greedy replies")


def test_stop_strings_never_show(server):
    body = {"prompt": "One, two, three, four, five,", "temperature": 0, "max_tokens": 40, "ignore_eos": True}
    text = server.post("/v1/completions", body).json["choices"][0]["text"]
    stop = text[len(text) // 2:len(text) // 2 + 5]
    wanted = text[:text.index(stop)]
    for stops in (stop, [stop, "never, ever"]):
        whole = server.post("/v1/completions", body | {"stop": stops}).json
        expect_equal(whole["choices"][0]["text"], wanted, "text before the stop string")
        expect_equal(whole["choices"][0]["finish_reason"], "stop", "finish_reason")
        expect(whole["usage"]["completion_tokens"] < 40, "it stops early")
        shown = ""
        for event in server.stream("/v1/completions", body | {"stop": stops}):
            shown += event["choices"][0]["text"]
            expect(wanted.startswith(shown), "nothing of a stop string is streamed")
        expect_equal(shown, wanted, "streamed text")
    wait_idle(server)


def test_lengths_and_ends(server):
    body = {"prompt": "Hello", "temperature": 0, "max_tokens": 9, "ignore_eos": True}
    reply = server.post("/v1/completions", body | {"logprobs": 1}).json
    expect_equal(reply["usage"]["completion_tokens"], 9, "completion_tokens")
    expect_equal(reply["choices"][0]["finish_reason"], "length", "finish_reason")
    tokens = server.post("/tokenize", {"content": reply["choices"][0]["text"]}).json["tokens"]
    ended = server.post("/v1/completions", body | {"stop_token_ids": tokens[3:4]}).json
    expect_equal(ended["choices"][0]["finish_reason"], "stop", "stop_token_ids")
    expect(ended["usage"]["completion_tokens"] <= 4, "it ends at the token")
    least = server.post("/v1/completions", {"prompt": "Hello", "temperature": 0, "max_tokens": 30, "min_tokens": 30}).json
    expect_equal(least["usage"]["completion_tokens"], 30, "min_tokens")


def test_choices_and_prompts(server):
    reply = server.post("/v1/completions", {"prompt": ["One", [1, 2, 3], "Three"][:1] + ["Two"], "n": 3, "max_tokens": 5,
                                            "seed": 5, "temperature": 1.5, "ignore_eos": True}).json
    expect_equal([c["index"] for c in reply["choices"]], list(range(6)), "indexes")
    expect_equal(reply["usage"]["completion_tokens"], 30, "completion_tokens")
    tokens = server.post("/v1/completions", {"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 2, "temperature": 0}).json
    expect_equal(tokens["usage"]["prompt_tokens"], 5, "prompt_tokens")
    events = server.stream("/v1/chat/completions", chat_body("Hi", n=2, max_tokens=4, ignore_eos=True))
    expect_equal({e["choices"][0]["index"] for e in events}, {0, 1}, "indexes of the stream")


def test_echo_and_best_of(server):
    body = {"prompt": ["Once upon a time", [1, 2, 3]], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    plain = [c["text"] for c in server.post("/v1/completions", body).json["choices"]]
    prompts = ["Once upon a time", server.post("/detokenize", {"tokens": [1, 2, 3]}).json["content"]]
    wanted = [p + t for p, t in zip(prompts, plain)]
    echoed = server.post("/v1/completions", body | {"echo": True}).json["choices"]
    expect_equal([c["text"] for c in echoed], wanted, "echo")
    streamed = ["", ""]
    for event in server.stream("/v1/completions", body | {"echo": True}):
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    expect_equal(streamed, wanted, "echo, streamed")
    body = {"prompt": "Once", "max_tokens": 8, "temperature": 1.5, "seed": 3, "ignore_eos": True, "logprobs": 0}
    def mean(choice):
        logprobs = choice["logprobs"]["token_logprobs"]
        return sum(logprobs) / len(logprobs)
    all_of_them = server.post("/v1/completions", body | {"n": 5}).json["choices"]
    best = server.post("/v1/completions", body | {"n": 2, "best_of": 5}).json
    expected = sorted(all_of_them, key=mean, reverse=True)[:2]
    expect_equal([c["text"] for c in best["choices"]], [c["text"] for c in expected], "the two likeliest of five")
    expect_equal([c["index"] for c in best["choices"]], [0, 1], "indexes")
    expect_equal(best["usage"]["completion_tokens"], 40, "all that were generated count")


def test_paths_of_other_apis_say_what_to_use(server):
    for path, part in [("/v1/engines", "/v1/models"), ("/api/chat", "/v1/chat/completions"),
                       ("/v1/complete", "/v1/messages"), ("/nothing", "/openapi.json")]:
        reply = server.post(path, {})
        expect_error(reply, 404, code="not_found")
        expect(part in reply.json["error"]["message"], reply.text)


def test_logprobs(server):
    chat = server.post("/v1/chat/completions", greedy("Say hello.", max_tokens=6, logprobs=True, top_logprobs=4)).json
    content = chat["choices"][0]["logprobs"]["content"]
    expect(content, "there are some")
    for token in content:
        expect_equal(len(token["top_logprobs"]), 4, "top_logprobs")
        expect_equal(token["top_logprobs"][0]["token"], token["token"], "greedy takes the best")
        expect(-50 < token["logprob"] <= 0, "a log-probability")
        expect_equal(bytes(token["bytes"]).decode("utf-8", "replace"), token["token"], "bytes")
    text = "".join(t["token"] for t in content)
    expect_equal(text, chat["choices"][0]["message"]["content"], "tokens spell the reply")
    old = server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 4, "temperature": 0, "logprobs": 2,
                                          "ignore_eos": True}).json["choices"][0]
    expect_equal([len(old["logprobs"][k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")],
                 [4, 4, 4, 4], "sizes")
    expect_equal("".join(old["logprobs"]["tokens"]), old["text"], "tokens spell the text")


def test_tokenize(server):
    text = "Naïve café — 😀 <|im_end|>\n"
    tokens = server.post("/tokenize", {"content": text}).json["tokens"]
    expect_equal(server.post("/detokenize", {"tokens": tokens}).json["content"], text, "round trip")
    plain = server.post("/tokenize", {"content": text, "parse_special": False}).json["tokens"]
    expect(len(plain) > len(tokens), "a control token's text is text when asked for")
    pieces = server.post("/tokenize", {"content": "Hello you", "with_pieces": True}).json["tokens"]
    expect_equal("".join(p["piece"] for p in pieces), "Hello you", "pieces")
    strings = server.post("/tokenize", {"content": "Hello you", "return_token_strs": True}).json
    expect_equal((strings["tokens"], "".join(strings["token_strs"])), ([p["id"] for p in pieces], "Hello you"), "token_strs")
    expect(server.post("/tokenize", {"messages": [{"role": "user", "content": "x"}]}).json["count"] > 3, "messages")
    expect_error(server.post("/detokenize", {"tokens": [1 << 30]}), 400, "tokens[0]")


def test_user_text_makes_no_control_tokens(server):
    def count(text):
        return server.post("/tokenize", {"messages": [{"role": "user", "content": text}]}).json["count"]
    expect(count("<|im_end|>") > count("x") + 2, "it is spelled, not obeyed")


def test_malformed_requests(server):
    chat, text = "/v1/chat/completions", "/v1/completions"
    user = [{"role": "user", "content": "x"}]
    for path, body, param in [
            (chat, {}, "messages"), (chat, {"messages": []}, "messages"), (chat, {"messages": "x"}, "messages"),
            (chat, {"messages": [{"role": "x", "content": "y"}]}, "messages[0].role"),
            (chat, {"messages": user, "temperature": "hot"}, "temperature"),
            (chat, {"messages": user, "temperature": -1}, "temperature"),
            (chat, {"messages": user, "top_p": 0}, "top_p"), (chat, {"messages": user, "n": 99}, "n"),
            (chat, {"messages": user, "stop": [5]}, "stop[0]"), (chat, {"messages": user, "max_tokens": 0}, "max_tokens"),
            (chat, {"messages": user, "logit_bias": {"999999999": 1}}, None),
            (chat, {"messages": user, "tools": [{}]}, "tools[0].type"),
            (chat, {"messages": user, "stop_token_ids": [1 << 30]}, "stop_token_ids[0]"),
            (text, {}, "prompt"), (text, {"prompt": []}, "prompt"), (text, {"prompt": [1 << 30]}, "prompt[0]"),
            (text, {"prompt": "x", "echo": True, "logprobs": 1, "stream": True}, "stream"),
            (text, {"prompt": "x", "suffix": "y"}, "suffix"), (text, {"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
            ("/v1/embeddings", {"input": "x"}, None), (text, {"prompt": "x", "logprobs": 99}, "logprobs"),
            ("/tokenize", {}, "content"), ("/detokenize", {"tokens": "x"}, "tokens")]:
        expect_error(server.post(path, body), 400, param)
    expect_error(server.post(chat, {"messages": user, "model": "other"}), 404, "model", "model_not_found")
    for raw in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": "\xff"}', b"[" * 100_000, b'{"a":' * 5000):
        expect_error(server.request("POST", chat, raw), 400)
    expect_error(server.request("POST", chat, b" " * ((8 << 20) + 1)), 413)
    expect("400" in server.raw(b"BAD\r\n\r\n").split("\r\n")[0], "no HTTP")
    expect("431" in server.raw(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n").split("\r\n")[0], "long header")
    expect_equal(server.get("/health").status, 200, "health afterwards")


def test_context_length(server):
    limit = server.get("/v1/models").json["data"][0]["max_model_len"]
    reply = server.post("/v1/completions", {"prompt": [5] * limit})
    expect_error(reply, 400, "prompt", "context_length_exceeded")
    expect(str(limit) in reply.json["error"]["message"], "the limit is named")
    reply = server.post("/v1/chat/completions", chat_body("word " * (limit + 10)))
    expect_error(reply, 400, "messages", "context_length_exceeded")


def test_leaving_cancels(server):
    before = server.metrics()
    for extra in ({"stream": True}, {}):
        connection = server.send("/v1/completions", {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True} | extra)
        wait_until(lambda: server.metrics()["loci_requests_running"] == 1, "it runs")
        connection.close()
        wait_until(lambda: server.metrics()["loci_requests_running"] == 0, "it is cancelled")
    counted = lambda name: server.metrics()[name] - before[name]  # noqa: E731
    wait_until(lambda: counted("loci_client_disconnects_total") == 2, "both disconnects are counted")
    expect(counted("loci_generated_tokens_total") < 1500, "neither went on to its end")


# --- load ---

def run_threads(jobs, at_once=None):
    """Runs all jobs, `at_once` of them at a time; the first failure is raised."""
    failures, lock, queue = [], threading.Lock(), list(jobs)[::-1]
    def work():
        while True:
            with lock:
                if not queue or failures:
                    return
                job = queue.pop()
            try:
                job()
            except Exception as error:  # noqa: BLE001
                failures.append(error)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(at_once or len(queue))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def one_client(server, kind, number):
    draw = random.Random(number)
    body = chat_body(f"Story number {number}: " + "and then " * draw.randrange(60), max_tokens=draw.randrange(4, 28),
                     temperature=draw.choice([0, 1]), ignore_eos=draw.random() < 0.5)
    if kind == "whole":
        expect(server.post("/v1/chat/completions", body).json["usage"]["completion_tokens"] > 0, "a reply")
    elif kind == "stream":
        expect(server.stream("/v1/chat/completions", body)[-1]["choices"][0]["finish_reason"], "a reply")
    elif kind == "leaver":
        connection = server.send("/v1/chat/completions", body | {"stream": draw.random() < 0.7, "max_tokens": 500})
        time.sleep(draw.random() * 0.4)
        connection.close()
    elif kind == "slow reader":
        connection = server.send("/v1/chat/completions", body | {"stream": True}, receive_buffer=4096)
        for _ in range(20):
            if not connection.recv(16):
                break
            time.sleep(0.02)
        connection.close()
    else:
        expect_error(server.request("POST", "/v1/chat/completions", draw.choice([b"{", b'{"messages": 5}'])), 400)


def load(server, count, seed):
    kinds = ["whole", "stream", "stream", "leaver", "slow reader", "malformed"]
    run_threads([lambda n=n: one_client(server, kinds[n % len(kinds)], seed + n) for n in range(count)], at_once=24)
    wait_idle(server)


def test_load_leaves_nothing_behind(server):
    """200 requests; before them a round that fills the pool, so that memory is compared like with like."""
    load(server, 72, 1000)
    fill = {"prompt": [[5 + i] * 700 for i in range(16)], "max_tokens": 1}
    server.post("/v1/completions", fill)
    wait_idle(server)
    expect_equal(server.metrics()['loci_blocks{state="free"}'], 0, "the pool was filled: free blocks")
    before = server.metrics()["process_resident_memory_bytes"]
    load(server, 200, 5000)
    wait_until(lambda: server.metrics()["loci_http_connections"] <= 2, "no connection is left open")
    metrics = server.metrics()
    growth = metrics["process_resident_memory_bytes"] - before
    expect(growth <= RSS_GROWTH_MAX, f"memory grew by {growth / 2**20:.1f} MiB, more than {RSS_GROWTH_MAX >> 20} MiB")
    expect(metrics["loci_time_to_first_token_seconds_count"] > 100, "histograms count")
    print(f"    memory {before / 2**20:.0f} MiB, grew by {growth / 2**20:.1f} MiB")


def test_a_reader_that_takes_nothing_is_cut_off(binary, model):
    with Server(binary, model, "--write-timeout", "1s") as server:
        # Log-probabilities make much output of few tokens: more than the sockets' buffers hold.
        body = chat_body("x", n=8, max_tokens=1000, ignore_eos=True, logprobs=True, top_logprobs=20, stream=True)
        connection = server.send("/v1/chat/completions", body, receive_buffer=4096)
        wait_until(lambda: server.metrics()["loci_client_disconnects_total"] == 1, "it is cut off")
        wait_idle(server)
        expect(0 < server.metrics()["loci_generated_tokens_total"] < 8000, "between its begin and its end")
        connection.close()


def test_full_queue(binary, model):
    with Server(binary, model, "--max-running", "1", "--max-queued", "2") as server:
        statuses, lock = [], threading.Lock()
        def client():
            reply = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 60, "ignore_eos": True})
            with lock:
                statuses.append(reply.status)
            if reply.status == 429:
                expect_error(reply, 429)
                expect(int(reply.headers["Retry-After"]) >= 1, "Retry-After")
        run_threads([client] * 10)
        expect_equal(sorted(set(statuses)), [200, 429], f"statuses of {statuses}")
        expect(statuses.count(200) >= 3, "what fits is served")
        wait_idle(server)
        for body, field in (({"n": 4}, "n"), ({"prompt": ["a", "b", "c", "d"]}, "prompt")):
            refused = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 1, **body})
            expect_error(refused, 400, param=field)
        expect_equal(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 1, "n": 3}).status, 200, "one runs, two wait")
