#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-simulator`: how true `loci sim` is. The same conversations, more than the device's memory holds, go
through a server on this machine and through the simulator with this machine's profile:

  loci profile    measures the machine
  loci serve      a fresh server for each load, which writes its event log
  loci bench      sends conversations to it: they begin at a rate, whatever the server does, and think between turns
  loci sim        takes what the server was asked from that log, and the machine from the profile

A profile measures the backend alone. What the server itself does for each pass (steps, sampling, sending) is found first,
in the log of conversations that are not compared: by so much its passes of decodes took longer than the profile says.

Compared are tokens of prompts by where their state came from, the mean time to the first token, the mean latency per
token and throughput. Results go to build/bench-simulator.json, the table into docs/simulation.md with --publish.

    bench/simulator.py [--only LOAD ...] [--model FILE] [--profile FILE] [--publish]
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from cases import DEFAULT, ROOT
from report import processor
from runners import Disturbance

sys.path.insert(0, str(ROOT / "tests"))
from live_client import Server  # noqa: E402

RESULTS = ROOT / "build" / "bench-simulator.json"
DOCUMENT = ROOT / "docs" / "simulation.md"
BEGIN, END = "<!-- simulator:begin -->", "<!-- simulator:end -->"
SOURCES = ("device", "host", "disk", "computed")
TIMES = ("time to the first token, ms", "latency per token, ms", "reply tokens a second")
SOURCE_POINTS, TIME_PERCENT = 3, 20  # that the simulator may be off
# The same for the server and the simulator.
ENGINE = {"max-batch-tokens": 512, "pass-time": 100, "max-running": 64, "max-queued": 256}
CONTEXT_TOKENS = 4096
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Load:
    """Conversations that begin at a rate, and what holds their state."""
    name: str
    rate: float  # conversations a second
    conversations: int = 36
    turns: int = 5
    document_tokens: int = 500
    turn_tokens: int = 40
    reply_tokens: int = 48
    think_seconds: float = 5
    device_bytes: int = 72 * MIB
    host_bytes: int = 72 * MIB
    disk_bytes: int = 2048 * MIB
    seed: int = 1

    def bench_flags(self):
        return ["--rate", self.rate, "--conversations", self.conversations, "--turns", self.turns, "--private-prefix-tokens",
                self.document_tokens, "--turn-tokens", self.turn_tokens, "--max-tokens", self.reply_tokens, "--think-time",
                self.think_seconds, "--seed", self.seed, "--ignore-eos", "--warmup", 0]


ALONE = Load("one at a time", 0.25, conversations=8, turns=4, document_tokens=100, think_seconds=0.2, device_bytes=256 * MIB)
LOADS = (Load("light", 0.15), Load("busy", 0.3), Load("heavy", 0.5), Load("short of memory", 0.8))


class Failure(Exception):
    """What a program said when it failed."""


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"exit code {done.returncode} from {' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


class Comparison:
    """A program, a model, and a folder for what servers and commands write."""

    def __init__(self, binary, model, folder, threads, context=CONTEXT_TOKENS, flags=()):
        self.binary, self.model, self.folder, self.threads, self.context = binary, model, pathlib.Path(folder), threads, context
        self.flags = [str(flag) for flag in flags]  # more of them, for the server
        self.profile = self.folder / "profile.json"
        self.fixed_ms = 0  # that the server takes for a pass beside the backend

    def measure(self):
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        run([self.binary, "profile", self.model, "--output", self.profile, "--disk", disk, "--threads", self.threads,
             "--max-batch-tokens", ENGINE["max-batch-tokens"]])

    def calibrate(self):
        _, log, scenario = self.serve(ALONE)
        self.fixed_ms = max(0, self.report(ALONE, log, scenario)["log"]["beside_model_ms"])

    def serve(self, load):
        """What the server's clients saw and where it had its state from; its log; what the simulator must be told."""
        log = self.folder / f"{load.name}.log"
        with tempfile.TemporaryDirectory(dir=self.folder) as disk:
            flags = ["--threads", self.threads, "--profile", self.profile, "--event-log", log, "--device-memory", load.device_bytes,
                     "--host-memory", load.host_bytes, "--disk", f"{disk}:{load.disk_bytes}", "--store", "", "--access-log", "off",
                     "--log-level", "warn", "--yield-memory", "off", "--context", self.context, *self.flags]
            for name, value in ENGINE.items():
                flags += [f"--{name}", f"{value}ms" if name == "pass-time" else value]
            with Server(self.binary, self.model, *map(str, flags)) as server:
                out = run([self.binary, "bench", server.url, *load.bench_flags(), "--json", "-"])
                metrics = server.metrics()
                layers = int(re.search(r", (\d+) layers", server.banner).group(1))
        (bench,) = json.loads(out)["servers"]
        if bench["requests"]["failed"] or bench["requests"]["skipped"]:
            raise Failure(f"requests failed: {bench['remarks']}")
        served = dict(zip(TIMES, (bench["all_turns"]["ttft_ms"]["mean"], bench["all_turns"]["latency_ms_per_output_token"]["mean"],
                                  bench["throughput"]["output_tokens_per_second"])))
        tokens = {source: metrics[f'loci_context_tokens_total{{source="{source}"}}'] for source in SOURCES}
        return served | shares(tokens), log, self.scenario(metrics, layers)

    def scenario(self, metrics, layers):
        """The server's model and memory, by what it says of them."""
        block = int(metrics["loci_block_tokens"])
        slots = {tier: int(metrics[f'loci_tier_slots{{tier="{tier}",state="total"}}']) for tier in SOURCES[:3]}
        token_bytes = metrics['loci_state_bytes{state="total"}'] / (slots["device"] * block)
        return {"model": {"parameters_billions": 1, "layers": layers, "state_bytes": 2, "state_width": round(token_bytes / layers / 4)},
                "machine": {"profile": str(self.profile)}, "efficiency": {"fixed_ms": self.fixed_ms},
                "memory": {f"{tier}_tokens": slots[tier] * block for tier in slots},
                "engine": {"batch_tokens": ENGINE["max-batch-tokens"], "pass_time_ms": ENGINE["pass-time"],
                           "running": ENGINE["max-running"], "queued": ENGINE["max-queued"], "context_tokens": self.context}
                | engine_switches(self.flags)}

    def report(self, load, log, scenario):
        path, report = self.folder / f"{load.name}.json", self.folder / f"{load.name}.report.json"
        path.write_text(json.dumps(scenario))
        run([self.binary, "sim", path, "--from-log", log, "--output", report])
        return json.loads(report.read_text())

    def simulate(self, load, log, scenario):
        report = self.report(load, log, scenario)
        tokens = {source: report["tokens"][f"from_{source}"] for source in SOURCES[:3]} | {"computed": report["tokens"]["computed"]}
        times = dict(zip(TIMES, (1000 * report["ttft_from_arrival_s"]["mean"], 1000 * report["latency_per_token_s"]["mean"],
                                 report["throughput"]["reply_tokens_per_s"])))
        return times | shares(tokens)

    def compare(self, load):
        """{"served", "simulated", "others"}: the share of the machine that other programs had meanwhile."""
        Disturbance.worst = 0
        with Disturbance():
            served, log, scenario = self.serve(load)
        others = Disturbance.worst
        return {"served": served, "simulated": self.simulate(load, log, scenario), "others": others}


