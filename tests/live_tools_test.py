# SPDX-License-Identifier: Apache-2.0
"""Tools and reasoning of /v1/chat/completions against the live server."""
import json

import pytest

from live_client import wait_until

pytestmark = pytest.mark.serve("--device-memory", "192MiB", "--context", "2048")
CHAT = "/v1/chat/completions"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 20}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"], "additionalProperties": False}}}
ADD = {"type": "function", "function": {
    "name": "add", "description": "Adds two numbers.", "strict": True,
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                   "required": ["a", "b"], "additionalProperties": False}}}


def tools_body(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "tools": [WEATHER, ADD], "temperature": 0,
            "max_tokens": 120, **fields}


def streamed_message(server, body):
    """What a client puts together from the deltas, as OpenAI's libraries do: (message, finish_reason)."""
    message, calls, finish = {"content": ""}, [], None
    for event in server.stream(CHAT, body):
        for choice in event["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for part in delta.get("tool_calls", []):
                if part["index"] == len(calls):
                    assert part["id"] and part["type"] == "function" and part["function"]["name"], part
                    calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    return message, calls, finish


def check_call(call):
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "get_weather":
        assert set(arguments) == {"city", "unit"} and arguments["unit"] in ("celsius", "fahrenheit"), arguments
    else:
        assert set(arguments) == {"a", "b"} and all(isinstance(v, int) for v in arguments.values()), arguments
    assert call["id"].startswith("call_") and call["type"] == "function"


def test_tools_required_and_named_give_valid_calls(server):
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        body = tools_body("What is the weather in Paris?", tool_choice=choice, parallel_tool_calls=False)
        reply = server.post(CHAT, body).json
        whole = reply["choices"][0]
        assert whole["finish_reason"] == "tool_calls", reply
        assert whole["message"]["content"] is None
        calls = whole["message"]["tool_calls"]
        assert len(calls) == 1
        check_call(calls[0])
        if choice != "required":
            assert calls[0]["function"]["name"] == "add"
        message, streamed, finish = streamed_message(server, body)
        assert (message["content"], finish) == ("", "tool_calls")
        assert [(c["name"], c["arguments"]) for c in streamed] == [
            (c["function"]["name"], c["function"]["arguments"]) for c in calls]


def test_tools_a_named_one_is_called_once(server):
    for seed in range(3):
        body = tools_body("Add 1 and 2, then 3 and 4, then 5 and 6.", max_tokens=400, temperature=1.0, seed=seed,
                          tool_choice={"type": "function", "function": {"name": "add"}})
        message = server.post(CHAT, body).json["choices"][0]["message"]
        assert len(message["tool_calls"]) == 1, message


def test_tools_none_keeps_the_prompt(server):
    prompts = {}
    for choice in ("auto", "none"):
        reply = server.post(CHAT, tools_body("What is the weather in Bern?", tool_choice=choice, max_tokens=8))
        assert reply.status == 200, reply.text
        prompts[choice] = reply.json["usage"]
        assert choice == "auto" or "tool_calls" not in reply.json["choices"][0]["message"]
    assert prompts["none"]["prompt_tokens"] == prompts["auto"]["prompt_tokens"], prompts
    assert prompts["none"]["prompt_tokens_details"]["cached_tokens"] >= prompts["auto"]["prompt_tokens"] - 1, prompts


def allowing(mode, tool):
    named = {"type": "function", "function": {"name": tool["function"]["name"]}}
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named]}}


def test_tools_allowed_ones_are_called_alone_and_keep_the_prompt(server):
    text = "What is the weather in Geneva, and what is 3 + 4?"
    usage = server.post(CHAT, tools_body(text, max_tokens=8)).json["usage"]
    for mode in ("auto", "required"):
        for tool in (WEATHER, ADD):
            body = tools_body(text, tool_choice=allowing(mode, tool), temperature=1.0, seed=5, parallel_tool_calls=False)
            reply = server.post(CHAT, body).json
            assert reply["usage"]["prompt_tokens"] == usage["prompt_tokens"], reply
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 1, reply
            choice = reply["choices"][0]
            calls = choice["message"].get("tool_calls", [])
            assert all(call["function"]["name"] == tool["function"]["name"] for call in calls), reply
            if mode == "required":
                assert len(calls) == 1 and choice["message"]["content"] is None, reply
                check_call(calls[0])
            message, streamed, finish = streamed_message(server, body)
            assert (message["content"], finish) == (choice["message"]["content"] or "", choice["finish_reason"])
            assert [(c["name"], c["arguments"]) for c in streamed] == [
                (c["function"]["name"], c["function"]["arguments"]) for c in calls]


