#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-restore`: how fast every named plan brings conversations back from disks of several speeds (--io-limit),
for models of several shapes (random weights), and what was predicted against what was delivered.

    kv .. naive-hybrid     --hidden off  --restore PLAN
    hidden                 --hidden on   --restore hidden
    hcache, auto           --hidden auto --restore PLAN: the share of hidden states that a profile says pays at that speed

Conversations are computed once for each way to store them and saved. Then, in rounds, each plan has a server of its own on
that disk, one at a time, so that what else the machine does falls upon all alike. A server's first turn does not count.
What counts is a turn's restored tokens (those that the disk had, loaded or computed again) over the time to its first token,
by the server's own explanation (HCache's restoration speed, §6.1). The speed of the disk below which hidden states are
faster than keys and values is printed beside what the profile predicts, and with it how fast the disk is by the size of a
read: what larger pieces than a block's would bring. Results go to build/bench-restore.json and, a plot for each shape,
build/bench-restore-SHAPE.svg.

    bench/restore.py [--shapes smollm2-135m,qwen3-0.6b,llama2-7b-4-layers | --model FILE] [--limits 50MB,200MB,none]
                     [--contexts 1000,4000] [--rounds 3] [--plans kv,recompute,auto] [--quick]
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import plot
from cases import ROOT
from report import commit, processor

sys.path.insert(0, str(ROOT / "tests"))
from live_client import Server, wait_recovered, wait_saved  # noqa: E402

# By plan: --hidden.
PLANS = {"kv": "off", "recompute": "off", "pensieve": "off", "token-wise": "off", "token-wise-rounded": "off",
         "naive-hybrid": "off", "hidden": "on", "hcache": "auto", "auto": "auto"}
SHAPES = ("smollm2-135m", "qwen3-0.6b", "llama2-7b-4-layers")
QUICK = {"shapes": "smollm2-135m", "limits": "20MB,none", "contexts": "400", "rounds": 1,
         "plans": "kv,recompute,hidden,hcache,auto"}
FULL = {"shapes": ",".join(SHAPES), "limits": "50MB,100MB,200MB,400MB,800MB,none", "contexts": "1000,3500", "rounds": 3,
        "plans": ",".join(PLANS)}
