# SPDX-License-Identifier: Apache-2.0
"""Servers that share a cluster's secret name the same state by the same keys, which their disks show."""
import glob
import os
import stat
import struct

import pytest

from live_client import Server, Workplace, expect, expect_equal, wait_recovered

RECORD_BYTES, BLOCK_TOKENS = 512, 32  # of a record with few layers: docs/disk-store.md
PROMPT = "A conversation that is long enough to fill some blocks of thirty-two tokens each. " * 4


class SecretWorkplace(Workplace):
    """With secrets and disks."""

    def secret(self, name):
        path = self.path(name)
        if not os.path.exists(path):
            made = self.command("keys", "cluster", path)
            expect_equal((made.returncode, made.stderr), (0, ""), "loci keys cluster")
        return path

    def talk(self, disk, *flags, after_state=False):
        """A reply to PROMPT by a server with that disk, once it found the state that is there if there is to be some,
        and the tokens of the prompt that it did not compute."""
        with Server(self.binary, self.model, "--threads", "1", "--device-memory", "4MiB", "--context", "1024", "--disk",
                    f"{self.path(disk)}:64MiB", *flags) as server:
            if after_state:
                wait_recovered(server)
            reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True})
            expect_equal(reply.status, 200, reply.text)
            details = reply.json["usage"].get("prompt_tokens_details") or {}
            return reply.json["choices"][0]["text"], details.get("cached_tokens", 0)

    def keys(self, disk):
        """The chain keys of all blocks that the disk holds."""
        found = set()
        for path in glob.glob(os.path.join(self.path(disk), "models", "*", "group-*.headers")):
            with open(path, "rb") as file:
                while record := file.read(RECORD_BYTES):
                    if record[8:12] == b"LSTB":
                        expect_equal(struct.unpack_from("<I", record, 44)[0], 2, "layers of the tiny model")
                        found.add(record[48:64])
        return found


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory):
    return SecretWorkplace(binary, tiny_model, str(tmp_path_factory.mktemp("cluster")))


def test_the_file_is_made_once_and_for_its_owner(place):
    path = place.secret("made")
    with open(path, "rb") as file:
        before = file.read()
    expect_equal((len(before), stat.S_IMODE(os.stat(path).st_mode)), (32, 0o600), "bytes and mode")
    again = place.command("keys", "cluster", path)
    expect(again.returncode == 1 and path in again.stderr and "not replaced" in again.stderr, again.stderr)
    with open(path, "rb") as file:
        expect_equal(file.read(), before, "the secret afterwards")


def test_another_file_ends_the_start(place):
    good = place.secret("good")
    with open(good, "rb") as file:
        secret = file.read()
    cases = {"missing": (None, 0, "is not there"), "short": (secret[:31], 0o600, "31 bytes"), "long": (secret + b"\n", 0o600, "33 bytes"),
             "readable": (secret, 0o644, "0644")}
    for name, (content, mode, part) in cases.items():
        path = place.path(name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)
        ended = place.command("serve", place.model, "--port", "0", "--disk", "none", "--store", "", "--cluster-secret", path)
        expect_equal(ended.returncode, 1, f"exit code with a file that is {name}")
        for wanted in ("--cluster-secret", path, part):
            expect(wanted in ended.stderr, f"{name}: {wanted!r} in {ended.stderr!r}")


def test_servers_of_a_cluster_name_state_alike(place):
    one, other = place.secret("one"), place.secret("other")
    replies = [place.talk("alike-a", "--cluster-secret", one), place.talk("alike-b", "--cluster-secret", one),
               place.talk("alike-c", "--cluster-secret", other), place.talk("alike-d")]
    expect_equal(len(set(replies)), 1, "replies, all computed from the start")
    keys = [place.keys(f"alike-{letter}") for letter in "abcd"]
    expect(len(keys[0]) >= 4, f"{len(keys[0])} blocks are kept")
    expect_equal(keys[1], keys[0], "keys of another server of the cluster")
    expect(not keys[2] & keys[0] and not keys[3] & keys[0] and not keys[3] & keys[2], "others have other keys")
    # The size of the device is no part of the keys; what the state is made of is.
    place.talk("alike-e", "--cluster-secret", one, "--max-batch-tokens", "64", "--host-memory", "1MiB")
    expect_equal(place.keys("alike-e"), keys[0], "keys of a server of another size")
    place.talk("alike-f", "--cluster-secret", one, "--state-type", "q8")
    expect(place.keys("alike-f") and not place.keys("alike-f") & keys[0], "state in 8 bits has other keys")


def test_state_under_each_secret_outlives_the_others(place):
    one, other = place.secret("one"), place.secret("other")
    text, cached = place.talk("turns", "--cluster-secret", one)
    expect_equal(cached, 0, "tokens found at first")
    expect_equal(place.talk("turns", "--cluster-secret", other), (text, 0), "under another secret")
    expect_equal(place.talk("turns"), (text, 0), "without a secret")
    for flags in (("--cluster-secret", one), ("--cluster-secret", other), ()):
        again, cached = place.talk("turns", *flags, after_state=True)
        expect_equal(again, text, "the reply from kept state")
        expect(cached >= 4 * BLOCK_TOKENS, f"{cached} tokens are found again with {flags}")
