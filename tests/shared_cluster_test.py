# SPDX-License-Identifier: Apache-2.0
"""A store that servers share on a real Redis Cluster of three nodes (docs/shared-store.md)."""
import re
import shutil
import signal
import subprocess
import threading

import pytest

from live_client import Server, expect, expect_equal, stop_process, wait_saved, wait_until
from redis_server import Redis, free_port
from shared_store_test import BLOCK_TOKENS, FLAGS, STORY, SharedWorkplace, expect_all_written, say, servers_until

NODES = 3


class Node(Redis):
    """One of a cluster, whose bus has a port of its own (by default the port and 10,000, which may be too much)."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        # Nodes call one another failed that are silent for half a minute, which no busy machine is.
        super().__init__(folder, "--cluster-enabled", "yes", "--cluster-node-timeout", "30000", "--cluster-require-full-coverage", "no")

    def ports(self):
        if self.may_move:
            self.bus = free_port()
        return *super().ports(), "--cluster-port", str(self.bus)

    def names(self):
        return super().names() if self.process else []


class RedisCluster:
    """Three nodes, each with a third of the slots, and no replicas."""

    def __init__(self, folder):
        self.nodes = [Node(folder / f"node{i}") for i in range(NODES)]
        for node in self.nodes:
            node.start()
        self.cli("--cluster", "create", *(f"127.0.0.1:{node.port}" for node in self.nodes), "--cluster-yes")
        wait_until(lambda: all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes), "the cluster is well")
        self.ids = [re.search(rb"(\w{40}) \S+ myself", node.ask("CLUSTER", "NODES")).group(1).decode() for node in self.nodes]

    @property
    def url(self):
        return self.nodes[1].url

    def cli(self, *words):
        done = subprocess.run(["redis-cli", *words], capture_output=True, text=True, timeout=600)
        expect_equal(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def names(self):
        return [name for node in self.nodes for name in node.names()]

    def reshard(self, source, target, slots):
        """Moves slots with all that is in them, as operators do."""
        self.cli("--cluster", "reshard", f"127.0.0.1:{self.nodes[0].port}", "--cluster-from", self.ids[source], "--cluster-to", self.ids[target],
                 "--cluster-slots", str(slots), "--cluster-yes")

    def migrate(self, name, target):
        """Leaves the slot of a value on its way: the value has gone ahead, the slot has not."""
        slot = self.nodes[0].ask("CLUSTER", "KEYSLOT", name)[1:-2].decode()
        source = next(i for i, node in enumerate(self.nodes) if name in node.names())
        expect(self.nodes[target].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source]).startswith(b"+OK"), "importing")
        expect(self.nodes[source].ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target]).startswith(b"+OK"), "migrating")
        moved = self.nodes[source].ask("MIGRATE", "127.0.0.1", str(self.nodes[target].port), name, "0", "60000")
        expect(moved.startswith(b"+OK"), moved)

    def kill(self):
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory):
    return SharedWorkplace(binary, tiny_model, str(tmp_path_factory.mktemp("shared")))


@pytest.fixture()
def cluster(tmp_path):
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        pytest.exit("there is no redis-server or redis-cli: scripts/setup.sh test installs them", 4)
    nodes = RedisCluster(tmp_path / "redis")
    yield nodes
    nodes.kill()


@pytest.fixture(scope="module")
def plain(place):
    """What a server without a store says, and then the next turn's."""
    with Server(place.binary, place.model, *FLAGS) as server:
        first = say(server)[0]
        return first, say(server, STORY + first + " And then?")[0]


def written(place, cluster):
    """A server has computed the story, and what it has of it is in the cluster."""
    with place.server(cluster.url) as one:
        first = say(one)[0]
        wait_saved(one)
        expect_all_written(one, cluster.names())
        return first


def all_shared(_, __, cached, shared):
    return shared >= 4 * BLOCK_TOKENS and cached >= shared