RESTORED_LEAST = 0.5  # of a context; with less of it on the disk a turn does not count
NEW_TOKENS = 16
NAME = "bench-restore"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures how every plan brings state back.")
    parser.add_argument("--shapes", help="of random models (loci-random-model --help)")
    parser.add_argument("--model", help="a file instead")
    parser.add_argument("--limits", help="of --io-limit; none: no limit")
    parser.add_argument("--contexts", help="tokens of the conversations")
    parser.add_argument("--plans", help=", ".join(PLANS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="one small model, few points: that it runs, not how fast")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    arguments = parser.parse_args()
    for name, value in (QUICK if arguments.quick else FULL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    for name in ("shapes", "limits", "contexts", "plans"):
        setattr(arguments, name, getattr(arguments, name).split(","))
    if unknown := set(arguments.plans) - set(PLANS):
        parser.error(f"--plans: {', '.join(sorted(unknown))}: expected of {', '.join(PLANS)}")
    arguments.contexts = [int(text) for text in arguments.contexts]
    return arguments


def ask(server, tokens):
    """A turn of one token; what the server explains of it."""
    reply = server.post("/v1/completions", {"prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
                                            "loci": {"explain": True}})
    if reply.status != 200:
        raise SystemExit(f"bench: the server answered {reply.status}: {reply.text[:300]}")
    return reply.json["loci"]


class Bench:
    """One model."""

    def __init__(self, arguments, shape, folder):
        self.arguments, self.shape, self.folder = arguments, shape, folder
        self.binary = str(arguments.build / "loci")
        self.model = arguments.model or self.random_model()
        self.profile = os.path.join(folder, "profile.json")
        source = random.Random(1)
        # The first does not count; then two of each length.
        lengths = arguments.contexts[:1] + [tokens for tokens in arguments.contexts for _ in (0, 1)]
        self.conversations = [[source.randrange(300, 8000) for _ in range(tokens)] for tokens in lengths]
        self.numbers = 0
        self.loads = []  # of the machine, before each round
        said = subprocess.run([self.binary, "profile", self.model, "--output", self.profile, "--disk", folder,
                               "--threads", str(arguments.threads)], check=True, capture_output=True, text=True).stdout
        self.said = [line.strip() for line in said.splitlines() if "hidden" in line]
        with open(self.profile, encoding="utf-8") as file:
            self.reads = json.load(file)["costs"].get("disk_reads", [])

    def random_model(self):
        path = os.path.join(self.folder, "model.gguf")
        subprocess.run([self.arguments.build / "loci-random-model", path, "--shape", self.shape], check=True,
                       stdout=subprocess.DEVNULL)
        return path

    def server(self, disk, hidden, limit, plan):
        context = max(self.arguments.contexts) + 4 * NEW_TOKENS
        flags = ["--threads", str(self.arguments.threads), "--context", str(context), "--store", "", "--host-memory", "0",
                 "--disk", f"{disk}:8GiB", "--device-memory", "1GiB", "--profile", self.profile, "--hidden", hidden,
                 "--restore", plan]
        return Server(self.binary, self.model, *flags, *([] if limit == "none" else ["--io-limit", limit]))

    def disk_of(self, hidden, limit):
        """A disk that has all conversations, stored so. What `auto` stores depends on the disk's speed."""
        disk = os.path.join(self.folder, f"disk-{hidden}" + (f"-{limit}" if hidden == "auto" else ""))
        if not os.path.exists(disk):
            with self.server(disk, hidden, limit if hidden == "auto" else "none", "kv") as server:
                for conversation in self.conversations:
                    ask(server, conversation)
                    wait_saved(server)
        return disk

    def turns(self, plan, limit):
        """One turn of every conversation by a fresh server, behind one that does not count."""
        disk = self.disk_of(PLANS[plan], limit)
        with self.server(disk, PLANS[plan], limit, plan) as server:
            wait_recovered(server)
            ask(server, [9, 8, 7] * 50)  # the weights are read
            for i, conversation in enumerate(self.conversations):
                self.numbers += 1
                new = [(self.numbers * 7 + k) % 8000 + 300 for k in range(NEW_TOKENS)]
                explained = ask(server, conversation + new)
                sources = explained["tokens"]
                restored = sources["disk"] + explained["computed_because"].get("too_slow", 0)
                if i == 0 or restored < RESTORED_LEAST * len(conversation):
                    continue
                yield {"shape": self.shape, "limit": limit, "plan": plan, "context": len(conversation), "restored": restored,
                       "hidden": explained["disk_forms"]["hidden"], "kv": explained["disk_forms"]["kv"],
                       "computed": sources["computed"], "first_token_ms": explained["real_ms"]["first_token"],
                       "planned_ms": explained["restore"]["planned_ms"]}

    def measure(self, limit):
        found = []
        for plan in self.arguments.plans:  # not while a round is measured
            self.disk_of(PLANS[plan], limit)
        for _ in range(self.arguments.rounds):
            self.loads.append(os.getloadavg()[0])
            for plan in self.arguments.plans:
                found += self.turns(plan, limit)
        shutil.rmtree(os.path.join(self.folder, f"disk-auto-{limit}"), ignore_errors=True)
        return found


def rate(turns):
    return statistics.median(turn["restored"] / turn["first_token_ms"] * 1000 for turn in turns)


def error(turns):
    """Of the predictions: the median, in percent of what it took."""
    return statistics.median(abs(turn["planned_ms"] - turn["first_token_ms"]) / turn["first_token_ms"] * 100 for turn in turns)


def megabytes(limit):
    match = re.fullmatch(r"(\d+)(MB|GB|MiB|GiB)", limit)
    return int(match[1]) * {"MB": 1, "GB": 1000, "MiB": 1.048576, "GiB": 1073.741824}[match[2]] if match else None


def predicted_crossing(said):
    """The speed below which the profile says that hidden states pay, MB a second; None: it does not say."""
    match = re.search(r"they pay on links below ([\d.]+) (KiB|MiB|GiB)/s", " ".join(said))
    return float(match[1]) * {"KiB": 1.024e-3, "MiB": 1.048576, "GiB": 1073.741824}[match[2]] if match else None


def read_speeds(reads):
    """Of the profile's disk, by the size of a read."""
    return ", ".join(f"{read['bytes'] >> 10:,} KiB {read['bytes_per_second'] / 1e6:,.0f} MB/s" for read in reads)


class Results:
    def __init__(self, arguments, turns):
        self.arguments, self.turns = arguments, turns

    def of(self, shape, limit, context, plan):
        return [t for t in self.turns
                if (t["shape"], t["limit"], t["context"], t["plan"]) == (shape, limit, context, plan)]

    def table(self, shape):
        plans = self.arguments.plans
        lines = ["| disk | context | " + " | ".join(f"`{plan}`" for plan in plans) +
                 " | `auto` of the best other | hidden, kv, computed of `auto` |", "|---|---|" + "---|" * (len(plans) + 2)]
        for limit in self.arguments.limits:
            for context in self.arguments.contexts:
                of = {plan: self.of(shape, limit, context, plan) for plan in plans}
                rates = {plan: rate(turns) for plan, turns in of.items() if turns}
                others = [value for plan, value in rates.items() if plan != "auto"]
                share, forms = "", ""
                if "auto" in rates:
                    forms = ", ".join(f"{statistics.median(t[form] for t in of['auto']):.0f}"
                                      for form in ("hidden", "kv", "computed"))
                    share = f"{rates['auto'] / max(others):.2f}" if others else ""
                cells = " | ".join(f"{rates[plan]:,.0f} ({error(of[plan]):.0f} %)" if plan in rates else "" for plan in plans)
                lines.append(f"| {'no limit' if limit == 'none' else limit + '/s'} | {context:,} | {cells} | {share} | {forms} |")
        return "\n".join(lines)

    def points(self, shape, context, plans):
        """[[megabytes a second, a rate for each plan]], of the speeds at which all have one."""
        points = []
        for limit in self.arguments.limits:
            of = [self.of(shape, limit, context, plan) for plan in plans]
            if megabytes(limit) and all(of):
                points.append([megabytes(limit), *map(rate, of)])
        return sorted(points)

    def crossing(self, shape, context):
        """The speed below which `hidden` is faster than `kv`, between the measured ones; None: they do not cross there."""
        points = self.points(shape, context, ("kv", "hidden"))
        for (x1, kv1, hidden1), (x2, kv2, hidden2) in zip(points, points[1:]):
            before, after = math.log(hidden1 / kv1), math.log(hidden2 / kv2)
            if before > 0 >= after:
                return math.exp(math.log(x1) + (math.log(x2) - math.log(x1)) * before / (before - after))
        return None

    def draw(self, shape):
        plans = [plan for plan in self.arguments.plans if any(t["plan"] == plan for t in self.turns)]
        context = max(self.arguments.contexts)
        points = self.points(shape, context, plans)
        if len(points) < 2:
            return None
        return plot.lines(f"{shape}: tokens restored a second, contexts of {context:,}", "MB a second of the disk",
                          "tokens a second", points, plans)


def report(results, bench):
    lines = [f"### {bench.shape}", "", results.table(bench.shape), "", *bench.said, ""]
    predicted = predicted_crossing(bench.said)
    for context in results.arguments.contexts:
        if speed := results.crossing(bench.shape, context):
            off = f", {abs(predicted - speed) / speed * 100:.0f} % off" if predicted else ""
            said = f" (predicted: {predicted:.0f} MB/s{off})" if predicted else ""
            lines += [f"Contexts of {context:,}: hidden states are faster than keys and values below {speed:.0f} MB/s{said}.", ""]
    if bench.reads:
        lines += [f"Reads of the disk without a limit, eight at once: {read_speeds(bench.reads)}.", ""]
    return "\n".join(lines)


def main():
    arguments = parse_arguments()
    turns, tables, loads = [], [], []
    out = ROOT / "build"
    results = Results(arguments, turns)
    for shape in [pathlib.Path(arguments.model).stem] if arguments.model else arguments.shapes:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="loci-bench-restore-") as folder:
            bench = Bench(arguments, shape, folder)
            for limit in arguments.limits:
                turns += bench.measure(limit)
                # A run that is stopped leaves what it measured.
                (out / f"{NAME}.json").write_text(json.dumps({"turns": turns}, indent=1) + "\n", encoding="utf-8")
                print(f"{shape}, {limit}: {len(turns)} turns, {time.monotonic() - begun:.0f} s", flush=True)
        loads += bench.loads
        tables.append(report(results, bench))
        print("\n" + tables[-1], flush=True)
        if svg := results.draw(shape):
            (out / f"{NAME}-{shape}.svg").write_text(svg, encoding="utf-8")
    head = (f"{processor()}, {arguments.threads} threads; {commit()}; load averages {min(loads):.0f} to {max(loads):.0f}, of which "
            "this benchmark is 1 to 2.\n\nTokens of state brought back a second, medians; in brackets the predictions' median "
            "error.\n\n")
    text = head + "\n".join(tables)
    print(head)
    (out / f"{NAME}.json").write_text(json.dumps({"turns": turns, "table": text}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
