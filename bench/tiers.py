#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-tiers`: conversations whose state outgrows the device's memory, through the HTTP servers, driven by
`loci bench`. Conversations of mt-bench-101, each behind a private document of its own, go round by turn, so that
between two turns of one stand those of all others. Compared are

  llama.cpp, no cache     -np 4 --cache-ram 0: a slot keeps its last conversation
  llama.cpp, cache        the same with its cache in host memory
  Loci, tiers             device memory for `--concurrency` conversations; the others in host memory and on disk
  Loci, tiers, q8         the same bytes of device memory, host memory and disk, with --state-type q8
  Loci, all on device     device memory for all of them
  Loci, saves …           the same, and what is computed is saved to a disk, as keys and values or as hidden states

each on a server of its own that sees the same texts. Results go to build/bench-tiers.json.

    bench/tiers.py [--conversations 16] [--turns 6] [--rounds 3] [--only NAME ...] [--dialogues FILE]

Whether decodes feel that others are restored shows below saturation, on Loci alone:

    bench/tiers.py --only loci-tiers --concurrency 2 --device-conversations 4 --think-time 0.5 --rounds 5

and whether they feel that state is saved (HCache §4.2.2):

    bench/tiers.py --only loci-saves-kv --only loci-saves-hidden --concurrency 2 --think-time 0.5 --rounds 5
