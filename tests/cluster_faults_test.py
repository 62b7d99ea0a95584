# SPDX-License-Identifier: Apache-2.0
"""Faults of a cluster while its clients ask: processes that die and stop, links that fail, PostgreSQL and Redis away, slow, wrong.

After each: every reply had a lone server's bits or was a clear error, no acknowledged turn is lost or doubled, and pins,
reservations, connections and memory are as before (`make cluster-test`, docs/testing.md).
"""
import contextlib
import itertools
import os
import shutil
import signal
import time

import pytest

from bad_link import BadLink
from cluster_load import LONG_TOKENS
from cluster_world import FLAGS, INSTANCES, World, ended
from live_client import expect, expect_equal, read_all, stop_process, wait_until
from live_cluster import Cluster, question, texts
from postgres_server import find_binaries
from s3_server import BUCKET, OWNER, PROGRAM, READER, S3Server

MODES = ("slow", "flip", "garbage", "cut", "silent", "repeat", "reorder")
S3_MODES = ("slow", "flip", "garbage", "cut")
# Of turns whose instance ended, or was taken for dead, and of the next turn while that one's claim holds.
LOST = {"instance_lost", "conversation_locked"}
# Of turns while the database does not answer; in a stream that had begun it is a server_error, as the API names it.
AWAY = {"unavailable", "server_error", "conversation_locked", "instance_lost"}

pytestmark = pytest.mark.skipif(find_binaries() is None or shutil.which("redis-server") is None,
                                reason="there is no PostgreSQL or no Redis on this machine: scripts/setup.sh test installs them")


@pytest.fixture(scope="module")
def world(binary, tiny_model, tmp_path_factory):
    with World(binary, tiny_model, str(tmp_path_factory.mktemp("world"))) as world:
        world.start()
        with world.load() as load:
            load.advance(4)
        world.remember()
        load.check()
        yield world


@pytest.fixture()
def links(world):
    if world.network.why_not:
        pytest.skip(f"no namespaces of the network: {world.network.why_not}")
    return world.network


def count(world, name):
    return sum(server.metrics().get(name, 0) for server in world.instances.values())


def test_state_moves_between_instances(world):
    """Without faults: else those below would show nothing."""
    names = ('loci_peer_parts_total{result="read"}', 'loci_shared_parts_total{result="read"}')
    before = [count(world, name) for name in names]
    with world.load() as load:
        wait_until(lambda: load.broken() or all(count(world, name) > old for name, old in zip(names, before)),
                   "state was read from peers and from the store")
    world.rest()
    load.check()


def test_kill(world):
    """Until streams that had begun have gone on elsewhere."""
    def moved():
        return sum(front.metrics()["loci_front_streams_moved_total"] for front in world.fronts)
    before, kills = moved(), 0
    with world.load() as load:
        for number in itertools.islice(itertools.cycle(INSTANCES), 20):
            wait_until(lambda number=number: world.instances[number].metrics()["loci_requests_running"] > 0, "it has requests")
            world.kill(number)
            load.advance(1)
            world.reborn(number)
            world.wait_for(len(INSTANCES))
            kills += 1
            if kills >= 3 and moved() > before:
                break
        load.advance(1)
        expect(moved() > before, f"no stream of {kills} instances that were killed went on elsewhere")
    world.rest()
    # A request that two of these kills met is given to no third instance.
    load.check(stateless={"instance_lost"}, stored=LOST)


def test_reborn_at_once(world):
    """Another one at its address before anybody knows that it has ended."""
    with world.load() as load:
        world.kill(12)
        world.reborn(12)
        load.advance(3)
    world.rest()
    load.check(stored=LOST)


def test_stopped_for_15_seconds(world):
    """In the midst of a turn, which others take over meanwhile."""
    stopped = world.instances[13]
    with world.load() as load:
        for _ in range(10):  # until its turn has not ended before it stops
            talk = world.fronts[0].post("/v1/conversations", {}).json["id"]
            stream = stopped.send("/v1/responses", question(talk, "Stopped?", max_output_tokens=LONG_TOKENS, ignore_eos=True, stream=True))
            stream.recv(100)
            stop_process(stopped.process)
            if not texts(world.fronts[1], talk):
                break
            stopped.process.send_signal(signal.SIGCONT)
            stream.close()
        time.sleep(13)
        wait_until(lambda: world.fronts[1].post("/v1/responses", question(talk, "Other?")).status == 200, "the turn is taken over")
        load.advance(1, clients=load.readers)
        stopped.process.send_signal(signal.SIGCONT)
        expect(b"response.completed" not in read_all(stream), "what the stopped instance says in the end")
        load.advance(1)
    world.rest()
    expect_equal([text for role, text in texts(world.fronts[0], talk) if role == "user"], ["Other?"], "the turns that are stored")
    load.check(stored=LOST)


def test_link_down(world, links):
    with world.load() as load:
        links.link(11, "down")
        load.advance(2, clients=load.readers)
        time.sleep(6)
        links.link(11, "up")
        load.advance(1)
    world.rest()
    load.check(stored=LOST | AWAY)