def test_tools_the_next_turn_finds_its_state_whatever_it_may_call(server):
    body = tools_body("What is the weather in Lugano?", tool_choice=allowing("required", WEATHER), parallel_tool_calls=False)
    first = server.post(CHAT, body).json
    message = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3 + 4 degrees"}
    second = server.post(CHAT, {**body, "messages": body["messages"] + [message, result],
                                "tool_choice": allowing("required", ADD)}).json
    assert second["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add", second
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["prompt_tokens"], (first["usage"], second["usage"])


def test_tools_beside_a_response_format_are_called_or_the_content_is_of_it(server):
    schema = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}},
              "required": ["answer"], "additionalProperties": False}
    strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in (WEATHER, ADD)]
    for seed in range(4):
        body = tools_body("What is the weather in Paris?", tools=strict, temperature=1.0, seed=seed, max_tokens=300,
                          response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
        choice = server.post(CHAT, body).json["choices"][0]
        calls, content = choice["message"].get("tool_calls", []), choice["message"]["content"]
        if choice["finish_reason"] == "tool_calls":
            for call in calls:
                check_call(call)
            assert calls and content is None, choice
        elif choice["finish_reason"] == "stop":
            assert set(json.loads(content)) == {"answer"} and not calls, choice
        message, streamed, finish = streamed_message(server, body)
        assert (message["content"], finish) == (content or "", choice["finish_reason"])
        assert [c["arguments"] for c in streamed] == [c["function"]["arguments"] for c in calls]


def test_tools_parallel_calls_are_each_valid(server):
    reply = server.post(CHAT, tools_body("Weather of Paris, Rome and Bern?", tool_choice="required",
                                         max_tokens=400)).json["choices"][0]
    calls = reply["message"]["tool_calls"]
    assert len({call["id"] for call in calls}) == len(calls)
    for call in calls if reply["finish_reason"] == "tool_calls" else calls[:-1]:
        check_call(call)


def test_tools_round_trip(server):
    body = tools_body("What is 3 + 4?", tool_choice={"type": "function", "function": {"name": "add"}},
                      parallel_tool_calls=False)
    message = server.post(CHAT, body).json["choices"][0]["message"]
    call = message["tool_calls"][0]
    messages = body["messages"] + [message, {"role": "tool", "tool_call_id": call["id"], "content": "7"}]
    reply = server.post(CHAT, {**body, "messages": messages, "tool_choice": "none", "max_tokens": 24})
    assert reply.status == 200, reply.text
    choice = reply.json["choices"][0]
    assert choice["message"]["content"] and "tool_calls" not in choice["message"]
    # The same conversation with the tools still offered: the template, or the text in its place, holds it all.
    reply = server.post(CHAT, {**body, "messages": messages, "tool_choice": "auto", "max_tokens": 24})
    assert reply.status == 200, reply.text


def test_tools_are_checked(server):
    nameless = [{"role": "user", "content": "x"}, {"role": "tool", "content": "7"}]
    for fields, param in (({"messages": nameless}, "messages[1].tool_call_id"), ({"tool_choice": "sometimes"}, "tool_choice"),
                          ({"tools": []} | {"tool_choice": "required"}, "tool_choice"),
                          ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
                          ({"tools": [{"type": "retrieval"}], "tool_choice": "required"}, "tool_choice"),
                          ({"tool_choice": allowing("none", ADD)}, "tool_choice.allowed_tools.mode"),
                          ({"tool_choice": allowing("auto", ADD), "tools": [WEATHER]},
                           "tool_choice.allowed_tools.tools[0].function.name"),
                          ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
                          ({"functions": [{"name": "f"}]}, "functions"),
                          ({"prompt_cache_key": 5}, "prompt_cache_key"),
                          ({"reasoning_effort": "most"}, "reasoning_effort")):
        reply = server.post(CHAT, tools_body("x", **fields))
        assert reply.status == 400 and reply.json["error"]["param"] == param, reply.text


def test_unknown_fields_are_logged_once(server):
    body = json.dumps(tools_body("Hi", tool_choice="none", max_tokens=1, no_such_field_x=1, user="me", prompt_cache_key="k"))
    for number in range(3):
        reply = server.request("POST", CHAT, body, {"X-Request-Id": f"unknown-{number}"})
        assert reply.status == 200, reply.text
    wait_until(lambda: "access request_id=unknown-2 " in server.log_text(), "all that is said of the three is in the log")
    lines = [line for line in server.log_text().splitlines() if "no_such_field_x" in line]
    assert len(lines) == 1 and CHAT in lines[0], lines


def test_reasoning_is_told_apart(server):
    """Only where the model marks its reasoning (Qwen3, SmolLM3, DeepSeek R1, gpt-oss ...)."""
    body = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0, "max_tokens": 64}
    message = server.post(CHAT, body).json["choices"][0]["message"]
    assert "<think>" not in (message["content"] or "")
