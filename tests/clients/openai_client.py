"""OpenAI's Python client against the server: openai_client.py URL."""
import json
import os
import sys

import openai

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import run_checks  # noqa: E402

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id
HELLO = [{"role": "user", "content": "Say hello."}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}


def chat():
    reply = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, temperature=0)
    assert reply.choices[0].message.content and reply.choices[0].message.role == "assistant", reply
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens, reply
    assert client.models.retrieve(MODEL).id == MODEL


def chat_streaming():
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, temperature=0)
    text, usage = "", None
    for chunk in client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content, (text, whole)
    assert usage.completion_tokens == whole.usage.completion_tokens, usage


def chat_logprobs_and_choices():
    reply = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4, n=2, logprobs=True, top_logprobs=3)
    assert len(reply.choices) == 2, reply
    for choice in reply.choices:
        assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in choice.logprobs.content), choice


def completions():
    reply = client.completions.create(model=MODEL, prompt=["One, two,", "Red, green,"], max_tokens=6, temperature=0, echo=True)
    assert reply.choices[0].text.startswith("One, two,") and reply.choices[1].text.startswith("Red, green,"), reply
    best = client.completions.create(model=MODEL, prompt="Once", max_tokens=4, best_of=3)
    assert len(best.choices) == 1, best


def structured_output():
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Invent a person."}], max_tokens=120, temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}})
    assert reply.choices[0].finish_reason == "stop", reply
    person = json.loads(reply.choices[0].message.content)
    assert set(person) == {"name", "age"} and isinstance(person["age"], int), person


def errors():
    try:
        client.chat.completions.create(model=MODEL, messages=HELLO, temperature=-1)
        raise AssertionError("no error")
    except openai.BadRequestError as error:
        assert error.param == "temperature", error
    try:
        client.chat.completions.create(model="other", messages=HELLO)
        raise AssertionError("no error")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
    try:
        client.embeddings.create(model=MODEL, input="x")
        raise AssertionError("no error")
    except openai.BadRequestError:
        pass


def responses():
    first = client.responses.create(model=MODEL, input="My name is Ada.", max_output_tokens=12, temperature=0)
    assert first.object == "response" and first.output_text and first.usage.output_tokens > 0, first
    second = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=first.id,
                                     max_output_tokens=12, temperature=0)
    assert second.previous_response_id == first.id, second
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, second
    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = client.responses.input_items.list(first.id)
    assert items.data[0].content[0].text == "My name is Ada.", items
    client.responses.delete(second.id)
    try:
        client.responses.retrieve(second.id)
        raise AssertionError("still there")
    except openai.NotFoundError:
        pass


def responses_streaming():
    text, kinds, numbers = "", [], []
    with client.responses.stream(model=MODEL, input="Say hello.", max_output_tokens=12, temperature=0) as stream:
        for event in stream:
            kinds.append(event.type)
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
        final = stream.get_final_response()
    assert final.output_text == text and text, (final, text)
    assert numbers == list(range(len(numbers))), numbers
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds


def conversations():
    conversation = client.conversations.create(metadata={"topic": "names"},
                                               items=[{"type": "message", "role": "user", "content": "My name is Ada."}])
    reply = client.responses.create(model=MODEL, input="What is my name?", conversation=conversation.id, max_output_tokens=8)
    assert reply.conversation.id == conversation.id, reply
    items = client.conversations.items.list(conversation.id, order="asc").data
    assert [item.role for item in items] == ["user", "user", "assistant"], items
    assert client.conversations.retrieve(conversation.id).metadata == {"topic": "names"}
    client.conversations.delete(conversation.id)
    try:
        client.conversations.retrieve(conversation.id)
        raise AssertionError("still there")
    except openai.NotFoundError:
        pass


run_checks([chat, chat_streaming, chat_logprobs_and_choices, completions, structured_output, errors, responses,
            responses_streaming, conversations])
