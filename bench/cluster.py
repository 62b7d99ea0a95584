#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-cluster`: what several servers cost that act as one. In pairs; the figures are medians of --rounds. All servers run
on this machine and share its processors. Results go to build/bench-cluster.json.

  turn       the next turn of a conversation of 4,000 tokens on an instance that has never seen it, whose state comes from a peer or
             from Redis; beside it the plain transfer of as many bytes (a TCP stream, or Redis's own reads), and the same turn where
             the conversation is. Wanted: 1.2 times the longer of the two, and 30 ms. It also prints what both ends use of the
             processors meanwhile. All of it over the loopback device; with --link RATE (10gbit) over a link of this rate between
             namespaces of the network
  link       how fast state comes from a peer, without encryption and with TLS, beside a plain TCP stream (peers_benchmark) and,
             where it is installed, iperf3
  serving    two replies that an instance writes while another one reads prompts' state from it, and while that one is asked for prompts
             of which it has the state itself: time between two tokens of a reply. Wanted at p99: at most 1.05 times as long
  front      what a front adds to the first token of 64 streams of an echoing instance (front_benchmark)
  policies   conversations whose turns come to either of two fronts of four instances, by --policy of the fronts: time to first token,
             and the share of prompts' tokens that was not computed, beside one instance with the memory of all four (of whose share
             fronts should reach 0.95)

  roles      four replies that are written while four prompts of some 2,800 tokens come, one after the other, by two instances of role
             both, and by a prefill and a decode member: time between two tokens of a reply, and time to the prompts' first tokens

    bench/cluster.py [--rounds 5] [--only turn|link|serving|front|policies|roles ...] [--shape smollm2-135m]
                     [--link RATE]
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from cases import ROOT  # noqa: E402
from cluster_net import Network  # noqa: E402
from live_client import HERE, Place, Server, expect, first_token_ms, moved, wait_idle, wait_saved, wait_until  # noqa: E402
from live_cluster import Cluster  # noqa: E402
from postgres_server import Postgres  # noqa: E402
from redis_server import Redis, free_port  # noqa: E402
from report import commit, processor  # noqa: E402
from runners import run  # noqa: E402

RESULTS = ROOT / "build" / "bench-cluster.json"
POLICIES = ("first-token", "least-load", "session")
PARTS = ("turn", "link", "serving", "front", "policies", "roles")
INSTANCES, FRONTS = 4, 2
REPLIES, REPLY_TOKENS, PROMPTS = 4, 160, 4
SERVED, SERVED_TOKENS, READS = 2, 240, 8
GIVER, READER = 11, 12  # by number in the network
BURST = "256kb"         # of a link: more than one packet of 64 KiB, which the kernel would otherwise cut
TALK = " ".join(f"On day {i} the keeper of lighthouse {i * 7 % 90} counted {i * 13 % 50} ships." for i in range(128))


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures a cluster on one machine.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--shape", default="smollm2-135m", help="of the random model")
    parser.add_argument("--conversations", type=int, default=16, help="of the policies'")
    parser.add_argument("--turns", type=int, default=5, help="of each of them")
    parser.add_argument("--clients", type=int, default=4, help="that ask at the same time")
    parser.add_argument("--link", metavar="RATE", help="of the turn's: bits a second in tc's words, as 10gbit")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    return parser.parse_args()


class Loopback:
    """In a Network's place: everybody is reached at the loopback device."""

    @staticmethod
    def place(_number):
        return HERE

    @staticmethod
    def inside(_number):
        return contextlib.nullcontext()


@contextlib.contextmanager
def joined(rate):
    """The network of a giver and a reader, whose link has this rate; None: the loopback device."""
    if rate is None:
        yield Loopback()
        return
    with Network() as network:
        expect(network.why_not is None, f"--link needs the right to make namespaces of the network: {network.why_not}")
        network.place(READER)
        network.limit(READER, rate, BURST)
        yield network


