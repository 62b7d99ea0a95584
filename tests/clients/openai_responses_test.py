# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Python client against /v1/responses and /v1/conversations."""
import openai
import pytest

from checks import expect_raises, KEY
from shapes import GetWeather, Person

MODEL = "default"


TOOLS = [openai.pydantic_function_tool(GetWeather)["function"] | {"type": "function"}]


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def create(client):
    def send(text, **fields):
        return client.responses.create(**{"model": MODEL, "input": text, "max_output_tokens": 12, "temperature": 0} | fields)
    return send


def test_responses(client, create):
    first = create("My name is Ada.")
    assert first.object == "response" and first.output_text and first.usage.output_tokens > 0, first
    second = create("What is my name?", previous_response_id=first.id)
    assert second.previous_response_id == first.id, second
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, second
    assert second.usage.input_tokens_details.cached_tokens > 0, second.usage
    counted = client.responses.input_tokens.count(model=MODEL, input="What is my name?", previous_response_id=first.id)
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", second.usage.input_tokens), counted
    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = client.responses.input_items.list(first.id)
    assert items.data[0].content[0].text == "My name is Ada.", items
    client.responses.delete(second.id)
    expect_raises(openai.NotFoundError, lambda: client.responses.retrieve(second.id))


def test_responses_streaming(client, create):
    """A reply that its limit cuts off: the event of the client's stream has it (get_final_response has none then)."""
    whole = create("Say hello.", max_output_tokens=16)
    text, kinds, numbers = "", [], []
    with client.responses.stream(model=MODEL, input="Say hello.", max_output_tokens=16, temperature=0) as stream:
        for event in stream:
            kinds.append(event.type)
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
                assert event.snapshot == text, event
            last = event
    assert last.response.output_text == text == whole.output_text, (last, text, whole)
    assert last.response.status == whole.status and last.response.usage.output_tokens == whole.usage.output_tokens, last
    assert numbers == list(range(len(numbers))), numbers
    assert kinds[0] == "response.created" and kinds[-1] == "response." + whole.status, kinds


def test_responses_parsed(client):
    fields = {"model": MODEL, "input": "Invent a person.", "text_format": Person, "max_output_tokens": 120, "temperature": 0}
    person = client.responses.parse(**fields).output_parsed
    assert isinstance(person, Person), person
    with client.responses.stream(**fields) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == person and final.status == "completed", final


def test_responses_tools(client, create):
    question = "What is the weather in Paris?"
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 120}
    first = create(question, **fields)
    call = first.output[-1]
    assert call.type == "function_call" and call.name == "GetWeather", first
    GetWeather.model_validate_json(call.arguments)
    arguments = "".join(event.delta for event in create(question, **fields, stream=True)
                        if event.type == "response.function_call_arguments.delta")
    assert arguments == call.arguments, (arguments, call)
    fields["tools"] = [openai.pydantic_function_tool(GetWeather)]  # which the helper reads the arguments by
    with client.responses.stream(model=MODEL, input=question, temperature=0, **fields) as stream:
        final = stream.get_final_response()
    assert isinstance(final.output[-1].parsed_arguments, GetWeather) and final.output[-1].arguments == call.arguments, final
    result = [{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees, rain"}]
    told = create(result, previous_response_id=first.id, tools=TOOLS, tool_choice="none")
    assert told.output_text, told
    told_more = create(result, previous_response_id=first.id, tools=TOOLS)
    assert told_more.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, told_more
    # The same turn by a client that keeps the conversation itself.
    turns = [{"role": "user", "content": question}, *first.output, *result]
    again = create(turns, tools=TOOLS, tool_choice="none", store=False)
    assert again.output_text == told.output_text, (again, told)


def test_responses_background(client, create):
    begun = create("Count.", background=True, max_output_tokens=16)
    assert begun.status in ("queued", "in_progress"), begun
    stream = client.responses.retrieve(begun.id, stream=True)
    last = list(stream)[-1]
    assert last.type in ("response.completed", "response.incomplete"), last
    assert client.responses.retrieve(begun.id).output_text == last.response.output_text


def test_conversations(client, create):
    conversation = client.conversations.create(metadata={"topic": "names"},
                                               items=[{"type": "message", "role": "user", "content": "My name is Ada."}])
    reply = create("What is my name?", conversation=conversation.id)
    assert reply.conversation.id == conversation.id, reply
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    assert [item.role for item in items] == ["user", "user", "assistant"], items
    assert client.conversations.items.retrieve(items[1].id, conversation_id=conversation.id).content[0].text == "What is my name?"
    client.conversations.items.create(conversation.id, items=[{"type": "message", "role": "user", "content": "Go on."}])
    client.conversations.items.delete(items[0].id, conversation_id=conversation.id)
    assert len(client.conversations.items.list(conversation.id).data) == 3
    assert client.conversations.update(conversation.id, metadata={"topic": "other"}).metadata == {"topic": "other"}
    assert client.conversations.retrieve(conversation.id).metadata == {"topic": "other"}
    client.conversations.delete(conversation.id)
    expect_raises(openai.NotFoundError, lambda: client.conversations.retrieve(conversation.id))


def test_errors(client, create):
    assert expect_raises(openai.BadRequestError, lambda: create("x", temperature=-1)).param == "temperature"
    expect_raises(openai.NotFoundError, lambda: create("x", previous_response_id="resp_" + "0" * 32))
    expect_raises(openai.NotFoundError, lambda: create("x", conversation="conv_" + "0" * 32))
    expect_raises(openai.NotFoundError, lambda: create("x", model="other"))
    stranger = client.with_options(api_key="wrong")
    expect_raises(openai.AuthenticationError, lambda: stranger.conversations.create())
