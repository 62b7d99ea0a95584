# SPDX-License-Identifier: Apache-2.0
"""Limits of tenants over all fronts and instances of a cluster (docs/tenants.md#limits)."""
import contextlib
import json
import select
import signal
import socket
import threading
import time

import pytest

from live_client import Keys, expect, expect_equal, killed, read_all, wait_until
from live_cluster import Cluster, events_of
from live_members import begun, member_of
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
        self.tokens, self.one = (self.keys.add(name) for name in ("tokens", "one"))
        self.few, self.back, self.others = ([self.keys.add(f"{name}{i}") for i in range(count)]
                                            for name, count in (("few", 6), ("back", 5), ("other", 20)))
        self.deletes = [self.keys.add(f"deletes{i}") for i in range(8)]
        self.keys.append("[limits]\nrequests_per_minute = 4\n[tenants.one]\nrequests_per_minute = 1000\nconcurrent_requests = 1\n")
        for i in range(len(self.few)):
            self.keys.append(f"[tenants.few{i}]\nrequests_per_minute = 30\n")
        for name in ("tokens", *(f"back{i}" for i in range(len(self.back)))):
            self.keys.append(f"[tenants.{name}]\nrequests_per_minute = 1000\ntokens_per_minute = 600\n")
        self.postgres = self.stack.enter_context(Postgres())
        place = Cluster(binary, model, folder, self.postgres)
        self.members = [self.stack.enter_context(place.server("--api-keys", self.keys.path)) for _ in range(SERVERS)]
        self.fronts = [self.stack.enter_context(place.front("--policy", "least-load")) for _ in range(SERVERS)]
        for front in self.fronts:
            front.wait_for(SERVERS)

    def logged(self, text):
        """How often each member's log has it."""
        return [member.log_text().count(text) for member in self.members]

    def outages(self):
        """Of the database, by each member's log: how many, and how many of them are over."""
        return self.logged("allows its share of tenants' limits"), self.logged("hold over all servers again")

    def by_shares(self, outages, longest):
        """Whether some of the requests since there were these outages, of which the longest took so many seconds, may have been counted
        by shares: an instance that waits for the database for a second, or does without, counts a request alone, by its share."""
        return longest > 0.9 or outages[0] != outages[1] or self.outages() != outages


@pytest.fixture(scope="module")
def limited(binary, tiny_model, tmp_path_factory):
    place = Limited(binary, tiny_model, str(tmp_path_factory.mktemp("limits")))
    with place.stack:
        yield place


