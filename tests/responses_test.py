# SPDX-License-Identifier: Apache-2.0
"""/v1/responses and /v1/conversations against the real binary.

Where the package `openai` is there (scripts/clients.sh python), every
object and event is also read by its types.
"""
import json
import os
import subprocess
import tempfile

import pytest

from live_client import dechunk, event_blocks, expect, expect_equal, expect_error, read_all, Server, wait_until

try:
    from openai.types.conversations import Conversation, ConversationItem
    from openai.types.responses import Response, ResponseStreamEvent
    from openai.types.responses.response_item_list import ResponseItemList
    from pydantic import TypeAdapter
except ImportError:
    TypeAdapter = None

FLAGS = ["--device-memory", "192MiB", "--context", "2048", "--threads", "1"]


@pytest.fixture(scope="module")
def server(binary, model, tmp_path_factory):
    print("types of the package openai: " + ("checked" if TypeAdapter else "not there, not checked"))
    with Server(binary, model, *FLAGS, "--store", str(tmp_path_factory.mktemp("store") / "conversations.db")) as shared:
        yield shared


def check_type(kind, value):
    if TypeAdapter is not None:
        TypeAdapter(kind).validate_python(value, strict=False)
    return value


def create(server, text, **fields):
    body = {"input": text, "temperature": 0, "max_output_tokens": 24} | fields
    reply = server.post("/v1/responses", body)
    expect_equal(reply.status, 200, reply.text[:300])
    if TypeAdapter is not None:
        check_type(Response, reply.json)
    return reply.json


def read_events(connection):
    """The events of a stream: each has its name's line, its number, and the type that the client knows."""
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    connection.close()
    expect(b" 200 " in head.split(b"\r\n")[0], (head + body).decode("utf-8", "replace"))
    events = []
    for block in event_blocks(dechunk(body).decode("utf-8")):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        expect_equal(name, "event: " + event["type"], "the line of the event's name")
        if TypeAdapter is not None:
            check_type(ResponseStreamEvent, event)
        events.append(event)
    return events


def stream(server, text, **fields):
    body = {"input": text, "temperature": 0, "max_output_tokens": 24, "stream": True} | fields
    events = read_events(server.send("/v1/responses", body))
    expect_equal([e["sequence_number"] for e in events], list(range(len(events))), "sequence numbers")
    return events


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def send_get(server, path):
    import socket
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=120)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return connection


def wait_status(server, identity, wanted):
    seen = []

    def is_wanted():
        seen[:] = [server.get(f"/v1/responses/{identity}").json]
        expect(seen[0]["status"] in (*wanted, "queued", "in_progress"), f"{identity} is {seen[0]['status']}, not one of {wanted}")
        return seen[0]["status"] in wanted

    wait_until(is_wanted, f"{identity} is one of {wanted}", 300)
    return seen[0]


# --- one response ---

