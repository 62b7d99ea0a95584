# SPDX-License-Identifier: Apache-2.0
"""Servers that share state in a bucket of a real S3 server, and what may become of it (docs/shared-store.md)."""
import os
import re
import time

import pytest

from live_client import Server, expect, expect_equal, moved, wait_saved, wait_until
from s3_server import BUCKET, OWNER, PROGRAM, READER, S3Server
from shared_store_test import (BAD_LINKS, BLOCK_TOKENS, FLAGS, STORY, SharedWorkplace, ask_behind_a_bad_link, expect_all_written,
                               measure_next_turn_elsewhere, say, servers_until, turn_in_the_store, wait_logged, written_more)


@pytest.fixture(scope="module")
def place(binary, tiny_model, tmp_path_factory):
    return SharedWorkplace(binary, tiny_model, str(tmp_path_factory.mktemp("shared")))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    if not os.access(PROGRAM, os.X_OK):
        pytest.exit("there is no S3 server: scripts/clients.sh s3 installs one", 4)
    server = S3Server(tmp_path_factory.mktemp("s3")).start()
    yield server
    server.kill()


@pytest.fixture()
def bucket(running):
    """The server with an empty bucket."""
    if running.process is None:
        running.start()
    running.empty()
    return running


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name, value in (("AWS_ACCESS_KEY_ID", OWNER[0]), ("AWS_SECRET_ACCESS_KEY", OWNER[1])):
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def plain(place):
    """The text that a server without a store gives, and then the next turn's."""
    with Server(place.binary, place.model, *FLAGS) as server:
        first = say(server)[0]
        return first, say(server, STORY + first + " And then?")[0]


def written(server):
    return server.metrics()['loci_shared_parts_total{result="written"}']


def test_another_server_goes_on_with_the_conversation(place, bucket, plain):
    with place.server(bucket.url) as one:
        expect(f"s3://{BUCKET}/some/place/?endpoint={bucket.endpoint}" in one.banner, one.banner)
        expect_equal(say(one), (plain[0], 0, 0), "the first turn")
        wait_saved(one)
        expect_all_written(one, bucket.names())
        wait_until(lambda: written_more(one) >= 4, "blocks are in the bucket")
        expect(all(re.fullmatch(r"some/place/loci/1/[0-9a-f]{32}", name) for name in bucket.names()), bucket.names())

    def goes_on(other, _, cached, shared):
        if shared < 4 * BLOCK_TOKENS:
            return False
        expect(cached >= shared, f"{cached} tokens cached, {shared} of them from the store")
        expect_equal(other.metrics()['loci_context_tokens_total{source="shared"}'], shared, "tokens from the store by the metrics")
        expect(moved(other, "shared_load") > 0, "bytes came from the store")
        return True

    expect_equal(servers_until(place, bucket.url, STORY + plain[0] + " And then?", goes_on), plain[1], "the next turn by another server")


def test_time_to_live(place, bucket, plain):
    with place.server(bucket.url, "--shared-ttl", "3s") as one:
        say(one)
        wait_saved(one)
    names = bucket.names()
    servers_until(place, bucket.url, STORY, lambda patient, text, cached, shared: shared > 0)  # which keeps them for a day
    time.sleep(4)  # (on a busy machine one of those may have written some anew)
    with place.server(bucket.url, "--shared-ttl", "3s") as late:
        expect_equal(say(late), (plain[0], 0, 0), "when their time is over")
        wait_saved(late)
        wait_until(lambda: written(late) > 0, "they are written anew")
        expect(set(names) <= set(bucket.names()), "under the same names")


def test_deletion(place, bucket):
    with place.server(bucket.url, "--store", place.path("s3_talks.db")) as one:
        talk = one.post("/v1/conversations", {}).json["id"]
        turn_in_the_store(one, talk, bucket.names)
        expect_equal(one.request("DELETE", "/v1/conversations/" + talk).status, 200, "deleted")
        wait_until(lambda: not bucket.names(), "what was said is deleted in the bucket")
        expect_equal(one.metrics()["loci_shared_deletions_dropped_total"], 0, "deletions that the store did not take")


def test_others_find_nothing(place, bucket, plain):
    with place.server(bucket.url) as one:
        say(one)
        wait_saved(one)
    with place.server(bucket.url, secret="two") as stranger:
        expect_equal(say(stranger), (plain[0], 0, 0), "under another secret")
    with place.server(bucket.url.replace("some/place", "another")) as elsewhere:
        expect_equal(say(elsewhere), (plain[0], 0, 0), "below another prefix")


def test_a_bucket_that_forgets_and_one_that_lies(place, bucket, plain):
    with place.server(bucket.url) as one:
        say(one)
        wait_saved(one)
    names = bucket.names()
    values = {name: bucket.get(name) for name in names}
    bucket.empty()
    with place.server(bucket.url) as other:
        expect_equal(say(other), (plain[0], 0, 0), "after all was deleted")
    # Damaged, swapped and cut values are found out and computed.
    for name, value in values.items():
        bucket.put(name, value)
    bucket.put(names[0], values[names[0]][:40] + b"damage" + values[names[0]][46:])
    bucket.put(names[1], values[names[2]])
    bucket.put(names[2], values[names[1]])
    bucket.put(names[3], values[names[3]][:100])
    damage_counted = lambda third, *_: third.metrics()['loci_shared_parts_total{result="damaged"}'] >= 1  # noqa: E731 (before the reply)
    expect_equal(servers_until(place, bucket.url, STORY, damage_counted), plain[0], "from a bucket with damaged values")


