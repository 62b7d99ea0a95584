# SPDX-License-Identifier: Apache-2.0
"""A store that servers share: a real redis-server, and what may become of it (docs/shared-store.md)."""
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import time

import pytest

from bad_link import BadLink
from live_client import Server, Workplace, expect, expect_equal, first_token_ms, moved, stop_process, wait_saved, wait_until
from redis_server import Redis, TlsRedis

BLOCK_TOKENS = 32
STORY = "A conversation that is long enough to fill some blocks of thirty-two tokens each. " * 6
FLAGS = ("--threads", "1", "--device-memory", "4MiB", "--context", "2048", "--restore", "kv")


class SharedWorkplace(Workplace):
    def secret(self, name):
        path = self.path(name)
        if not os.path.exists(path):
            expect_equal(self.command("keys", "cluster", path).returncode, 0, "loci keys cluster")
        return path

    def server(self, url, *flags, secret="one", model=None, environment=None):
        return Server(self.binary, model or self.model, *FLAGS, "--cluster-secret", self.secret(secret), "--shared", url, *flags,
                      environment=environment)


def say(server, text=STORY, tokens=40):
    """A reply, tokens of the prompt that were not computed, and of them those from the shared store."""
    body = {"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "loci": {"explain": True}}
    reply = server.post("/v1/completions", body)
    expect_equal(reply.status, 200, reply.text)
    cached = (reply.json["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return reply.json["choices"][0]["text"], cached, reply.json["loci"]["tokens"]["shared"]


def servers_until(place, url, text, enough, environment=None):
    """Servers that have seen nothing say a text, one after the other, until enough(server, text, cached, shared). A busy machine
    may keep the store from answering in time, which costs an attempt; what is said is always the same."""
    end, said = time.monotonic() + 180, set()
    while True:
        with place.server(url, environment=environment) as server:
            reply = say(server, text)
            said.add(reply[0])
            expect_equal(len(said), 1, f"texts of servers that ask the store: {said}")
            if enough(server, *reply):
                return reply[0]
        expect(time.monotonic() < end, "no server had what it needs from the store within three minutes")


def expect_all_written(server, names):
    """The store has what the server wrote to it; more only where a write came too late for the server."""
    metrics = server.metrics()
    written, failures = (metrics[f"loci_shared_{what}"] for what in ('parts_total{result="written"}', "failures_total"))
    expect(len(names) == written or (len(names) > written and failures > 0), f"{len(names)} values, {written} written, {failures} failures")


def written_more(server):
    """How many blocks the server has written; those of another text too, where writes may have come too late on a busy machine."""
    written = server.metrics()['loci_shared_parts_total{result="written"}']
    if written < 4:
        say(server, f"{written} {time.monotonic()}: {STORY}", 2)
        wait_saved(server)
    return written


def turn_in_the_store(server, talk, names):
    """Turns of a conversation, until values of one are in the store: a write may come too late on a busy machine."""
    def is_there():
        made = server.post("/v1/responses", {"conversation": talk, "input": STORY, "max_output_tokens": 8})
        expect_equal(made.status, 200, made.text)
        wait_saved(server)
        return names()
    wait_until(is_there, "the turn is in the store")


def wait_logged(server, text):
    """Until the log has it: a thread of its own writes it."""
    wait_until(lambda: text in server.log_text(), f"{text!r} is logged")


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory):
    return SharedWorkplace(binary, tiny_model, str(tmp_path_factory.mktemp("shared")))


@pytest.fixture()
def redis(tmp_path):
    if shutil.which("redis-server") is None:
        pytest.exit("there is no redis-server: scripts/setup.sh test installs it", 4)
    store = Redis(tmp_path).start()
    yield store
    store.kill()


@pytest.fixture()
def plain(place):
    """The text that a server without a store gives, and then the next turn's."""
    with Server(place.binary, place.model, *FLAGS) as server:
        first = say(server)[0]
        return first, say(server, STORY + first + " And then?")[0]


def test_another_server_goes_on_with_the_conversation(place, redis, plain):
    with place.server(redis.url) as one:
        first, cached, shared = say(one)
        expect_equal((first, cached, shared), (plain[0], 0, 0), "the first turn")
        wait_saved(one)
        expect_all_written(one, redis.names())
        wait_until(lambda: written_more(one) >= 4, "blocks are in the store")

    def goes_on(other, _, cached, shared):
        if shared < 4 * BLOCK_TOKENS:
            return False
        expect(cached >= shared, f"{cached} tokens cached, {shared} of them from the store")
        metrics = other.metrics()
        expect_equal(metrics['loci_context_tokens_total{source="shared"}'], shared, "tokens from the store by the metrics")
        expect(moved(other, "shared_load") > 0, "bytes came from the store")
        wait_logged(other, f"shared_tokens={shared}")
        again = say(other, STORY + first + " And then?")
        expect_equal(again[2], 0, "what is on the device is not asked for")
        return True

    expect_equal(servers_until(place, redis.url, STORY + first + " And then?", goes_on), plain[1], "the next turn by another server")


def test_time_to_live_and_deletion(place, redis):
    with place.server(redis.url, "--shared-ttl", "1h", "--store", place.path("talks.db")) as one:
        talk = one.post("/v1/conversations", {}).json["id"]
        turn_in_the_store(one, talk, redis.names)
        left = int(redis.ask("TTL", redis.names()[0])[1:-2])
        expect(3500 < left <= 3600, f"{left} s to live")
        expect_equal(one.request("DELETE", "/v1/conversations/" + talk).status, 200, "deleted")
        wait_until(lambda: not redis.names(), "what was said is deleted in the store")
        expect_equal(one.metrics()["loci_shared_deletions_dropped_total"], 0, "deletions that the store did not take")


def test_deletions_wait_for_a_store_that_is_away(place, redis):
    with place.server(redis.url, "--shared-ttl", "0", "--store", place.path("away.db")) as one:
        wait_logged(one, "shared_ttl is 0")
        talk = one.post("/v1/conversations", {}).json["id"]
        turn_in_the_store(one, talk, redis.names)
        stop_process(redis.process)
        try:
            expect_equal(one.request("DELETE", "/v1/conversations/" + talk).status, 200, "deleted")
            wait_until(lambda: one.metrics()["loci_shared_up"] == 0, "the store is left alone")
        finally:
            redis.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not redis.names(), "what was said is deleted once the store is back")
        expect_equal(one.metrics()["loci_shared_deletions_dropped_total"], 0, "deletions that were dropped")


def test_others_find_nothing(place, redis, plain, tmp_path):
    other_model = str(tmp_path / "other.gguf")
    maker = os.path.join(os.path.dirname(place.binary), "loci-random-model")
    subprocess.run([maker, other_model, "--shape", "tiny", "--seed", "5"], check=True, stdout=subprocess.DEVNULL)
    with place.server(redis.url) as one:
        say(one)
        wait_saved(one)
    with place.server(redis.url, secret="two") as stranger:
        expect_equal(say(stranger), (plain[0], 0, 0), "under another secret")
    with place.server(redis.url, model=other_model) as unlike:
        expect_equal(say(unlike)[1:], (0, 0), "another model")
    with place.server(redis.url, "--state-type", "q8") as narrow:
        expect_equal(say(narrow)[1:], (0, 0), "state of another type")


def test_a_store_behind_tls(place, tmp_path, plain):
    if shutil.which("redis-server") is None:
        pytest.exit("there is no redis-server: scripts/setup.sh test installs it", 4)
    trusted, key, other = (str(tmp_path / name) for name in ("trusted.pem", "trusted.key", "other.pem"))
    for certificate, its_key in ((trusted, key), (other, str(tmp_path / "other.key"))):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", its_key], check=True,
                       stderr=subprocess.DEVNULL)
    store = TlsRedis(tmp_path, trusted, key).start()
    try:
        with place.server(store.url, environment={"SSL_CERT_FILE": other}) as stranger:
            wait_logged(stranger, "certificate verify failed")
            expect_equal(say(stranger), (plain[0], 0, 0), "without the store")
        with place.server(store.url, environment={"SSL_CERT_FILE": trusted}) as one:
            expect_equal(say(one)[0], plain[0], "the first turn")
            wait_saved(one)
            expect_all_written(one, store.names())
        found = servers_until(place, store.url, STORY, lambda other, text, cached, shared: shared >= 4 * BLOCK_TOKENS,
                              environment={"SSL_CERT_FILE": trusted})
        expect_equal(found, plain[0], "by another server")
    finally:
        store.kill()