def test_a_response_is_stored_as_it_was_sent(server):
    response = create(server, "Name three colours.", metadata={"a": "b"}, instructions="Be brief.")
    expect_equal(response["object"], "response", "object")
    expect(response["status"] in ("completed", "incomplete"), response["status"])
    expect(response["id"].startswith("resp_") and text_of(response), "an id and a text")
    expect(response["output"][0]["id"].startswith("msg_"), "the item's id")
    expect_equal(response["metadata"], {"a": "b"}, "metadata")
    usage = response["usage"]
    expect_equal(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"], "total_tokens")
    expect_equal(server.get("/v1/responses/" + response["id"]).json, response, "GET")
    items = server.get(f"/v1/responses/{response['id']}/input_items").json
    expect_equal(items["data"][0]["content"][0]["text"], "Name three colours.", "input item")
    if TypeAdapter is not None:
        check_type(ResponseItemList, items)


def test_stream_and_whole_agree(server):
    for text, tokens in (("Name three colours.", 24), ("Say hello.", 3)):
        whole = create(server, text, max_output_tokens=tokens)
        events = stream(server, text, max_output_tokens=tokens)
        expect_equal([e["type"] for e in events[:4]], ["response.created", "response.in_progress",
                     "response.output_item.added", "response.content_part.added"], "the first events")
        last = events[-1]
        expect_equal(last["type"], "response." + whole["status"], "the last event")
        shown = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        expect_equal(shown, text_of(whole), "text")
        expect_equal(text_of(last["response"]), shown, "text of the last event")
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        expect_equal(done, last["response"]["output"], "items")
        for name in ("status", "incomplete_details", "tools", "text", "metadata"):
            expect_equal(last["response"][name], whole[name], name)
        expect_equal(server.get("/v1/responses/" + last["response"]["id"]).json, last["response"], "GET")
    expect_equal(whole["incomplete_details"], {"reason": "max_output_tokens"}, "three tokens are too few")


def test_logprobs_are_included(server):
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 5}
    whole = create(server, "Say hello.", **fields)
    part = whole["output"][0]["content"][0]
    expect_equal("".join(p["token"] for p in part["logprobs"]), part["text"], "tokens spell the text")
    expect_equal([len(p["top_logprobs"]) for p in part["logprobs"]], [2] * len(part["logprobs"]), "top_logprobs")
    events = stream(server, "Say hello.", **fields)
    shown = [p["token"] for e in events if e["type"] == "response.output_text.delta" for p in e["logprobs"]]
    expect_equal("".join(shown), part["text"], "tokens of the deltas")
    expect_equal(events[-1]["response"]["output"][0]["content"], whole["output"][0]["content"], "content")
    expect_equal(create(server, "Say hello.")["output"][0]["content"][0]["logprobs"], [], "none unasked")


def test_what_is_not_stored_is_not_found(server):
    response = create(server, "Hi", store=False)
    expect_equal(response["store"], False, "store")
    path = "/v1/responses/" + response["id"]
    mine = expect_error(server.get(path), 404, code="not_found")
    other = expect_error(server.get("/v1/responses/resp_0"), 404)
    expect_equal(mine.replace(response["id"], "resp_0"), other, "the same words as for what never was")
    expect_error(server.get(path + "/input_items"), 404)
    expect_error(server.request("DELETE", path), 404)
    expect_error(server.request("POST", path + "/cancel"), 404)
    expect_error(server.post("/v1/responses", {"input": "x", "previous_response_id": response["id"]}), 404,
                 "previous_response_id", "previous_response_not_found")


def test_delete(server):
    first = create(server, "Hi")
    second = create(server, "And you?", previous_response_id=first["id"])
    deleted = server.request("DELETE", "/v1/responses/" + first["id"]).json
    expect_equal(deleted, {"id": first["id"], "object": "response", "deleted": True}, "deleted")
    expect_error(server.get("/v1/responses/" + first["id"]), 404)
    expect_error(server.request("DELETE", "/v1/responses/" + first["id"]), 404)
    # Its successor is there, but nothing can go on from it: what it followed is gone.
    expect_equal(server.get("/v1/responses/" + second["id"]).status, 200, "the next turn")
    expect_error(server.post("/v1/responses", {"input": "x", "previous_response_id": second["id"]}), 404,
                 "previous_response_id")


def test_refused_requests(server):
    def refused(param, status=400, **fields):
        return expect_error(server.post("/v1/responses", {"input": "x"} | fields), status, param)
    refused("temperature", temperature=-1)
    refused("max_output_tokens", max_output_tokens=0)
    refused("model", 404, model="other")
    refused("truncation", truncation="some")
    refused("tools[0].type", tools=[{"name": "f"}])
    refused("tool_choice.type", tools=[{"type": "web_search"}], tool_choice={"type": "web_search"})
    refused("conversation", 404, conversation="conv_none")
    refused("previous_response_id", conversation="c", previous_response_id="r")
    refused("background", background=True, store=False)
    refused("input[0].content[0].type", input=[{"role": "user", "content": [{"type": "input_image"}]}])
    refused("input[0].id", 404, input=[{"type": "item_reference", "id": "msg_none"}])
    refused("input[1].call_id", input=[{"role": "user", "content": "x"},
                                       {"type": "function_call_output", "call_id": "c9", "output": "7"}])
    expect("2048" in refused("input", input="word " * 3000), "the context's size is named")
    expect_error(server.request("POST", "/v1/responses", "{"), 400)
    expect_error(server.get("/v1/responses/resp_0/input_items?limit=0"), 400, "limit")
    expect_error(server.get("/v1/responses/resp_0/input_items?order=up"), 400, "order")
    expect_error(server.get("/v1/responses/resp_0?starting_after=3"), 400, "starting_after")