def stream_ms(network, size):
    """Until so many bytes have come over a TCP connection from the giver's place to the reader's."""
    with network.inside(GIVER):
        listener = socket.create_server((network.place(GIVER).host, 0))

    def give():
        connection, _ = listener.accept()
        with connection:
            connection.sendall(bytes(size))
    with listener:
        threading.Thread(target=give, daemon=True).start()
        begin = time.monotonic()
        with network.inside(READER):
            connection = socket.create_connection(listener.getsockname())
        return received_ms(connection, size, begin)


def redis_ms(network, redis, size):
    """Until one connection has read as many bytes of values as they lie in the store."""
    names = redis.names()
    each = int(redis.ask("STRLEN", names[0])[1:-2])
    names = (names * (size // (each * len(names)) + 1))[:max(1, size // each)]
    begin = time.monotonic()
    with network.inside(READER):
        connection = redis.connect()
    connection.sendall(b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names))
    return received_ms(connection, len(names) * each, begin)


def received_ms(connection, size, begin):
    """Since `begin`, until so many bytes have come; closes the connection."""
    buffer, got = bytearray(1 << 20), 0
    with connection:
        while got < size:
            count = connection.recv_into(buffer)
            expect(count > 0, f"the connection ended after {got} of {size} bytes")
            got += count
    return (time.monotonic() - begin) * 1000


def processor_ms(process):
    """What its threads have used so far."""
    used = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/task/{task}/schedstat", encoding="ascii") as file:
            used += int(file.read().split()[0])
    return used / 1e6


def iperf3_rate():
    """MiB/s of one connection over the loopback device, for a second."""
    port = str(free_port())
    with subprocess.Popen(["iperf3", "--server", "--one-off", "--port", port, "--forceflush"], stdout=subprocess.PIPE, text=True) as server:
        for line in server.stdout:
            if "listening" in line:
                break
        try:
            told = json.loads(run(["iperf3", "--client", "127.0.0.1", "--port", port, "--time", 1, "--json"]))
        except BaseException:
            server.kill()  # it waits for a client
            raise
        server.stdout.read()
    return told["end"]["sum_received"]["bits_per_second"] / 8 / 2**20


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.binary = arguments, folder, str(arguments.build / "loci")
        self.model = os.path.join(folder, "model.gguf")
        subprocess.run([str(arguments.build / "loci-random-model"), self.model, "--shape", arguments.shape], check=True, stdout=subprocess.DEVNULL)

    def cluster(self, name, postgres, flags):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        return Cluster(self.binary, self.model, folder, postgres, flags)

    # --- the next turn elsewhere ---

    def turn(self, source):
        """`source`: peer or redis."""
        flags = ("--threads", str(os.cpu_count()), "--context", "6000", "--device-memory", "256MiB", "--store", "", "--disk", "none")
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(joined(self.arguments.link))
            if source == "peer":
                cluster = self.cluster("turn", stack.enter_context(Postgres()), flags)
                redis = None

                def start(number):
                    return cluster.server(place=network.place(number))
            else:
                place = network.place(GIVER)
                with network.inside(GIVER):  # where it finds a free port
                    redis = Redis(self.folder, place=place).start()
                stack.callback(redis.kill)
                secret = os.path.join(self.folder, "shared.secret")
                subprocess.run([self.binary, "keys", "cluster", secret], check=True, stdout=subprocess.DEVNULL)

                def start(number):
                    return Server(self.binary, self.model, *flags, "--cluster-secret", secret, "--shared", redis.url, place=network.place(number))
            one = stack.enter_context(start(GIVER))
            first_token_ms(one, TALK)
            wait_saved(one)
            return [self.one_turn(network, one, start, redis, number) for number in range(self.arguments.rounds)]

    @staticmethod
    def one_turn(network, one, start, redis, number):
        text = f"{TALK} And then they slept for {number} days."
        with start(READER) as other:
            first_token_ms(other, "A word first, of the model's pages.")
            if redis is None:
                wait_until(lambda: other.metrics().get('loci_peers{state="up"}') == 1, "it knows its peer")
            ends = redis.process if redis else one.process, other.process
            before = [processor_ms(end) for end in ends]
            took, tokens = first_token_ms(other, text)
            giver, reader = (processor_ms(end) - used for end, used in zip(ends, before))
            size = int(moved(other, "shared_load"))
        plain = redis_ms(network, redis, size) if redis else stream_ms(network, size)
        here = first_token_ms(one, f"{TALK} And then the storm came {number} times.")[0]
        return {"first token, ms": took, "plain transfer, ms": plain, "where it is, ms": here, "wanted, ms": 1.2 * max(plain, here) + 30,
                "processor ms, who gives": giver, "processor ms, who reads": reader, "MiB": size / 2**20,
                "tokens that came": tokens["shared"], "tokens that were computed": tokens["computed"]}

    # --- how fast a peer gives ---

    def link(self, number):
        """A round; iperf3, where it is installed, in turns before the program and behind it."""
        has_iperf3 = shutil.which("iperf3") is not None
        stream = iperf3_rate() if has_iperf3 and number % 2 == 0 else None
        said = run([self.arguments.build / "peers_benchmark"])
        stream = iperf3_rate() if has_iperf3 and stream is None else stream
        plain, *shares = map(float, re.search(r"plain TCP (\d+) MiB/s; a peer gives ([\d.]+) of it unencrypted, ([\d.]+) encrypted", said).groups())
        rates = [[float(rate) for rate in row] for row in re.findall(r"^ +\d+ +(\d+) +(\d+) +(\d+)$", said, re.M)]
        found = {"plain TCP, MiB/s": plain}
        for arm, share, column in zip(("unencrypted", "encrypted"), shares, (1, 2)):
            found[f"{arm}, MiB/s"] = statistics.median(row[column] for row in rates)
            found[f"{arm}, of plain TCP"] = share
            if stream is not None:
                found[f"{arm}, of iperf3"] = found[f"{arm}, MiB/s"] / stream
        work = re.search(r"plain TCP ([\d.]+) s, unencrypted ([\d.]+) s, encrypted ([\d.]+) s", said).groups()
        return found | ({} if stream is None else {"iperf3, MiB/s": stream}) | {
            f"processor s for a GiB, {arm}": float(seconds) for arm, seconds in zip(("plain TCP", "unencrypted", "encrypted"), work)}

    # --- what serving peers costs ---

    def serving(self, postgres, number):
        """A round: replies beside reads of a peer, and beside the same prompts at a peer that has their state. In turns."""
        flags = ("--threads", "1", "--context", "4096", "--device-memory", "768MiB", "--disk", "none", "--store", "")
        place = self.cluster(f"serving{number}", postgres, flags)
        found = {}
        with contextlib.ExitStack() as stack:
            # The other one has what time is left of the processors: its own work is none of the first one's.
            one = stack.enter_context(place.server())
            other = stack.enter_context(place.server(place=Place("127.0.0.1", ["nice", "-n", "19"])))
            wait_until(lambda: other.metrics().get('loci_peers{state="up"}') == 1, "it knows its peer")
            for arm in ("alone", "serving")[::1 if number % 2 == 0 else -1]:
                prompts = [story(number, f"{arm}, {i}") for i in range(READS)]
                for prompt in prompts:
                    first_token_ms(one, prompt)
                    if arm == "alone":
                        first_token_ms(other, prompt)
                gaps, shared = self.replies_beside(one, other, prompts, f"{arm} {number}")
                found[arm] = {"p50": statistics.median(gaps), "p99": gaps[int(0.99 * (len(gaps) - 1))], "shared": shared}
        expect(found["alone"]["shared"] == 0 < found["serving"]["shared"], f"who read state of whom: {found}")
        return {"between tokens, p50, ms": found["serving"]["p50"], "between tokens, p99, ms": found["serving"]["p99"],
                "p99 without reads, ms": found["alone"]["p99"], "p99, times": found["serving"]["p99"] / found["alone"]["p99"],
                "p50, times": found["serving"]["p50"] / found["alone"]["p50"], "tokens that were read": found["serving"]["shared"]}

    @staticmethod
    def replies_beside(one, other, prompts, name):
        """The times between tokens of replies of one, sorted, and how many tokens' state the other one read of the prompts meanwhile."""
        gaps, shared, is_over = [], [], threading.Event()

        def reply(which):
            while not is_over.is_set():
                times = token_times(one, f"Reply {which} of {name}.", SERVED_TOKENS)[2:]
                gaps.extend((later - earlier) * 1000 for earlier, later in zip(times, times[1:]))
        replies = [threading.Thread(target=reply, args=(which,), daemon=True) for which in range(SERVED)]
        for thread in replies:
            thread.start()
        time.sleep(0.5)
        for prompt in prompts:
            shared.append(first_token_ms(other, prompt + " And then?")[1]["shared"])
            time.sleep(0.2)
        is_over.set()
        for thread in replies:
            thread.join()
        return sorted(gaps), sum(shared)

    # --- what a front adds ---

    def front(self):
        said = re.findall(r"adds (-?[\d.]+) ms at the median, (-?[\d.]+) ms at p99", run([self.arguments.build / "front_benchmark"]))
        return [{"added at the median, ms": float(said[0][0]), "added at p99, ms": float(said[0][1])}]

    # --- policies ---

    def policies(self, postgres, number):
        """A round: one instance, then a cluster by each policy, the same conversations."""
        found = {"one instance": self.alone(number)}
        for policy in POLICIES:
            place = self.cluster(f"{policy}{number}", postgres, self.instance_flags(1))
            with contextlib.ExitStack() as stack:
                for _ in range(INSTANCES):
                    stack.enter_context(place.server())
                fronts = [stack.enter_context(place.front("--policy", policy)) for _ in range(FRONTS)]
                for front in fronts:
                    front.wait_for(INSTANCES)
                found[policy] = self.converse(fronts, number)
                found[policy]["reused, of one instance's"] = found[policy]["reused"] / found["one instance"]["reused"]
        return found

    def alone(self, number):
        with Server(self.binary, self.model, *self.instance_flags(INSTANCES)) as server:
            found = self.converse([server], number)
            wait_idle(server)
            return found

    # --- prompts and replies on separate servers ---

    def roles(self, postgres, number, roles):
        flags = ("--threads", "1", "--context", "4096", "--device-memory", "256MiB", "--disk", "none", "--store", "")
        place = self.cluster(f"{roles[0]}{number}", postgres, flags)
        with contextlib.ExitStack() as stack:
            members = [stack.enter_context(place.server("--role", role)) for role in roles]
            front = stack.enter_context(place.front())
            wait_until(lambda: front.metrics()['loci_front_feeds{state="read"}'] == len(roles), "the front reads what they have")
            for member in members:
                wait_until(lambda: member.metrics().get('loci_peers{state="up"}') == 1, "they know each other")  # noqa: B023
                first_token_ms(member, "A word first, of the model's pages.")
            gaps, first = [], []

            def reply(name):
                times = token_times(front, f"Reply {name} of round {number}.")[2:]  # behind its beginning
                gaps.extend((later - earlier) * 1000 for earlier, later in zip(times, times[1:]))
            replies = [threading.Thread(target=reply, args=(name,), daemon=True) for name in range(REPLIES)]
            for one in replies:
                one.start()
            time.sleep(0.5)
            for name in range(PROMPTS):
                first.append(first_token_ms(front, "".join(story(number, f"{name}, part {part}") for part in range(3)))[0])
            for one in replies:
                one.join()
            gaps.sort()
            return {"between tokens, mean, ms": statistics.mean(gaps), "between tokens, p95, ms": gaps[int(0.95 * (len(gaps) - 1))],
                    "between tokens, most, ms": gaps[-1], "first token of a prompt, ms": statistics.median(first),
                    "prompts handed over": front.metrics()['loci_front_prefills_total{result="done"}']}

    @staticmethod
    def instance_flags(share):
        return ("--threads", str(os.cpu_count() if share > 1 else 1), "--context", "4096", "--device-memory", f"{48 * share}MiB", "--disk", "none",
                "--store", "")

    def converse(self, servers, number):
        """All turns of all conversations, the turns of one in order, by several clients."""
        draw = random.Random(number)
        waiting = [{"name": i, "text": story(number, i), "turn": 0} for i in range(self.arguments.conversations)]
        lock, times, prompts, cached = threading.Lock(), [], [], []

        def ask():
            mine = random.Random(draw.random())
            while True:
                with lock:
                    if not waiting:
                        return
                    talk = waiting.pop(mine.randrange(len(waiting)))
                talk["text"] += f"\nTurn {talk['turn']}: and what did they say about it the day after? "
                took, tokens = first_token_ms(mine.choice(servers), talk["text"])
                talk["turn"] += 1
                with lock:
                    times.append(took)
                    prompts.append(sum(tokens.values()))
                    cached.append(sum(tokens.values()) - tokens["computed"])
                    if talk["turn"] < self.arguments.turns:
                        waiting.append(talk)
        clients = [threading.Thread(target=ask, daemon=True) for _ in range(self.arguments.clients)]
        begin = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        times.sort()
        return {"p50, ms": statistics.median(times), "p99, ms": times[int(0.99 * (len(times) - 1))], "reused": sum(cached) / sum(prompts),
                "requests": len(times), "seconds": time.monotonic() - begin}


def token_times(server, text, tokens=REPLY_TOKENS):
    """When each piece of a reply came."""
    connection = server.send("/v1/completions", {"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True})
    times = []
    while piece := connection.recv(65536):
        times.append(time.monotonic())
        del piece
    connection.close()
    return times


def story(number, name):
    draw = random.Random(f"{number}/{name}")
    return f"Conversation {name} of round {number}. " + " ".join(
        f"On day {i} the keeper of lighthouse {draw.randrange(90)} counted {draw.randrange(50)} ships." for i in range(30))


def medians(rounds):
    """Of each figure, with the least and the most."""
    return {name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
            for name in rounds[0] for values in [[one[name] for one in rounds]]}


def tell(title, figures):
    print(f"\n{title}")
    for name, one in figures.items():
        print(f"  {name:<28} {one['median']:>10.3f}   ({one['least']:.3f} to {one['most']:.3f})", flush=True)


def main():
    arguments = parse_arguments()
    wanted = arguments.only or PARTS
    results, load = {}, os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="loci_bench_") as folder:
        bench = Bench(arguments, folder)
        if "turn" in wanted:
            for source in ("peer", "redis"):
                results[f"turn, {source}"] = medians(bench.turn(source))
                tell(f"The next turn on another instance, from {source}", results[f"turn, {source}"])
        if "link" in wanted:
            results["link"] = medians([bench.link(number) for number in range(arguments.rounds)])
            tell("State from a peer, over this machine's loopback", results["link"])
        if "serving" in wanted:
            with Postgres() as postgres:
                results["serving"] = medians([bench.serving(postgres, number) for number in range(arguments.rounds)])
            tell("Replies while a peer reads state", results["serving"])
        if "front" in wanted:
            results["front"] = medians(bench.front())
            tell("What a front adds", results["front"])
        if "roles" in wanted:
            with Postgres() as postgres:
                rounds = [{" and ".join(roles): bench.roles(postgres, number, roles) for roles in (("both", "both"), ("prefill", "decode"))}
                          for number in range(arguments.rounds)]
            for name in rounds[0]:
                results[f"roles, {name}"] = medians([one[name] for one in rounds])
                tell(f"Replies while prompts come, members of role {name}", results[f"roles, {name}"])
        if "policies" in wanted:
            with Postgres() as postgres:
                rounds = [bench.policies(postgres, number) for number in range(arguments.rounds)]
            for name in rounds[0]:
                results[f"policies, {name}"] = medians([one[name] for one in rounds])
                tell(f"Conversations over {FRONTS} fronts and {INSTANCES} instances: {name}", results[f"policies, {name}"])
    settings = {key: str(value) for key, value in vars(arguments).items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"settings": settings, "commit": commit(), "machine": processor(),
                                   "load_before": load, "results": results}, indent=1), encoding="utf-8")
    print(f"\nThe machine's load before was {load:.1f}. Written to {RESULTS.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
