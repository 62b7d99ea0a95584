# SPDX-License-Identifier: Apache-2.0
"""What the database of a cluster may do to it, and what a member's wrong clock may do to the database."""
import re
import subprocess
import threading
import time

import pytest

from live_client import chat_body, expect, expect_equal, killed, wait_until
from live_cluster import Cluster
from postgres_server import Postgres, find_binaries

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")

# Loaded before the program: its clock is ahead by so many seconds, and its uptime is right.
AHEAD = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static time_t ahead(void) { const char *by = getenv("SECONDS_AHEAD"); return by ? atoll(by) : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += ahead();
  return result;
}
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""
DAYS = 86_400


@pytest.fixture()
def postgres():
    with Postgres() as server:
        yield server


@pytest.fixture()
def place(binary, tiny_model, tmp_path, postgres):
    return Cluster(binary, tiny_model, str(tmp_path), postgres)


def chat(text):
    return chat_body(text, max_tokens=4, temperature=0)


@pytest.fixture()
def clock(tmp_path):
    """The environment of a server whose clock is ahead."""
    source, library = tmp_path / "ahead.c", tmp_path / "ahead.so"
    source.write_text(AHEAD, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return lambda seconds: {"LD_PRELOAD": str(library), "SECONDS_AHEAD": str(seconds)}


def test_a_wrong_clock_deletes_nobodys_conversations(place, postgres, clock, monkeypatch):
    """One server is 40 days ahead, another one 40 days behind, and conversations are kept for 30."""
    def server(seconds):
        with monkeypatch.context() as changed:
            for name, value in clock(seconds).items():
                changed.setenv(name, value)
            return place.server("--store-age", "30d")

    def answers(server, talk):
        return server.get(f"/v1/conversations/{talk}").status

    with place.server("--store-age", "30d") as right:
        talk = right.post("/v1/conversations", {}).json["id"]
        with server(40 * DAYS) as ahead, server(-40 * DAYS) as behind:
            date = ahead.get("/v1/models").json["data"][0]["created"]
            expect(date - time.time() > 39 * DAYS, f"this server's clock is ahead: {date}")
            late = behind.post("/v1/conversations", {}).json["id"]
            early = ahead.post("/v1/conversations", {}).json["id"]
            # Of the one that is ahead: its expiry at its start.
            wait_until(lambda: ahead.metrics()["loci_store_bytes"] > 0, "it has looked what is too old")
            with server(40 * DAYS) as again:
                wait_until(lambda: again.metrics()["loci_store_bytes"] > 0, "it has looked what is too old")
                for which, one in (("the right one's", talk), ("the late one's", late), ("the early one's", early)):
                    expect_equal(answers(right, one), 200, which)
            ages = postgres.sql("SELECT max(abs(active_at - extract(epoch FROM now()))) FROM loci.threads", place.database)
            expect(float(ages) < 600, f"all were active just now: {ages}")


def test_the_list_shows_how_full_of_state_members_are(place):
    with place.server() as server:
        expect_equal(server.post("/v1/chat/completions", chat("hello " * 100)).status, 200, "a prompt of many blocks")

        def shown():
            line = place.members().get(server.port, "")
            return re.search(r" +0 +0 +([\d]+) % +- +- +serving", line)
        wait_until(lambda: shown() and int(shown().group(1)) > 0, "the device has state, and there are no other tiers")


def test_a_database_that_takes_no_commits_takes_no_front_down(place, postgres):
    """A standby that is gone: what is read is answered, no commit ends."""
    with place.server() as first, killed(place.server()) as second, place.front() as front:
        front.wait_for(2)
        wanted = first.post("/v1/chat/completions", chat("Hello?")).json["choices"]
        postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        postgres.sql("SELECT pg_reload_conf()")
        end = time.monotonic() + 15  # rows are too old after five seconds
        while time.monotonic() < end:
            expect_equal(front.get("/health").status, 200, "the front's health")
            reply = front.post("/v1/chat/completions", chat("Hello?"))
            expect_equal(reply.status, 200, reply.text)
            expect_equal(reply.json["choices"], wanted, "the reply")
            time.sleep(0.2)
        old = postgres.sql("SELECT min(extract(epoch FROM clock_timestamp()) * 1000 - written_at) FROM loci.members", place.database)
        expect(float(old) > 8_000, f"all rows are old: {old} ms")
        # One that ends meanwhile is left.
        second.process.kill()
        second.process.wait()
        for _ in range(5):
            expect_equal(front.post("/v1/chat/completions", chat("Hello?")).status, 200, "with one of two")
            time.sleep(1)
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names")
        postgres.sql("SELECT pg_reload_conf()")
        wait_until(lambda: front.post("/v1/responses", {"input": "Stored?", "max_output_tokens": 4}).status == 200, "it is stored again")
        front.wait_for(1)


def test_a_frozen_database_leaves_connections_for_stateless_requests(place, postgres):
    """More requests that are stored than there are connections: each is refused in a bounded time, and others are answered."""
    with place.server("--max-connections", "200") as server:
        expect_equal(server.post("/v1/responses", {"input": "Stored?", "max_output_tokens": 4}).status, 200, "before")
        took, statuses, refused = [], [], threading.Lock()

        def ask():
            begin = time.monotonic()
            reply = server.get("/v1/responses/resp_none")
            with refused:
                took.append(time.monotonic() - begin)
                statuses.append((reply.status, reply.headers.get("Retry-After")))

        with postgres.frozen():
            clients = [threading.Thread(target=ask) for _ in range(400)]
            for number, client in enumerate(clients):
                client.start()
                time.sleep(0.03 if number < 100 else 0.01)
                if number % 50 == 49:
                    reply = server.post("/v1/chat/completions", chat("Hello?"))
                    expect_equal(reply.status, 200, f"after {number + 1} requests that wait: {reply.text}")
            for client in clients:
                client.join()
            # (Half of the connections are for those that read: 429 beyond.)
            expect_equal({status for status, _ in statuses}, {429, 503}, "what is stored")
            expect(all(after for _, after in statuses), "each says when to try again")
            expect(max(took) < 100, f"the longest wait: {max(took):.1f} s")
            # By now one request at a time asks.
            took.clear()
            later = [threading.Thread(target=ask) for _ in range(30)]
            for client in later:
                client.start()
            for client in later:
                client.join()
            expect(sorted(took)[len(took) // 2] < 10, f"the median wait later: {sorted(took)}")
        wait_until(lambda: server.post("/v1/responses", {"input": "Stored?", "max_output_tokens": 4}).status == 200, "it is stored again")