# --- many turns ---

def test_a_chain_of_turns_is_one_conversation(server):
    first = create(server, "My cat is called Tom.", max_output_tokens=40)
    second = create(server, "What is my cat called?", previous_response_id=first["id"])
    expect("Tom" in text_of(second), f"it knows the name: {text_of(second)!r}")
    expect_equal(second["previous_response_id"], first["id"], "previous_response_id")
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    known = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    expect(cached > 0 and cached >= known - 40, f"cached {cached} of the {known} tokens of the first turn")
    third = create(server, "Thank you.", previous_response_id=second["id"])
    expect(third["usage"]["input_tokens"] > second["usage"]["input_tokens"], "it grows")
    # The same turns, sent by a client that keeps them itself.
    history = [{"role": "user", "content": "My cat is called Tom."}] + first["output"]
    again = create(server, history + [{"role": "user", "content": "What is my cat called?"}], store=False)
    expect_equal(text_of(again), text_of(second), "a history that is sent gives the same reply")
    expect_equal(again["usage"]["input_tokens"], second["usage"]["input_tokens"], "input_tokens")


def test_a_fork_has_its_own_history(server):
    root = create(server, "I have a pet.")
    left = create(server, "It is a cat named Tom.", previous_response_id=root["id"])
    right = create(server, "It is a dog named Rex.", previous_response_id=root["id"])
    asked = [create(server, "What is its name? One word.", previous_response_id=one["id"]) for one in (left, right)]
    expect("Tom" in text_of(asked[0]) and "Rex" not in text_of(asked[0]), text_of(asked[0]))
    expect("Rex" in text_of(asked[1]) and "Tom" not in text_of(asked[1]), text_of(asked[1]))


def test_instructions_are_of_one_turn(server):
    plain = create(server, "Hi")
    told = create(server, "Hi", instructions="You are a pirate. Talk like one.")
    expect(told["usage"]["input_tokens"] > plain["usage"]["input_tokens"] or text_of(told) != text_of(plain),
           "instructions reach the model")
    after_told = create(server, "Bye", previous_response_id=told["id"])
    expect_equal(after_told["instructions"], None, "they are not carried over")


def test_calls_of_functions_come_back(server):
    items = [{"role": "user", "content": "What is the weather in Paris?"},
             {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\": \"Paris\"}"},
             {"type": "function_call_output", "call_id": "c1", "output": "Sunny, 21 degrees."}]
    response = create(server, items)
    listed = server.get(f"/v1/responses/{response['id']}/input_items?order=asc").json["data"]
    expect_equal([i["type"] for i in listed], ["message", "function_call", "function_call_output"], "items")
    expect_equal(listed[2]["output"], "Sunny, 21 degrees.", "output")
    newest = server.get(f"/v1/responses/{response['id']}/input_items?limit=1").json
    expect_equal((newest["data"][0]["id"], newest["has_more"]), (listed[2]["id"], True), "the newest comes first")
    rest = server.get(f"/v1/responses/{response['id']}/input_items?after={newest['last_id']}").json
    expect_equal([i["id"] for i in rest["data"]], [listed[1]["id"], listed[0]["id"]], "the next page")


