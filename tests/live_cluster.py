# SPDX-License-Identifier: Apache-2.0
"""Servers that join one cluster, a front before them, and what the suites read from their replies."""
import json
import os
import re

from live_client import HERE, Server, Workplace, dechunk, expect, expect_equal, wait_until

FLAGS = ("--threads", "1", "--device-memory", "16MiB", "--context", "1024")


def question(conversation, text, **fields):
    return {"conversation": conversation, "input": text, "max_output_tokens": 8, "temperature": 0, **fields}


def texts(server, conversation):
    """What was said, by whom, the oldest first."""
    items = server.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100").json["data"]
    return [(item["role"], "".join(part.get("text", "") for part in item["content"])) for item in items]


class Front(Server):
    """`loci route`; a context that ends it."""

    def __init__(self, binary, *flags, place=HERE):
        self.start(place, [binary, "route", *flags], dict(os.environ))

    def wait_for(self, instances):
        """Until the front knows so many that serve."""
        wait_until(lambda: self.metrics()['loci_front_instances{state="serving"}'] == instances, 15, f"{instances} instances")


class Cluster(Workplace):
    """With a database and a secret; servers join it."""

    def __init__(self, binary, model, folder, postgres, flags=FLAGS):
        super().__init__(binary, model, folder)
        self.postgres, self.database, self.flags = postgres, postgres.new_database(), flags
        self.url, self.secret = postgres.url(self.database), self.new_secret("cluster.secret")

    def new_secret(self, name):
        """A file's path."""
        path = self.path(name)
        expect_equal(self.command("keys", "cluster", path).returncode, 0, "loci keys cluster")
        return path

    def server(self, *flags, model=None, secret=None, place=HERE):
        return Server(self.binary, model or self.model, *self.flags, "--join", self.url, "--cluster-secret", secret or self.secret,
                      *flags, place=place)

    def front(self, *flags, place=HERE):
        return Front(self.binary, "--join", self.url, "--cluster-secret", self.secret, *flags, place=place)

    def cluster(self, *flags):
        return self.command("cluster", "--join", self.url, "--cluster-secret", self.secret, *flags)

    def addresses(self):
        """The lines of `loci cluster`, by the member's HOST:PORT."""
        listed = self.cluster()
        expect_equal(listed.returncode, 0, listed.stderr)
        lines = [line for line in listed.stdout.splitlines()[1:] if re.match(r"[0-9a-f]{16} ", line)]
        return {re.search(r"[\d.]+:\d+", line).group(): line for line in lines}

    def members(self):
        """The same, by the port of the member."""
        return {int(address.rpartition(":")[2]): line for address, line in self.addresses().items()}


def events_of(data):
    """The data of a stream's events; text, or values."""
    head, _, body = data.partition(b"\r\n\r\n")
    expect(b" 200 " in head.split(b"\r\n")[0], data[:500])
    said = [re.sub(r"^event: .*\n", "", event).removeprefix("data: ") for event in dechunk(body).decode().split("\n\n") if event]
    return [event if event == "[DONE]" else json.loads(event) for event in said]


def without_chance(events):
    """What two servers that make the same reply both say."""
    names = ("id", "created", "cached_tokens", "cache_read_input_tokens", "input_tokens", "tool_calls")
    if isinstance(events, dict):
        return {name: without_chance(value) for name, value in events.items() if name not in names}
    return [without_chance(one) for one in events] if isinstance(events, list) else events
