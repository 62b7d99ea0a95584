# SPDX-License-Identifier: Apache-2.0
"""State that leaves the device and comes back, by a live server that keeps running.

Whatever way a conversation's state has gone (host memory, disk, both, as keys and values or as hidden states), every
greedy reply has the text and the very log-probabilities of a server that never lost any. tiers_restart_test.py is about
servers that end.
"""
import glob
import json
import os
import re
import subprocess
import time

import pytest

from live_client import expect, expect_equal, killed, moved, Server, wait_recovered, wait_saved, wait_until
from tiers_talks import check_restart, COMMON, flip_slots, HIDDEN, LARGE, learn_all, LOAD, Q8, refused, small, SMALL, Tiers, TURNS

# A prompt of half the device's blocks evicts faster than what is saved ahead is saved.
AHEAD = 0.15


@pytest.fixture(scope="module", autouse=True)
def replies_that_are_right(binary, model):
    learn_all(binary, model)


# --- every path ---

def check_path(binary, model, flags, links, least=0.5):
    with Tiers(binary, model) as tiers:
        flags = [f.replace("FOLDER", tiers.folder) for f in flags]
        with tiers.server(*small(flags), *LOAD, *flags) as server:
            for turn in range(TURNS):
                # The last turn finds what the one before it saved: of most ways, all of that.
                tiers.turn(server, turn, settled=turn == TURNS - 2 and least > AHEAD)
            for link in links:
                expect(moved(server, link) > 0, f"{link} moved nothing:\n" + server.get("/metrics").text[-3000:])
                expect_equal(moved(server, link, "failures"), 0, f"failures of {link}")
            expect(server.metrics()["loci_evicted_blocks_total"] > 0, "the device's pool is too small for all")
        expect(tiers.cached(TURNS - 1) > least, f"cached: {[talk.cached for talk in tiers.talks]}")


def test_host(binary, model):
    check_path(binary, model, ["--host-memory", "200MiB", "--disk", "none"], ["host_save", "host_load"])


def test_disk(binary, model):
    check_path(binary, model, ["--disk", "FOLDER/d:120MiB"], ["disk_save", "disk_load"])


def test_two_disks_with_threads(binary, model):
    check_path(binary, model, ["--disk", "FOLDER/d:200MiB", "--disk", "FOLDER/e:200MiB", "--disk-io", "threads"],
               ["disk_save", "disk_load"])


def test_host_and_disk(binary, model):
    check_path(binary, model, ["--host-memory", "16MiB", "--disk", "FOLDER/d:120MiB"],
               ["host_save", "disk_save"])


def test_saved_ahead(binary, model):
    check_path(binary, model, ["--host-memory", "16MiB", "--disk", "FOLDER/d:120MiB", "--save", "ahead"],
               ["host_save", "disk_save"], AHEAD)


def test_disk_saved_ahead(binary, model):
    check_path(binary, model, ["--disk", "FOLDER/d:120MiB", "--save", "ahead"], ["disk_save", "disk_load"], AHEAD)


def test_q8_host_and_disk(binary, model):
    check_path(binary, model, [*Q8, "--host-memory", "9MiB", "--disk", "FOLDER/d:60MiB"],
               ["host_save", "disk_save"])


# --- hidden states ---

def hidden_blocks(server, link):
    return server.metrics()[f'loci_hidden_blocks_total{{link="{link}"}}']


def test_hidden_states(binary, model):
    """Of the default model they are 648 bytes a token and layer; its keys and values are 768."""
    with Tiers(binary, model) as tiers, tiers.server(*SMALL, *tiers.disk(), *LOAD, *HIDDEN) as server:
        for turn in range(TURNS):
            tiers.turn(server, turn, settled=turn == TURNS - 2)
        expect(hidden_blocks(server, "disk_save") > 20, "blocks went to the disk as hidden states")
        expect(hidden_blocks(server, "disk_load") > 20, "and came back")
        expect_equal(moved(server, "disk_save", "failures"), 0, "failures")
        expect(tiers.cached(TURNS - 1) > 0.5, f"cached: {[talk.cached for talk in tiers.talks]}")


