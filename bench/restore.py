#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-restore`: how fast every named plan (`--restore`) brings conversations back from a disk of several
speeds (`--io-limit`), and what was predicted against what was delivered.

Conversations are computed once and saved. For each speed a server for each plan, on a copy of that disk, answers
turns of them in rounds, one server at a time, so that what else the machine does falls upon all alike. Its device
holds one conversation, so the next one comes back. What counts is a turn's restored tokens (those that the disk
had, loaded or computed again) over the time to its first token, by the server's own explanation. Results go to
build/bench-restore.json and build/bench-restore.svg.

    bench/restore.py [--limits 50MB,200MB,none] [--contexts 1000,4000] [--rounds 3] [--plans kv,recompute,auto]
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import plot
from cases import ROOT
from report import commit, processor
from second_turn import free_port, prose, Server

PLANS = ("kv", "recompute", "pensieve", "token-wise", "token-wise-rounded", "naive-hybrid", "auto")
RESTORED_LEAST = 0.5  # of a context; with less of it on the disk a turn does not count
STATE_BYTES = 23040   # of a token of the default model
NAME = "bench-restore"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures how every plan brings state back.")
    parser.add_argument("--model", default="default")
    parser.add_argument("--limits", default="50MB,100MB,200MB,400MB,none", help="of --io-limit; none: no limit")
    parser.add_argument("--contexts", default="1000,2000,4000,7000", help="tokens of the conversations, about")
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    return parser.parse_args()


