# SPDX-License-Identifier: Apache-2.0
"""Several models keep their state in one directory: one after another, at the same time, and until it is forgotten."""
import contextlib
import os
import subprocess
import tempfile
import time

from live_client import expect, expect_equal, Server, wait_recovered, wait_saved, wait_until

OTHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "tiny", "f32.gguf")
# A budget that the first model alone can fill.
SIZE = 24 << 20
TEXT = "The keeper of the lighthouse wrote down each evening which ships had passed. " * 30


def serve(binary, model, disk, *flags):
    return Server(binary, model, "--device-memory", "64MiB", "--threads", "1", "--store", "", "--disk", f"{disk}:{SIZE}",
                  "--restore", "kv", *flags)


def complete(server, text, tokens=2):
    reply = server.post("/v1/completions", {"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
    expect_equal(reply.status, 200, reply.text[:300])
    return reply.json


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def held(disk):
    """Bytes of all files that are there; the server may remove some meanwhile."""
    total = 0
    for folder, _, names in os.walk(disk):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
    return total


def loci(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_switching_models_keeps_the_state_of_both(binary, model):
    with tempfile.TemporaryDirectory(prefix="loci_models_") as disk:
        with serve(binary, model, disk) as server:
            complete(server, TEXT)
            wait_saved(server)
        with serve(binary, OTHER, disk) as server:
            complete(server, "hello " * 40)
            wait_saved(server)
            expect("made anew" not in server.log_text(), server.log_text())
        with serve(binary, model, disk) as server:
            wait_recovered(server)
            expect(cached(complete(server, TEXT)) > 200, "the first model's state is there")
        with serve(binary, OTHER, disk) as server:
            wait_recovered(server)
            expect(cached(complete(server, "hello " * 40)) > 30, "the second model's state is there")


def test_two_servers_of_different_models_share_a_directory(binary, model):
    with tempfile.TemporaryDirectory(prefix="loci_models_") as disk, \
            serve(binary, model, disk) as first, serve(binary, OTHER, disk) as second:
        complete(first, TEXT)
        complete(second, "hello " * 40)
        wait_saved(first)
        wait_saved(second)
        for server in (first, second):
            expect("no disk tier" not in server.log_text(), server.log_text())
            expect(server.metrics()['loci_tier_bytes_total{link="disk_save"}'] > 0, "state was saved")
        code, text = loci(binary, "inspect", disk)
        expect_equal(code, 0, text)
        for line in (f"process {first.process.pid}", f"process {second.process.pid}", "f32"):
            expect(line in text, text)
        # What is served is not forgotten under its server.
        code, text = loci(binary, "forget", "f32", "--disk", disk)
        expect_equal(code, 1, text)
        expect(f"process {second.process.pid}" in text, text)


def test_the_oldest_state_makes_room(binary, model):
    """The second model's state goes first, as nobody used it since; both never take more than the budget."""
    with tempfile.TemporaryDirectory(prefix="loci_models_") as disk:
        with serve(binary, OTHER, disk) as server:
            for number in range(8):
                complete(server, f"{number} " + "hello " * 40)
            wait_saved(server)
        with serve(binary, model, disk) as server:
            for number in range(6):
                complete(server, f"Log {number}. " + TEXT)
                wait_saved(server)
                time.sleep(1.2)  # the server looks at its share once a second
                wait_until(lambda: held(disk) <= SIZE + (1 << 20), "both keep to the budget")
            wait_until(lambda: "least recently used state to make room" in server.log_text(), "the log says what made room")
            expect(held(disk) > SIZE // 2, f"{held(disk)} bytes")


def folders(disk):
    """The names of the models' folders."""
    models = os.path.join(disk, "models")
    return set(os.listdir(models)) if os.path.isdir(models) else set()


def test_unused_state_goes_of_models_that_are_not_served(binary, model):
    """By the limit with which each was served last, whatever that of the server is which drops it."""
    with tempfile.TemporaryDirectory(prefix="loci_models_") as disk:
        with serve(binary, OTHER, disk, "--state-ttl", "0") as server:
            complete(server, "hello " * 40)
            wait_saved(server)
        kept = folders(disk)
        with serve(binary, OTHER, disk, "--state-type", "q8", "--state-ttl", "5s") as server:
            complete(server, "hello " * 40)
            wait_saved(server)
        unused = folders(disk) - kept
        expect_equal((len(kept), len(unused)), (1, 1), "a folder for each type of state")
        code, text = loci(binary, "inspect", disk)
        expect(code == 0 and " no limit " in text and " 5s " in text, text)
        with serve(binary, model, disk, "--state-ttl", "1s") as server:
            wait_until(lambda: not unused & folders(disk), "the folder goes")
            wait_until(lambda: "which nobody had used for" in server.log_text(), "the log says so")
            expect(next(iter(unused)) in server.log_text() and " of f32: " in server.log_text(), server.log_text())
            expect(kept <= folders(disk), "without a limit state stays, whatever this server's is")
        with serve(binary, OTHER, disk, "--state-ttl", "0") as server:
            wait_recovered(server)
            expect(cached(complete(server, "hello " * 40)) > 30, "and is used again")


def test_inspect_and_forget(binary, model):
    with tempfile.TemporaryDirectory(prefix="loci_models_") as disk:
        with serve(binary, OTHER, disk) as server:
            complete(server, "hello " * 40)
            wait_saved(server)
        code, text = loci(binary, "inspect", disk)
        expect(code == 0 and "State of models" in text and " f32 " in text, text)
        code, text = loci(binary, "forget", "nothing", "--disk", disk)
        expect(code == 1 and "loci inspect" in text, text)
        code, text = loci(binary, "forget", OTHER, "--disk", disk)
        expect(code == 0 and "forgot f32" in text, text)
        expect(held(disk) < 1 << 20, f"{held(disk)} bytes")
        code, text = loci(binary, "forget", "--all", "--disk", disk)
        expect_equal(code, 0, text)
        expect_equal(loci(binary, "forget")[0], 2, "a model or --all is asked for")


def test_a_deleted_lock_file_is_made_anew(binary, model):
    with tempfile.TemporaryDirectory(prefix="loci_models_") as disk, serve(binary, OTHER, disk) as server:
        (folder,) = folders(disk)
        lock = os.path.join(disk, "models", folder, "lock")
        os.remove(lock)
        wait_until(lambda: "was deleted or replaced" in server.log_text(), "the server sees that it is gone")
        code, text = loci(binary, "forget", "f32", "--disk", disk)
        expect_equal(code, 1, text)
        expect(f"process {server.process.pid}" in text, text)
