# SPDX-License-Identifier: Apache-2.0
"""Where a prompt's state came from, as a reply, the metrics and the log tell."""
import json

import pytest

from live_client import Server, wait_saved, wait_until

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")
EXPLAIN = {"loci": {"explain": True}}
FORMS = ("hidden", "kv")
SOURCES = ("device", "host", "disk", "shared", "computed")
STORY = "The lighthouse keeper counts ships. " * 20


def check_explanation(loci, prompt, cached):
    """Of a reply with so many tokens of prompt, of which so many were cached."""
    tokens, because = loci["tokens"], loci["computed_because"]
    assert sorted(tokens) == sorted(SOURCES), tokens
    assert sum(tokens.values()) == prompt, f"all {prompt} tokens of the prompt have a source: {tokens}"
    assert tokens["device"] + tokens["host"] + tokens["disk"] + tokens["shared"] == cached, f"{tokens}: {cached} were cached"
    assert sorted(loci["disk_forms"]) == sorted(FORMS) and sum(loci["disk_forms"].values()) == tokens["disk"], loci
    assert sum(because.values()) == tokens["computed"], f"each computed token has a reason: {loci}"
    assert sorted(loci["predicted_ms"]) == ["compute", "load"] and min(loci["predicted_ms"].values()) >= 0, loci
    restore = loci["restore"]
    assert sorted(restore) == ["computing_all_ms", "loading_all_ms", "plan", "planned_ms"], restore
    assert 0 < restore["planned_ms"] <= min(restore["loading_all_ms"], restore["computing_all_ms"]) or restore["plan"] != "auto", restore
    assert loci["real_ms"]["queued"] >= 0 and loci["real_ms"]["first_token"] > 0, loci


def chat_usage(usage):
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def test_a_reply_explains_itself_in_every_api(server):
    chat = {"messages": [{"role": "user", "content": STORY + "How many?"}], "max_tokens": 4, "temperature": 0, **EXPLAIN}
    for known in (False, True):
        reply = server.post("/v1/chat/completions", chat).json
        check_explanation(reply["loci"], *chat_usage(reply["usage"]))
        if known:
            assert reply["loci"]["tokens"]["device"] >= 64, reply["loci"]
        else:
            assert reply["loci"]["computed_because"]["never_seen"] > 64, reply["loci"]
    prompts = {"prompt": [STORY + "One.", "Two is another."], "max_tokens": 2, "n": 2, **EXPLAIN}
    reply = server.post("/v1/completions", prompts).json
    check_explanation(reply["loci"], *chat_usage(reply["usage"]))
    reply = server.post("/v1/messages", {"messages": chat["messages"], "max_tokens": 4, **EXPLAIN}).json
    usage = reply["usage"]
    cached = usage["cache_read_input_tokens"]
    check_explanation(reply["loci"], usage["input_tokens"] + cached, cached)
    reply = server.post("/v1/responses", {"input": STORY + "Why?", "max_output_tokens": 4, **EXPLAIN}).json
    usage = reply["usage"]
    check_explanation(reply["loci"], usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"])
    stored = server.get("/v1/responses/" + reply["id"]).json
    assert stored["loci"] == reply["loci"], "a stored response keeps its explanation"


def test_a_scored_prompt_explains_itself(server):
    body = {"prompt": "The keeper counts to eight.", "echo": True, "logprobs": 1, "max_tokens": 3, **EXPLAIN}
    for _ in range(2):
        reply = server.post("/v1/completions", body).json
        check_explanation(reply["loci"], *chat_usage(reply["usage"]))


def test_a_stream_explains_itself_at_its_end(server):
    chat = {"messages": [{"role": "user", "content": STORY + "Where?"}], "max_tokens": 4}
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", {"prompt": STORY, "max_tokens": 4})):
        *others, last = server.stream(path, body | EXPLAIN | {"stream_options": {"include_usage": True}})
        check_explanation(last["loci"], *chat_usage(last["usage"]))
        assert not any("loci" in event for event in others), path
        last = server.stream(path, body | EXPLAIN)[-1]
        assert last["choices"] == [] and "loci" in last and "usage" not in last, last
        assert not any("loci" in event for event in server.stream(path, body)), "unasked"
    reply = server.post("/v1/messages", chat | EXPLAIN | {"stream": True}).text
    (delta,) = [json.loads(line[6:]) for line in reply.split("\n") if line.startswith('data: {"type":"message_delta"')]
    usage = delta["usage"]
    check_explanation(delta["loci"], usage["input_tokens"] + usage["cache_read_input_tokens"],
                      usage["cache_read_input_tokens"])
    reply = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 4, "stream": True, **EXPLAIN}).text
    (done,) = [json.loads(line[6:])["response"] for line in reply.split("\n")
               if line.startswith(('data: {"type":"response.completed"', 'data: {"type":"response.incomplete"'))]
    check_explanation(done["loci"], done["usage"]["input_tokens"], done["usage"]["input_tokens_details"]["cached_tokens"])


