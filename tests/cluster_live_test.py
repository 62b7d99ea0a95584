# SPDX-License-Identifier: Apache-2.0
"""Servers that share a PostgreSQL database: one turn of a conversation at a time, whoever makes it."""
import contextlib
import signal

import pytest

from live_client import Server, expect, expect_equal, wait_until
from postgres_server import Postgres, find_binaries

FLAGS = ("--threads", "1", "--device-memory", "16MiB", "--context", "1024")
LEASE_SECONDS = 10

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as server:
        yield server


def question(conversation, text, **fields):
    return {"conversation": conversation, "input": text, "max_output_tokens": 8, "temperature": 0, **fields}


def texts(server, conversation):
    """What was said, by whom, the oldest first."""
    items = server.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100").json["data"]
    return [(item["role"], "".join(part.get("text", "") for part in item["content"])) for item in items]


@pytest.fixture(scope="module")
def pair(binary, tiny_model, postgres):
    """Two servers that share a store."""
    store = postgres.url(postgres.new_database())
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Server(binary, tiny_model, *FLAGS, "--store", store)) for _ in range(2)]


def test_a_conversation_goes_on_at_any_server(pair, binary, tiny_model, tmp_path):
    conversation = pair[0].post("/v1/conversations", {}).json["id"]
    with Server(binary, tiny_model, *FLAGS, "--store", str(tmp_path / "alone.db")) as alone:
        same = alone.post("/v1/conversations", {}).json["id"]
        for turn in range(4):
            for server, talk in ((pair[turn % 2], conversation), (alone, same)):
                reply = server.post("/v1/responses", question(talk, f"Question {turn}?"))
                expect_equal(reply.status, 200, reply.text)
        expect_equal(texts(pair[0], conversation), texts(alone, same), "what was said, and by a server alone")


def test_one_turn_at_a_time_over_all_servers(pair):
    first, second = pair
    conversation = first.post("/v1/conversations", {}).json["id"]
    stream = first.send("/v1/responses", question(conversation, "Long?", max_output_tokens=900, ignore_eos=True, stream=True))
    stream.recv(100)  # it has begun
    busy = second.post("/v1/responses", question(conversation, "Too early?"))
    expect_equal((busy.status, busy.json["error"]["code"]), (409, "conversation_locked"), "a turn elsewhere meanwhile")
    refused = second.request("DELETE", f"/v1/conversations/{conversation}")
    expect_equal(refused.status, 409, "its deletion meanwhile")
    stream.close()  # the client leaves, and the turn ends
    wait_until(lambda: second.post("/v1/responses", question(conversation, "Now?")).status == 200, 5, "the next turn")
    expect_equal([text for role, text in texts(first, conversation) if role == "user"], ["Now?"], "what was asked")


def test_a_paused_server_commits_nothing_that_another_took_over(pair):
    paused, other = pair
    conversation = paused.post("/v1/conversations", {}).json["id"]
    stream = paused.send("/v1/responses", question(conversation, "Paused?", max_output_tokens=900, ignore_eos=True, stream=True))
    stream.recv(100)
    paused.process.send_signal(signal.SIGSTOP)
    try:
        expect_equal(other.post("/v1/responses", question(conversation, "Early?")).status, 409, "before the lease has run out")
        wait_until(lambda: other.post("/v1/responses", question(conversation, "Other?")).status == 200, LEASE_SECONDS + 10, "the claim is taken over")
    finally:
        paused.process.send_signal(signal.SIGCONT)
    data = b""
    while piece := stream.recv(65536):
        data += piece
    stream.close()
    expect(b"response.completed" not in data and b"taken over" in data, f"how it ended: {data[-600:]}")
    expect_equal([text for role, text in texts(paused, conversation) if role == "user"], ["Other?"], "what was asked")
    expect_equal(paused.post("/v1/responses", question(conversation, "Again?")).status, 200, "the next turn there")
