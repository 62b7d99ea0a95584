# SPDX-License-Identifier: Apache-2.0
"""HTTPS as clients see it. The openssl command makes the certificates; the model is a tiny random one."""
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from http_abuse_test import ANSWER_SECONDS_MAX, Bystander, connect, gauges, read_to_end, send_what_goes
from live_client import Server, Workplace, chat_body, expect, expect_equal, greedy, stream_events, wait_until

HEADER_TIMEOUT_SECONDS = 2
STALLED = 300
CHAT = "/v1/chat/completions"
CURVE, RSA = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), ("rsa:2048",)
IDLE_CONNECTIONS = 800
BYTES_OF_A_CONNECTION_MAX = 160 << 10


class TlsWorkplace(Workplace):
    """With certificates."""

    def certificate(self, name, subject="IP:127.0.0.1", kind=CURVE):
        """A certificate that signs itself, and its key: two paths."""
        paths = [self.path(name + ending) for ending in (".pem", ".key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
                        f"subjectAltName={subject}", "-out", paths[0], "-keyout", paths[1]], check=True, stderr=subprocess.DEVNULL)
        return paths

    def server(self, certificate, key, *flags):
        return Server(self.binary, self.model, "--threads", "1", "--device-memory", "64MiB", "--context", "512", "--tls-cert",
                      certificate, "--tls-key", key, *flags)


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory):
    return TlsWorkplace(binary, tiny_model, str(tmp_path_factory.mktemp("tls")))


def test_wrong_files_end_the_start(place):
    certificate, key = place.certificate("start")
    other = place.certificate("other")[1]
    missing = os.path.join(place.folder, "missing.pem")
    for flags, parts in ((("--tls-cert", certificate), ("--tls-key", "the option tls_cert needs the key")),
                         (("--tls-key", key), ("--tls-cert", "the option tls_key needs the certificate")),
                         (("--tls-cert", missing, "--tls-key", key), ("--tls-cert", missing, "is not there")),
                         (("--tls-cert", certificate, "--tls-key", place.folder), ("--tls-key", place.folder, "cannot be read")),
                         (("--tls-cert", key, "--tls-key", key), ("--tls-cert", key, "PEM")),
                         (("--tls-cert", certificate, "--tls-key", other), ("--tls-key", other, certificate, "is not the key"))):
        ended = place.command("serve", place.model, "--port", "0", "--disk", "none", "--store", "", *flags)
        expect_equal(ended.returncode, 1, f"exit code of {flags}")
        for part in parts:
            expect(part in ended.stderr, f"{flags}: {part!r} in {ended.stderr!r}")


def test_the_same_replies_as_over_http(place):
    body = greedy("Say something", max_tokens=12)
    with Server(place.binary, place.model, "--threads", "1") as plain:
        wanted = plain.post(CHAT, body).json["choices"][0]["message"]["content"]
    for kind in (CURVE, RSA):
        with place.server(*place.certificate("same", kind=kind)) as server:
            expect(server.url.startswith("https://"), server.url)
            expect("--tls-cert" in server.banner, server.banner)
            expect_equal(server.post(CHAT, body).json["choices"][0]["message"]["content"], wanted, "the reply")
            events = stream_events(server.send(CHAT, {**body, "stream": True}))
            text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
            expect_equal(text, wanted, "the streamed reply")