class Round:
    """What came of requests that were asked for all at once, so many in a row of each of two clients of each server."""

    def __init__(self, limited, servers, key, rounds, clients=2, **fields):
        self.replies, longest, outages, begin = [], [0], limited.outages(), time.monotonic()

        def run(server):
            for _ in range(rounds):
                asked = time.monotonic()
                self.replies.append(ask(server, key, **fields))
                longest.append(time.monotonic() - asked)

        threads = [threading.Thread(target=run, args=(server,), daemon=True) for server in servers for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - begin
        expect_equal(len(self.replies), clients * len(servers) * rounds, "replies")
        others = {reply.text for reply in self.replies if reply.status not in (200, 429)}
        expect(not others, others)
        self.good = [reply for reply in self.replies if reply.status == 200]
        self.shares = limited.by_shares(outages, max(longest))

    def bounds(self, limit, slack, less=0):
        """How many requests a limit of so many a minute lets through: what flows in meanwhile, and a slack."""
        flows = limit * self.seconds / 60
        if self.shares:
            return limit // SERVERS - less, 2 * (limit + flows) + slack
        return limit - less, limit + flows + slack

    def is_within(self, limit, slack, less=0):
        least, most = self.bounds(limit, slack, less)
        return least <= len(self.good) <= most

    def expect_within(self, limit, slack, less=0):
        expect(self.is_within(limit, slack, less), f"{len(self.good)} of {len(self.replies)} requests within {self.seconds:.1f} s, "
               f"from and to: {self.bounds(limit, slack, less)}{', of which some by shares' if self.shares else ''}")


def test_requests_a_minute_over_all_fronts_and_instances(limited):
    key = limited.few[0]
    one = Round(limited, limited.fronts, key, 20)
    expect_equal(len({reply.headers["X-Loci-Member"] for reply in one.replies}), SERVERS, "instances that answered")
    one.expect_within(30, SERVERS)  # a second's worth each, or one request
    for server in (*limited.fronts, *limited.members):
        outages, begin = limited.outages(), time.monotonic()
        refused = ask(server, key)
        expect(refused.status in (200, 429), refused.text)
        if refused.status == 429:
            by_share = limited.by_shares(outages, time.monotonic() - begin)
            # Two seconds bring one, and by a share so many more; and what is left of a second.
            most, after = 2 * (SERVERS if by_share else 1) + 1, int(refused.headers["Retry-After"])
            expect(after <= most, f"{after} seconds, of at most {most}: {refused.text}")
            expect(by_share or "30 requests per minute" in refused.text, refused.text)


def test_tokens_a_minute_over_all_instances(limited):
    # 60 with the prompt, so 10 a minute; and a second's worth each.
    Round(limited, limited.members, limited.tokens, 10, tokens=58).expect_within(10, SERVERS * 10 / 60)


def test_what_was_not_used_is_there_for_another_instance(limited):
    for key in limited.back:  # a slow machine may need so long that the rate alone brings as much
        begin = time.monotonic()
        short = None

        def is_taken(key=key):
            nonlocal short
            short = ask(limited.members[0], key, tokens=590, ignore_eos=False, guided_regex="[ab]")
            expect(short.status in (200, 429), short.text)
            return short.status == 200  # an instance that does not reach the database refuses it: it is more than its share
        wait_until(is_taken, "592 tokens are taken")
        expect(short.json["usage"]["completion_tokens"] < 10, short.text)
        wait_until(lambda key=key: ask(limited.members[1], key, tokens=560).status == 200, "they are given back")
        if time.monotonic() - begin < 40:
            return
    pytest.fail("what was not used was there after 40 s alone")


class Held:
    """A request whose body does not end."""

    def __init__(self, server, key):
        self.connection = socket.create_connection(("127.0.0.1", server.port), timeout=120)
        self.connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: "
                                "application/json\r\nContent-Length: 100000\r\n\r\n{".encode())

    def goes_on(self):
        """Sends a piece, so that it does not stall. False: it was refused."""
        with contextlib.suppress(OSError):
            self.connection.sendall(b" ")
            return not select.select([self.connection], [], [], 0)[0]
        return False


def test_requests_at_once_over_all_instances(limited):
    first, second = limited.members
    for _ in range(10):  # until it got the place before one that was asked for meanwhile, and each answer came in time
        held = Held(first, limited.one)
        wait_until(lambda held=held: not held.goes_on() or ask(first, limited.one).status == 429, "it has its place")
        refused = [ask(server, limited.one) for server in (first, second, *limited.fronts) if held.goes_on()]
        is_held = held.goes_on()
        held.connection.close()
        wait_until(lambda: ask(second, limited.one).status == 200, "its place is free")
        if is_held and {reply.status for reply in refused} == {429}:
            break
    expect([reply.status for reply in refused] == [429] * 4 and is_held, [reply.text for reply in refused])
    expect(all("1 requests at once" in reply.text for reply in refused), [reply.text for reply in refused])
    # One after the other, here and there: each finds the place free, if the database hears in time that it is.
    for _ in range(10):
        statuses = [ask(server, limited.one).status for _ in range(10) for server in limited.members]
        if statuses == [200] * 20:
            return
    expect_equal(statuses, [200] * 20, "one after the other")


