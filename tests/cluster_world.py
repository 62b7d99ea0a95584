# SPDX-License-Identifier: Apache-2.0
"""A whole cluster on one machine: PostgreSQL, Redis, fronts and instances, each in a network namespace (cluster_net.py), a lone
server to compare with, and what each process holds when nothing runs."""
import contextlib
import os
import signal
import warnings

from bad_link import BadLink
from cluster_load import Load, Lone
from cluster_net import Network
from live_client import Server, expect, wait_until
from live_cluster import Cluster
from postgres_server import Postgres
from redis_server import Redis

FLAGS = ("--threads", "1", "--device-memory", "4MiB", "--context", "2048", "--restore", "kv", "--disk", "none")
INSTANCES = (11, 12, 13, 14)  # by number in the network
HTTP_PORT, PEER_PORT, REDIS_PORT = 8000, 8001, 6379
REST_SECONDS = 30
# Connections that are kept for the next request, and pages that an allocator keeps, differ from run to run.
MORE_DESCRIPTORS, MORE_THREADS, MORE_BYTES = 16, 4, 48 << 20


def held(pid):
    """What a process has of the system: descriptors, threads, bytes of memory."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file)
    return len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"]), int(fields["VmRSS"].split()[0]) << 10


def unrest(metrics):
    """What of a member or a front is not over."""
    names = ("loci_requests_running", "loci_requests_queued", "loci_requests_paused", 'loci_blocks{state="pinned"}',
             "loci_moves_in_flight", "loci_saves_waiting", "loci_deletions_waiting", "loci_front_requests_running")
    left = {name: metrics[name] for name in names if metrics.get(name)}
    for tier in ("device", "host", "shared"):
        slots = {state: metrics.get(f'loci_tier_slots{{tier="{tier}",state="{state}"}}') for state in ("total", "free", "evictable")}
        if slots["total"] is not None and slots["total"] != slots["free"] + slots["evictable"]:
            left[tier] = slots
    return left


class World(contextlib.ExitStack):
    """A context that ends all of it."""

    def __init__(self, binary, model, folder):
        super().__init__()
        self.binary, self.model, self.folder = binary, model, folder
        self.seed, self.before, self.instances = 0, {}, {}

    def start(self):
        self.network = self.enter_context(Network())
        if self.network.why_not:
            warnings.warn(f"all processes share one network, no link can fail: {self.network.why_not}")
        self.postgres = self.enter_context(Postgres(self.network.place(2)))
        self.redis = Redis(self.folder, place=self.network.place(3), port=REDIS_PORT).start()
        self.callback(self.redis.kill)
        self.to_redis = BadLink((self.redis.place.host, REDIS_PORT), self.network.host(1), REDIS_PORT)
        self.callback(self.to_redis.close)
        self.lone = Lone(self.enter_context(Server(self.binary, self.model, *FLAGS, "--store", os.path.join(self.folder, "lone.db"))))
        self.cluster = Cluster(self.binary, self.model, self.folder, self.postgres, FLAGS)
        self.instances = {number: self.instance(number) for number in INSTANCES}
        # One shuffles what the other keeps together.
        self.fronts = [self.enter_context(self.cluster.front("--policy", policy, "--port", str(HTTP_PORT), place=self.network.place(number)))
                       for number, policy in ((21, "first-token"), (22, "least-load"))]
        self.wait_for(len(INSTANCES))

    def __exit__(self, *error):
        for server in self.instances.values():  # together: each waits until fronts know
            server.process.send_signal(signal.SIGCONT)
            server.process.terminate()
        for server in self.instances.values():
            server.process.wait(120)
        return super().__exit__(*error)

    def instance(self, number):
        """Started at its address. The last one reads the store alone."""
        peers = "none" if number == INSTANCES[-1] else str(PEER_PORT)
        server = self.cluster.server("--port", str(HTTP_PORT), "--peer-port", peers, "--shared",
                                     f"redis://{self.network.host(1)}:{REDIS_PORT}", place=self.network.place(number))
        return self.enter_context(ended(server))

    def kill(self, number):
        self.instances[number].process.send_signal(signal.SIGKILL)
        self.instances[number].process.wait(120)

    def reborn(self, number):
        self.instances[number] = self.instance(number)

    def wait_for(self, instances):
        for front in self.fronts:
            front.wait_for(instances)

    def load(self, fronts=None):
        """Clients, with stories that no earlier ones asked for."""
        self.seed += 1
        return Load(fronts or self.fronts, self.lone, self.seed)

    def servers(self):
        return {**{f"instance {number}": server for number, server in self.instances.items()},
                **{f"front {i}": front for i, front in enumerate(self.fronts)}}

    def remember(self):
        """What each kind of process holds, to be compared with afterwards."""
        self.settle(self.servers())
        for name, server in self.servers().items():
            kind = name.split()[0]
            self.before[kind] = tuple(map(max, self.before.get(kind, (0, 0, 0)), held(server.process.pid)))

    @staticmethod
    def settle(servers):
        left = {}

        def over():
            left.clear()
            left.update({name: what for name, server in servers.items() if (what := unrest(server.metrics()))})
            return not left
        try:
            wait_until(over, "rest", REST_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {left}") from error

    def rest(self):
        """Afterwards all is as before: members, pins, reservations, claims of turns, connections, memory."""
        self.wait_for(len(INSTANCES))
        self.settle(self.servers())
        claims = "SELECT count(*) FROM loci.turn_claims WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000"
        wait_until(lambda: self.postgres.sql(claims, self.cluster.database) == "0", "no turn is claimed")
        more = (MORE_DESCRIPTORS, MORE_THREADS, MORE_BYTES)
        for name, server in self.servers().items():
            bounds = [most + add for most, add in zip(self.before[name.split()[0]], more)]
            wait_until(lambda server=server, bounds=bounds: all(now <= most for now, most in zip(held(server.process.pid), bounds)),
                       f"{name} holds at most {bounds} descriptors, threads and bytes, as before; it holds {held(server.process.pid)}", REST_SECONDS)


@contextlib.contextmanager
def ended(server):
    """A server that a test may have killed, or told to stop."""
    try:
        yield server
    finally:
        server.process.terminate()
        status = server.process.wait(120)
        server.process.stdout.close()
        expect(status in (0, -signal.SIGKILL) and "runtime error" not in server.log_text(), f"status {status}: {server.log_text()[-4000:]}")