def test_a_store_that_dies_and_comes_back(place, bucket, plain):
    with place.server(bucket.url) as one:
        say(one)
        wait_saved(one)
        bucket.kill()
        expect_equal(say(one, STORY + plain[0] + " And then?")[0], plain[1], "with the store dead")
        said = []

        def left_alone():
            said.append(say(one, f"{len(said)} {STORY}", 2)[2])
            return one.metrics()["loci_shared_up"] == 0
        wait_until(left_alone, "it is left alone")
        expect_equal(sum(said), 0, "tokens from a dead store")
        wait_logged(one, "is not asked until it answers again")
        bucket.start()
        wait_until(lambda: one.metrics()["loci_shared_up"] == 1, "it is asked again")
        told = []

        def more():
            told.append(say(one, f"New {len(told)}: {STORY}", 2))
            return bucket.names()
        wait_until(more, "and written again")


@pytest.mark.parametrize("mode", BAD_LINKS)
def test_a_store_behind_a_bad_link(place, bucket, plain, mode):
    ask_behind_a_bad_link(place, plain, bucket.url, bucket.port,
                          lambda port: f"s3://{BUCKET}/some/place?endpoint=http://127.0.0.1:{port}", mode)


def test_a_store_that_refuses_writes(place, bucket, plain, monkeypatch):
    with place.server(bucket.url) as one:
        say(one)
        wait_saved(one)
    count = len(bucket.names())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER[1])

    def reads(reader, _, cached, shared):
        if shared == 0:
            return False
        expect_equal(say(reader, "Other words. " + STORY, 2)[1:], (0, 0), "a prompt of its own")
        wait_until(lambda: reader.metrics()['loci_shared_parts_total{result="refused"}'] > 0, "it refuses")
        expect_equal(reader.metrics()["loci_shared_up"], 1, "a store that refuses is asked")
        return True
    expect_equal(servers_until(place, bucket.url, STORY, reads), plain[0], "with credentials that may only read")
    expect_equal(len(bucket.names()), count, "values")


def test_tls_and_the_bucket_in_the_hosts_name(place, bucket, plain):
    stranger, _ = bucket.make_certificate("other")
    with place.server(bucket.tls_url, environment={"SSL_CERT_FILE": stranger}) as other:
        wait_logged(other, "style=path cannot be reached, and is tried again later: SSL certificate problem")
        expect_equal(say(other), (plain[0], 0, 0), "without the store")
    trust = {"SSL_CERT_FILE": bucket.certificate}
    in_host = f"s3://{BUCKET}/some/place?endpoint=https://localhost:{bucket.tls_port}&style=virtual"
    with place.server(in_host, environment=trust) as one:
        expect_equal(say(one)[0], plain[0], "the first turn")
        wait_saved(one)
        expect_all_written(one, bucket.names())
        wait_until(lambda: written_more(one) >= 4, "blocks are in the bucket")
    found = servers_until(place, bucket.tls_url, STORY, lambda server, text, cached, shared: shared >= 4 * BLOCK_TOKENS, environment=trust)
    expect_equal(found, plain[0], "by another server, with the bucket in the path")


def start_fails(place, url, why, secret="one"):
    ended = place.command("serve", place.model, "--port", "0", "--disk", "none", "--store", "", "--cluster-secret", place.secret(secret),
                          "--shared", url)
    expect(ended.returncode == 1 and "--shared" in ended.stderr and why in ended.stderr, ended.stderr)
    expect(OWNER[1] not in ended.stderr, "no secret is shown")


def test_what_an_operator_has_to_mend_ends_the_start(place, bucket, monkeypatch, tmp_path):
    start_fails(place, "s3://x", "expected a bucket's name")
    start_fails(place, f"s3://{BUCKET}", "expected ?region=NAME")
    start_fails(place, f"s3://none-such?endpoint={bucket.endpoint}", "found no such bucket")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    start_fails(place, bucket.url, "the store refuses the key's secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    start_fails(place, bucket.url, "the store does not know the key's id")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    start_fails(place, bucket.url, "an S3 store needs credentials")
    # A file with the right ones in a profile.
    file.write_text(f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n[mine]\naws_access_key_id = {OWNER[0]}\n"
                    f"aws_secret_access_key = {OWNER[1]}\n")
    start_fails(place, bucket.url, "the store does not know the key's id")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with place.server(bucket.url) as one:
        wait_until(lambda: one.metrics()["loci_shared_up"] == 1, "the credentials are taken")
        expect(OWNER[1] not in one.banner + one.log_text(), "the secret is nowhere")
    # Another server of HTTP: Loci's own.
    with Server(place.binary, place.model, *FLAGS) as other:
        start_fails(place, f"s3://{BUCKET}?endpoint=http://127.0.0.1:{other.port}", "found another one")
    with place.server(f"s3://{BUCKET}?endpoint=http://127.0.0.1:1") as one:
        wait_logged(one, "endpoint=http://127.0.0.1:1&region=us-east-1&style=path cannot be reached")


@pytest.mark.measures
def test_next_turn_elsewhere_measured(request, binary, bucket, tmp_path):
    """As with Redis; with --measure alone."""
    def read_plainly():
        begin = time.monotonic()
        size = sum(len(bucket.get(name)) for name in bucket.names())
        return (time.monotonic() - begin) * 1000, size
    measure_next_turn_elsewhere(request, binary, tmp_path, bucket.url, read_plainly)
