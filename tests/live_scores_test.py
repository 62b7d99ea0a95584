# SPDX-License-Identifier: Apache-2.0
"""How likely a prompt's tokens are (echo with logprobs)."""
import pytest

from live_client import expect, expect_equal

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")


def test_echo_with_logprobs_scores_the_prompt(server):
    """As lm-evaluation-harness's local-completions asks: token ids, echo, logprobs 1, max_tokens 0 or 1."""
    tokens = server.post("/tokenize", {"content": "The cat sat on the mat, né?", "add_special": True}).json["tokens"]
    body = {"prompt": tokens, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 1}
    reply = server.post("/v1/completions", body).json["choices"][0]
    made = server.post("/tokenize", {"content": reply["text"], "add_special": False}).json["tokens"]
    scored = server.post("/v1/completions", body | {"prompt": [tokens, tokens + made], "echo": True, "max_tokens": 0})
    expect_equal(scored.status, 200, scored.text)
    first, whole = scored.json["choices"]
    expect_equal(scored.json["usage"]["completion_tokens"], 0, "nothing is generated")
    expect_equal(scored.json["usage"]["prompt_tokens"], 2 * len(tokens) + len(made), "prompt tokens")
    for choice, count in ((first, len(tokens)), (whole, len(tokens) + len(made))):
        lists = choice["logprobs"]
        expect_equal({name: len(value) for name, value in lists.items()},
                     dict.fromkeys(("tokens", "token_logprobs", "top_logprobs", "text_offset"), count), "one for each token")
        expect_equal((lists["token_logprobs"][0], lists["top_logprobs"][0]), (None, None), "nothing is before the first")
        expect(all(value <= 0 for value in lists["token_logprobs"][1:]), lists["token_logprobs"])
        expect(all(max(top.values()) >= value for top, value in zip(lists["top_logprobs"][1:], lists["token_logprobs"][1:])),
               "the likeliest is no less likely")
    expect_equal(whole["logprobs"]["token_logprobs"][:len(tokens)], first["logprobs"]["token_logprobs"], "the same prompt")
    # The tokens of a reply are scored as they were when the model said them, bit by bit.
    if whole["logprobs"]["tokens"][len(tokens):] == reply["logprobs"]["tokens"]:
        expect_equal(whole["logprobs"]["token_logprobs"][len(tokens):], reply["logprobs"]["token_logprobs"], "a reply, scored")
    else:
        expect(made, "the reply's text is spelled by other tokens")
    both = server.post("/v1/completions", body | {"echo": True, "max_tokens": 1}).json["choices"][0]
    expect_equal(both["logprobs"]["token_logprobs"], first["logprobs"]["token_logprobs"] + reply["logprobs"]["token_logprobs"][:1],
                 "prompt and reply")
    # The harness leaves the last token out: there is one after the prompt, even where the model ends at once.
    for end in ("<|im_end|>", "<|endoftext|>"):
        ids = server.post("/tokenize", {"content": end, "add_special": False, "parse_special": True}).json["tokens"]
        if len(ids) == 1:
            ended = server.post("/v1/completions", body | {"echo": True, "max_tokens": 1, "ignore_eos": False,
                                                           "logit_bias": {str(ids[0]): 100}}).json["choices"][0]
            expect_equal(len(ended["logprobs"]["token_logprobs"]), len(tokens) + 1, f"the prompt and {end}")
            expect_equal(ended["logprobs"]["token_logprobs"][:-1], first["logprobs"]["token_logprobs"], "scores")
            # What the prompt itself says ends nothing; the reply ends as it does without an echo.
            ended = server.post("/v1/completions", body | {"prompt": tokens + ids + tokens[1:], "echo": True, "max_tokens": 8, "ignore_eos": False,
                                                           "logit_bias": {str(ids[0]): 100}}).json["choices"][0]
            expect_equal((len(ended["logprobs"]["token_logprobs"]), ended["finish_reason"]), (2 * len(tokens) + 1, "stop"), f"the prompt with {end}, and it")
    expect_equal(server.post("/v1/completions", body | {"prompt": tokens[:1], "echo": True, "max_tokens": 0})
                 .json["choices"][0]["logprobs"]["token_logprobs"], [None], "one token")
    expect_equal(server.post("/v1/completions", {"prompt": "Echo", "echo": True, "max_tokens": 0}).json["choices"][0]["text"],
                 "Echo", "an echo alone")


def test_metrics_count_a_scored_prompt_as_usage_does(server):
    names = ("loci_prompt_tokens_total", "loci_generated_tokens_total")
    body = {"prompt": [list(range(30, 60)), list(range(50, 70))], "temperature": 0, "ignore_eos": True, "echo": True, "logprobs": 1}
    for most in (0, 3):
        before = server.metrics()
        usage = server.post("/v1/completions", body | {"max_tokens": most}).json["usage"]
        after = server.metrics()
        expect_equal((usage["prompt_tokens"], usage["completion_tokens"]), (50, 2 * most), "usage")
        expect_equal([after[name] - before[name] for name in names], [50, 2 * most], f"metrics of max_tokens {most}")
    before = server.metrics()
    usage = server.post("/v1/completions", body | {"echo": False, "logprobs": None, "n": 3, "max_tokens": 4}).json["usage"]
    after = server.metrics()
    expect_equal((usage["prompt_tokens"], usage["completion_tokens"]), (50, 24), "usage of several replies")
    expect_equal([after[name] - before[name] for name in names], [50, 24], "metrics of several replies")