def engine_switches(flags):
    """`--eviction lru` as a field of the scenario's engine."""
    return {name[2:].replace("-", "_"): value for name, value in zip(flags[::2], flags[1::2])}


def shares(tokens):
    whole = sum(tokens.values())
    return {source: 100 * count / whole for source, count in tokens.items()}


def off(name, result):
    """How far the simulator is off: percentage points of a source, percent of a time."""
    served, simulated = result["served"][name], result["simulated"][name]
    return simulated - served if name in SOURCES else 100 * (simulated / served - 1)


def misses(result):
    """Names of what the simulator does not meet, sources and times apart."""
    return ([name for name in SOURCES if abs(off(name, result)) > SOURCE_POINTS],
            [name for name in TIMES if abs(off(name, result)) > TIME_PERCENT])


def table(results):
    lines = ["| | " + " | ".join(results) + " |", "|---|" + "---|" * len(results)]
    for name in SOURCES + TIMES:
        title = f"prompt tokens, {name}, %" if name in SOURCES else name
        unit = " points" if name in SOURCES else " %"
        cells = [f"{one['served'][name]:.1f} · {one['simulated'][name]:.1f} ({off(name, one):+.1f}{unit})" for one in results.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def describe_load(load):
    return f"{load.rate:g} a second"


def publish(results, loads, threads, fixed_ms):
    load = next(iter(loads))
    worst = max(one["others"] for one in results.values())
    text = (f"{DEFAULT.name} on {threads} of {os.cpu_count()} processors ({processor()}). {load.conversations} conversations of "
            f"{load.turns} turns, each behind a document of {load.document_tokens} tokens, replies of {load.reply_tokens}, "
            f"{load.think_seconds:g} s of thought in the mean; {load.device_bytes // MIB} MiB of device memory, "
            f"{load.host_bytes // MIB} MiB of host memory, {load.disk_bytes // MIB} MiB of disk. Each cell is: served · simulated (difference).\n\n"
            + table({f"{load.name}: {describe_load(load)}": results[load.name] for load in loads if load.name in results})
            + f"\n\nThe server took {fixed_ms:.2f} ms for a pass beside the backend (`efficiency.fixed_ms`), found from conversations "
            "that are not in the table. Meanwhile other programs used "
            f"up to {100 * worst:.0f} % of this machine's processors.\n")
    old = DOCUMENT.read_text()
    head, rest = old.split(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{text}{END}{rest.split(END)[1]}")


def main():
    parser = argparse.ArgumentParser(description="Compares the simulator with a server on this machine.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--model", default=str(DEFAULT.path()))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append", choices=[load.name for load in LOADS])
    parser.add_argument("--profile", type=pathlib.Path, help="of this machine and model, instead of measuring it")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for logs, scenarios and reports")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/simulation.md")
    arguments = parser.parse_args()
    loads = [load for load in LOADS if not arguments.only or load.name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="loci_simulator_") as folder:
        if arguments.keep:
            folder = arguments.keep
            folder.mkdir(parents=True, exist_ok=True)
        comparison = Comparison(arguments.build / "loci", arguments.model, folder, arguments.threads)
        if arguments.profile:
            comparison.profile = arguments.profile
        else:
            comparison.measure()
        comparison.calibrate()
        print(f"the server takes {comparison.fixed_ms:.2f} ms for a pass beside the backend", flush=True)
        results = {}
        for load in loads:
            results[load.name] = comparison.compare(load)
            print(f"{load.name}, {describe_load(load)}; others had {100 * results[load.name]['others']:.0f} %\n"
                  + table({load.name: results[load.name]}), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.publish:
        publish(results, loads, arguments.threads, comparison.fixed_ms)
    missed = {name: misses(one) for name, one in results.items() if any(misses(one))}
    if missed:
        print(f"off by more than {SOURCE_POINTS} points or {TIME_PERCENT} %: {missed}")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"bench: {failure}")