def test_a_store_that_forgets(place, redis, plain):
    with place.server(redis.url) as one:
        say(one)
        wait_saved(one)
        redis.ask("FLUSHALL")
    with place.server(redis.url) as other:
        expect_equal(say(other), (plain[0], 0, 0), "after a flush")
        wait_saved(other)


def damage_all(redis):
    for name in redis.names():
        redis.ask("SETRANGE", name, "40", "damage")


def swap_all(redis):
    names = redis.names()
    for name, other in zip(names, names[1:]):
        redis.ask("COPY", name, other, "REPLACE")


@pytest.mark.parametrize("spoil", [damage_all, swap_all])
def test_values_that_are_not_what_was_written(place, redis, plain, spoil):
    with place.server(redis.url) as one:
        say(one)
        wait_saved(one)
    # (All of them: which ones a prompt's are, and which its reply's, no name tells.)
    spoil(redis)

    def damage_counted(other, *_):
        # (Counted after the reply, and what is damaged is deleted: there is no second time.)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: other.metrics()['loci_shared_parts_total{result="damaged"}'] >= 1, "damage is counted", 10)
            wait_saved(other)
            return True
        return False
    expect_equal(servers_until(place, redis.url, STORY, damage_counted), plain[0], "from a store with damaged values")
    again = servers_until(place, redis.url, STORY, lambda other, text, cached, shared: shared >= 4 * BLOCK_TOKENS)
    expect_equal(again, plain[0], "from what was written anew")


