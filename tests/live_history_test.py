# SPDX-License-Identifier: Apache-2.0
"""Conversations go on with the tokens that the server has seen.

Replies at temperature 1, drawn of all tokens, are seldom tokenised as they were sampled, so these would fail on most turns if the
text of a reply were tokenised again. State is reused up to the last token but one of what was said: the last
token of a reply was never the input of a pass.
"""
import pytest

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")


def say(server, messages, **fields):
    # Of all tokens: likely ones are tokenised as they were sampled.
    body = {"messages": messages, "temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 48, **fields}
    reply = server.post("/v1/chat/completions", body).json
    usage = reply["usage"]
    return (reply["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["completion_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"])


def retokenised(server, messages):
    """How long the prompt is when its text is tokenised."""
    return server.post("/tokenize", {"messages": messages, "add_generation_prompt": True}).json["count"]


def test_stateless_chat_is_cached_to_the_last_token(server):
    unlike = 0
    for seed in range(3):
        messages, known = [], 0
        for turn in range(6):
            messages.append({"role": "user", "content": f"Tell me something odd about number {turn}, dear poet."})
            text, prompt, completion, cached = say(server, messages, seed=10 * seed + turn)
            if turn > 0:
                assert cached >= known - 1, f"seed {seed} turn {turn}: cached {cached} of the {known} tokens said"
            unlike += prompt != retokenised(server, messages)
            known = prompt + completion
            messages.append({"role": "assistant", "content": text})
    assert unlike > 0, "no reply was tokenised unlike its text: this test shows nothing"


def test_regenerated_and_edited_turns_share_what_they_have_in_common(server):
    messages, ends = [], []
    for turn in range(3):
        messages.append({"role": "user", "content": f"Write line {turn} of a strange song."})
        text, prompt, completion, _ = say(server, messages, seed=70 + turn)
        ends.append((prompt, prompt + completion))
        messages.append({"role": "assistant", "content": text})
    # Another reply to the last question: all of its prompt but the last token, which gives the first logits.
    _, prompt, _, cached = say(server, messages[:-1], seed=99)
    assert prompt == ends[2][0] and cached >= prompt - 1, f"cached {cached} of {prompt}"
    # Another second question: what was said in the first turn.
    edited = messages[:2] + [{"role": "user", "content": "No, a sad one."}]
    _, _, _, cached = say(server, edited, seed=98)
    assert cached >= ends[0][1] - 1, f"cached {cached} of the first turn's {ends[0][1]}"
    metrics = server.metrics()
    assert metrics["loci_history_tokens_reused_total"] > ends[2][0], "the metric counts"
