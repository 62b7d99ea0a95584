# SPDX-License-Identifier: Apache-2.0
"""Network namespaces joined by a bridge, each for one process of a cluster; without the right to make them, addresses of the
loopback device. Nothing of it is seen outside, and the kernel removes it with the test's process, however that ends."""
import contextlib
import ctypes
import os
import subprocess

from live_client import Place

CLONE_NEWNET = 0x40000000
BRIDGE = "cluster"


def libc_call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def run(*words):
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def this_namespace():
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Network:
    """A context: meanwhile this thread, and threads and processes that it starts, are in the bridge's namespace."""

    def __init__(self):
        self.home = self.hub = None
        self.why_not = None  # why there are no namespaces; None: there are
        self.places = {}     # by number: the namespace's descriptor, the place

    def __enter__(self):
        self.home = this_namespace()
        try:
            libc_call("unshare", CLONE_NEWNET)
            self.hub = this_namespace()
            run("ip", "link", "set", "lo", "up")
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "addr", "add", self.host(1) + "/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            self.place(254)  # can there be others?
        except OSError as error:
            self.why_not = str(error)
            self.leave()
        return self

    def leave(self):
        if self.hub is not None:
            libc_call("setns", self.home, CLONE_NEWNET)

    def __exit__(self, *_):
        self.leave()
        for one in (self.home, self.hub, *(namespace for namespace, _ in self.places.values())):
            if one is not None:
                os.close(one)

    def host(self, number):
        return f"10.9.0.{number}" if self.why_not is None else f"127.9.0.{number}"

    def place(self, number):
        """Where what runs is reached at host(number), 2 to 254. The bridge itself, where the test is, is host(1)."""
        if self.why_not is not None:
            return Place(self.host(number))
        if number in self.places:
            return self.places[number][1]
        libc_call("unshare", CLONE_NEWNET)
        try:
            namespace = this_namespace()
        finally:
            libc_call("setns", self.hub, CLONE_NEWNET)
        place = Place(self.host(number), ["nsenter", f"--net={self.path(namespace)}", "--"])
        self.places[number] = namespace, place
        run("ip", "link", "add", f"veth{number}", "type", "veth", "peer", "name", "eth0", "netns", self.path(namespace))
        run("ip", "link", "set", f"veth{number}", "master", BRIDGE, "up")
        run(*place.enter, "ip", "link", "set", "lo", "up")
        run(*place.enter, "ip", "addr", "add", self.host(number) + "/24", "dev", "eth0")
        run(*place.enter, "ip", "link", "set", "eth0", "up")
        return place

    @contextlib.contextmanager
    def inside(self, number):
        """Meanwhile this thread is in that place's namespace; a socket stays where it was made."""
        libc_call("setns", self.places[number][0], CLONE_NEWNET)
        try:
            yield
        finally:
            libc_call("setns", self.hub, CLONE_NEWNET)

    @staticmethod
    def path(namespace):
        return f"/proc/{os.getpid()}/fd/{namespace}"

    @staticmethod
    def link(number, state):
        """`down`: nothing reaches that place, and nothing leaves it; `up` again."""
        run("ip", "link", "set", f"veth{number}", state)

    def limit(self, number, rate, burst="32kbit"):
        """What goes to and from that place takes its time: so many bits a second (tc's words); None: no more. `burst`: what may go at once."""
        for enter, device in (([], f"veth{number}"), (self.places[number][1].enter, "eth0")):
            if rate is None:
                run(*enter, "tc", "qdisc", "del", "dev", device, "root")
            else:
                run(*enter, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "400ms")