def test_allowed_tools_keep_the_prompt(server):
    def tool(name, properties):
        return {"type": "function", "name": name, "description": f"Tells the {name}.", "parameters": {
            "type": "object", "properties": {one: {"type": "integer", "minimum": 0, "maximum": 99} for one in properties},
            "required": properties}}

    def allowing(mode, name):
        return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": name}]}
    tools = {"tools": [tool("time", ["zone"]), tool("weather", ["place"])], "max_output_tokens": 80, "parallel_tool_calls": False}
    first = create(server, "What is the time in zone 3?", **tools, tool_choice=allowing("required", "time"))
    expect_equal([item["name"] for item in first["output"]], ["time"], "what is called")
    expect_equal(first["tool_choice"], allowing("required", "time"), "tool_choice")
    expect_equal([one["name"] for one in first["tools"]], ["time", "weather"], "tools")
    result = [{"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "It is late."}]
    for mode in ("required", "auto"):
        asked = tools | {"tool_choice": allowing(mode, "weather"), "previous_response_id": first["id"]}
        second = create(server, result, **asked)
        cached = second["usage"]["input_tokens_details"]["cached_tokens"]
        expect(cached >= first["usage"]["input_tokens"], f"the first turn's state is found: {second['usage']}")
        called = [item["name"] for item in second["output"] if item["type"] == "function_call"]
        expect(called == ["weather"] or (mode == "auto" and called == []), f"what may be called: {second['output']}")
        done = stream(server, result, **asked)[-1]["response"]
        expect_equal([{**item, "id": 0, "call_id": 0} for item in done["output"]],
                     [{**item, "id": 0, "call_id": 0} for item in second["output"]], "the stream")
    wrong = {"tool_choice.mode": allowing("any", "time"), "tool_choice.tools": {**allowing("auto", "time"), "tools": []},
             "tool_choice.tools[0].name": allowing("auto", "place")}
    for param, choice in wrong.items():
        expect_error(server.post("/v1/responses", {"input": "x", "tools": tools["tools"], "tool_choice": choice}), 400, param)


def test_input_tokens_are_those_of_the_response(server):
    def counted(**body):
        reply = server.post("/v1/responses/input_tokens", body)
        expect_equal(reply.status, 200, reply.text)
        expect_equal(reply.json, {"object": "response.input_tokens", "input_tokens": reply.json["input_tokens"]}, "the answer")
        return reply.json["input_tokens"]
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}]
    for fields in ({}, {"instructions": "Be brief."}, {"tools": tools}, {"input": [{"role": "user", "content": "Name a city."}]}):
        body = {"input": "Name a city."} | fields
        expect_equal(counted(**body), create(server, **({"text": None} | body))["usage"]["input_tokens"], f"of {fields}")
    first = create(server, "Name a river.")
    following = {"input": "And another?", "previous_response_id": first["id"]}
    number = counted(**following)
    expect_equal(number, create(server, None, **following)["usage"]["input_tokens"], "of the next turn")
    expect(counted(previous_response_id=first["id"]) < number, "without an input")
    conversation = server.post("/v1/conversations", {"items": [{"role": "user", "content": "Name a lake."}]}).json["id"]
    number = counted(input="Now!", conversation=conversation)
    listed = server.get(f"/v1/conversations/{conversation}/items").json["data"]
    expect_equal(len(listed), 1, "nothing is added")
    expect_equal(number, create(server, "Now!", conversation=conversation)["usage"]["input_tokens"], "of a conversation")
    expect(counted(input="word " * 3000) > 2048, "more than the context has room for")
    expect(counted(input=[{"role": "user", "content": "word " * 3000}, {"role": "user", "content": "x"}], truncation="auto") < 2048, "cut")
    expect_error(server.post("/v1/responses/input_tokens", {}), 400, "input")
    expect_error(server.post("/v1/responses/input_tokens", {"input": "x", "model": "other"}), 404, "model")
    expect_error(server.post("/v1/responses/input_tokens", {"input": "x", "previous_response_id": "resp_0"}), 404, "previous_response_id")
    expect_error(server.get("/v1/responses/input_tokens"), 405)


