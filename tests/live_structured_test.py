# SPDX-License-Identifier: Apache-2.0
"""Structured output against the live server."""
import json
import random
import re

import pytest

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")
CHAT = "/v1/chat/completions"


# --- schemas and what satisfies them ---

def random_schema(source, depth=0):
    kinds = ["string", "integer", "boolean", "enum", "const", "pattern"]
    if depth < 2:
        kinds += ["object", "object", "array", "anyOf"]
    kind = "object" if depth == 0 else source.choice(kinds)
    if kind == "object":
        names = source.sample(["zone", "name", "age", "tags", "kind", "über", "a b", "x_1"], source.randint(1, 4))
        return {"type": "object", "properties": {name: random_schema(source, depth + 1) for name in names},
                "required": [name for name in names if depth == 0 or source.random() < 0.7],
                "additionalProperties": False}
    if kind == "array":
        return {"type": "array", "items": random_schema(source, depth + 1), "minItems": source.randint(0, 2),
                "maxItems": source.randint(2, 3)}
    if kind == "string":
        return {"type": "string", "minLength": source.randint(0, 3), "maxLength": source.randint(3, 16)}
    if kind == "integer":
        return {"type": "integer", "minimum": source.randint(-50, 0), "maximum": source.randint(1, 1000)}
    if kind == "pattern":
        return {"type": "string", "pattern": source.choice(["^[A-Z]{2}-[0-9]{3}$", "^(north|south)$", "^[a-f0-9]{4,8}$"])}
    if kind == "enum":
        return {"enum": source.sample(["red", "green", 7, None, True, "bleu ciel"], source.randint(1, 4))}
    if kind == "const":
        return {"const": source.choice(["v1", 3, False])}
    if kind == "anyOf":
        return {"anyOf": [random_schema(source, depth + 1), {"type": "null"}]}
    return {"type": "boolean"}


def same(a, b):
    return type(a) is type(b) and a == b


def satisfies(schema, value):
    if "anyOf" in schema:
        return any(satisfies(one, value) for one in schema["anyOf"])
    if "enum" in schema:
        return any(same(one, value) for one in schema["enum"])
    if "const" in schema:
        return same(schema["const"], value)
    kind = schema["type"]
    if kind == "object":
        names = list(value) if isinstance(value, dict) else [None]
        known = list(schema["properties"])
        return (all(name in known for name in names) and all(name in names for name in schema["required"])
                and names == [name for name in known if name in names]
                and all(satisfies(schema["properties"][name], value[name]) for name in names))
    if kind == "array":
        return (isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
                and all(satisfies(schema["items"], item) for item in value))
    if kind == "string":
        return (isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**6)
                and re.search(schema.get("pattern", ""), value) is not None)
    if kind == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    return value is None if kind == "null" else isinstance(value, bool)


# --- requests ---

def body_of(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 600, **fields}


def with_schema(schema):
    return {"response_format": {"type": "json_schema",
                                "json_schema": {"name": "reply", "strict": True, "schema": schema}}}


def whole(server, body):
    reply = server.post(CHAT, body)
    assert reply.status == 200, reply.text
    choice = reply.json["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def streamed(server, body):
    events = server.stream(CHAT, body)
    choices = [event["choices"][0] for event in events if event["choices"]]
    return "".join(c["delta"].get("content") or "" for c in choices), choices[-1]["finish_reason"]


def test_replies_satisfy_random_schemas(server):
    source = random.Random(20)
    for i in range(20):
        schema = random_schema(source)
        body = body_of("Make up some data.", temperature=source.choice([0, 0.7, 1.2]), seed=i, **with_schema(schema))
        text, finish = (whole, streamed)[i % 2](server, body)
        assert finish == "stop", (finish, schema, text)
        assert satisfies(schema, json.loads(text)), (schema, text)


def test_structured_stream_and_whole_agree_in_any_batch(server):
    schema = {"type": "object", "properties": {"z": {"type": "string", "maxLength": 12}, "a": {"type": "boolean"}},
              "required": ["z", "a"], "additionalProperties": False}
    body = body_of("Anything.", temperature=1, seed=5, **with_schema(schema))
    alone = whole(server, body)
    assert streamed(server, body) == alone
    assert list(json.loads(alone[0])) == ["z", "a"], alone
    many = server.post(CHAT, body | {"n": 4}).json["choices"]
    assert many[0]["message"]["content"] == alone[0]
    for choice in many:
        assert satisfies(schema, json.loads(choice["message"]["content"])), choice


def test_grammars_of_every_kind(server):
    ask = lambda **fields: whole(server, body_of("Say something.", temperature=1, seed=3, **fields))  # noqa: E731
    for fields in ({"guided_choice": ["yes", "no", "maybe"]}, {"structured_outputs": {"choice": ["yes", "no", "maybe"]}}):
        text, finish = ask(**fields)
        assert text in ("yes", "no", "maybe") and finish == "stop", (text, finish)
    for fields in ({"guided_regex": "[a-z]{3,9} [0-9]{2}"}, {"grammar": 'root ::= word " " [0-9]{2}\nword ::= [a-z]{3,9}'},
                   {"guided_grammar": 'start: WORD " " /[0-9]{2}/\nWORD: /[a-z]{3,9}/'}):
        text, finish = ask(**fields)
        assert re.fullmatch("[a-z]{3,9} [0-9]{2}", text) and finish == "stop", (fields, text, finish)
    small = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}
    for fields in ({"guided_json": small}, {"json_schema": small}, {"response_format": {"type": "json_object", "schema": small}}):
        assert satisfies(small, json.loads(ask(**fields)[0])), fields
    text, finish = ask(response_format={"type": "json_object"}, logprobs=True, top_logprobs=2)
    assert finish == "length" or isinstance(json.loads(text), dict), (text, finish)
    reply = server.post("/v1/completions", {"prompt": "The answer is", "guided_choice": [" 42", " 43"]}).json
    assert reply["choices"][0]["text"] in (" 42", " 43"), reply


def test_structured_errors_name_the_field(server):
    def refused(field, **fields):
        reply = server.post(CHAT, body_of("Hi", **fields))
        assert reply.status == 400 and reply.json["error"]["param"] == field, reply.text
    refused("response_format.type", response_format={"type": "xml"})
    refused("response_format.json_schema.schema", **with_schema({"type": "thing"}))
    refused("response_format.json_schema.schema", **with_schema({"type": "integer", "minimum": 3, "maximum": 1}))
    refused("guided_regex", guided_regex="a(?=b)")
    refused("guided_grammar", guided_grammar="start: other")
    refused("grammar", grammar="root ::= other")
    refused("guided_choice", guided_choice=["a"], guided_regex="a")
    # It compiles; where all of its members may begin, it exceeds its bounds. A sampled reply may be "{}", and never come there.
    refused("guided_json", temperature=0,
            guided_json={"type": "object", "properties": {f"member{i}": {"type": "integer"} for i in range(500)}})
