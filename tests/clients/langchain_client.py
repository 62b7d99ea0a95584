# SPDX-License-Identifier: Apache-2.0
"""LangChain's ChatOpenAI against the server: langchain_client.py URL KEY."""
import os
import sys
from typing import Literal

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import expect_raises, run_checks  # noqa: E402

URL, KEY = sys.argv[1:3]


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


def model(**options):
    return ChatOpenAI(**{"model": "default", "base_url": URL + "/v1", "api_key": KEY, "max_retries": 0, "temperature": 0} | options)


TURNS = [SystemMessage("Be brief."), HumanMessage("Say hello."), AIMessage("Hello."), HumanMessage("Again.")]
QUESTION = HumanMessage("What is the weather in Paris?")


def invoke():
    reply = model(max_tokens=12).invoke(TURNS)
    assert isinstance(reply, AIMessage) and reply.content, reply
    assert reply.usage_metadata["output_tokens"] > 0, reply


def stream():
    whole = model(max_tokens=12).invoke(TURNS)
    joined = None
    for chunk in model(max_tokens=12, stream_usage=True).stream(TURNS):
        joined = chunk if joined is None else joined + chunk
    assert joined.content == whole.content, (joined, whole)
    assert joined.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"], joined


def batch():
    whole = model(max_tokens=8).invoke("Say hello.").content
    assert [reply.content for reply in model(max_tokens=8).batch(["Say hello."] * 3)] == [whole] * 3


def check_call(message):
    assert len(message.tool_calls) == 1 and not message.invalid_tool_calls, message
    call = message.tool_calls[0]
    assert call["name"] == "get_weather", message
    Weather.model_validate(call["args"])
    return call


def bind_tools():
    for choice in ("any", "get_weather"):
        bound = model(max_tokens=120).bind_tools([get_weather], tool_choice=choice, parallel_tool_calls=False)
        called = bound.invoke([QUESTION])
        call = check_call(called)
        joined = None
        for chunk in bound.stream([QUESTION]):
            joined = chunk if joined is None else joined + chunk
        assert check_call(joined)["args"] == call["args"], (joined, call)
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage), result
    told = model(max_tokens=24).bind_tools([get_weather], tool_choice="none").invoke([QUESTION, called, result])
    assert told.content and not told.tool_calls, told


def with_structured_output():
    for method in ("json_schema", "function_calling"):
        # Strict adds additionalProperties: false to the function's schema; without it the small model goes on and on.
        person = model(max_tokens=120).with_structured_output(Person, method=method, strict=True).invoke("Invent a person.")
        assert isinstance(person, Person) and 0 <= person.age <= 150, (method, person)


def responses():
    first = model(max_tokens=16, use_responses_api=True).invoke("My name is Ada.")
    identity = first.response_metadata["id"]
    second = model(max_tokens=16, use_responses_api=True).invoke("What is my name?", previous_response_id=identity)
    assert second.text and second.usage_metadata["input_tokens"] > first.usage_metadata["input_tokens"], second
    text = "".join(chunk.text for chunk in model(max_tokens=16, use_responses_api=True).stream("My name is Ada."))
    assert text == first.text, (text, first)
    bound = model(max_tokens=120, use_responses_api=True).bind_tools([get_weather], tool_choice="get_weather", parallel_tool_calls=False)
    check_call(bound.invoke([QUESTION]))


def errors():
    expect_raises(openai.BadRequestError, lambda: model(temperature=-1).invoke("x"))
    expect_raises(openai.NotFoundError, lambda: model(model="other").invoke("x"))
    expect_raises(openai.AuthenticationError, lambda: model(api_key="wrong").invoke("x"))


run_checks([invoke, stream, batch, bind_tools, with_structured_output, responses, errors])