def test_restart_keeps_all(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "conversations.db")
        with Server(binary, model, *FLAGS, "--store", store) as server:
            first = create(server, "My cat is called Tom.")
            asked = create(server, "What is my cat called?", previous_response_id=first["id"])
            conversation = server.post("/v1/conversations", {"metadata": {"k": "v"}}).json
            turn = create(server, "My dog is called Rex.", conversation=conversation["id"])
        with Server(binary, model, *FLAGS, "--store", store) as server:
            expect_equal(server.get("/v1/responses/" + first["id"]).json, first, "the response")
            expect_equal(server.get("/v1/conversations/" + conversation["id"]).json, conversation, "the conversation")
            items = server.get(f"/v1/conversations/{conversation['id']}/items?order=asc").json["data"]
            expect_equal(items[1], turn["output"][0], "its items")
            again = create(server, "What is my cat called?", previous_response_id=first["id"])
            expect_equal(text_of(again), text_of(asked), "it goes on with the same reply")
            expect_equal(again["usage"]["input_tokens"], asked["usage"]["input_tokens"], "and the same tokens")


def test_no_store(binary, model):
    with Server(binary, model, *FLAGS, "--store", "") as server:
        response = create(server, "Hi")
        expect_equal(response["store"], False, "store is false where there is none")
        expect_error(server.post("/v1/responses", {"input": "x", "store": True}), 400, "store")
        expect_error(server.get("/v1/responses/" + response["id"]), 400, code="store_disabled")
        expect_error(server.post("/v1/conversations", {}), 400, code="store_disabled")
        for field in ("previous_response_id", "conversation"):
            message = expect_error(server.post("/v1/responses", {"input": "x", field: "r"}), 400, param=field, code="store_disabled")
            expect("keeps no responses and no conversations" in message and "option store" in message, message)
        expect_error(server.post("/v1/responses/input_tokens", {"input": "x", "conversation": "r"}), 400, param="conversation", code="store_disabled")
        message = expect_error(server.post("/v1/responses", {"input": "x", "background": True}), 400, "background")
        expect("this server keeps no responses" in message, message)


# --- conversations ---

def new_conversation(server, **fields):
    reply = server.post("/v1/conversations", fields)
    expect_equal(reply.status, 200, reply.text)
    if TypeAdapter is not None:
        check_type(Conversation, reply.json)
    return reply.json


def test_conversations(server):
    made = new_conversation(server, metadata={"topic": "x"}, items=[{"role": "user", "content": "My cat is Tom."}])
    path = "/v1/conversations/" + made["id"]
    expect(made["id"].startswith("conv_"), made["id"])
    expect_equal(server.get(path).json, made, "GET")
    updated = server.post(path, {"metadata": {"topic": "y"}}).json
    expect_equal(updated["metadata"], {"topic": "y"}, "metadata")
    expect_error(server.post(path, {"metadata": {"k": 1}}), 400, "metadata.k")
    added = server.post(path + "/items", {"items": [{"role": "assistant", "content": "A fine name."}]}).json
    expect_equal(added["data"][0]["content"][0]["type"], "output_text", "an item of the assistant's")
    listed = server.get(path + "/items?order=asc").json
    expect_equal([i["role"] for i in listed["data"]], ["user", "assistant"], "items")
    if TypeAdapter is not None:
        for item in listed["data"]:
            check_type(ConversationItem, item)
    one = f"{path}/items/{listed['data'][0]['id']}"
    expect_equal(server.get(one).json, listed["data"][0], "one item")
    expect_equal(server.request("DELETE", one).json, updated, "deleting an item answers with the conversation")
    expect_error(server.get(one), 404)
    expect_equal(server.request("DELETE", path).json, {"id": made["id"], "object": "conversation.deleted", "deleted": True},
                 "deleted")
    for reply in (server.get(path), server.get(path + "/items"), server.post(path, {"metadata": {}}),
                  server.post(path + "/items", {"items": [{"role": "user", "content": "x"}]}), server.request("DELETE", path)):
        expect_error(reply, 404)
    many = [{"role": "user", "content": "x"}] * 21
    expect_error(server.post("/v1/conversations", {"items": many}), 400, "items")
    expect_error(server.post("/v1/conversations", {"items": "x"}), 400, "items")


