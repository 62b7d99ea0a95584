# SPDX-License-Identifier: Apache-2.0
"""Limits of tenants over all fronts and instances of a cluster (docs/tenants.md#limits)."""
import contextlib
import json
import socket
import threading
import time

import pytest

from live_client import Keys, expect, expect_equal, wait_until
from live_cluster import Cluster
from postgres_server import Postgres, find_binaries

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")
SERVERS = 2


def ask(server, key, tokens=1, **fields):
    body = {"prompt": [50, 51], "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **fields}
    return server.request("POST", "/v1/completions", json.dumps(body), {"Authorization": f"Bearer {key}"})


class Limited:
    """Two instances and two fronts, with tenants that have limits; a database of its own, which may end."""

    def __init__(self, binary, model, folder):
        self.stack = contextlib.ExitStack()
        self.keys = Keys(binary)
        self.few, self.tokens, self.back, self.one = (self.keys.add(name) for name in ("few", "tokens", "back", "one"))
        self.others = [self.keys.add(f"other{i}") for i in range(20)]
        self.keys.append("[limits]\nrequests_per_minute = 4\n[tenants.few]\nrequests_per_minute = 30\n[tenants.tokens]\n"
                         "requests_per_minute = 1000\ntokens_per_minute = 600\n[tenants.back]\nrequests_per_minute = 1000\ntokens_per_minute = 600\n[tenants.one]\nrequests_per_minute = 1000\nconcurrent_requests = 1\n")
        self.postgres = self.stack.enter_context(Postgres())
        place = Cluster(binary, model, folder, self.postgres)
        self.members = [self.stack.enter_context(place.server("--api-keys", self.keys.path)) for _ in range(SERVERS)]
        self.fronts = [self.stack.enter_context(place.front("--policy", "least-load")) for _ in range(SERVERS)]
        for front in self.fronts:
            front.wait_for(SERVERS)


@pytest.fixture(scope="module")
def limited(binary, tiny_model, tmp_path_factory):
    place = Limited(binary, tiny_model, str(tmp_path_factory.mktemp("limits")))
    with place.stack:
        yield place


def spread(servers, key, rounds, **fields):
    """So many replies of each server, all of them asked at once; and how many seconds they took."""
    replies, began = [], time.monotonic()

    def run(server):
        for _ in range(rounds):
            replies.append(ask(server, key, **fields))

    threads = [threading.Thread(target=run, args=(server,), daemon=True) for server in servers for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect_equal(len(replies), 2 * len(servers) * rounds, "replies")
    expect(all(reply.status in (200, 429) for reply in replies), {reply.text for reply in replies if reply.status not in (200, 429)})
    return [reply for reply in replies if reply.status == 200], time.monotonic() - began


def test_requests_a_minute_over_all_fronts_and_instances(limited):
    good, seconds = spread(limited.fronts, limited.few, 20)
    expect_equal(len({reply.headers["X-Loci-Member"] for reply in good}), SERVERS, "instances that answered")
    rate = 30 / 60
    most = 30 + rate * seconds + SERVERS * max(1, rate)  # what flows in meanwhile, and a second's worth each
    expect(30 <= len(good) <= most, f"{len(good)} requests within {seconds:.1f} s, at most {most:.1f}")
    for server in (*limited.fronts, *limited.members):
        refused = ask(server, limited.few)
        expect(refused.status in (200, 429), refused.text)
        if refused.status == 429:
            expect("30 requests per minute" in refused.text and int(refused.headers["Retry-After"]) <= 3, refused.text)


def test_tokens_a_minute_over_all_instances(limited):
    good, seconds = spread(limited.members, limited.tokens, 10, tokens=58)  # 60 with the prompt
    rate = 600 / 60
    most = (600 + rate * seconds + SERVERS * rate) / 60
    expect(10 <= len(good) <= most, f"{len(good)} requests within {seconds:.1f} s, at most {most:.1f}")


def test_what_was_not_used_is_there_for_another_instance(limited):
    short = ask(limited.members[0], limited.back, tokens=590, ignore_eos=False, guided_regex="[ab]")
    expect_equal(short.status, 200, short.text)
    expect(short.json["usage"]["completion_tokens"] < 10, short.text)
    # 592 were taken; by the rate alone so many come within a minute.
    wait_until(lambda: ask(limited.members[1], limited.back, tokens=560).status == 200, "they are given back", 40)


def test_requests_at_once_over_all_instances(limited):
    first, second = limited.members
    held = socket.create_connection(("127.0.0.1", first.port))  # a request whose body does not come
    held.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {limited.one}\r\nContent-Type: application/json\r\n"
                 "Content-Length: 100\r\n\r\n{".encode())
    time.sleep(1)  # it has its place; one that is asked for meanwhile could have taken it
    for server in (first, second, *limited.fronts):
        refused = ask(server, limited.one)
        expect(refused.status == 429 and "1 requests at once" in refused.text, refused.text)
    held.close()
    wait_until(lambda: ask(second, limited.one).status == 200, "its place is free")
    # One after the other, here and there: each finds the place free.
    statuses = [ask(server, limited.one).status for _ in range(10) for server in limited.members]
    expect_equal(statuses, [200] * 20, "one after the other")


def test_many_tenants_each_have_their_own(limited):
    for key in limited.others:
        good = [reply for server in limited.members for reply in [ask(server, key) for _ in range(4)] if reply.status == 200]
        expect(4 <= len(good) <= 5, f"{len(good)} of 4 requests a minute")


def test_without_the_database_each_instance_allows_its_share(limited):
    """The last one: the database comes back with full buckets, as it has forgotten what was used."""
    time.sleep(1.5)  # instances count their number each second
    limited.postgres.stop()
    good, seconds = spread(limited.members, limited.few, 30)
    rate = 30 / 60
    expect(30 - SERVERS <= len(good) <= 30 + rate * seconds + SERVERS, f"{len(good)} requests without the database")
    expect("allows its share of tenants' limits" in limited.members[0].log_text(), "the log says so")
    limited.postgres.start()
    wait_until(lambda: "hold over all servers again" in limited.members[0].log_text(), "the database is back")
    wait_until(lambda: "hold over all servers again" in limited.members[1].log_text(), "for the other one too")
    good, seconds = spread(limited.members, limited.few, 30)
    expect(30 - SERVERS <= len(good) <= 30 + rate * seconds + SERVERS, f"{len(good)} requests afterwards")
