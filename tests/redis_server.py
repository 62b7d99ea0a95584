# SPDX-License-Identifier: Apache-2.0
"""A redis-server of a suite's own, ended with the suite."""
import contextlib
import signal
import socket
import ssl
import subprocess

from live_client import HERE, wait_until


class Redis:
    """Where no port is named it takes a free one."""

    ready = b"+PONG"

    def __init__(self, folder, *flags, place=HERE, port=0):
        self.folder, self.flags, self.place, self.port, self.process = str(folder), flags, place, port, None
        if not port:
            with socket.socket() as free:
                free.bind((place.host, 0))
                self.port = free.getsockname()[1]

    @property
    def url(self):
        return f"redis://{self.place.host}:{self.port}"

    def start(self):
        self.process = subprocess.Popen([*self.place.enter, "redis-server", "--port", str(self.port), "--bind", self.place.host, "--save", "",
                                         "--appendonly", "no", "--protected-mode", "no", "--dir", self.folder, *self.flags],
                                        stdout=subprocess.DEVNULL)
        wait_until(self.answers, "redis-server answers")
        return self

    def answers(self):
        with contextlib.suppress(OSError):
            return self.ask("PING").startswith(self.ready)
        return False

    def connect(self):
        return socket.create_connection((self.place.host, self.port), timeout=20)

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
            self.process.wait(20)
            self.process = None


class TlsRedis(Redis):
    """The same, which speaks TLS alone."""

    def __init__(self, folder, certificate, key):
        super().__init__(folder)
        self.flags = ("--port", "0", "--tls-port", str(self.port), "--tls-cert-file", certificate, "--tls-key-file", key,
                      "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")
        self.trust = ssl.create_default_context(cafile=certificate)

    @property
    def url(self):
        return f"rediss://{self.place.host}:{self.port}"

    def connect(self):
        return self.trust.wrap_socket(super().connect(), server_hostname=self.place.host)
