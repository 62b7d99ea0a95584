# SPDX-License-Identifier: Apache-2.0
"""A redis-server of a suite's own, ended with the suite."""
import contextlib
import random
import signal
import socket
import ssl
import subprocess

from live_client import HERE, expect, wait_until


def free_port(host="127.0.0.1", above=0):
    """A port that nobody listens on, nor on the one so far above it. The system gives neither to a connection meanwhile, as it does
    with those above 32,767."""
    while True:
        port = random.randrange(10000, 22000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind((host, port))
            if above:
                other.bind((host, port + above))
            return port


class Redis:
    """Where no port is named it takes a free one."""

    ready = b"+PONG"

    def __init__(self, folder, *flags, place=HERE, port=0):
        self.folder, self.flags, self.place, self.process = str(folder), flags, place, None
        self.port, self.may_move = port or free_port(place.host), not port  # until it has run once

    @property
    def url(self):
        return f"redis://{self.place.host}:{self.port}"

    def ports(self):
        """What its command says of them."""
        return "--port", str(self.port)

    def start(self):
        for _ in range(10):
            self.process = subprocess.Popen([*self.place.enter, "redis-server", *self.ports(), "--bind", self.place.host, "--save", "",
                                             "--appendonly", "no", "--protected-mode", "no", "--dir", self.folder, *self.flags],
                                            stdout=subprocess.DEVNULL)
            wait_until(lambda: self.answers() or self.process.poll() is not None, "redis-server answers")
            if self.process.poll() is None:
                self.may_move = False
                return self
            expect(self.may_move, f"redis-server ended: {self.process.returncode}")
            self.port = free_port(self.place.host)  # somebody else took the other one
        raise AssertionError(f"redis-server ended at each of ten starts: {self.process.returncode}")

    def answers(self):
        with contextlib.suppress(OSError):
            return self.ask("PING").startswith(self.ready)
        return False

    def connect(self):
        return socket.create_connection((self.place.host, self.port), timeout=120)

    def ask(self, *words):
        """The begin of the reply to one command."""
        with self.connect() as connection:
            data = b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else word.encode()
                data += b"$%d\r\n%s\r\n" % (len(word), word)
            connection.sendall(data)
            return connection.recv(1 << 20)

    def names(self):
        return [line for line in self.ask("KEYS", "*").split(b"\r\n") if line.startswith(b"loci:")]

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(120)
            self.process = None


class TlsRedis(Redis):
    """The same, which speaks TLS alone."""

    def __init__(self, folder, certificate, key):
        super().__init__(folder)
        self.flags = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")
        self.trust = ssl.create_default_context(cafile=certificate)

    def ports(self):
        return "--port", "0", "--tls-port", str(self.port)

    @property
    def url(self):
        return f"rediss://{self.place.host}:{self.port}"

    def connect(self):
        return self.trust.wrap_socket(super().connect(), server_hostname=self.place.host)
