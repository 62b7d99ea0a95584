#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The policies of a front beside one another, in the simulator: four instances behind two fronts, and one server that has
the four's memory and processors. Prints docs/cluster.md's table; the same each time, whatever else the machine does.

    scripts/build.sh release loci
    bench/routing.py --data DATA [--policy first-token ...] [--workload chat ...]

DATA has mooncake's conversation_trace.jsonl.gz, in any folder. A few minutes, most of them for mooncake.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from cases import ROOT

POLICIES = ("first-token", "prompt-tree", "session", "least-load")
ONE_SERVER = "one server"
INSTANCES = 4
_13B = {"model": "llama2-13b", "memory.device_gb": 30, "memory.host_gb": 60}
_CHAT = {**_13B, "workload.kind": "sharegpt-pensieve", "workload.think_s": 30, "workload.tokens_max": 4000}
WORKLOADS = {
    "mooncake": {"model": "mistral-7b", "trace.format": "mooncake", "trace.time_scale": 3, "engine.context_tokens": 131072,
                 "engine.batch_tokens": 4096, "memory.device_gb": 50, "memory.host_gb": 250},
    "chat": {**_CHAT, "workload.conversations": 1500, "workload.rate": 1.6},
    "chat, busier": {**_CHAT, "workload.conversations": 2500, "workload.rate": 2.2},
    "documents": {**_13B, "workload.kind": "documents", "workload.conversations": 1000, "workload.contexts": 80,
                  "workload.context_tokens": 2500, "workload.body_tokens": 60, "workload.reply_tokens": 60, "workload.tasks": 5,
                  "workload.zipf": 1, "workload.rate": 1.5, "workload.think_s": 2},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("LOCI_SHARED_DATA"))
    parser.add_argument("--policy", action="append", choices=(ONE_SERVER, *POLICIES))
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--loci", default=ROOT / "build/release/loci")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or LOCI_SHARED_DATA: expected a folder with mooncake's conversation_trace.jsonl.gz")
    return options


def fields_of(workload, policy, data):
    fields = {"machine": "a100-80g", **WORKLOADS[workload]}
    if "trace.format" in fields:
        found = sorted(pathlib.Path(data).rglob("conversation_trace.jsonl.gz"))
        if not found:
            raise SystemExit(f"bench: {data} has no conversation_trace.jsonl.gz")
        fields["trace.file"] = found[0]
    if policy != ONE_SERVER:
        return {**fields, "cluster.instances": INSTANCES, "cluster.fronts": 2, "cluster.policy": policy}
    grown = {name: INSTANCES * fields[name] for name in ("memory.device_gb", "memory.host_gb")}
    return {**fields, **grown, "processors": INSTANCES}


def simulate(options, workload, policy):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        command = [str(options.loci), "sim", "--output", str(report)]
        for name, value in fields_of(workload, policy, options.data).items():
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {done.stderr.strip() or done.stdout.strip()}")
        return json.loads(report.read_text(encoding="utf-8"))


def cell(report):
    times = report["ttft_from_arrival_s"]
    return (f"{100 * report['tokens']['share_cached']:.1f} %; "
            + ", ".join(f"{times[name]:.3g}" if times[name] >= 1 else f"{times[name]:.3f}" for name in ("mean", "p90", "p99")))


def main():
    options = parse_arguments()
    workloads = options.workload or list(WORKLOADS)
    print(f"| | {' | '.join(workloads)} |\n|---|{'---|' * len(workloads)}")
    for policy in options.policy or (ONE_SERVER, *POLICIES):
        name = policy if policy == ONE_SERVER else f"`{policy}`"
        print(f"| {name} | {' | '.join(cell(simulate(options, workload, policy)) for workload in workloads)} |", flush=True)


if __name__ == "__main__":
    main()
