# SPDX-License-Identifier: Apache-2.0
"""How many turns a second a server makes durable, with 64 clients over HTTP and a model that costs next to nothing.

    scripts/pytest.sh tests/turns_rate_test.py --measure -s      on a machine that does nothing else

What a turn costs here is everything but computing: HTTP, JSON, the template, tokenising, scheduling, the store's commit
and its synchronisation of the disk. The clients are processes of this machine too, and take processors from the server.
"""
import http.client
import json
import multiprocessing
import os
import time

import pytest

from live_client import expect, expect_equal, Server

pytestmark = [pytest.mark.serve(model="tiny"), pytest.mark.measures]
CLIENTS = 64
PATH = "/v1/responses"


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid):
    """By the threads' names."""
    out = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as stat:
                head, _, tail = stat.read().rpartition(")")
        except OSError:
            continue
        name, fields = head.partition("(")[2], tail.split()
        out[name] = out.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return out


def client(port, begin, seconds, results):
    """One conversation at a time on one connection, turn after turn; tells how many turns were acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def post(path, body):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {data[:300]}")
        return json.loads(data)

    turns, conversations = 0, []
    begin.wait()
    end = time.monotonic() + seconds
    # On a slow machine the time may be over before anything was made.
    while time.monotonic() < end or turns < 2:
        conversations.append([post("/v1/conversations", {})["id"], 0])
        while conversations[-1][1] < 20 and (time.monotonic() < end or turns < 2):
            post(PATH, {"conversation": conversations[-1][0], "input": f"turn {conversations[-1][1]}", "max_output_tokens": 1})
            conversations[-1][1] += 1
            turns += 1
    results.put((turns, conversations))


def test_turns_a_second(binary, model, tmp_path, pytestconfig):
    seconds = 10 if pytestconfig.getoption("--measure") else 2
    with Server(binary, model, "--device-memory", "64MiB", "--context", "512", "--store", str(tmp_path / "store.db"),
                "--log-level", "warn", "--yield-memory", "off") as server:
        begin, results = multiprocessing.Event(), multiprocessing.Queue()
        clients = [multiprocessing.Process(target=client, args=(server.port, begin, seconds, results)) for _ in range(CLIENTS)]
        for process in clients:
            process.start()
        time.sleep(1)
        pid = server.process.pid
        used, by_thread, since = processor_seconds(pid), thread_seconds(pid), time.monotonic()
        begin.set()
        made = [results.get(timeout=seconds + 300) for _ in clients]
        took = time.monotonic() - since
        used = processor_seconds(pid) - used
        busiest = sorted(((after - by_thread.get(name, 0), name) for name, after in thread_seconds(pid).items()), reverse=True)[:5]
        for process in clients:
            process.join()
        turns = sum(count for count, _ in made)
        metrics = server.metrics()
        commits = metrics["loci_store_commit_seconds_count"]
        print(f"      {turns} turns of {CLIENTS} clients in {took:.1f} s: {turns / took:.0f} a second; the server used "
              f"{used / took:.2f} processors, {used / turns * 1e3:.2f} ms a turn; most: "
              + ", ".join(f"{name} {time_used / took:.2f}" for time_used, name in busiest)
              + f"; a commit took {metrics['loci_store_commit_seconds_sum'] / commits * 1e3:.1f} ms")
        expect(turns > CLIENTS, "turns were made")
        # What was acknowledged is there: of one conversation each.
        for _, conversations in made[:8]:
            name, count = conversations[-1]
            items = server.get(f"/v1/conversations/{name}/items?limit=100").json["data"]
            expect_equal(len(items), 2 * count, f"items of {count} turns")