def test_another_server_goes_on_with_what_three_nodes_have(place, cluster, plain):
    expect_equal(written(place, cluster), plain[0], "the first turn")
    expect(sum(bool(node.names()) for node in cluster.nodes) >= 2, "values are on several nodes")
    expect_equal(servers_until(place, cluster.url, STORY + plain[0] + " And then?", all_shared), plain[1], "the next turn")


def test_slots_that_move_while_they_are_read(place, cluster, plain):
    written(place, cluster)
    with place.server(cluster.url) as other:  # it knows where all was
        wait_until(lambda: other.metrics()["loci_shared_up"] == 1, "the cluster is known")
        moved = []

        def move():
            for source, target in ((0, 2), (1, 0), (2, 1)):
                cluster.reshard(source, target, 1000)
                moved.append(source)

        mover = threading.Thread(target=move, daemon=True)
        mover.start()
        said = 0
        while mover.is_alive():
            expect_equal(say(other, f"{said} {STORY}", 2)[0], say(other, f"{said} {STORY}", 2)[0], "while slots move")
            expect_equal(say(other)[0], plain[0], "the reply while slots move")
            said += 1
        mover.join()
        expect(len(moved) == 3 and said > 0, f"{len(moved)} of 3 moves, {said} rounds meanwhile")
        wait_saved(other)
        wait_until(lambda: other.metrics()["loci_shared_up"] == 1, "the store is not left alone")
    expect_equal(servers_until(place, cluster.url, STORY, all_shared), plain[0], "afterwards all is found")


def test_a_slot_on_its_way(place, cluster, plain):
    written(place, cluster)
    found = []
    servers_until(place, cluster.url, STORY, lambda *reply: all_shared(*reply) and not found.append(reply[3]))
    for name in cluster.names():
        source = next(i for i, node in enumerate(cluster.nodes) if name in node.names())
        cluster.migrate(name, (source + 1) % NODES)
    expect_equal(servers_until(place, cluster.url, STORY, lambda *reply: reply[3] >= found[0]), plain[0], "with values that have gone ahead")


def test_a_node_that_dies_costs_its_blocks_alone(place, cluster, plain):
    written(place, cluster)
    with place.server(cluster.url) as other:
        victim = min((node for node in cluster.nodes if node.names()), key=lambda node: len(node.names()))
        victim.kill()
        expect_equal(say(other)[0], plain[0], "the reply without a node")
        told = []

        def is_asked():
            for _ in range(4):
                told.append(say(other, f"{len(told)} {STORY}", 2))
            wait_saved(other)
            metrics = other.metrics()
            return metrics["loci_shared_up"] == 1 and metrics['loci_shared_parts_total{result="written"}'] > 0
        wait_until(is_asked, "the store is not left alone for one node: the others take values")
        before = sum(len(node.names()) for node in cluster.nodes)
        victim.start()  # empty: it kept nothing

        def is_back():
            told.append(say(other, f"New {len(told)}: {STORY}", 2))
            return victim.names()
        wait_until(is_back, "it is written again")
        expect(sum(len(node.names()) for node in cluster.nodes) > before, "and so are the others")
    expect_equal(servers_until(place, cluster.url, STORY, lambda server, text, cached, shared: text == plain[0] and shared > 0), plain[0], "what is left")


def test_a_node_that_stands_still(place, cluster, plain):
    written(place, cluster)
    with place.server(cluster.url) as other:
        still = next(node for node in cluster.nodes if node.names())
        stop_process(still.process)
        try:
            expect_equal(say(other)[0], plain[0], "the reply while a node stands still")
            wait_saved(other)
        finally:
            still.process.send_signal(signal.SIGCONT)
        wait_until(lambda: other.metrics()["loci_shared_up"] == 1, "the store is asked")
    expect_equal(servers_until(place, cluster.url, STORY, all_shared), plain[0], "afterwards")
