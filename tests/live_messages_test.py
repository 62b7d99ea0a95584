# SPDX-License-Identifier: Apache-2.0
"""Anthropic's /v1/messages against the live server."""
import json

import pytest

from live_client import event_blocks

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")
PATH = "/v1/messages"


def messages_body(text, **fields):
    return {"model": "default", "max_tokens": 24, "temperature": 0,
            "messages": [{"role": "user", "content": text}], **fields}


def messages_events(server, body):
    """The events of a streamed reply: (name, data), names being the data's types."""
    reply = server.post(PATH, body | {"stream": True})
    assert reply.status == 200, reply.text
    events = []
    for block in event_blocks(reply.text):
        name, data = block.split("\n")
        data = json.loads(data.removeprefix("data: "))
        assert name == "event: " + data["type"], block
        events.append(data)
    return events


def expect_messages_error(reply, status, kind, part):
    body = reply.json
    assert reply.status == status and body["type"] == "error", reply.text
    assert body["error"]["type"] == kind and part in body["error"]["message"], reply.text


def test_messages_stream_and_whole_agree(server):
    body = messages_body("Name three rivers.", system=[{"type": "text", "text": "Be brief."}])
    whole = server.post(PATH, body).json
    assert whole["type"] == "message" and whole["role"] == "assistant" and whole["id"].startswith("msg_"), whole
    events = messages_events(server, body)
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop", events
    text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
    assert [{"type": "text", "text": text}] == whole["content"], (text, whole)
    last = events[-2]
    assert last["delta"]["stop_reason"] == whole["stop_reason"], (last, whole)
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"], (last, whole)
    # What the first reply left behind is read, and the three numbers are the prompt.
    usage = events[0]["message"]["usage"]
    assert usage["cache_read_input_tokens"] > 0, usage
    counted = server.post(PATH + "/count_tokens", {key: body[key] for key in ("model", "messages", "system")})
    assert counted.json["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"], counted.text


def test_messages_go_on_with_a_reply_that_was_begun(server):
    body = messages_body("Tell me about the river Danube.", max_tokens=40)
    whole = server.post(PATH, body).json["content"][0]["text"]
    cut = server.post(PATH, body | {"max_tokens": 16}).json["content"][0]["text"]
    begun = body | {"max_tokens": 24, "messages": body["messages"] + [{"role": "assistant", "content": cut}]}
    reply = server.post(PATH, begun).json
    assert cut + reply["content"][0]["text"] == whole, (cut, reply, whole)
    text = "".join(e["delta"]["text"] for e in messages_events(server, begun) if e["type"] == "content_block_delta")
    assert cut + text == whole, (cut, text, whole)
    asked = {key: begun[key] for key in ("model", "messages")}
    usage = reply["usage"]
    assert server.post(PATH + "/count_tokens", asked).json["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    expect_messages_error(server.post(PATH, begun | {"thinking": {"type": "adaptive"}}), 400, "invalid_request_error", "thinking.type")


def test_messages_say_why_they_stop(server):
    long = server.post(PATH, messages_body("Write a story.", max_tokens=5)).json
    assert long["stop_reason"] == "max_tokens" and long["usage"]["output_tokens"] == 5, long
    text = server.post(PATH, messages_body("Write a story.", max_tokens=30, ignore_eos=True)).json["content"][0]["text"]
    stop = text[len(text) // 2:len(text) // 2 + 4]
    stopped = server.post(PATH, messages_body("Write a story.", stop_sequences=["never, ever", stop], max_tokens=30)).json
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", stop), stopped
    assert "".join(b["text"] for b in stopped["content"]) == text[:text.index(stop)], stopped


def test_messages_refuse_by_name(server):
    image = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]
    expect_messages_error(server.post(PATH, messages_body(image)), 400, "invalid_request_error",
                          "messages[0].content[0].type")
    expect_messages_error(server.post(PATH, messages_body("x", temperature=1.5)), 400, "invalid_request_error",
                          "temperature")
    expect_messages_error(server.post(PATH, messages_body("x", model="other")), 404, "not_found_error", "other")
    expect_messages_error(server.request("POST", PATH, "{"), 400, "invalid_request_error", "JSON")
    expect_messages_error(server.get(PATH), 405, "invalid_request_error", "POST")
    body = messages_body("x")
    del body["max_tokens"]
    expect_messages_error(server.post(PATH, body), 400, "invalid_request_error", "max_tokens")
    expect_messages_error(server.post(PATH, messages_body("word " * 5000)), 400, "invalid_request_error", "context")
