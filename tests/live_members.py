# SPDX-License-Identifier: Apache-2.0
"""Members of a cluster: who is listed, who answered, and one that stops in the midst of a turn."""
import contextlib
import re
import signal
import time

import pytest

from live_client import expect, stop_process, wait_until
from live_cluster import question, texts

LEASE_SECONDS = 10  # of a turn's claim


def listed(place, *servers):
    """The lines of `loci cluster` by port, once it lists these and no others; it leaves out who was silent for five seconds."""
    seen = [{}]

    def are_listed():
        seen[0] = place.members()
        return set(seen[0]) == {server.port for server in servers}
    wait_until(are_listed, f"who is listed: {[server.port for server in servers]}")
    return seen[0]


def name_of(place, server, *others):
    return listed(place, server, *others)[server.port].split()[0]


def member_of(members, data):
    """The one that a stream came from, by the begin of it."""
    name = re.search(rb"X-Loci-Member: (\w+)", data).group(1).decode()

    def named():
        return [member for member in members if f"joined the cluster as {name} " in member.log_text()]
    wait_until(named, f"a member's log says that it is {name}")
    return named()[0]


def begun(front, path, body, events, headers=None):
    """A stream, and what has come of it when it has so many events."""
    stream, data = front.send(path, body, headers=headers), b""
    while data.count(b"data: ") < events:
        piece = stream.recv(4096)
        expect(piece, f"the stream ended: {data[-500:]}")
        data += piece
    return stream, data


@contextlib.contextmanager
def paused_in_a_turn(paused, other, ask):
    """A server that stands still in a turn: the conversation, the turn's stream, and what `ask` of the conversation returned while
    the turn's claim was held. A slow machine may end the turn, or let the lease run out, before that: then another turn is begun."""
    try:
        for _ in range(10):
            conversation = paused.post("/v1/conversations", {}).json["id"]
            begin = time.monotonic()
            stream = paused.send("/v1/responses", question(conversation, "Long?", max_output_tokens=900, ignore_eos=True, stream=True))
            stream.recv(100)  # it has begun
            stop_process(paused.process)
            if not texts(other, conversation):  # nor has it ended
                answers = ask(conversation)
                if time.monotonic() - begin < LEASE_SECONDS - 1:
                    yield conversation, stream, answers
                    return
            paused.process.send_signal(signal.SIGCONT)
            stream.close()
        pytest.fail("each turn had ended, or its lease had run out, before it was asked about")
    finally:
        paused.process.send_signal(signal.SIGCONT)
