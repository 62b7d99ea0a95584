# SPDX-License-Identifier: Apache-2.0
"""Conversations that outgrow the context, against the real binary."""
import tempfile

from live_client import expect, expect_equal, Server, wait_recovered, wait_saved

CONTEXT = 512
LIMIT = 448  # an eighth is kept for the reply
CUT = 256  # half of the context
BLOCK = 32
FLAGS = ["--device-memory", "96MiB", "--context", str(CONTEXT), "--threads", "1"]
SYSTEM = ("You are the keeper of a lighthouse on a small island in the north. Answer in one short sentence, "
          "and never leave out the weather.")
WORDS = ("harbour", "storm", "lantern", "whale", "rope", "captain", "island", "letter", "winter", "anchor", "gull",
         "compass", "barrel", "stair", "signal", "tide")


def question(turn):
    first, second = WORDS[turn % len(WORDS)], WORDS[(turn * 5 + 3) % len(WORDS)]
    return (f"This is question number {turn}. Yesterday I saw a {first} beside the old {second}, and nobody in the village "
            f"could tell me how it came there or what it was for. What do you know of the {first}?")


def details(reply):
    usage = reply.json["usage"]
    part = usage["prompt_tokens_details"]
    return usage["prompt_tokens"], part["cached_tokens"], part.get("dropped_tokens", 0), usage["completion_tokens"]


def chat(server, messages, **fields):
    reply = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 24} | fields)
    expect_equal(reply.status, 200, reply.text[:300])
    return reply


def grow(server, turns, **fields):
    """A client that holds its history itself. Yields (messages, reply) of each turn."""
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in range(turns):
        messages.append({"role": "user", "content": question(turn)})
        reply = chat(server, messages, **fields)
        yield list(messages), reply
        messages.append({"role": "assistant", "content": reply.json["choices"][0]["message"]["content"]})


def test_a_conversation_goes_on_and_stays_cached(binary, model):
    with Server(binary, model, "--context-overflow", "truncate", *FLAGS) as server:
        dropped_before, total_before, prompt_before, cuts, reused = 0, 0, 0, 0, 0
        for messages, reply in grow(server, 14):
            prompt, cached, dropped, completion = details(reply)
            whole = server.post("/tokenize", {"messages": messages}).json["count"]
            expect_equal(prompt + dropped, whole, "what is kept and what is dropped")
            expect(prompt <= LIMIT, f"{prompt} tokens are kept")
            expect_equal(dropped % CUT, 0, "whole cuts")
            expect_equal(dropped > 0, whole > LIMIT, f"a history of {whole} tokens")
            new = whole - total_before
            if dropped == dropped_before and total_before > 0:
                # Cached as if nothing had ever been dropped: all but what is new and the reply's last token.
                expect(cached >= prompt - new - 1, f"{cached} of {prompt} tokens are cached, {new} are new")
                reused += dropped > 0
            elif dropped > 0:
                # The kept state was rotated: whole blocks of what was there, so at most one block and a reply less.
                cuts += 1
                expect_equal(dropped - dropped_before, CUT, "one cut at a time")
                expect(cached >= prompt - new - BLOCK - 1, f"{cached} of {prompt} tokens are cached after a cut")
                expect(cached > prompt_before // 4, f"{cached} tokens: more than the front is there")
            dropped_before, total_before, prompt_before = dropped, whole + completion, prompt
        expect(cuts >= 2 and reused >= 4, f"{cuts} cuts, {reused} turns after one")


def test_rotated_state_says_what_computed_state_says(binary, model):
    """The same truncation, kept and rotated in one server, computed from nothing in another. Greedy text may part
    where two tokens are near, as the kept state has seen what was dropped; what is asserted is that the same tokens
    are kept, and that the first token of the reply is one that the other server thinks likely too."""
    with Server(binary, model, "--context-overflow", "truncate", *FLAGS) as server:
        turns = [(messages, reply) for messages, reply in grow(server, 12, logprobs=True, top_logprobs=5)]
    compared = 0
    with Server(binary, model, "--context-overflow", "truncate", *FLAGS) as fresh:
        for messages, kept in turns:
            prompt, cached, dropped, _ = details(kept)
            if dropped == 0 or compared == 3:
                continue
            compared += 1
            alone = chat(fresh, messages, logprobs=True, top_logprobs=5)
            expect_equal(details(alone)[0], prompt, "tokens that are kept")
            expect_equal(details(alone)[2], dropped, "tokens that are dropped")
            first = [r.json["choices"][0]["logprobs"]["content"][0] for r in (kept, alone)]
            likely = {t["token"]: t["logprob"] for t in first[1]["top_logprobs"]}
            expect(first[0]["token"] in likely, f"{first[0]['token']!r} is none of {likely}")
            expect(abs(likely[first[0]["token"]] - first[0]["logprob"]) < 1,
                   f"{first[0]['token']!r}: {first[0]['logprob']} and {likely[first[0]['token']]}")
    expect_equal(compared, 3, "truncated turns")


def test_refused_by_default(binary, model):
    with Server(binary, model, *FLAGS) as server:
        messages = [{"role": "user", "content": " ".join(question(t) for t in range(14))}]
        for path, body in (("/v1/chat/completions", {"messages": messages}),
                           ("/v1/completions", {"prompt": messages[0]["content"]}),
                           ("/v1/messages", {"messages": messages, "max_tokens": 8}),
                           ("/v1/responses", {"input": messages[0]["content"]}),
                           ("/v1/responses", {"input": messages[0]["content"], "truncation": "disabled"})):
            reply = server.post(path, body)
            expect_equal(reply.status, 400, f"{path}: {reply.text[:200]}")
            expect(str(CONTEXT) in reply.json["error"]["message"], f"{path} names the limit: {reply.text}")


def test_all_apis_truncate(binary, model):
    with Server(binary, model, "--context-overflow", "truncate", *FLAGS) as server:
        text = " ".join(question(t) for t in range(14))
        usage = server.post("/v1/completions", {"prompt": text, "max_tokens": 4}).json["usage"]
        expect(usage["prompt_tokens_details"]["dropped_tokens"] >= CUT, f"completions: {usage}")
        usage = server.post("/v1/messages", {"messages": [{"role": "user", "content": text}], "max_tokens": 4,
                                             "system": SYSTEM}).json["usage"]
        expect(usage["dropped_input_tokens"] >= CUT, f"messages: {usage}")
        response = server.post("/v1/responses", {"input": text, "max_output_tokens": 4}).json
        expect_equal(response["truncation"], "auto", "the server's rule is told")
        expect(response["usage"]["input_tokens_details"]["dropped_tokens"] >= CUT, f"responses: {response['usage']}")
        refused = server.post("/v1/responses", {"input": text, "truncation": "disabled"})
        expect_equal(refused.status, 400, "a request's own wish wins")
        events = server.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 4,
                                                        "stream_options": {"include_usage": True}})
        usage = events[-1]["usage"]
        expect(usage["prompt_tokens_details"]["dropped_tokens"] >= CUT, f"a stream: {usage}")