def test_responses_of_a_conversation(server):
    conversation = new_conversation(server, items=[{"role": "user", "content": "My cat is called Tom."}])
    path = f"/v1/conversations/{conversation['id']}/items?order=asc"
    first = create(server, "What is my cat called?", conversation=conversation["id"])
    expect("Tom" in text_of(first), text_of(first))
    expect_equal(first["conversation"], {"id": conversation["id"]}, "conversation")
    second = create(server, "Is that a common name?", conversation={"id": conversation["id"]})
    expect(second["usage"]["input_tokens_details"]["cached_tokens"] > 0, "the first turn's state is used")
    items = server.get(path).json["data"]
    expect_equal([i["role"] for i in items], ["user", "user", "assistant", "user", "assistant"], "items")
    expect_equal([items[2], items[4]], [first["output"][0], second["output"][0]], "what the model said")
    expect_error(server.post("/v1/responses", {"input": "x", "previous_response_id": second["id"]}), 400,
                 "previous_response_id")
    expect_error(server.post("/v1/responses", {"conversation": conversation["id"], "input": [items[0]]}), 400, "input[0].id")
    server.request("DELETE", "/v1/conversations/" + conversation["id"])
    for response in (first, second):
        expect_error(server.get("/v1/responses/" + response["id"]), 404, code="not_found")


def test_a_history_that_is_too_long_is_not_read(binary, model, tmp_path):
    with Server(binary, model, *FLAGS, "--max-body", "100KiB", "--store", str(tmp_path / "conversations.db")) as server:
        made = new_conversation(server)
        for _ in range(2):
            item = {"role": "user", "content": "x" * 90_000}
            expect_equal(server.post(f"/v1/conversations/{made['id']}/items", {"items": [item]}).status, 200, "added")
        reply = server.post("/v1/responses", {"input": "Hi", "conversation": made["id"], "truncation": "auto"})
        message = expect_error(reply, 400, "conversation", "context_length_exceeded")
        expect("at most 131,072 bytes" in message and "max_body" in message, message)


def test_items_leave_out_log_probabilities(server):
    made = new_conversation(server)
    response = create(server, "Say hello.", conversation=made["id"], include=["message.output_text.logprobs"])
    expect(response["output"][0]["content"][0]["logprobs"], "the reply has them")
    expect_equal(server.get("/v1/responses/" + response["id"]).json, response, "GET")
    item = server.get(f"/v1/conversations/{made['id']}/items?limit=1").json["data"][0]
    expect_equal(item["id"], response["output"][0]["id"], "the newest item")
    expect_equal(item["content"][0]["logprobs"], [], "of the item")
    expect_equal(item["content"][0]["text"], response["output"][0]["content"][0]["text"], "text")


def test_one_turn_at_a_time(server):
    conversation = new_conversation(server)
    # Log-probabilities make more output than the sockets' buffers hold: the turn goes on until the client leaves.
    slow = {"input": "Write a long story.", "conversation": conversation["id"], "max_output_tokens": 1800, "stream": True,
            "ignore_eos": True, "include": ["message.output_text.logprobs"], "top_logprobs": 20}
    connection = server.send("/v1/responses", slow, receive_buffer=4096)
    connection.recv(64)  # it has begun
    expect_error(server.post("/v1/responses", {"input": "x", "conversation": conversation["id"]}), 409, "conversation",
                 "conversation_locked")
    connection.close()
    turn = {"input": "Hi", "conversation": conversation["id"], "max_output_tokens": 2}
    wait_until(lambda: server.post("/v1/responses", turn).status != 409, "the conversation is free when the client has left")
    roles = [i["role"] for i in server.get(f"/v1/conversations/{conversation['id']}/items?order=asc").json["data"]]
    expect_equal(roles, ["user", "assistant"], "nothing of the turn that was left")


# --- in the background ---

