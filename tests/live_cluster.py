# SPDX-License-Identifier: Apache-2.0
"""Servers that join one cluster, a front before them, and what the suites read from their replies."""
import hashlib
import hmac
import json
import os
import re
import struct

from live_client import HERE, Server, Workplace, dechunk, event_blocks, expect, expect_equal, wait_until

FLAGS = ("--threads", "1", "--device-memory", "16MiB", "--context", "1024")


def question(conversation, text, **fields):
    return {"conversation": conversation, "input": text, "max_output_tokens": 8, "temperature": 0, **fields}


def texts(server, conversation):
    """What was said, by whom, the oldest first."""
    items = server.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100").json["data"]
    return [(item["role"], "".join(part.get("text", "") for part in item["content"])) for item in items]


class Front(Server):
    """`loci route`; a context that ends it."""

    def __init__(self, binary, *flags, place=HERE, environment=None):
        self.start(place, [binary, "route", *flags], {**os.environ, **(environment or {})})

    def wait_for(self, instances):
        """Until the front knows so many that serve."""
        wait_until(lambda: self.metrics()['loci_front_instances{state="serving"}'] == instances, f"{instances} instances")


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

    def front(self, *flags, place=HERE, environment=None):
        return Front(self.binary, "--join", self.url, "--cluster-secret", self.secret, *flags, place=place, environment=environment)

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


def as_a_front_says(secret_file, path, name, again=False, prompts=0, said=()):
    """What a front adds to a request (cluster/resumed_request.h): headers, and what stands behind the body."""
    with open(secret_file, "rb") as file:
        key = hashlib.blake2b(bytes(16) + b"loci cluster replies", key=file.read(), digest_size=32).digest()
    behind = struct.pack("<QI", prompts, len(said)) + b"".join(struct.pack(f"<I{len(one)}I", len(one), *one) for one in said) if said else b""
    values = f"{name} 1700000000 {int(again)} {len(behind)} {hashlib.blake2b(behind, digest_size=32).hexdigest()}"
    nobody = hashlib.blake2b(b"", digest_size=32).hexdigest()  # the API key
    text = f"reply\nPOST {path}\n{nobody}\n{values}".encode()
    return {"Loci-Reply": f"{values} {hmac.digest(key, text, 'sha512')[:32].hex()}"}, behind


def told_of(data):
    """The name of the prompts and the tokens of the only choice, as an instance tells a front in its stream."""
    text = dechunk(data.partition(b"\r\n\r\n")[2]).decode()
    return int(re.search(r"^: loci-prompts (\d+)$", text, re.M).group(1)), [int(token) for token in re.findall(r"^: loci-token 0 (\d+)$", text, re.M)]


def events_of(data):
    """The data of a stream's events; text, or values."""
    head, _, body = data.partition(b"\r\n\r\n")
    expect(b" 200 " in head.split(b"\r\n")[0], data[:500])
    said = [re.sub(r"^event: .*\n", "", block).removeprefix("data: ") for block in event_blocks(dechunk(body).decode())]
    return [event if event == "[DONE]" else json.loads(event) for event in said]


def without_chance(events):
    """What two servers that make the same reply both say."""
    names = ("id", "created", "created_at", "completed_at", "conversation", "item_id", "call_id", "cached_tokens", "cache_read_input_tokens")
    if isinstance(events, dict):
        return {name: without_chance(value) for name, value in events.items() if name not in names}
    return [without_chance(one) for one in events] if isinstance(events, list) else events