def test_explain_must_be_a_boolean(server):
    for value, field in ((5, "loci"), ({"explain": 1}, "loci.explain"), ({"explain": "yes"}, "loci.explain")):
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                           ("/v1/completions", {"prompt": "x"}), ("/v1/responses", {"input": "x"})):
            reply = server.post(path, body | {"loci": value})
            assert (reply.status, reply.json["error"]["param"]) == (400, field), reply.text
        reply = server.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "loci": value})
        assert reply.status == 400 and field in reply.text, reply.text


def test_sources_are_counted_and_logged(server):
    names = [f'loci_context_tokens_total{{source="{source}"}}' for source in SOURCES]
    before = server.metrics()
    body = {"messages": [{"role": "user", "content": STORY + "Counted."}], "max_tokens": 2, **EXPLAIN}
    first, last = (server.post("/v1/chat/completions", body) for _ in range(2))
    replies = [first.json, last.json]
    after = server.metrics()
    for name, source in zip(names, SOURCES):
        told = sum(reply["loci"]["tokens"][source] for reply in replies)
        assert after[name] - before[name] == told, f"{name}: {after[name] - before[name]}, the replies say {told}"
    for reason in replies[0]["loci"]["computed_because"]:
        name = f'loci_miss_tokens_total{{reason="{reason}"}}'
        told = sum(reply["loci"]["computed_because"][reason] for reply in replies)
        assert after[name] - before[name] == told, name
    of_it = f" access request_id={last.headers['x-request-id']} "
    wait_until(lambda: of_it in server.log_text(), "the reply's line of the log, which may come after the reply")
    line = next(line for line in server.log_text().splitlines() if of_it in line)
    fields = dict(field.split("=", 1) for field in line.split() if "=" in field)
    told = replies[1]["loci"]
    assert {source: int(fields[f"{source}_tokens"]) for source in SOURCES} == told["tokens"], line
    for reason, tokens in told["computed_because"].items():
        assert int(fields.get(f"computed_{reason}", 0)) == tokens, line


def block_bytes(binary, model):
    with Server(binary, model, "--device-memory", "64MiB", "--context", "512") as server:
        metrics = server.metrics()
    return int(metrics['loci_state_bytes{state="total"}'] / metrics['loci_blocks{state="total"}'])


def story(number):
    """200 tokens that no other story begins with."""
    return [20 + (number * 37 + i * (7 + number)) % 200 for i in range(200)]


def test_what_left_the_device_comes_from_below_or_is_computed_again(binary, model):
    memory = str(40 * block_bytes(binary, model))
    first = {"prompt": story(0), "max_tokens": 1, **EXPLAIN}
    for below, wanted in ((("--host-memory", "256MiB", "--disk", "none"), "host"),
                          (("--host-memory", "0", "--disk", "none"), "evicted")):
        with Server(binary, model, "--device-memory", memory, "--context", "512", *below) as server:
            known = server.post("/v1/completions", first).json["loci"]["tokens"]["computed"]
            assert known >= 96, f"three blocks at least: {known}"
            for number in range(1, 17):
                wait_saved(server)  # else a slow machine evicts what has no copy yet
                server.post("/v1/completions", {"prompt": story(number), "max_tokens": 1})
            reply = server.post("/v1/completions", first).json
            check_explanation(reply["loci"], *chat_usage(reply["usage"]))
            told = reply["loci"]["tokens"] | reply["loci"]["computed_because"]
            assert told[wanted] >= 96, f"{below}: {reply['loci']}"
            if wanted == "host":
                assert reply["loci"]["predicted_ms"]["load"] > 0, reply["loci"]
                assert server.metrics()['loci_moves_total{link="host_load",result="done"}'] > 0, "loads are counted"