def test_background(server):
    response = create(server, "Name three colours.", background=True)
    expect_equal((response["status"], response["output"]), ("queued", []), "at once")
    ended = wait_status(server, response["id"], ("completed", "incomplete"))
    expect_equal(text_of(ended), text_of(create(server, "Name three colours.")), "text")
    expect_error(server.request("POST", f"/v1/responses/{response['id']}/cancel"), 400)
    events = read_events(send_get(server, f"/v1/responses/{response['id']}?stream=true"))
    expect_equal([e["sequence_number"] for e in events], list(range(len(events))), "numbers")
    expect_equal(events[1]["type"], "response.queued", "queued")
    expect_equal(events[-1]["response"], ended, "the last event")
    rest = read_events(send_get(server, f"/v1/responses/{response['id']}?stream=true&starting_after=5"))
    expect_equal(rest, events[6:], "starting_after")
    follow = create(server, "One more.", previous_response_id=response["id"])
    expect_equal(follow["previous_response_id"], response["id"], "it can be continued")
    expect_error(server.get(f"/v1/responses/{follow['id']}?stream=true"), 400, "stream")


def test_background_survives_its_client(server):
    body = {"input": "Name three colours.", "temperature": 0, "max_output_tokens": 60, "ignore_eos": True,
            "background": True, "stream": True}
    connection = server.send("/v1/responses", body)
    head = connection.recv(4096)
    while b"response.queued" not in head:
        head += connection.recv(4096)
    connection.close()
    identity = json.loads(head[head.index(b"data: ") + 6:].split(b"\n")[0])["response"]["id"]
    expect_equal(wait_status(server, identity, ("incomplete",))["usage"]["output_tokens"], 60, "output_tokens")


def test_background_cancel(server):
    body = {"input": "Write a long story.", "background": True, "ignore_eos": True, "max_output_tokens": 1500}
    for _ in range(10):
        identity = server.post("/v1/responses", body).json["id"]
        wait_status(server, identity, ("in_progress", "incomplete"))
        reply = server.request("POST", f"/v1/responses/{identity}/cancel")
        if reply.status == 200:  # else it had come to its end, which a busy machine may let it
            break
    cancelled = reply.json
    expect_equal(cancelled.get("status"), "cancelled", f"status of {reply.text}")
    expect_equal(server.get("/v1/responses/" + identity).json, cancelled, "GET")
    expect_equal(server.request("POST", f"/v1/responses/{identity}/cancel").json, cancelled, "once more")
    expect_error(server.post("/v1/responses", {"input": "x", "previous_response_id": identity}), 400, "previous_response_id")
    # The pass that holds it ends first.
    wait_until(lambda: server.metrics()["loci_requests_running"] == 0, "nothing runs")
    plain = create(server, "Hi")
    expect_error(server.request("POST", f"/v1/responses/{plain['id']}/cancel"), 400)


def test_background_of_a_conversation(server):
    conversation = new_conversation(server)
    identity = create(server, "Name three colours.", background=True, conversation=conversation["id"])["id"]
    wait_status(server, identity, ("completed", "incomplete"))
    roles = [i["role"] for i in server.get(f"/v1/conversations/{conversation['id']}/items?order=asc").json["data"]]
    expect_equal(roles, ["user", "assistant"], "both items, once")


def test_interrupted_is_failed(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "conversations.db")
        with Server(binary, model, *FLAGS, "--store", store) as server:
            body = {"input": "Write a long story.", "background": True, "ignore_eos": True, "max_output_tokens": 1800}
            done = create(server, "Hi")
            for _ in range(10):  # until it had not ended before it was looked at
                identity = server.post("/v1/responses", body).json["id"]
                if wait_status(server, identity, ("in_progress", "incomplete"))["status"] == "in_progress":
                    break
            server.process.kill()
            server.process.wait()
            server.process.returncode = 0
        with Server(binary, model, *FLAGS, "--store", store) as server:
            failed = server.get("/v1/responses/" + identity).json
            if TypeAdapter is not None:
                check_type(Response, failed)
            expect_equal(failed["status"], "failed", "the one that was interrupted")
            expect(failed["error"]["message"], "it says why")
            expect_equal(server.get("/v1/responses/" + done["id"]).json, done, "the one that was acknowledged")