"""

import argparse
import gzip
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request

from cases import DEFAULT, ROOT
from report import commit, processor
from runners import Disturbance
from second_turn import free_port, Server

RESULTS = ROOT / "build" / "bench-tiers.json"
LOCI_BENCH_TIMEOUT_SECONDS = 3600
NO_CACHE, CACHE, ALL = "llama.cpp, no cache", "llama.cpp, cache", "Loci, all on device"
TIERS, TIERS_Q8 = "Loci, tiers", "Loci, tiers, q8"
SAVES_KV, SAVES_HIDDEN = "Loci, saves keys and values", "Loci, saves hidden states"
KEYS = {"llama-no-cache": NO_CACHE, "llama-cache": CACHE, "loci-tiers": TIERS, "loci-tiers-q8": TIERS_Q8, "loci-all": ALL,
        "loci-saves-kv": SAVES_KV, "loci-saves-hidden": SAVES_HIDDEN}
DEFAULT_KEYS = [key for key in KEYS if not key.startswith("loci-saves")]  # those are compared below saturation
LOCI_FLAGS = {TIERS: (), TIERS_Q8: ("--state-type", "q8"), SAVES_KV: ("--hidden", "off"), SAVES_HIDDEN: ("--hidden", "on")}
LATER_TTFT = "p90 TTFT of later turns"
LATER_TBT, P99_TBT = "mean TBT of later turns", "p99 TBT"


def default_dialogues():
    folder = pathlib.Path(os.environ.get("LOCI_DATA") or ROOT.parent / "shared" / "data")
    return folder / "mt-bench-101" / "dialogues.jsonl.gz"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures state that outgrows the device's memory.")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--document-tokens", type=int, default=1000)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--think-time", type=float, default=0, help="mean seconds between a reply and the next turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3, help="of Loci's, whose medians count; llama.cpp's take minutes each")
    parser.add_argument("--only", action="append", choices=KEYS, help="measure this one (may be repeated); loci-all comes first anyway")
    parser.add_argument("--device-conversations", type=int, help="that the device of Loci with tiers holds; as many as --concurrency")
    parser.add_argument("--host-memory", default="2GiB", help="of Loci with tiers")
    parser.add_argument("--disk", default="4GiB", help="of Loci with tiers, in a new folder; none: no disk tier")
    parser.add_argument("--cpu", default="avx512", help="the build of llama.cpp under build/peers")
    parser.add_argument("--dialogues", type=pathlib.Path, default=default_dialogues())
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--peers", type=pathlib.Path, default=ROOT / "build" / "peers")
    return parser.parse_args()


class Workload:
    """What `loci bench` is told, the same for all."""

    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.dialogues = folder / "dialogues.jsonl"
        opener = gzip.open if arguments.dialogues.suffix == ".gz" else open
        try:
            with opener(arguments.dialogues, "rb") as source, open(self.dialogues, "wb") as target:
                shutil.copyfileobj(source, target)
        except OSError as error:
            raise SystemExit(f"bench: {error}: name mt-bench-101's dialogues with --dialogues or LOCI_DATA")

    def run(self, port):
        """What the client saw: the JSON of `loci bench`, without its list of requests."""
        a = self.arguments
        command = [a.build / "loci", "bench", f"http://127.0.0.1:{port}", "--dialogues", self.dialogues, "--conversations",
                   a.conversations, "--turns", a.turns, "--concurrency", a.concurrency, "--private-prefix-tokens",
                   a.document_tokens, "--max-tokens", a.max_tokens, "--ignore-eos", "--seed", a.seed, "--think-time", a.think_time, "--json", "-"]
        with Disturbance():
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                                  timeout=LOCI_BENCH_TIMEOUT_SECONDS)
        if not done.stdout.startswith("{"):
            raise SystemExit(f"bench: {(done.stderr or done.stdout).strip()}")
        (server,) = json.loads(done.stdout)["servers"]
        for remark in server["remarks"]:
            print(f"bench: note: {remark}", flush=True)
        ends = [turn for turn in server.pop("turns") if "error" not in turn and turn["turn"] == a.turns - 1]
        server["longest_tokens"] = max((turn["prompt_tokens"] + turn["output_tokens"] for turn in ends), default=0)
        return server


def figures(run):
    later = run["later_turns"]
    return {"seconds": run["seconds"], "output tokens/s": run["throughput"]["output_tokens_per_second"],
            LATER_TTFT: later["ttft_ms"]["p90"], LATER_TBT: later["tbt_ms"]["mean"], P99_TBT: later["tbt_ms"]["p99"],
            "cached share": later["cached_tokens"]["mean"] / max(later["prompt_tokens"]["mean"], 1),
            "failed": run["requests"]["failed"] + run["requests"]["skipped"], "longest tokens": run["longest_tokens"]}


def median_of(rounds):
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
    raise SystemExit(f"bench: the server has no metric {name}")


def llama_command(arguments, port, *flags):
    return [arguments.peers / arguments.cpu / "bin" / "llama-server", "-m", DEFAULT.path(), "--port", port, "-t", arguments.threads,
            "-np", arguments.concurrency, "-c", 8192 * arguments.concurrency, "--no-webui", *flags]


def loci_command(arguments, port, device_bytes, *flags):
    return [arguments.build / "loci", "serve", DEFAULT.path(), "--port", port, "--threads", arguments.threads,
            "--device-memory", device_bytes, "--context", 4096, "--access-log", "off", "--store", "", *flags]


def measure(workload, command, port, after=None):
    with Server(command, port):
        run = figures(workload.run(port))
        if after:
            after()
    print(f"bench: {run['seconds']:.1f} s, {run['output tokens/s']:.0f} output tokens/s, {LATER_TTFT} "
          f"{run[LATER_TTFT]:.0f} ms, {100 * run['cached share']:.0f} % cached", flush=True)
    return run


def measure_loci(workload, arguments, wanted):
    """{name: figures}. What one conversation takes is measured first, on a device that has room for all."""
    # A first guess, generous: a turn of mt-bench-101 and the template have less than 150 tokens.
    tokens = arguments.conversations * (arguments.document_tokens + arguments.turns * (arguments.max_tokens + 150) + 64)
    bytes_of_token, rounds, port = 0.0, {name: [] for name in (ALL, *LOCI_FLAGS)}, free_port()

    def read_sizes():
        nonlocal bytes_of_token
        slots = metric(port, 'loci_blocks{state="total"}') * metric(port, "loci_block_tokens")
        bytes_of_token = metric(port, 'loci_state_bytes{state="total"}') / slots

    for number in range(arguments.rounds):
        guess = int(tokens * (bytes_of_token or 32768))
        print(f"bench: {ALL}, round {number + 1}", flush=True)
        rounds[ALL].append(measure(workload, loci_command(arguments, port, guess, "--host-memory", 0, "--disk", "none"), port,
                                   read_sizes))
        blocks = math.ceil(rounds[ALL][0]["longest tokens"] / 32) + 1
        held = arguments.device_conversations or arguments.concurrency
        device = int(held * blocks * 32 * bytes_of_token)
        for name, flags in LOCI_FLAGS.items():
            if name not in wanted:
                continue
            saves = name in (SAVES_KV, SAVES_HIDDEN)
            memory, host = (guess, 0) if saves else (device, arguments.host_memory)
            whose = "all" if saves else f"{held} conversations in f16"
            print(f"bench: {name}, round {number + 1}: device memory {memory >> 20} MiB, of {whose}", flush=True)
            with tempfile.TemporaryDirectory(prefix="loci_tiers_") as folder:
                disk = "none" if arguments.disk == "none" else f"{folder}:{arguments.disk}"
                rounds[name].append(measure(workload, loci_command(arguments, port, memory, "--host-memory", host, "--disk", disk,
                                                                   *flags), port))
    return {name: median_of(of) for name, of in rounds.items() if of}


def report(results, conversations, below_saturation):
    lines = [f"| {'server':<27} | seconds | output tokens/s | {LATER_TTFT}, ms | {LATER_TBT}, ms | p99, ms | later turns cached |",
             "|---|---|---|---|---|---|---|"]
    for name, run in results.items():
        lines.append(f"| {name:<27} | {run['seconds']:.1f} | {run['output tokens/s']:,.0f} | {run[LATER_TTFT]:,.0f} | "
                     f"{run[LATER_TBT]:.2f} | {run[P99_TBT]:.1f} | {100 * run['cached share']:.0f} % |")
        if run["failed"]:
            lines.append(f"{name}: {run['failed']} turns have no reply")
    lines.append("")
    wanted = (("throughput, Loci with tiers over llama.cpp without its cache", "output tokens/s", TIERS, NO_CACHE, 8, False),
              ("throughput, Loci with tiers over llama.cpp with its cache", "output tokens/s", TIERS, CACHE, 6, False),
              (f"{LATER_TTFT}, Loci with tiers over llama.cpp with its cache", LATER_TTFT, TIERS, CACHE, 1 / 8, True),
              (f"throughput, Loci with tiers over Loci with device memory for all {conversations}", "output tokens/s", TIERS,
               ALL, 0.9, False),
              ("throughput, q8 over f16, with tiers", "output tokens/s", TIERS_Q8, TIERS, 1, False),
              (f"{LATER_TTFT}, q8 over f16, with tiers", LATER_TTFT, TIERS_Q8, TIERS, 1, True))
    if below_saturation:
        over = f"over Loci with device memory for all {conversations}"
        wanted += ((f"{LATER_TBT}, Loci with tiers {over}", LATER_TBT, TIERS, ALL, 1.04, True),
                   (f"{P99_TBT}, Loci with tiers {over}", P99_TBT, TIERS, ALL, 1.1, True))
        for saves in (SAVES_KV, SAVES_HIDDEN):
            wanted += ((f"{LATER_TBT}, {saves} {over}", LATER_TBT, saves, ALL, 1.01, True),
                       (f"{P99_TBT}, {saves} {over}", P99_TBT, saves, ALL, 1.04, True))
    for what, key, ours, theirs, bound, at_most in wanted:
        if ours not in results or theirs not in results:
            continue
        ratio = results[ours][key] / results[theirs][key]
        met = ratio <= bound if at_most else ratio >= bound
        lines.append(f"{what}: {ratio:.2f} (wanted: {'at most' if at_most else 'at least'} {bound:g}): {'met' if met else 'MISSED'}")
    return "\n".join(lines)


def main():
    arguments = parse_arguments()
    wanted = [KEYS[key] for key in arguments.only or DEFAULT_KEYS]
    if arguments.disk == "none" and {SAVES_KV, SAVES_HIDDEN} & set(wanted):
        raise SystemExit("bench: expected a disk for loci-saves-kv and loci-saves-hidden, found --disk none: name its size")
    results = {}
    with tempfile.TemporaryDirectory(prefix="loci_bench_") as folder:
        workload = Workload(arguments, pathlib.Path(folder))
        for name, flags in ((NO_CACHE, ("--cache-ram", 0)), (CACHE, ())):
            if name in wanted:
                print(f"bench: {name}", flush=True)
                port = free_port()
                results[name] = measure(workload, llama_command(arguments, port, *flags), port)
        if {ALL, *LOCI_FLAGS} & set(wanted):
            results |= measure_loci(workload, arguments, wanted)
    settings = {key: str(value) for key, value in vars(arguments).items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"settings": settings, "commit": commit(), "machine": processor(),
                                   "others_used_at_most": Disturbance.worst, "results": results}, indent=1), encoding="utf-8")
    print(report(results, arguments.conversations, arguments.think_time > 0))
    print(f"Others used at most {100 * Disturbance.worst:.0f} % of the machine. Written to {RESULTS.relative_to(ROOT)}.")


if __name__ == "__main__":
    sys.exit(main())
