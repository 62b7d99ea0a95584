# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Python client against the server."""
import asyncio
from typing import Literal

import anthropic
import pytest
from pydantic import BaseModel

from checks import expect_raises, KEY

HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
# The client has no parameter for the temperature any more.
GREEDY = {"temperature": 0}
TOOLS = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": {
              "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
              "required": ["city", "unit"], "additionalProperties": False}},
         {"name": "add", "description": "Adds two numbers.", "input_schema": {
              "type": "object", "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}, "b": {"type": "integer", "maximum": 99, "minimum": 0}},
              "required": ["a", "b"], "additionalProperties": False}}]


class Choice(BaseModel):
    colour: Literal["red", "green"]
    sure: bool


@pytest.fixture(scope="module")
def client(url):
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def create(client):
    def send(**fields):
        return client.messages.create(**{"model": "default", "max_tokens": 12, "messages": HELLO, "extra_body": GREEDY} | fields)
    return send


def test_messages(create):
    reply = create(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    assert reply.type == "message" and reply.content[0].type == "text" and reply.content[0].text, reply
    assert reply.stop_reason in ("end_turn", "max_tokens") and reply.usage.output_tokens > 0, reply
    assert reply._request_id, "the id of the request"
    turns = HELLO + [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Again."}]
    again = create(max_tokens=4, messages=turns, system="Be brief.")
    assert again.usage.cache_read_input_tokens > 0, again.usage


def test_streaming(client, create):
    whole = create()
    with client.messages.stream(model="default", max_tokens=12, messages=HELLO, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text, (text, whole, final)
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == \
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens, (final, whole)
    kinds = [event.type for event in create(max_tokens=4, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds


def test_messages_async(url):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as asynchronous:
            fields = {"model": "default", "max_tokens": 8, "messages": HELLO, "extra_body": GREEDY}
            whole = await asynchronous.messages.create(**fields)
            async with asynchronous.messages.stream(**fields) as stream:
                assert await stream.get_final_text() == whole.content[0].text
    asyncio.run(run())


def test_stop_sequences(create):
    text = create(max_tokens=24).content[0].text
    stop = text[len(text) // 2:len(text) // 2 + 3]
    reply = create(max_tokens=24, stop_sequences=[stop])
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", stop), reply


def check_call(block):
    wanted = {"get_weather": {"city", "unit"}, "add": {"a", "b"}}[block.name]
    assert block.type == "tool_use" and block.id and set(block.input) == wanted, block
    assert block.name != "get_weather" or block.input["unit"] in ("celsius", "fahrenheit"), block
    return block.name, block.input


def test_tools(client, create):
    for choice, names in (({"type": "any"}, ("get_weather", "add")), ({"type": "tool", "name": "add"}, ("add",))):
        fields = {"messages": WEATHER, "tools": TOOLS, "tool_choice": choice | {"disable_parallel_tool_use": True}, "max_tokens": 120}
        whole = create(**fields)
        assert whole.stop_reason == "tool_use" and len(whole.content) == 1, whole
        call = check_call(whole.content[0])
        assert call[0] in names, whole
        with client.messages.stream(model="default", **fields, extra_body=GREEDY) as stream:
            pieces = "".join(event.partial_json for event in stream if event.type == "input_json")
            final = stream.get_final_message()
        assert check_call(final.content[0]) == call and final.stop_reason == "tool_use" and pieces, (final, whole)


def test_tools_round_trip(create):
    called = create(messages=WEATHER, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=120)
    result = {"type": "tool_result", "tool_use_id": called.content[0].id, "content": [{"type": "text", "text": "18 degrees, rain"}]}
    turns = WEATHER + [{"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    for choice in ("none", "auto"):
        reply = create(messages=turns, tools=TOOLS, tool_choice={"type": choice}, max_tokens=24)
        assert reply.content, reply
        assert choice == "auto" or reply.content[0].type == "text", reply


def test_tool_runner(client):
    """The client's loop that calls the tools itself, over its path of beta features."""
    called = []

    @anthropic.beta_tool
    def choose(colour: Literal["red", "green"]) -> str:
        """Chooses a colour.

        Args:
            colour: The colour.
        """
        called.append(colour)
        return "done"

    runner = client.beta.messages.tool_runner(
        model="default", max_tokens=60, messages=[{"role": "user", "content": "Choose red."}], tools=[choose], max_iterations=2,
        tool_choice={"type": "any", "disable_parallel_tool_use": True}, extra_body=GREEDY)
    replies = list(runner)
    assert called and set(called) <= {"red", "green"} and replies[0].stop_reason == "tool_use", (called, replies)


def test_structured_output(client):
    fields = {"model": "default", "max_tokens": 60, "messages": [{"role": "user", "content": "Choose a colour."}], "extra_body": GREEDY}
    choice = client.messages.parse(**fields, output_format=Choice).parsed_output
    assert isinstance(choice, Choice), choice
    with client.messages.stream(**fields, output_format=Choice) as stream:
        assert stream.get_final_message().parsed_output == choice


def test_count_tokens(client, create):
    for fields in ({"messages": HELLO}, {"messages": WEATHER, "tools": TOOLS, "system": "Be brief."}):
        counted = client.messages.count_tokens(model="default", **fields)
        reply = create(max_tokens=1, **fields)
        assert counted.input_tokens == reply.usage.input_tokens + reply.usage.cache_read_input_tokens, (counted, reply)


def test_errors(client, create):
    error = expect_raises(anthropic.BadRequestError, lambda: create(extra_body={"temperature": 2}))
    assert error.body["error"]["type"] == "invalid_request_error" and "temperature" in error.message, error
    error = expect_raises(anthropic.NotFoundError, lambda: create(model="other"))
    assert error.body["error"]["type"] == "not_found_error" and error.request_id, error
    expect_raises(anthropic.NotFoundError, lambda: client.messages.count_tokens(model="other", messages=HELLO))


def test_keys(url):
    stranger = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
    for call in (lambda: stranger.messages.create(model="default", max_tokens=4, messages=HELLO),
                 lambda: stranger.messages.count_tokens(model="default", messages=HELLO)):
        error = expect_raises(anthropic.AuthenticationError, call)
        assert error.body["error"]["type"] == "authentication_error" and KEY not in error.message, error
    bearer = anthropic.Anthropic(base_url=url, auth_token=KEY, max_retries=0)
    assert bearer.messages.create(model="default", max_tokens=2, messages=HELLO, extra_body=GREEDY).content
