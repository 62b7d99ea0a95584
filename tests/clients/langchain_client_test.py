# SPDX-License-Identifier: Apache-2.0
"""LangChain's ChatOpenAI against the server."""
from typing import Literal

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from checks import expect_raises, KEY


class Person(BaseModel):
    """A person."""
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)


class Weather(BaseModel):
    """Of which city, in which unit."""
    city: str = Field(max_length=20)
    unit: Literal["celsius", "fahrenheit"]


@tool(args_schema=Weather)
def get_weather(city: str, unit: str) -> str:
    """The weather of a city."""
    return f"18 {unit} in {city}"


TURNS = [SystemMessage("Be brief."), HumanMessage("Say hello."), AIMessage("Hello."), HumanMessage("Again.")]
QUESTION = HumanMessage("What is the weather in Paris?")


@pytest.fixture(scope="module")
def chat_model(url):
    def make(**options):
        return ChatOpenAI(**{"model": "default", "base_url": url + "/v1", "api_key": KEY, "max_retries": 0, "temperature": 0} | options)
    return make


def test_invoke(chat_model):
    reply = chat_model(max_tokens=12).invoke(TURNS)
    assert isinstance(reply, AIMessage) and reply.content, reply
    assert reply.usage_metadata["output_tokens"] > 0, reply


def test_stream(chat_model):
    whole = chat_model(max_tokens=12).invoke(TURNS)
    joined = None
    for chunk in chat_model(max_tokens=12, stream_usage=True).stream(TURNS):
        joined = chunk if joined is None else joined + chunk
    assert joined.content == whole.content, (joined, whole)
    assert joined.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"], joined


def test_batch(chat_model):
    whole = chat_model(max_tokens=8).invoke("Say hello.").content
    assert [reply.content for reply in chat_model(max_tokens=8).batch(["Say hello."] * 3)] == [whole] * 3


def check_call(message):
    assert len(message.tool_calls) == 1 and not message.invalid_tool_calls, message
    call = message.tool_calls[0]
    assert call["name"] == "get_weather", message
    Weather.model_validate(call["args"])
    return call


def test_bind_tools(chat_model):
    for choice in ("any", "get_weather"):
        bound = chat_model(max_tokens=120).bind_tools([get_weather], tool_choice=choice, parallel_tool_calls=False)
        called = bound.invoke([QUESTION])
        call = check_call(called)
        joined = None
        for chunk in bound.stream([QUESTION]):
            joined = chunk if joined is None else joined + chunk
        assert check_call(joined)["args"] == call["args"], (joined, call)
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage), result
    told = chat_model(max_tokens=24).bind_tools([get_weather], tool_choice="none").invoke([QUESTION, called, result])
    assert told.content and not told.tool_calls, told


def test_with_structured_output(chat_model):
    for method in ("json_schema", "function_calling"):
        # Strict adds additionalProperties: false to the function's schema; without it the small model goes on and on.
        person = chat_model(max_tokens=120).with_structured_output(Person, method=method, strict=True).invoke("Invent a person.")
        assert isinstance(person, Person) and 0 <= person.age <= 150, (method, person)


def test_responses(chat_model):
    first = chat_model(max_tokens=16, use_responses_api=True).invoke("My name is Ada.")
    identity = first.response_metadata["id"]
    second = chat_model(max_tokens=16, use_responses_api=True).invoke("What is my name?", previous_response_id=identity)
    assert second.text and second.usage_metadata["input_tokens"] > first.usage_metadata["input_tokens"], second
    text = "".join(chunk.text for chunk in chat_model(max_tokens=16, use_responses_api=True).stream("My name is Ada."))
    assert text == first.text, (text, first)
    bound = chat_model(max_tokens=120, use_responses_api=True).bind_tools([get_weather], tool_choice="get_weather", parallel_tool_calls=False)
    check_call(bound.invoke([QUESTION]))


def test_errors(chat_model):
    expect_raises(openai.BadRequestError, lambda: chat_model(temperature=-1).invoke("x"))
    expect_raises(openai.NotFoundError, lambda: chat_model(model="other").invoke("x"))
    expect_raises(openai.AuthenticationError, lambda: chat_model(api_key="wrong").invoke("x"))
