#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The disk store's loading beside fio on the same file system, in interleaved rounds.

    cmake --preset bench && ninja -C build/bench disk_store_benchmark   (and: apt-get install fio)
    python3 bench/disk_store.py build/bench [--rounds 5] [--folder DIR]

Prints a round a line and the medians. What is compared: whole entries of the default model (720 KiB) in
conversations of 4,000 tokens, layer by layer, verified and copied; fio reads a file in order by 1 MiB, 32 in
flight, past the page cache.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile


def fio(folder):
    out = subprocess.run(
        ["fio", "--name=read", f"--filename={folder}/fio.data", "--rw=read", "--bs=1M", "--size=1G", "--direct=1",
         "--ioengine=io_uring", "--iodepth=32", "--loops=2", "--output-format=json"],
        capture_output=True, text=True, check=True).stdout
    return json.loads(out)["jobs"][0]["read"]["bw_bytes"] / 2**20


def store(build, folder, engine):
    out = subprocess.run(
        [f"{build}/disk_store_benchmark", f"--benchmark_filter=load_entries/{engine}/layers:0/", "--benchmark_format=json"],
        capture_output=True, text=True, check=True, env={**os.environ, "LOCI_BENCH_DIR": folder}).stdout
    one = json.loads(out)["benchmarks"][0]
    return one["bytes_per_second"] / 2**20, one["cpu_s/GiB"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the file system to be measured")
    args = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        fio(folder)  # makes its file
        for number in range(args.rounds):
            peer = fio(folder)
            uring, uring_cpu = store(args.build, folder, "io_uring")
            threads, threads_cpu = store(args.build, folder, "threads")
            peer = (peer + fio(folder)) / 2  # before and after: disks of virtual machines vary
            rounds.append((peer, uring, threads))
            print(f"round {number + 1}: fio {peer:,.0f} MiB/s; io_uring {uring:,.0f} ({uring / peer:.2f}, "
                  f"{uring_cpu:.2f} s of processor a GiB); threads {threads:,.0f} ({threads / peer:.2f}, "
                  f"{threads_cpu:.2f})", flush=True)
    for name, column in (("io_uring", 1), ("threads", 2)):
        ratio = statistics.median(one[column] / one[0] for one in rounds)
        speed = statistics.median(one[column] for one in rounds)
        print(f"{name}: median {speed:,.0f} MiB/s, {ratio:.2f} of fio's")


if __name__ == "__main__":
    main()