def test_a_full_store(place, tmp_path, plain):
    full = Redis(tmp_path, "--maxmemory", "100kb", "--maxmemory-policy", "noeviction").start()
    try:
        with place.server(full.url) as one:
            expect_equal(say(one)[0], plain[0], "with a full store")
            wait_until(lambda: one.metrics()['loci_shared_parts_total{result="refused"}'] > 0, "it refuses")
            wait_until(lambda: one.metrics()["loci_shared_up"] == 1, "a full store still answers")
    finally:
        full.kill()


def test_a_store_that_dies_and_comes_back(place, redis, plain):
    with place.server(redis.url) as one:
        say(one)
        wait_saved(one)
        redis.kill()
        text = STORY + plain[0] + " And then?"
        expect_equal(say(one, text)[0], plain[1], "with the store dead")
        said = []

        def left_alone():
            said.append(say(one, f"{len(said)} {STORY}", 2)[2])
            return one.metrics()["loci_shared_up"] == 0
        wait_until(left_alone, "it is left alone")
        expect_equal(sum(said), 0, "tokens from a dead store")
        wait_logged(one, "is not asked until it answers again")
        redis.start()
        wait_until(lambda: one.metrics()["loci_shared_up"] == 1, "it is asked again")
        told = []

        def written():
            told.append(say(one, f"New {len(told)}: {STORY}", 2))
            return redis.names()
        wait_until(written, "and written again")


def test_a_store_that_is_not_there_at_first(place, redis, plain):
    redis.kill()
    with place.server(redis.url) as one:
        wait_logged(one, f"{redis.url}/0 cannot be reached")
        expect_equal(say(one)[0], plain[0], "without the store")
        redis.start()
        wait_until(lambda: one.metrics()["loci_shared_up"] == 1, "it is found")


BAD_LINKS = ["slow", "flip", "garbage", "cut", "silent"]


def ask_behind_a_bad_link(place, plain, store, port, url_at, mode):
    """One server fills the store (`store`, at `port`), another one reads it by `url_at(PORT)` over a link that is `mode`."""
    with place.server(store) as one:
        say(one)
        wait_saved(one)
    link = BadLink(("127.0.0.1", port))
    try:
        with place.server(url_at(link.port)) as other:
            link.mode = mode
            text = say(other)[0]
            expect_equal(text, plain[0], f"behind a link that is {mode}")
            again = say(other, STORY + text + " And then?")
            expect_equal(again[0], plain[1], f"the next turn behind a link that is {mode}")
            link.mode = "pass"
            wait_until(lambda: other.metrics()["loci_moves_in_flight"] == 0, "nothing is left under way")
            metrics = other.metrics()
            expect_equal(metrics["loci_requests_running"], 0, "nothing runs")
            expect(metrics['loci_shared_parts_total{result="asked"}'] > 0, "the store was asked")
    finally:
        link.close()


@pytest.mark.parametrize("mode", BAD_LINKS)
def test_a_store_behind_a_bad_link(place, redis, plain, mode):
    ask_behind_a_bad_link(place, plain, redis.url, redis.port, lambda port: f"redis://127.0.0.1:{port}", mode)