def test_our_commands_speak_https(place):
    certificate, key = place.certificate("commands")
    stranger = place.certificate("stranger")[0]
    with place.server(certificate, key) as server:
        commands = {"chat": (["chat", server.url, "--max-tokens", "4", "--temperature", "0"], "Hello\n"),
                    "bench": (["bench", server.url, "--conversations", "2", "--turns", "2", "--max-tokens", "4", "--warmup", "0"], ""),
                    "warm": (["warm", "--list", "--url", server.url], "")}
        for name, (words, text) in commands.items():
            trusted = place.command(*words, "--tls-ca", certificate, text=text)
            expect_equal(trusted.returncode, 0, f"exit code of {name}: {trusted.stderr}")
            # Another's certificate, or none that the system knows.
            for authorities in (["--tls-ca", stranger], []):
                refused = place.command(*words, *authorities, text=text)
                expect(refused.returncode != 0, f"{name} trusts a stranger")
                expect("is not trusted" in refused.stderr and "tls_ca" in refused.stderr, f"{name}: {refused.stderr}")
            wrong = place.command(*words, "--tls-ca", os.path.join(place.folder, "nowhere"), text=text)
            expect(wrong.returncode != 0 and "--tls-ca" in wrong.stderr and "nowhere" in wrong.stderr, f"{name}: {wrong.stderr}")
    # The right authority, another name.
    certificate, key = place.certificate("elsewhere", subject="DNS:elsewhere.example")
    with Server(place.binary, place.model, "--threads", "1", "--tls-cert", certificate, "--tls-key", key) as server:
        refused = place.command("chat", server.url, "--tls-ca", certificate, text="Hello\n")
        expect(refused.returncode != 0 and "mismatch" in refused.stderr, refused.stderr)
        # Plain to a port that speaks TLS, and the other way round.
        plain = place.command("chat", server.url.replace("https", "http"), text="Hello\n")
        expect(plain.returncode != 0 and "https" in plain.stderr, plain.stderr)
    with Server(place.binary, place.model, "--threads", "1") as server:
        secured = place.command("chat", server.url.replace("http", "https"), "--tls-ca", certificate, text="Hello\n")
        expect(secured.returncode != 0 and "no TLS with" in secured.stderr, secured.stderr)


def test_a_renewed_certificate_is_shown_without_a_restart(place):
    certificate, key = place.certificate("renewed")
    first = ssl.PEM_cert_to_DER_cert(open(certificate, encoding="ascii").read())
    with place.server(certificate, key) as server:
        def shown():
            loose = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(("127.0.0.1", server.port)) as raw, loose.wrap_socket(raw) as connection:
                return connection.getpeercert(binary_form=True)

        expect_equal(shown(), first, "the certificate at the start")
        fresh = place.certificate("fresh")
        # Damage first: nothing changes.
        with open(certificate, "w", encoding="ascii") as file:
            file.write("-----BEGIN CERTIFICATE-----\n")
        told = re.compile(r"the certificate stays as it was: tls_cert: .*renewed\.pem")
        wait_until(lambda: told.search(server.log_text()), "the damage is told")
        expect_equal(shown(), first, "the certificate after damage")
        for new, old in zip(fresh, (certificate, key)):
            shutil.copy(new, old)
        wanted = ssl.PEM_cert_to_DER_cert(open(fresh[0], encoding="ascii").read())
        wait_until(lambda: shown() == wanted, "the new certificate is shown")


def test_a_client_that_leaves_is_noticed(place):
    with place.server(*place.certificate("leaves")) as server:
        before = server.metrics()["loci_client_disconnects_total"]
        for ending in ("unwrap", "close"):
            # Log-probabilities make more output than the sockets' buffers hold, so that it runs until the client leaves.
            body = chat_body("Go on", n=8, max_tokens=400, ignore_eos=True, logprobs=True, top_logprobs=20, stream=True)
            connection = server.send(CHAT, body, receive_buffer=4096)
            connection.recv(100)
            if ending == "unwrap":  # a close_notify, with data of ours still on its way
                connection.settimeout(1)
                try:
                    connection.unwrap()
                except (OSError, ValueError):
                    pass
            connection.close()
            before += 1
            wait_until(lambda: server.metrics()["loci_client_disconnects_total"] >= before, f"{ending} is noticed")


@pytest.mark.measures
def test_what_a_connection_costs(place):
    """Memory and processor's time of the server for each of many idle connections. Printed; the memory is bounded."""
    def spent(server):
        with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
            ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        return resident, ticks / os.sysconf("SC_CLK_TCK")

    for kind in (CURVE, RSA):
        with place.server(*place.certificate("cost", kind=kind), "--max-connections", "1000", "--header-timeout", "300s") as server:
            server.post(CHAT, greedy("Hello", max_tokens=4))
            before = spent(server)
            connections = [server.tls.wrap_socket(connect(server), server_hostname="127.0.0.1") for _ in range(IDLE_CONNECTIONS)]
            wait_until(lambda: server.metrics()["loci_http_connections"] == IDLE_CONNECTIONS + 1, "all are open")
            held, seconds = [(after - first) / IDLE_CONNECTIONS for after, first in zip(spent(server), before)]
            print(f"      {kind[0]}: a connection takes {held / 1024:.0f} KiB and {seconds * 1000:.2f} ms of the processor")
            expect(held < BYTES_OF_A_CONNECTION_MAX, f"{held / 1024:.0f} KiB a connection")
            for connection in connections:
                connection.close()


