#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast conversations come back from the disk as keys and values, as hidden states, computed again, and as the
plan says, for disks from slow to fast (--io-limit): tokens of context a second until the first new token (HCache's
restoration speed, §6.1). One conversation at a time, whose state is on the disk alone, after a restart.

    kv          --hidden off --restore kv
    hidden      --hidden on  --restore kv
    recompute   --disk none
    auto        --hidden auto --restore auto, with a profile that was measured before

    bench/hidden.py [--shape qwen3-0.6b | --model FILE] [--limit 50MiB ...] [--tokens 1024] [--rounds 3]

Results go to build/bench-hidden.json, and a table to standard output.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from live_client import Server, wait_recovered, wait_saved  # noqa: E402

PLANS = {"kv": ("--hidden", "off", "--restore", "kv"),
         "hidden": ("--hidden", "on", "--restore", "kv"),
         "recompute": (),
         "auto": ("--hidden", "auto", "--restore", "auto")}
NEW_TOKENS = 16


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures restoring by hidden states.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--shape", default="qwen3-0.6b", help="of a random model (loci-random-model)")
    parser.add_argument("--model", help="a file instead")
    parser.add_argument("--limit", action="append", help="of the disk, a second (50MiB, 200MiB and none)")
    parser.add_argument("--tokens", type=int, default=1024, help="of a conversation")
    parser.add_argument("--rounds", type=int, default=3, help="conversations, whose median counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append", choices=PLANS)
    arguments = parser.parse_args()
    arguments.limit = arguments.limit or ["50MiB", "200MiB", "none"]
    return arguments


def ask(server, tokens):
    reply = server.post("/v1/completions", {"prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
                                            "loci": {"explain": True}})
    if reply.status != 200:
        raise RuntimeError(reply.text[:500])
    return reply.json["loci"]


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.binary = str(arguments.build / "loci")
        self.model = arguments.model or self.random_model()
        self.profile = os.path.join(folder, "profile.json")
        source = random.Random(1)
        self.prompts = [[source.randrange(300, 8000) for _ in range(arguments.tokens)] for _ in range(arguments.rounds)]
        self.said = subprocess.run([self.binary, "profile", self.model, "--output", self.profile, "--disk", folder,
                                    "--threads", str(arguments.threads)], check=True, capture_output=True, text=True)

    def random_model(self):
        path = os.path.join(self.folder, "model.gguf")
        subprocess.run([self.arguments.build / "loci-random-model", path, "--shape", self.arguments.shape], check=True)
        return path

    def server(self, plan, disk, limit):
        flags = ["--threads", str(self.arguments.threads), "--context", str(self.arguments.tokens + 256), "--store", "",
                 "--device-memory", "2GiB", "--profile", self.profile, *PLANS[plan]]
        flags += ["--disk", "none"] if plan == "recompute" else ["--disk", disk + ":4GiB"]
        if limit != "none" and plan != "recompute":
            flags += ["--io-limit", limit]
        return Server(self.binary, self.model, *flags)

    def measure(self, plan, limit):
        disk = os.path.join(self.folder, "disk")
        if plan != "recompute":
            with self.server(plan, disk, limit) as server:
                for prompt in self.prompts:
                    ask(server, prompt)
                wait_saved(server)
        times, forms = [], {}
        with self.server(plan, disk, limit) as server:
            if plan != "recompute":
                wait_recovered(server)
            ask(server, [9, 8, 7] * 50)  # the weights are read
            for i, prompt in enumerate(self.prompts):
                said = ask(server, prompt + [i + 1] * NEW_TOKENS)
                times.append(said["real_ms"]["first_token"])
                forms = {"computed": said["tokens"]["computed"], **said["disk_forms"]}
        shutil.rmtree(disk, ignore_errors=True)
        first = statistics.median(times)
        return {"plan": plan, "limit": limit, "first_token_ms": first, "tokens_per_second": self.arguments.tokens / first * 1000,
                "last_tokens": forms}


def main():
    arguments = parse_arguments()
    folder = tempfile.mkdtemp(prefix="loci_hidden_")
    try:
        bench = Bench(arguments, folder)
        print("\n".join(line for line in bench.said.stdout.splitlines() if "hidden" in line or "token" in line), flush=True)
        results = []
        print(f"{'limit':>8} {'plan':<10} {'first token':>12} {'tokens/s':>9}  of the last: hidden, kv, computed")
        for limit in arguments.limit:
            for plan in arguments.only or PLANS:
                if plan == "recompute" and limit != arguments.limit[0]:
                    continue  # no disk
                one = bench.measure(plan, limit)
                results.append(one)
                last = one["last_tokens"]
                print(f"{limit:>8} {plan:<10} {one['first_token_ms']:>9.0f} ms {one['tokens_per_second']:>9.0f}  "
                      f"{last['hidden']}, {last['kv']}, {last['computed']}", flush=True)
        out = arguments.build.parent / "bench-hidden.json"
        out.write_text(json.dumps({"model": bench.model, "tokens": arguments.tokens, "profile": bench.said.stdout,
                                   "results": results}, indent=2))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
