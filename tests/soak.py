#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed traffic for an hour: soak.py BUILD [--minutes N] [--seed N].

Three servers of one small random model. The *reference* has no tiers and runs one request at a time. The *steady* one
and the *mortal* one have a little device memory, host memory, a disk, a store, tenants with keys and a public prefix;
the mortal one is killed (kill -9) every few seconds and started again on the same files, half of the time with bytes of
its disk flipped, a file cut short or removed; the steady one has bytes of its disk flipped while it runs. (Disks that fail
or hang cannot be had from outside: disk_fault_test and disk_hangs_test have them.) Clients of all APIs (soak_talks.py)
play whole, streamed, slowly read, cancelled and background requests at both.

Every reply has the reference's text and log-probabilities (but for those behind a cut of a truncated conversation:
there the counts of tokens), and what was stored is found again after each kill. Now and then the steady server's clients
pause: when all is at rest its memory, descriptors, threads, pinned blocks and files are read. After the first tenth of
the time (and WARM_TURNS) each must stay within its bound of the highest value before. Needs Python's standard library
alone.
"""
import argparse
import collections
import glob
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_client import check_integrity, expect, Keys, Server, wait_until  # noqa: E402
from soak_client import Client, Host, Reference  # noqa: E402
from soak_talks import CONTEXT, PUBLIC  # noqa: E402

CLIENTS = 5  # of each of the two servers
SAMPLES = 60
WARM_TURNS = 2000  # by then every script has been played to every tenant: a slow machine is not at its level before
MIB = 1 << 20
# Above the highest value of the first tenth: a factor, and an amount.
BOUNDS = {"memory": (1.1, 8 * MIB), "descriptors": (1, 2), "threads": (1, 0), "pinned blocks": (1, 0),
          "disk": (1.1, 4 * MIB)}


class Gate:
    """Clients pass it before each talk; closed, it waits until none is inside."""

    def __init__(self):
        self.changed, self.open, self.inside = threading.Condition(), True, 0

    def __enter__(self):
        with self.changed:
            self.changed.wait_for(lambda: self.open)
            self.inside += 1

    def __exit__(self, *_):
        with self.changed:
            self.inside -= 1
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.open = False
            expect(self.changed.wait_for(lambda: self.inside == 0, 600), "every talk ends within ten minutes")

    def reopen(self):
        with self.changed:
            self.open = True
            self.changed.notify_all()


class Traffic:
    """Threads that work until they are told to stop; the first failure of any is kept."""

    def __init__(self):
        self.over, self.failure, self.threads = threading.Event(), None, []

    def begin(self, work):
        def run():
            try:
                while not self.over.is_set():
                    work()
            except Exception:  # noqa: BLE001
                self.failure = self.failure or traceback.format_exc()
                self.over.set()
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


# --- faults ---

def slot_files(folder):
    return sorted(name for kind in ("slots", "headers")
                  for name in glob.glob(os.path.join(folder, "models", "*", f"*.{kind}")))


def flip_bytes(draw, folder, count):
    for path in slot_files(folder):
        with open(path, "r+b") as file:
            for _ in range(count):
                at = draw.randrange(os.path.getsize(path))
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 0x40]))


def harm_files(draw, folder, counts):
    """What a disk may have done meanwhile; nothing, half of the time."""
    path = draw.choice(slot_files(folder))
    kind = draw.choice(["none", "none", "none", "flipped", "cut short", "removed"])
    if kind == "flipped":
        flip_bytes(draw, folder, 200)
    elif kind == "cut short":
        os.truncate(path, os.path.getsize(path) // 3)
    elif kind == "removed":
        os.remove(path)
    counts["files " + kind] += 1


# --- what must be flat ---

def files_size(folder):
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return size


def read_process(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["VmRSS"].split()[0]) * 1024, len(os.listdir(f"/proc/{pid}/fd"))


def own_threads(pid):
    """How many threads it has; the kernel's own for io_uring come and go."""
    count = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
                count += not file.read().startswith("iou-wrk")
        except (FileNotFoundError, ProcessLookupError):
            pass
    return count


def at_rest(metrics):
    return all(metrics[name] == 0 for name in ("loci_requests_running", "loci_requests_queued", "loci_moves_in_flight",
                                               "loci_saves_waiting")) and metrics["loci_http_connections"] <= 1


def sample(server, folder):
    wait_until(lambda: at_rest(server.metrics()), "the server is at rest", 300)
    memory, descriptors = read_process(server.process.pid)
    return {"memory": memory, "descriptors": descriptors, "threads": own_threads(server.process.pid),
            "pinned blocks": server.metrics()['loci_blocks{state="pinned"}'], "disk": files_size(folder)}


def shown(name, value):
    return f"{value / MIB:.1f} MiB" if name in ("memory", "disk") else f"{value:.0f}"