def client_hello():
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = context.wrap_bio(incoming, outgoing)
    try:
        half.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def garbage_handshakes(server):
    chance = random.Random(7)
    hello = client_hello()
    for turn in range(400):
        kind = turn % 5
        if kind == 0:
            data = chance.randbytes(chance.randrange(1, 3000))
        elif kind == 1:  # changed in a few places
            changed = bytearray(hello)
            for _ in range(chance.randrange(1, 8)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            data = bytes(changed)
        elif kind == 2:
            data = hello[:chance.randrange(1, len(hello))]
        elif kind == 3:  # whole, and then anything
            data = hello + chance.randbytes(chance.randrange(1, 500))
        else:
            data = hello + hello
        with connect(server) as connection:
            try:
                connection.sendall(data)
                if turn % 2:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:  # reset: the other end was first
                continue
            if turn % 2:
                read_to_end(connection)


def stalled_handshakes(server):
    hello = client_hello()
    connections = [connect(server) for _ in range(STALLED)]
    for at, connection in enumerate(connections):
        send_what_goes(connection, hello[:at % len(hello)])
    for connection in connections:
        read_to_end(connection)


def byte_by_byte(server):
    """A hello that keeps coming: the time is that of the whole handshake."""
    connection = connect(server)
    for byte in client_hello():
        if not send_what_goes(connection, bytes([byte])):
            break
        time.sleep(0.05)
    else:
        raise AssertionError("a slow handshake went on to the hello's end")
    connection.close()


def secured(server):
    """A connection behind its handshake; one that a busy machine made too slow for the server's limit is begun anew."""
    for _ in range(10):
        try:
            return server.tls.wrap_socket(connect(server), server_hostname="127.0.0.1")
        except (ConnectionError, ssl.SSLError) as error:
            failed = repr(error)
    raise AssertionError(f"ten handshakes failed, the last one: {failed}")


def garbage_inside(server):
    chance = random.Random(9)
    for _ in range(40):
        connection = secured(server)
        try:
            connection.sendall(chance.randbytes(chance.randrange(1, 40000)))
            while connection.recv(65536):
                pass
        except (ConnectionError, ssl.SSLError):
            pass
        connection.close()
        # Past TLS, into the middle of a secured connection.
        connection = secured(server)
        with socket.socket(fileno=os.dup(connection.fileno())) as raw:
            send_what_goes(raw, chance.randbytes(500))
        connection.close()


def test_hostile_clients(place, pytestconfig):
    with place.server(*place.certificate("hostile"), "--header-timeout", f"{HEADER_TIMEOUT_SECONDS}s", "--log-level",
                      "warn") as server:
        for attack in (garbage_handshakes, stalled_handshakes, byte_by_byte, garbage_inside):
            begin = time.monotonic()
            with Bystander(server, HEADER_TIMEOUT_SECONDS) as bystander:
                attack(server)
            if pytestconfig.getoption("--measure"):
                expect(bystander.longest < ANSWER_SECONDS_MAX, f"an honest client waited for {bystander.longest:.1f} s")
                expect(attack not in (stalled_handshakes, byte_by_byte) or time.monotonic() - begin < HEADER_TIMEOUT_SECONDS + 5,
                       f"{attack.__name__} ends in time")
            expect(server.process.poll() is None, f"the server lives after {attack.__name__}")
            wait_until(lambda: gauges(server, "loci_http_connections") == [1], f"no connection is left after {attack.__name__}")
        wait_until(lambda: (gauges(server, "loci_tls_handshake_failures_total") or [0])[0] >= STALLED, "failures are counted")