def test_hidden_states_kill_and_restart(binary, model):
    def from_disk(server):
        expect(hidden_blocks(server, "disk_load") > 20, "hidden states came from the disk")
    check_restart(binary, model, flags=HIDDEN, after=from_disk)


def test_hidden_states_flipped_bytes(binary, model):
    def counted(server):
        expect(server.metrics()["loci_disk_damaged_total"] > 0, "damaged entries are counted")
    check_restart(binary, model, flip_slots, 0, flags=HIDDEN, after=counted)


def test_hidden_states_that_are_not_smaller(binary, model):
    said = refused(binary, model, "--device", "cpu", *HIDDEN, *Q8, names="--hidden")
    expect("648 bytes" in said and "values 396" in said, said)
    said = refused(binary, model, "--device", "cpu", *HIDDEN, "--host-memory", "64MiB", names="--hidden")
    expect("host memory" in said, said)


def test_hidden_states_come_and_go(binary, model):
    """Who turns them on or off keeps keys and values, as both forms share one room; only what was saved as hidden states
    goes with them."""
    with Tiers(binary, model) as tiers:
        for turn, flags in enumerate([(), HIDDEN, ()]):
            with killed(tiers.server(*LARGE, *LOAD, *tiers.disk(size="600MiB"), *flags)) as server:
                if turn > 0:
                    wait_recovered(server)
                tiers.turn(server, turn)
                wait_saved(server)
        for talk in tiers.talks:
            expect(200 < talk.cached[1] <= talk.cached[2], f"cached: {talk.cached}")


# --- costs that nobody measured ---

def test_an_idle_server_measures_by_itself(binary, model):
    """Requests that come meanwhile get the right replies; what is found is kept, used and replayed."""
    with Tiers(binary, model) as tiers:
        events = os.path.join(tiers.folder, "events")
        home = {"LOCI_PROFILE": None, "XDG_STATE_HOME": tiers.folder}

        def start():
            return Server(binary, model, *COMMON, *LARGE, *tiers.disk(), "--store", os.path.join(tiers.folder, "talks.db"),
                          "--event-log", events, "--event-log-secret", "on", environment=home)
        with start() as server:
            expect("assumed, not measured here" in server.banner, server.banner)
            tiers.turn(server, 0)
            time.sleep(1.2)  # so that the next turn comes in the midst of it, on most machines
            tiers.turn(server, 1)
            wait_until(lambda: "costs measured roughly" in server.log_text(), "a profile")
            tiers.turn(server, 2)
            wait_until(lambda: re.search(r"kept in|not kept: others took \d+ %", server.log_text()), "it says whether the profile is kept")
            kept = "kept in" in server.log_text()
        replayed = subprocess.run([binary, "replay", events], capture_output=True, text=True, timeout=300)
        expect_equal(replayed.returncode, 0, replayed.stdout + replayed.stderr)
        files = glob.glob(os.path.join(tiers.folder, "loci", "profiles", "*.json"))
        expect_equal(len(files), int(kept), "profiles")
        if not kept:
            return  # the machine is too busy for a profile that is worth keeping
        with open(files[0], encoding="utf-8") as file:
            profile = json.load(file)
        expect_equal((profile["format"], profile["rough"]), ("loci-profile-2", True), "what was written")
        expect_equal(profile["disk_directory"], os.path.join(tiers.folder, "disk"), "the disk that was measured")
        with start() as server:
            expect("measured roughly" in server.banner, server.banner)

        # One of a former format is passed over, and stays.
        with open(files[0], "w", encoding="utf-8") as file:
            file.write(json.dumps(profile | {"format": "loci-profile-1"}))
        with start() as server:
            expect("loci-profile-1" in server.banner and "`loci profile MODEL` measures" in server.banner, server.banner)
            wait_until(lambda: "costs measured roughly" in server.log_text(), "a profile")
        with open(files[0], encoding="utf-8") as file:
            expect_equal(json.load(file)["format"], "loci-profile-1", "the file")