def test_wrong_flags_are_named(place):
    secret = place.secret("one")
    cases = (("--shared", ("--cluster-secret", secret, "--shared", "http://x")), ("--shared", ("--cluster-secret", secret, "--shared", "redis://h:0")),
             ("--cluster-secret", ("--shared", "redis://127.0.0.1:1")))
    for flag, flags in cases:
        ended = place.command("serve", place.model, "--port", "0", "--disk", "none", "--store", "", *flags)
        expect(ended.returncode == 1 and flag in ended.stderr, ended.stderr)


def test_a_login_that_is_refused(place, tmp_path):
    guarded = Redis(tmp_path, "--requirepass", "right")
    guarded.ready = b"-NOAUTH"
    guarded.start()
    try:
        for login in ("", ":wrong@"):
            ended = place.command("serve", place.model, "--port", "0", "--disk", "none", "--store", "", "--cluster-secret",
                                  place.secret("one"), "--shared", f"redis://{login}127.0.0.1:{guarded.port}")
            expect(ended.returncode == 1 and "--shared" in ended.stderr and "wrong@" not in ended.stderr, ended.stderr)
        with place.server(f"redis://:right@127.0.0.1:{guarded.port}") as one:
            expect("right" not in one.banner and "right" not in one.log_text(), "the password is nowhere")
            wait_until(lambda: one.metrics()["loci_shared_up"] == 1, "the login is taken")
    finally:
        guarded.kill()


def plain_read_ms(redis):
    """Until one connection has read all that the store holds, as it lies there."""
    names = redis.names()
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", redis.port)) as connection:
        connection.sendall(b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names))
        wanted = len(names) * int(redis.ask("STRLEN", names[0])[1:-2])
        buffer, got = bytearray(1 << 20), 0
        while got < wanted:
            got += connection.recv_into(buffer)
    return (time.monotonic() - begin) * 1000, wanted


@pytest.mark.measures
def test_next_turn_elsewhere_measured(request, binary, redis, tmp_path):
    """The next turn of a conversation of 4,000 tokens on a server that has never seen it: with the store, and without,
    in pairs. With --measure alone: it starts seven servers of the default model. Printed; only what no load of the machine
    can explain fails."""
    measure_next_turn_elsewhere(request, binary, tmp_path, redis.url, lambda: plain_read_ms(redis))


def measure_next_turn_elsewhere(request, binary, tmp_path, url, read_plainly):
    """read_plainly(): milliseconds and bytes of reads of all that the store holds."""
    if not request.config.getoption("--measure"):
        pytest.skip("measures, and takes minutes: --measure")
    model = request.getfixturevalue("model")
    workplace = SharedWorkplace(binary, model, str(tmp_path))
    flags = ("--threads", str(os.cpu_count() or 1), "--context", "6000", "--device-memory", "256MiB", "--store", "")
    shared = ("--cluster-secret", workplace.secret("one"), "--shared", url)
    text = " ".join(f"On day {i} the keeper of lighthouse {i * 7 % 90} counted {i * 13 % 50} ships." for i in range(250))
    with Server(binary, model, *flags, *shared) as one:
        first_token_ms(one, text)
        wait_saved(one)
        warm, _ = first_token_ms(one, text + " And then the storm came.")
    times = {"store": [], "none": []}
    for _ in range(3):
        for name, more in (("store", shared), ("none", ())):
            with Server(binary, model, *flags, *more) as server:
                first_token_ms(server, "A word first, of the model's pages.")
                took, tokens = first_token_ms(server, text + " And then they slept.")
                times[name].append(took)
                if name == "store":
                    from_store = tokens
    read, size = read_plainly()
    store, none = statistics.median(times["store"]), statistics.median(times["none"])
    best = max(read, warm)
    print(f"\n      {sum(from_store.values())} tokens, {from_store['shared']} of them from the store, {from_store['computed']} computed: first token "
          f"{store:.0f} ms ({min(times['store']):.0f}-{max(times['store']):.0f}) with the store, {none:.0f} ms "
          f"({min(times['none']):.0f}-{max(times['none']):.0f}) without; alone: {size / 2**20:.0f} MiB of plain reads {read:.0f} ms, the new "
          f"tokens {warm:.0f} ms; bound {1.2 * best + 30:.0f} ms")
    expect(from_store["shared"] > 0, f"{from_store}")
    expect(store < none, f"{store:.0f} ms with the store, {none:.0f} ms without")
