# SPDX-License-Identifier: Apache-2.0
"""Servers that share a PostgreSQL database: one turn of a conversation at a time, whoever makes it."""
import contextlib
import re
import signal
import subprocess

import pytest

from live_client import Server, Workplace, expect, expect_equal, killed, wait_until
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


class Cluster(Workplace):
    """With a database and a secret; servers join it."""

    def __init__(self, binary, model, folder, postgres):
        super().__init__(binary, model, folder)
        self.postgres, self.database = postgres, postgres.new_database()
        self.url, self.secret = postgres.url(self.database), self.path("cluster.secret")
        expect_equal(self.command("keys", "cluster", self.secret).returncode, 0, "loci keys cluster")

    def server(self, *flags, model=None):
        return Server(self.binary, model or self.model, *FLAGS, "--join", self.url, "--cluster-secret", self.secret, *flags)

    def cluster(self, *flags):
        return self.command("cluster", "--join", self.url, "--cluster-secret", self.secret, *flags)

    def members(self):
        """The lines of `loci cluster`, by the port of the member."""
        listed = self.cluster()
        expect_equal(listed.returncode, 0, listed.stderr)
        lines = [line for line in listed.stdout.splitlines()[1:] if re.match(r"[0-9a-f]{16} ", line)]
        return {int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1)): line for line in lines}


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory, postgres):
    return Cluster(binary, tiny_model, str(tmp_path_factory.mktemp("cluster")), postgres)


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


# --- members ---

def test_members_are_listed_while_they_live(place):
    with place.server() as first, killed(place.server("--alias", "other")) as second:
        members = place.members()
        expect_equal(set(members), {first.port, second.port}, "who is listed")
        expect("serving" in members[first.port] and "other" in members[second.port], members)
        second.process.send_signal(signal.SIGKILL)
        wait_until(lambda: set(place.members()) == {first.port}, 10, "who was killed is listed no more")
        member = members[first.port].split()[0]
        expect_equal(place.cluster("--drain", member).returncode, 0, "it is asked to drain")
        wait_until(lambda: "draining" in place.members()[first.port], 5, "it drains")
        expect_equal(first.get("/v1/models").status, 200, "whoever still asks it is answered")
        expect_equal(place.cluster("--undrain", member).returncode, 0, "it is asked to serve again")
        wait_until(lambda: "serving" in place.members()[first.port], 5, "it serves again")
        refused = place.cluster("--drain", "f" * 16)
        expect(refused.returncode == 1 and "--drain" in refused.stderr and "f" * 16 in refused.stderr, refused.stderr)
    expect_equal(place.members(), {}, "who has left")


def test_who_cannot_join_says_why(place):
    start = ["serve", place.model, "--port", "0", "--disk", "none", *FLAGS, "--join"]
    cases = {(place.url,): ("--cluster-secret", "keys cluster"),
             ("mysql://x", "--cluster-secret", place.secret): ("--join", "postgresql://"),
             ("postgresql://127.0.0.1:1/x", "--cluster-secret", place.secret): ("--join", "127.0.0.1"),
             (place.url, "--cluster-secret", place.secret, "--advertise", "nowhere"): ("--advertise", "HOST:PORT")}
    for flags, parts in cases.items():
        ended = place.command(*start, *flags)
        expect(ended.returncode in (1, 2), f"{flags}: exit code {ended.returncode}")
        for part in parts:
            expect(part in ended.stderr, f"{flags}: {part!r} in {ended.stderr!r}")


def test_another_model_under_a_members_name_is_refused(place, binary):
    other = place.path("other.gguf")
    subprocess.run([binary.removesuffix("loci") + "loci-random-model", other, "--shape", "tiny", "--seed", "7"], check=True,
                   stdout=subprocess.DEVNULL)
    with place.server("--alias", "chat") as first:
        ended = place.command("serve", other, "--port", "0", "--disk", "none", *FLAGS, "--join", place.url, "--cluster-secret", place.secret,
                              "--alias", "chat")
        expect_equal(ended.returncode, 1, ended.stderr)
        prints = re.findall(r"[0-9a-f]{32}", ended.stderr)
        expect("--join" in ended.stderr and "'chat'" in ended.stderr and len(set(prints)) == 2, ended.stderr)
        expect_equal(set(place.members()), {first.port}, "members")
        with place.server(model=other) as second:
            expect_equal(set(place.members()), {first.port, second.port}, "under a name of its own it joins")