def ask(port, messages):
    """A turn of one token; what the server explains of it."""
    body = {"model": "default", "messages": messages, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
            "loci": {"explain": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise SystemExit(f"bench: the server answered {response.status}: {text[:300]!r}")
    return json.loads(text)["loci"]


def metrics(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}


def question(conversation, number):
    return conversation + [{"role": "assistant", "content": "Yes."},
                           {"role": "user", "content": f"And what of number {number}?"}]


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.contexts = [int(text) for text in arguments.contexts.split(",")]
        self.plans = arguments.plans.split(",")
        # Two of each length: between two turns of one stand those of all others.
        self.conversations = [(tokens, [{"role": "user", "content": prose(2 * i + which, int(tokens / 1.02))}])
                              for which in (0, 1) for i, tokens in enumerate(self.contexts)]
        self.profile = folder / "profile.json"
        self.numbers = 0
        self.loads = []  # of the machine, before each round

    def command(self, port, disk, limit, plan):
        tokens = max(self.contexts) * 5 // 4 + 256
        command = [self.arguments.build / "loci", "serve", self.arguments.model, "--port", port, "--store", "", "--threads",
                   self.arguments.threads, "--host-memory", "0", "--disk", f"{disk}:8GiB", "--device-memory", tokens * STATE_BYTES,
                   "--eviction", "lru", "--restore", plan, "--profile", self.profile]
        return command + ([] if limit == "none" else ["--io-limit", limit])

    def prepare(self):
        """Costs measured, and all conversations on a disk."""
        subprocess.run([str(self.arguments.build / "loci"), "profile", self.arguments.model, "--output", str(self.profile),
                        "--disk", str(self.folder), "--threads", str(self.arguments.threads)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = free_port()
        with Server(self.command(port, self.folder / "disk", "none", "kv"), port):
            for _, conversation in self.conversations:
                ask(port, conversation)
                print(".", end="", flush=True)
            while True:
                now = metrics(port)
                if not any(now.get(name, 0) for name in ("loci_moves_in_flight", "loci_saves_waiting")):
                    break
        print()

    def turns(self, servers):
        """One turn of every conversation on every server, in turn."""
        for tokens, conversation in self.conversations:
            self.numbers += 1
            for plan, port in servers.items():
                explained = ask(port, question(conversation, self.numbers))
                sources = explained["tokens"]
                restored = sources["disk"] + sources["host"] + explained["computed_because"].get("too_slow", 0)
                if restored < RESTORED_LEAST * tokens:
                    continue
                took = explained["real_ms"]["first_token"]
                yield {"plan": plan, "context": tokens, "restored": restored, "loaded": sources["disk"], "first_token_ms": took,
                       "planned_ms": explained["restore"]["planned_ms"]}

    def measure(self, limit):
        disks = {}
        for plan in self.plans:
            disks[plan] = self.folder / f"disk-{plan}"
            subprocess.run(["cp", "-r", "--sparse=always", str(self.folder / "disk"), str(disks[plan])], check=True)
        servers, started, found = {}, [], []
        try:
            for plan in self.plans:
                servers[plan] = free_port()
                started.append(Server(self.command(servers[plan], disks[plan], limit, plan), servers[plan]).__enter__())
            list(self.turns(servers))  # predictions are corrected by these
            for _ in range(self.arguments.rounds):
                self.loads.append(os.getloadavg()[0])
                found += self.turns(servers)
        finally:
            for server in started:
                server.__exit__()
            for disk in disks.values():
                shutil.rmtree(disk)
        return [dict(turn, limit=limit) for turn in found]


def rate(turns):
    return statistics.median(turn["restored"] / turn["first_token_ms"] * 1000 for turn in turns)


def error(turns):
    """Of the predictions: the median, in percent of what it took."""
    return statistics.median(abs(turn["planned_ms"] - turn["first_token_ms"]) / turn["first_token_ms"] * 100 for turn in turns)


def report(turns, plans, limits, contexts, loads):
    lines = [f"{processor()}, {os.cpu_count()} threads; {commit()}; load averages {min(loads):.0f} to {max(loads):.0f}, "
             "of which this benchmark is 1 to 2.", "",
             "Tokens of state brought back a second, medians; in brackets the predictions' median error.", "",
             "| disk | context | " + " | ".join(plans) + " | `auto` of the best other |", "|---|---|" + "---|" * (len(plans) + 1)]
    for limit in limits:
        for context in contexts:
            of = {plan: [t for t in turns if (t["limit"], t["context"], t["plan"]) == (limit, context, plan)] for plan in plans}
            if not all(of.values()):
                continue
            rates = {plan: rate(of[plan]) for plan in plans}
            others = [value for plan, value in rates.items() if plan != "auto"]
            share = f"{rates['auto'] / max(others):.2f}" if "auto" in rates and others else ""
            cells = " | ".join(f"{rates[plan]:,.0f} ({error(of[plan]):.0f} %)" for plan in plans)
            lines.append(f"| {limit}/s | {context:,} | {cells} | {share} |".replace("none/s", "no limit"))
    return "\n".join(lines) + "\n"


def draw(turns, context):
    """`auto` beside the better of loading all and computing all, over the disk's speed."""
    points = []
    for limit in sorted({t["limit"] for t in turns if t["limit"] != "none"}, key=lambda text: int(text[:-2])):
        of = lambda plan: [t for t in turns if (t["limit"], t["context"], t["plan"]) == (limit, context, plan)]
        if all(of(plan) for plan in ("auto", "kv", "recompute")):
            points.append([int(limit[:-2]), rate(of("auto")), max(rate(of("kv")), rate(of("recompute")))])
    if len(points) < 2:
        return None
    return plot.lines(f"Tokens restored a second, contexts of {context:,}", "MB a second of the disk", "tokens a second", points,
                      ["auto", "better of two"])


def main():
    arguments = parse_arguments()
    limits = arguments.limits.split(",")
    turns = []
    with tempfile.TemporaryDirectory(prefix="loci-bench-restore-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        bench.prepare()
        for limit in limits:
            turns += bench.measure(limit)
            print(f"{limit}: {len(turns)} turns", flush=True)
    text = report(turns, bench.plans, limits, bench.contexts, bench.loads)
    print(text)
    out = ROOT / "build"
    (out / f"{NAME}.json").write_text(json.dumps({"turns": turns, "table": text}, indent=1) + "\n", encoding="utf-8")
    if svg := draw(turns, max(bench.contexts)):
        (out / f"{NAME}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