def test_background_waits_for_its_store(binary, model, tmp_path):
    """A reply that is made, and that the store can't take yet, is not lost. Meanwhile it can be cancelled."""
    store, away = tmp_path / "conversations.db", tmp_path / "away.db"
    with Server(binary, model, *FLAGS, "--store", str(store)) as server:
        body = {"input": "Write a story.", "background": True, "ignore_eos": True, "max_output_tokens": 100}
        for _ in range(10):  # until neither had ended before the store was away, which a busy machine may let it
            kept, dropped = (server.post("/v1/responses", body).json["id"] for _ in range(2))
            store.rename(away)
            if {server.get(f"/v1/responses/{identity}").json["status"] for identity in (kept, dropped)} <= {"queued", "in_progress"}:
                break
            away.rename(store)
        wait_until(lambda: "is tried again" in server.log_text(), "the store refuses the turn")
        wait_until(lambda: server.metrics()["loci_requests_running"] == 0, "nothing runs")
        cancelled = server.request("POST", f"/v1/responses/{dropped}/cancel")
        expect_equal(cancelled.json["status"], "cancelled", cancelled.text)
        away.rename(store)
        done = wait_status(server, kept, ("completed", "incomplete"))
        expect_equal(done["usage"]["output_tokens"], 100, "the whole reply")
        wait_until(lambda: server.get("/v1/responses/" + dropped).json["status"] == "cancelled", "the store has that too")


def test_tenants_see_their_own(binary, model):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "keys.toml")
        keys = [subprocess.run([binary, "keys", "add", name, "--file", file], check=True, capture_output=True, text=True)
                .stdout.strip() for name in ("ada", "bob")]
        with Server(binary, model, *FLAGS, "--api-keys", file, "--store", os.path.join(folder, "c.db")) as server:
            def ask(who, method, path, body=None):
                data = None if body is None else json.dumps(body)
                return server.request(method, path, data, {"Authorization": "Bearer " + keys[who]})
            expect_equal(server.post("/v1/responses", {"input": "x"}).status, 401, "without a key")
            mine = ask(0, "POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 4}).json["id"]
            background = ask(0, "POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 4, "background": True}).json["id"]
            talk = ask(0, "POST", "/v1/conversations", {"items": [{"role": "user", "content": "x", "id": "m1"}]}).json["id"]
            for method, path, body in [("GET", "/v1/responses/R", None), ("GET", "/v1/responses/R?stream=true", None),
                                       ("GET", "/v1/responses/R/input_items", None), ("POST", "/v1/responses/R/cancel", {}),
                                       ("POST", "/v1/responses", {"input": "x", "previous_response_id": "R"}),
                                       ("DELETE", "/v1/responses/R", None), ("GET", "/v1/conversations/C", None),
                                       ("POST", "/v1/conversations/C", {"metadata": {}}),
                                       ("GET", "/v1/conversations/C/items", None), ("GET", "/v1/conversations/C/items/m1", None),
                                       ("DELETE", "/v1/conversations/C/items/m1", None),
                                       ("POST", "/v1/responses", {"input": "x", "conversation": "C"}),
                                       ("DELETE", "/v1/conversations/C", None)]:
                def reply(response, conversation):
                    def named(text):
                        return text.replace("R", response).replace("C", conversation) if "v1" in text else text
                    sent = body and {k: {"R": response, "C": conversation}.get(v, v) if isinstance(v, str) else v
                                     for k, v in body.items()}
                    got = ask(1, method, named(path), sent)
                    return got.status, got.text.replace(response, "ID").replace(conversation, "ID")
                never = reply("resp_none", "conv_none")
                expect_equal(never[0], 404, f"{method} {path}")
                for response in (mine, background):
                    expect_equal(reply(response, talk), never, f"{method} {path}")
            for path in ("/v1/responses/" + mine, "/v1/responses/" + background, "/v1/conversations/" + talk):
                expect_equal(ask(0, "GET", path).status, 200, path)