def check_flat(samples):
    """Prints and checks the levels of the first tenth and of each tenth after it: its median, as a sample may fall
    on connections that are just being closed."""
    first = max(len(samples) // 10, sum(s["turns"] < WARM_TURNS for s in samples) + 1)
    broken = [] if first < len(samples) else [f"{samples[-1]['turns']} turns are too few to say that anything is flat"]
    for name, (factor, more) in BOUNDS.items():
        level = max(s[name] for s in samples[:first])
        after = [s[name] for s in samples[first:]] or [level]
        levels = [statistics.median(after[i:i + first]) for i in range(0, len(after), first)]
        bound = level * factor + more
        line = (f"{name}: {shown(name, level)} in the first {first} of {len(samples)} samples, then {shown(name, min(after))} to "
                f"{shown(name, max(after))}, levels up to {shown(name, max(levels))}, {shown(name, levels[-1])} at the end; "
                f"at most {shown(name, bound)}")
        print(line)
        if max(levels) > bound:
            broken.append(line)
    expect(not broken, "not flat: " + "; ".join(broken))


# --- the run ---

class World:
    """The files, the servers and their clients."""

    def __init__(self, build, folder, seed):
        binary, model = os.path.join(build, "loci"), os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(build, "loci-random-model"), "--shape", "tiny", model], check=True)
        self.folder, self.counts, self.draw = folder, collections.Counter(), random.Random(seed)
        keys, public = Keys(binary), os.path.join(folder, "public.txt")
        tenants = [keys.add(name) for name in ("wide", "narrow", "heavy")]
        # What is stored grows with every talk until a tenant is at its quota, and SQLite's caches with it.
        quota = 'stored_bytes = "512KiB"\n'
        keys.append(f"[tenants.wide]\n{quota}[tenants.narrow]\nconcurrent_requests = 1\n{quota}[tenants.heavy]\nweight = 4\n{quota}")
        with open(public, "w", encoding="utf-8") as file:
            file.write(PUBLIC)
        # (The clients' own threads may wait long for a processor: no connection is cut off for that.)
        common = ["--threads", "1", "--context", str(CONTEXT), "--log-level", "info", "--header-timeout", "10m",
                  "--body-timeout", "10m", "--write-timeout", "10m"]
        tiers = [*common, "--max-running", "4", "--device-memory", "3MiB", "--api-keys", keys.path, "--public", public]
        self.keys = keys
        self.reference_server = Server(binary, model, *common, "--max-running", "1", "--device-memory", "16MiB",
                                       "--store", self.path("reference.db"))
        for name in ("steady", "mortal"):
            os.mkdir(self.path(name))
        self.steady = Host(binary, model, [*tiers, "--host-memory", "3MiB", "--disk", self.path("steady/disk") + ":16MiB",
                                           "--store", self.path("steady/store.db")])
        self.mortal = Host(binary, model, [*tiers, "--host-memory", "1MiB", "--disk", self.path("mortal/disk") + ":8MiB",
                                           "--store", self.path("mortal/store.db"), "--disk-io", "threads"])
        self.reference = Reference(self.reference_server)
        self.gate, self.traffic = Gate(), Traffic()
        for number in range(2 * CLIENTS):
            host = self.mortal if number % 2 else self.steady
            client = Client(number, host, self.reference, tenants[number // 2 % len(tenants)], seed, self.counts)
            self.traffic.begin(client.play if number % 2 else lambda client=client: self.pass_gate(client))
        self.traffic.begin(self.disturb)

    def path(self, name):
        return os.path.join(self.folder, name)

    def pass_gate(self, client):
        with self.gate:
            client.play()

    def disturb(self):
        """One kill, and a few bytes of the steady server's disk."""
        if self.traffic.over.wait(self.draw.uniform(4, 20)):
            return
        flip_bytes(self.draw, self.path("steady/disk"), 20)

        def harm():
            check_integrity(self.path("mortal/store.db"))
            harm_files(self.draw, self.path("mortal/disk"), self.counts)
        self.mortal.kill(harm)
        self.counts["kills"] += 1

    def run(self, minutes):
        """The samples; ends early where something failed."""
        begin, samples = time.monotonic(), []
        while len(samples) < SAMPLES:
            wait = begin + minutes * 60 * (len(samples) + 1) / SAMPLES - time.monotonic()
            if self.traffic.over.wait(max(wait, 0)):
                break
            self.gate.close()
            samples.append(sample(self.steady.server, self.path("steady")) | {"turns": self.counts["turns"]})
            self.gate.reopen()
            print(f"{(time.monotonic() - begin) / 60:.1f} min: " +
                  ", ".join(f"{name} {shown(name, value)}" for name, value in samples[-1].items()) +
                  f", kills {self.counts['kills']}", flush=True)
        return samples

    def servers(self):
        return self.steady.server, self.mortal.server, self.reference_server

    def end(self):
        """Stops clients and servers, and tells of what the steady server did."""
        self.gate.reopen()
        self.traffic.end()
        if self.traffic.failure:
            for server in self.servers():
                server.process.kill()
            raise AssertionError(f"a client or the disturber failed:\n{self.traffic.failure}")
        metrics = self.steady.server.metrics()
        for name in ('loci_tier_bytes_total{link="host_load"}', 'loci_tier_bytes_total{link="disk_load"}',
                     "loci_evicted_blocks_total", "loci_disk_damaged_total", "loci_prompt_tokens_cached_total"):
            print(f"steady server: {name} {metrics.get(name, 0):.0f}")
            expect(metrics.get(name, 0) > 0, f"{name} is 0: this soak shows nothing of it")
        for server in self.servers():
            with server:  # stops it, and looks for what sanitizers say
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the folder of loci and loci-random-model")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}, {arguments.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="loci_soak_") as folder:
        world = World(arguments.build, folder, seed)
        try:
            samples = world.run(arguments.minutes)
        finally:
            world.end()
        print(", ".join(f"{count} {name}" for name, count in sorted(world.counts.items())))
        check_flat(samples)
    print("soak: passed: every reply was the reference's, nothing was lost")


if __name__ == "__main__":
    main()
