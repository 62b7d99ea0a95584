# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Python client against the server. Responses: openai_responses_test.py."""
import asyncio
import json

import openai
import pytest
from pydantic import BaseModel, Field

from checks import expect_raises, KEY
from shapes import GetWeather, Person

HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


class Add(BaseModel):
    """Adds two numbers."""
    a: int = Field(ge=0, le=99)
    b: int = Field(ge=0, le=99)


TOOLS = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(Add)]
NAMED = {"type": "function", "function": {"name": "Add"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def model_name(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="module")
def create(client, model_name):
    def send(**fields):
        return client.chat.completions.create(**{"model": model_name, "messages": HELLO, "max_tokens": 12, "temperature": 0} | fields)
    return send


def test_chat(client, create, model_name):
    reply = create()
    assert reply.choices[0].message.content and reply.choices[0].message.role == "assistant", reply
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens, reply
    assert client.models.retrieve(model_name).id == model_name
    raw = client.chat.completions.with_raw_response.create(model=model_name, messages=HELLO, max_tokens=2)
    assert raw.headers["x-request-id"] == raw.parse()._request_id


def test_chat_streaming(create):
    whole = create()
    text, usage = "", None
    for chunk in create(stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content, (text, whole)
    assert usage.completion_tokens == whole.usage.completion_tokens, usage


def test_chat_async(model_name, url):
    async def run():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0) as asynchronous:
            replies = await asyncio.gather(*(asynchronous.chat.completions.create(
                model=model_name, messages=HELLO, max_tokens=8, temperature=0) for _ in range(4)))
            text = ""
            async for chunk in await asynchronous.chat.completions.create(model=model_name, messages=HELLO, max_tokens=8,
                                                                          temperature=0, stream=True):
                text += chunk.choices[0].delta.content or ""
            assert {reply.choices[0].message.content for reply in replies} == {text}, (replies, text)
    asyncio.run(run())


def test_chat_logprobs_and_choices(create):
    reply = create(max_tokens=4, n=2, logprobs=True, top_logprobs=3)
    assert len(reply.choices) == 2, reply
    for choice in reply.choices:
        assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in choice.logprobs.content), choice


def test_completions(client, model_name):
    reply = client.completions.create(model=model_name, prompt=["One, two,", "Red, green,"], max_tokens=6, temperature=0, echo=True)
    assert reply.choices[0].text.startswith("One, two,") and reply.choices[1].text.startswith("Red, green,"), reply
    best = client.completions.create(model=model_name, prompt="Once", max_tokens=4, best_of=3)
    assert len(best.choices) == 1, best
    whole = client.completions.create(model=model_name, prompt="Once", max_tokens=8, temperature=0).choices[0].text
    pieces = client.completions.create(model=model_name, prompt="Once", max_tokens=8, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == whole and whole


def check_call(call):
    """A call whose arguments are what its tool's schema asks for."""
    assert call.type == "function" and call.id, call
    {"GetWeather": GetWeather, "Add": Add}[call.function.name].model_validate_json(call.function.arguments)
    return call.function.name, call.function.arguments


def test_tools(create):
    for choice, names in (("required", {"GetWeather", "Add"}), (NAMED, {"Add"}), (ALLOWED, {"Add"})):
        fields = {"messages": WEATHER, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 120}
        whole = create(**fields).choices[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
        call = check_call(whole.message.tool_calls[0])
        assert len(whole.message.tool_calls) == 1 and call[0] in names, whole
        name, arguments, finish = "", "", None
        for chunk in create(**fields, stream=True):
            for part in chunk.choices[0].delta.tool_calls or []:
                assert part.index == 0, part
                name += part.function.name or ""
                arguments += part.function.arguments or ""
            finish = chunk.choices[0].finish_reason or finish
        assert ((name, arguments), finish) == (call, "tool_calls"), (name, arguments, finish, call)


def test_tools_stream_helper(client, model_name):
    with client.chat.completions.stream(model=model_name, messages=WEATHER, tools=TOOLS, tool_choice="required", temperature=0,
                                        parallel_tool_calls=False, max_tokens=120) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    assert {"chunk", "tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds, kinds
    call = final.message.tool_calls[0]
    check_call(call)
    assert isinstance(call.function.parsed_arguments, (GetWeather, Add)), final


def test_tools_round_trip(create):
    message = create(messages=WEATHER, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=120).choices[0].message
    turns = WEATHER + [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "18 degrees, rain"}]
    for choice in ("none", "auto"):
        reply = create(messages=turns, tools=TOOLS, tool_choice=choice, max_tokens=24).choices[0].message
        assert reply.content or reply.tool_calls, reply


def test_structured_output(create):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
              "required": ["name", "age"], "additionalProperties": False}
    fields = {"messages": [{"role": "user", "content": "Invent a person."}], "max_tokens": 120,
              "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}}
    reply = create(**fields)
    assert reply.choices[0].finish_reason == "stop", reply
    person = json.loads(reply.choices[0].message.content)
    assert set(person) == {"name", "age"} and isinstance(person["age"], int), person
    text = "".join(chunk.choices[0].delta.content or "" for chunk in create(**fields, stream=True))
    assert text == reply.choices[0].message.content, (text, reply)


def test_structured_output_parsed(client, model_name):
    fields = {"model": model_name, "messages": [{"role": "user", "content": "Invent a person."}], "response_format": Person, "temperature": 0}
    person = client.chat.completions.parse(**fields, max_tokens=120).choices[0].message.parsed
    assert isinstance(person, Person), person
    with client.chat.completions.stream(**fields, max_tokens=120) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == person
    expect_raises(openai.LengthFinishReasonError, lambda: client.chat.completions.parse(**fields, max_tokens=4))
    fields = {**fields, "messages": WEATHER, "response_format": openai.omit, "tools": TOOLS, "tool_choice": NAMED}
    call = client.chat.completions.parse(**fields, max_tokens=120).choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Add), call


def test_errors(client, create, model_name):
    assert expect_raises(openai.BadRequestError, lambda: create(temperature=-1)).param == "temperature"
    assert expect_raises(openai.BadRequestError, lambda: create(stream=True, max_tokens=0)).param == "max_tokens"
    assert expect_raises(openai.NotFoundError, lambda: create(model="other")).code == "model_not_found"
    expect_raises(openai.NotFoundError, lambda: client.models.retrieve("other"))
    expect_raises(openai.BadRequestError, lambda: client.embeddings.create(model=model_name, input="x"))
    too_long = expect_raises(openai.BadRequestError, lambda: create(messages=[{"role": "user", "content": "word " * 4000}]))
    assert too_long.code == "context_length_exceeded", too_long


def test_keys(client, model_name, url):
    for stranger in (client.with_options(api_key="wrong"), openai.OpenAI(base_url=url + "/v1", api_key=KEY + "x", max_retries=0)):
        for call in (lambda: stranger.chat.completions.create(model=model_name, messages=HELLO, max_tokens=1), stranger.models.list,
                     lambda: stranger.responses.create(model=model_name, input="x", max_output_tokens=16)):
            error = expect_raises(openai.AuthenticationError, call)
            assert error.status_code == 401 and error.code == "invalid_api_key" and KEY not in error.message, error
