# SPDX-License-Identifier: Apache-2.0
"""A link between two programs that delays, cuts, changes, repeats or reorders bytes, as it is told."""
import contextlib
import socket
import threading
import time

MEDDLED_BYTES = 200  # pieces of more than so many bytes are damaged: a damaged state, not a refused greeting
HELD_SECONDS = 0.05  # how long a piece waits for the one that overtakes it


def flipped(data):
    return data[:100] + bytes([data[100] ^ 1]) + data[101:] if len(data) > MEDDLED_BYTES else data


class BadLink:
    """Listens, and passes what comes on to `to` (host, port), and the answers back. `mode` says what becomes of the answers:

    pass, slow (10 ms a piece), flip (one bit), garbage (before each piece), cut (after 150 bytes), silent (nothing comes, until
    the mode is another), repeat (each piece twice), reorder (each piece behind the next one).

    With both_ways also what is asked is treated so.
    """

    def __init__(self, to, host="127.0.0.1", port=0, both_ways=False):
        self.to, self.mode, self.both_ways, self.is_closed = to, "pass", both_ways, False
        self.listener = socket.create_server((host, port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(self.to, timeout=60)
                except OSError:
                    near.close()
                    continue
                for source, target, answers in ((near, far, False), (far, near, True)):
                    source.settimeout(None)
                    threading.Thread(target=self.carry, args=(source, target, answers), daemon=True).start()

    def carry(self, source, target, answers):
        held = b""
        with contextlib.suppress(OSError):
            while True:
                source.settimeout(HELD_SECONDS if held else None)
                try:
                    data = source.recv(1 << 16)
                except TimeoutError:
                    data, held = held, b""
                    target.sendall(data)
                    continue
                if not data:
                    break
                while self.mode == "silent" and not self.is_closed:
                    time.sleep(0.02)
                mode = self.mode if answers or self.both_ways else "pass"
                if mode == "reorder" and not held:
                    held = data
                    continue
                if mode == "cut" and len(data) > MEDDLED_BYTES:
                    target.sendall(data[:150])
                    break
                target.sendall(self.changed(mode, data) + held)
                held = b""
        with contextlib.suppress(OSError):
            target.sendall(held)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def changed(mode, data):
        if mode == "slow":
            time.sleep(0.01)
        if mode == "flip":
            return flipped(data)
        if mode == "garbage":
            return b"\xff\x00garbage\r\n$-5\r\n" + data
        return data * 2 if mode == "repeat" else data

    def close(self):
        self.mode, self.is_closed = "pass", True
        self.listener.close()
