"""Anthropic's Python client against the server: anthropic_client.py URL."""
import os
import sys

import anthropic

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import run_checks  # noqa: E402

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
HELLO = [{"role": "user", "content": "Say hello."}]


def messages():
    reply = client.messages.create(model="default", max_tokens=12, messages=HELLO, temperature=0,
                                   system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    assert reply.type == "message" and reply.content[0].type == "text" and reply.content[0].text, reply
    assert reply.stop_reason in ("end_turn", "max_tokens") and reply.usage.output_tokens > 0, reply
    assert reply._request_id, "the id of the request"
    turn = HELLO + [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Again."}]
    again = client.messages.create(model="default", max_tokens=4, messages=turn, temperature=0, system="Be brief.")
    assert again.usage.cache_read_input_tokens > 0, again.usage


def streaming():
    whole = client.messages.create(model="default", max_tokens=12, messages=HELLO, temperature=0)
    with client.messages.stream(model="default", max_tokens=12, messages=HELLO, temperature=0) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text, (text, whole, final)
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final
    kinds = [event.type for event in client.messages.create(model="default", max_tokens=4, messages=HELLO, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds


def stop_sequences():
    text = client.messages.create(model="default", max_tokens=24, messages=HELLO, temperature=0).content[0].text
    stop = text[len(text) // 2:len(text) // 2 + 3]
    reply = client.messages.create(model="default", max_tokens=24, messages=HELLO, temperature=0, stop_sequences=[stop])
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", stop), reply


def count_tokens():
    counted = client.messages.count_tokens(model="default", messages=HELLO)
    reply = client.messages.create(model="default", max_tokens=1, messages=HELLO)
    assert counted.input_tokens == reply.usage.input_tokens + reply.usage.cache_read_input_tokens, (counted, reply)


def errors():
    try:
        client.messages.create(model="default", max_tokens=4, messages=HELLO, temperature=2)
        raise AssertionError("no error")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error" and "temperature" in error.message, error
    try:
        client.messages.create(model="other", max_tokens=4, messages=HELLO)
        raise AssertionError("no error")
    except anthropic.NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error", error


run_checks([messages, streaming, stop_sequences, count_tokens, errors])