def test_a_stored_conversation_is_cut_where_a_response_asks_for_it(binary, model):
    with Server(binary, model, *FLAGS) as server:
        previous, dropped, cached_after_cut = None, 0, []
        for turn in range(12):
            body = {"input": question(turn), "instructions": SYSTEM, "truncation": "auto", "temperature": 0,
                    "max_output_tokens": 24}
            if previous:
                body["previous_response_id"] = previous
            reply = server.post("/v1/responses", body)
            expect_equal(reply.status, 200, reply.text[:300])
            response = reply.json
            previous = response["id"]
            expect_equal(response["truncation"], "auto", "truncation")
            part = response["usage"]["input_tokens_details"]
            now = part.get("dropped_tokens", 0)
            expect(now >= dropped, "what was dropped stays dropped")
            if dropped and now == dropped:
                cached_after_cut.append(part["cached_tokens"] / response["usage"]["input_tokens"])
            dropped = now
        expect(dropped >= 2 * CUT, f"{dropped} tokens were dropped")
        expect(min(cached_after_cut) > 0.5, f"cached shares after a cut: {cached_after_cut}")


def test_a_system_prompt_that_fills_the_context_is_refused(binary, model):
    with Server(binary, model, "--context-overflow", "truncate", *FLAGS) as server:
        system = " ".join(question(t) for t in range(9))
        messages = [{"role": "system", "content": system}]
        for turn in range(3):
            messages += [{"role": "user", "content": question(turn)}, {"role": "assistant", "content": "I do not know."}]
        messages.append({"role": "user", "content": "Why?"})
        reply = server.post("/v1/chat/completions", {"messages": messages})
        expect_equal(reply.status, 400, reply.text[:300])
        error = reply.json["error"]
        expect_equal((error["param"], error["code"]), ("messages", "context_length_exceeded"), "param and code")
        expect("system prompt" in error["message"] and str(CONTEXT) in error["message"], error["message"])


def test_state_is_found_after_eviction_to_host_memory(binary, model):
    """The device holds one conversation; the kept state of another comes back from host memory, rotated."""
    with Server(binary, model, "--context-overflow", "truncate", "--device-memory", "13MiB", "--host-memory", "128MiB",
                "--restore", "kv", *FLAGS[2:]) as server:
        turns = [(messages, reply) for messages, reply in grow(server, 5) if details(reply)[2] == 0]
        messages, last = turns[-1]
        before = details(last)[0]
        wait_saved(server)  # else a slow machine evicts what has no copy yet
        chat(server, [{"role": "user", "content": " ".join(question(t + 7) for t in range(7))}], max_tokens=4)
        messages = messages + [{"role": "assistant", "content": last.json["choices"][0]["message"]["content"]},
                               {"role": "user", "content": question(7) + " " + question(8) + " " + question(9)}]
        prompt, cached, dropped, _ = details(chat(server, messages))
        expect_equal(dropped, CUT, f"a cut after {before} tokens")
        expect(cached >= min(before - CUT, LIMIT) // BLOCK * BLOCK - BLOCK, f"{cached} of {prompt} tokens came back, {before} were there")


def test_kept_state_survives_a_restart(binary, model):
    """A cut conversation's state, rotated and new, is on the disk under its lineage's keys: the next server has it."""
    with tempfile.TemporaryDirectory(prefix="loci_truncation_") as folder:
        flags = ["--context-overflow", "truncate", "--disk", f"{folder}:512MiB", "--restore", "kv", *FLAGS]
        with Server(binary, model, *flags) as server:
            turns = [(messages, reply) for messages, reply in grow(server, 7)]
            wait_saved(server)
        messages, last = turns[-1]
        prompt, _, dropped, _ = details(last)
        expect(dropped > 0, "it was cut")
        messages = messages + [{"role": "assistant", "content": last.json["choices"][0]["message"]["content"]},
                               {"role": "user", "content": "And?"}]
        with Server(binary, model, *flags) as server:
            wait_recovered(server)
            now = details(chat(server, messages))
            expect_equal(now[2], dropped, "the same cut")
            expect(now[1] >= prompt // BLOCK * BLOCK - BLOCK, f"{now[1]} of {now[0]} tokens came back from the disk")