def test_slow_link(world, links):
    with world.load() as load:
        links.limit(12, "1mbit")
        load.advance(3)
        links.limit(12, None)
        load.advance(1)
    world.rest()
    load.check()


def test_database_restarted(world):
    with world.load() as load:
        world.postgres.stop()
        load.advance(2, clients=load.readers)
        world.postgres.start()
        load.advance(1)
    world.rest()
    load.check(stored=AWAY)


def test_database_frozen(world):
    with world.load() as load:
        with world.postgres.frozen():
            time.sleep(10)
            load.advance(1, clients=load.readers)
        load.advance(1)
    world.rest()
    load.check(stored=AWAY)


def test_store_killed_full_flushed(world):
    with world.load() as load:
        world.redis.ask("FLUSHALL")
        load.advance(1)
        world.redis.kill()
        load.advance(2)
        world.redis.start()
        world.redis.ask("CONFIG", "SET", "maxmemory", "1mb")
        load.advance(2)
        world.redis.ask("CONFIG", "SET", "maxmemory", "0")
        world.redis.ask("FLUSHALL")
        load.advance(1)
    world.rest()
    load.check()


def test_store_behind_a_bad_link(world):
    with world.load() as load:
        for mode in MODES:
            world.to_redis.mode = mode
            load.advance(1)
        world.to_redis.mode = "pass"
        wait_until(lambda: load.broken() or count(world, "loci_shared_up") == len(world.instances), "the store is asked again")
    world.rest()
    load.check()


@pytest.fixture()
def bucket(tmp_path, monkeypatch):
    if not os.access(PROGRAM, os.X_OK):
        pytest.skip("there is no S3 server: scripts/clients.sh s3 installs one")
    for name in ("AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    server = S3Server(tmp_path).start()
    yield server
    server.kill()


def test_a_bucket_of_an_s3_store(world, bucket, tmp_path, monkeypatch):
    """Two members of a cluster of their own that share it, and give each other nothing. It is reached by a link that does to bytes
    what it is told, it is killed, and refuses whatever the second member would write."""
    host = world.network.host(1)
    place = Cluster(world.binary, world.model, str(tmp_path), world.postgres, FLAGS)
    with contextlib.ExitStack() as stack:
        link = BadLink(("127.0.0.1", bucket.port), host, 9300)
        stack.callback(link.close)
        url = f"s3://{BUCKET}/faults?endpoint=http://{host}:{link.port}"
        members = []
        for number, (name, secret) in ((33, OWNER), (34, READER)):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            server = place.server("--port", str(9000 + number), "--peer-port", "none", "--shared", url, place=world.network.place(number))
            members.append(stack.enter_context(ended(server)))
        front = stack.enter_context(place.front("--policy", "least-load"))
        front.wait_for(2)

        def parts(result):
            return sum(member.metrics()[f'loci_shared_parts_total{{result="{result}"}}'] for member in members)

        def wait_for_more(result, what):
            before = parts(result)
            wait_until(lambda: load.broken() or parts(result) > before, what)
        load = world.load([front])
        with load:
            wait_for_more("read", "state is read from the bucket")
            wait_until(lambda: load.broken() or parts("refused") > 0, "it refuses what the second one would write")
            for mode in S3_MODES:
                link.mode = mode
                load.advance(1)
            link.mode = "pass"
            bucket.kill()
            load.advance(1)
            bucket.start()
            wait_for_more("read", "the bucket is asked again")
        world.settle({f"member {i}": member for i, member in enumerate([*members, front])})
        load.check()


def test_peers_behind_bad_links(world, tmp_path):
    """Two members of a cluster of their own. The ports at which they give state, and say what they have, are reached by links that do
    to bytes what they are told; no shared store."""
    host = world.network.host(1)
    place = Cluster(world.binary, world.model, str(tmp_path), world.postgres, FLAGS)
    with contextlib.ExitStack() as stack:
        members, links = [], []
        for number in (31, 32):
            own, port, peer_port = world.network.place(number), 9000 + number, 9100 + number
            server = place.server("--port", str(port), "--peer-port", str(peer_port), "--advertise", f"{host}:{port}", place=own)
            members.append(stack.enter_context(ended(server)))
            links.append(BadLink((own.host, peer_port), host, peer_port, both_ways=True))
            for link in (links[-1], BadLink((own.host, port), host, port)):
                stack.callback(link.close)
        fronts = [stack.enter_context(place.front("--policy", policy)) for policy in ("first-token", "least-load")]
        for front in fronts:
            front.wait_for(2)

        def read():
            return sum(member.metrics()['loci_peer_parts_total{result="read"}'] for member in members)
        load = world.load(fronts)
        with load:
            wait_until(lambda: load.broken() or read() > 0, "state is read through the links")
            for mode in MODES:
                for link in links:
                    link.mode = mode
                load.advance(1)
            for link in links:
                link.mode = "pass"
            before = read()
            wait_until(lambda: load.broken() or read() > before, "peers that failed are asked again")
        world.settle({f"member {i}": member for i, member in enumerate(members + fronts)})
        load.check()