@pytest.mark.parametrize("limit", ["concurrent_requests = 1", "tokens_per_minute = 950"])
def test_a_stream_goes_on_elsewhere_whatever_its_tenants_limits(limited, binary, tiny_model, tmp_path, limit):
    """The member that was killed has the tenant's only place for five seconds more, or its tokens of this minute."""
    keys = Keys(binary)
    tenants = [keys.add(f"one{i}") for i in range(10)]
    for i in range(len(tenants)):
        keys.append(f"[tenants.one{i}]\n{limit}\n")
    place = Cluster(binary, tiny_model, str(tmp_path), limited.postgres)
    body = {"prompt": [50, 51], "max_tokens": 900, "temperature": 0, "ignore_eos": True, "stream": True}
    with contextlib.ExitStack() as stack:
        front = stack.enter_context(place.front("--policy", "least-load"))
        left = stack.enter_context(killed(place.server("--api-keys", keys.path)))
        for key in tenants:  # until the front had not had all of the reply yet
            members = [left, stack.enter_context(killed(place.server("--api-keys", keys.path)))]
            front.wait_for(2)
            stream, data = begun(front, "/v1/completions", body, 40, headers={"Authorization": f"Bearer {key}"})
            home = member_of(members, data)
            home.process.send_signal(signal.SIGKILL)
            left = next(member for member in members if member is not home)
            data += read_all(stream)
            stream.close()
            events = events_of(data)
            expect(events[-1] == "[DONE]" and all("error" not in event for event in events[:-1]), data[-500:])
            if front.metrics()["loci_front_streams_moved_total"] > 0:
                return
    pytest.fail("no stream moved")


def test_a_deletion_counts_where_the_response_is_made(limited):
    """A front sends it on from a wrong member, and it would count at both. (A tenant has four requests, and one more in 15 s.)"""
    maker, other = limited.members
    for key in limited.deletes:  # until the response had not ended before all were asked for
        headers = {"Authorization": f"Bearer {key}"}
        body = {"input": "Long?", "background": True, "max_output_tokens": 900, "ignore_eos": True}
        name = maker.request("POST", "/v1/responses", json.dumps(body), headers).json["id"]
        replies = [other.request("DELETE", f"/v1/responses/{name}", headers=headers) for _ in range(8)]
        if all(reply.status != 200 for reply in replies):
            break
    expect_equal([reply.status for reply in replies], [409] * 8, "deletions at a wrong member")
    deleted = maker.request("DELETE", f"/v1/responses/{name}", headers=headers)
    expect_equal(deleted.status, 200, deleted.text)
    refused = [maker.request("DELETE", f"/v1/responses/{name}", headers=headers).status for _ in range(8)]
    expect(429 in refused, f"there it counts: {refused}")


def test_many_tenants_each_have_their_own(limited):
    for key in limited.others:
        Round(limited, limited.members, key, 4, clients=1).expect_within(4, 1)


def test_without_the_database_each_instance_allows_its_share(limited):
    """The last one: the database comes back with full buckets, as it has forgotten what was used."""
    time.sleep(1.5)  # instances count their number each second
    for key in limited.few[1:]:  # until neither was so slow that the other one did not count it
        wait_until(lambda: len({*map(tuple, limited.outages())}) == 1, "the database answers both")
        before = limited.outages()[0]
        limited.postgres.stop()
        one = Round(limited, limited.members, key, 30)
        one.shares = False  # all are counted so, and the sum of the shares is the limit
        wait_until(lambda before=before: all(map(int.__gt__, limited.outages()[0], before)), "the log says so")
        limited.postgres.start()
        wait_until(lambda: len({*map(tuple, limited.outages())}) == 1, "the database is back, for each")
        if one.is_within(30, SERVERS, SERVERS):
            break
    one.expect_within(30, SERVERS, SERVERS)
    Round(limited, limited.members, key, 30).expect_within(30, SERVERS, SERVERS)
