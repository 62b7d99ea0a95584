# SPDX-License-Identifier: Apache-2.0
"""`loci sim` as its users call it: advice on how much memory to buy, exports, and what is refused by file and field."""
import json
import os
import subprocess

import pytest

from live_client import expect, expect_equal

PRICES = {"currency": "EUR", "machine_hour": 2, "host_gb_hour": 0.01, "disk_gb_hour": 0.001,
          "host_gb": [0, 0.5, 1, 2], "disk_gb": [0, 1, 4]}
# Conversations that come back when others have taken their place on the device.
SCENARIO = ("--model", "opt-13b", "--machine", "a100-80g", "--set", "memory.device_gb=3", "--set", "workload.rate=0.2",
            "--set", "workload.conversations=30", "--set", "workload.kind=ultrachat")


def sim(binary, *arguments):
    return subprocess.run([binary, "sim", *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    return str(path)


def test_advice_finds_sizes(binary, prices, tmp_path):
    out = tmp_path / "advice.json"
    done = sim(binary, "--advise", *SCENARIO, "--ttft", "60s@p90", "--prices", prices, "--output", str(out))
    expect_equal(done.returncode, 0, done.stderr)
    advice = json.loads(out.read_text())
    expect_equal(advice["verdict"], "found", "verdict")
    expect_equal((advice["cheapest"]["host_gb"], advice["cheapest"]["disk_gb"]), (0, 0), "nothing is enough for a lax target")
    expect_equal(advice["cheapest"]["cost_hour"], 2, "cost")
    expect("meets the target" in done.stderr, f"progress: {done.stderr}")
    expect("EUR/hour" in done.stdout and "p90, s" in done.stdout, done.stdout)
    again = sim(binary, "--advise", *SCENARIO, "--ttft", "60s@p90", "--prices", prices)
    expect_equal(again.stdout, done.stdout, "the same again")


def test_advice_says_that_no_memory_can(binary, prices):
    done = sim(binary, "--advise", *SCENARIO, "--ttft", "1us@p50", "--prices", prices)
    expect_equal(done.returncode, 1, done.stderr)
    expect("no memory can: computing alone takes longer" in done.stdout, done.stdout)
    expect(" s: all state in the device's memory ... " in done.stderr, done.stderr)


def test_advice_refuses_by_file_and_field(binary, prices, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"host_gb_hour": 1, "disk_gb_hour": "x"}')
    broken = tmp_path / "broken.json"
    broken.write_text('{\n"host_gb_hour": 1,\n}')
    target = ("--ttft", "2s@p90")
    for arguments, message in (
            ((*target,), "--advise: expected --ttft and --prices with it"),
            (("--ttft", "2s", "--prices", prices), "--ttft: expected a time and a percentage"),
            ((*target, "--prices", "/nowhere"), "/nowhere"),
            ((*target, "--prices", str(bad)), f"{bad}: disk_gb_hour: expected a number from 0 to 1000000000, found \"x\""),
            ((*target, "--prices", str(broken)), f"{broken}:3: expected JSON"),
            ((*target, "--prices", prices, "--set", "memory.host_gb=3"), "memory.host_gb: expected nothing"),
            ((*target, "--prices", prices, "--set", "engine.hidden=on"), "engine.hidden: expected off or auto, since sizes without a disk"),
            ((*target, "--prices", prices, "--trace", "/nowhere"), "/nowhere")):
        done = sim(binary, "--advise", *SCENARIO, *arguments)
        expect_equal(done.returncode, 2, f"{arguments}: {done.stderr}")
        expect(message in done.stderr, f"{message}: {done.stderr}")
    expect_equal(sim(binary, *SCENARIO, *target).returncode, 2, "a target without advice")
    done = sim(binary, "--model", "opt-13b", "--machine", "a" * 300)  # longer than a file's name may be
    expect(done.returncode == 2 and "machine: expected one of a100-80g" in done.stderr, done.stderr)
    done = sim(binary, "--advise", "--model", "opt-13b", "--machine", "abacus", *target, "--prices", prices)
    expect("machine: expected one of a100-80g" in done.stderr, done.stderr)


def test_what_is_missing_is_named_and_no_flag_that_was_not_given(binary):
    for arguments, wanted in (((), "the scenario: model: expected one of opt-13b"),
                              (("--machine", "a100-80g"), "the scenario: model: expected one of opt-13b"),
                              (("--set", "seed=3"), "--set: model: expected one of opt-13b"),
                              (("--model", "opt-13b"), "the scenario: machine: expected one of a100")):
        done = sim(binary, *arguments)
        expect(done.returncode == 2 and done.stderr.startswith(f"loci sim: {wanted}"), done.stderr)


def test_an_export_refuses_unknown_names(binary, tmp_path):
    out = str(tmp_path / "t.jsonl")
    done = sim(binary, "--set", "workload.conversations=3", "--set", "sed=3", "--export", out)
    expect_equal(done.returncode, 2, done.stderr)
    expect("--set: sed: expected one of" in done.stderr and "seed" in done.stderr, done.stderr)
    done = sim(binary, "--set", "seed", "--export", out)
    expect_equal(done.returncode, 2, done.stderr)
    expect("--set: expected FIELD.FIELD=VALUE, found 'seed'" in done.stderr, done.stderr)
    done = sim(binary, "--set", "workload.conversations=3", "--set", "seed=3", "--export", out)
    expect_equal(done.returncode, 0, done.stderr)


def test_an_export_refuses_what_only_a_run_has(binary, tmp_path):
    out = tmp_path / "t.jsonl"
    for flag, value in (("--output", tmp_path / "report.json"), ("--event-log", tmp_path / "events.bin"), ("--memory-limit", "8GiB")):
        done = sim(binary, "--set", "workload.conversations=3", "--export", str(out), flag, str(value))
        expect(done.returncode != 0 and f"--export excludes {flag}" in done.stderr, f"{done.returncode}: {done.stderr}")
        expect(not out.exists(), "nothing is written")


def test_what_is_wrong_is_named_by_flag_or_field(binary, prices, tmp_path):
    strange = tmp_path / "t.jsonl"
    strange.write_text('{"time_ms":0,"conversation":"a","prompt_tokens":9,"reply_tokens":3,"\\u001b[31mred\\nline2":1}\n')
    for arguments, message in (
            (("--memory-limit", "x"), '--memory-limit: expected a size such as 4GiB, 512M or 1048576 (below 2^62 bytes), found "x"'),
            (("--set", "=3"), "--set: expected FIELD.FIELD=VALUE, found '=3'"),
            (("--set", "cluster.instances=2", "--event-log", str(tmp_path / "e")),
             "--event-log: expected one server without restarts, since a log is of one process, found a cluster"),
            (("--set", "faults.restarts_s=9", "--event-log", str(tmp_path / "e")),
             "--event-log: expected one server without restarts, since a log is of one process, found faults.restarts_s"),
            (("--trace", str(strange)), f"{strange}:1: ?[31mred?line2: expected one of time_ms"),
            (("--advise", "--ttft", "2s@p90", "--prices", prices, "--set", "engine.baseline=pensieve"),
             f"loci sim: {prices}: disk_gb: expected [0], since pensieve has no such tier, found sizes up to 4\n")):
        done = sim(binary, *SCENARIO, *arguments)
        expect_equal(done.returncode, 2, f"{arguments}: {done.stderr}")
        expect(message in done.stderr, f"{message}: {done.stderr!r}")
        expect_equal(done.stderr.count("\n"), 1, f"lines: {done.stderr!r}")


def test_a_log_is_a_trace_for_its_fields(binary, tmp_path):
    log, out = tmp_path / "events.bin", tmp_path / "t.jsonl"
    done = sim(binary, *SCENARIO, "--event-log", str(log))
    expect_equal(done.returncode, 0, done.stderr)
    done = sim(binary, "--from-log", str(log), "--set", "trace.requests=5", "--export", str(out))
    expect_equal(done.returncode, 0, done.stderr)
    expect_equal(len(out.read_text().splitlines()), 5, "requests")
    done = sim(binary, "--set", "trace.requests=5", "--export", str(out))
    expect_equal(done.returncode, 2, done.stderr)
    expect("--set: trace.requests: expected 'file' beside it, or nothing, found 5" in done.stderr, done.stderr)


def test_times_are_scaled_without_overflow(binary, tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"time_ms": 100000, "conversation": 1, "prompt_tokens": 9, "reply_tokens": 1}\n')
    arguments = ("--model", "opt-13b", "--machine", "a100-80g", "--trace", str(trace), "--set")
    done = sim(binary, *arguments, "trace.time_scale=1e9")
    expect_equal(done.returncode, 2, done.stderr)
    expect(f"{trace}: trace.time_scale: expected turns due within 10^12 ms of the begin, found one at 1e+14 ms" in done.stderr, done.stderr)
    expect_equal(sim(binary, *arguments, "trace.time_scale=1e6").returncode, 0, "as far as a trace may go")


def test_a_workload_has_limits(binary):
    machine = ("--model", "opt-13b", "--machine", "a100-80g")
    for sets, message in (
            (("kind=documents", "tasks=1000000", "conversations=1000"),
             "--set: workload.conversations: expected at most 10000000 requests, conversations times tasks, found 1000000000"),
            (("conversations=9000000",), "--set: workload.conversations: expected at most 10000000 requests, conversations times turns, found 50040000"),
            (("rate=1e-8",), "--set: workload.rate: expected conversations that all begin within 10^9 s, found 1000 of 1e-08 a second"),
            (("think_s=1e9",), "--set: workload.think_s: expected turns that are due within 10^9 s of the begin, found 1e+09"),
            (("tokens_max=20",), "--set: workload.tokens_max: expected a limit that lets 1000 conversations be drawn in a hundred times as many tries, found 20, which")):
        done = sim(binary, *machine, *[part for one in sets for part in ("--set", "workload." + one)])
        expect_equal(done.returncode, 2, done.stderr)
        expect(message in done.stderr, f"{message}: {done.stderr}")


def test_an_output_that_cannot_be_written_is_refused_before_the_run(binary, prices, tmp_path):
    nowhere = str(tmp_path / "nowhere" / "report.json")
    # Neither would end within the time of a test.
    long = ("--set", "workload.conversations=200000")
    for arguments in ((*SCENARIO, *long), ("--advise", *SCENARIO, *long, "--ttft", "2s@p90", "--prices", prices)):
        done = sim(binary, *arguments, "--output", nowhere)
        expect_equal(done.returncode, 2, done.stderr)
        expect(f"--output: expected a file that can be written, found {nowhere} (No such file or directory)" in done.stderr, done.stderr)
    out = tmp_path / "report.json"
    out.write_text("of the last run")
    expect_equal(sim(binary, *SCENARIO, "--set", "colour=1", "--output", str(out)).returncode, 2, "a wrong field")
    expect_equal(out.read_text(), "of the last run", "it is there until there is another")


def test_a_result_is_printed_where_its_file_fails(binary):
    done = sim(binary, *SCENARIO, "--output", "/dev/full")
    expect_equal(done.returncode, 1, done.stderr)
    expect("requests done" in done.stdout and "/dev/full: No space left on device" in done.stderr, done.stdout + done.stderr)


def test_a_trace_may_have_any_name(binary, tmp_path):
    trace, report = os.fsencode(tmp_path) + b"/bad\xffname.jsonl", tmp_path / "report.json"
    with open(trace, "wb") as file:
        file.write(b'{"time_ms": 0, "conversation": 1, "prompt_tokens": 9, "reply_tokens": 1}\n')
    done = subprocess.run([binary, "sim", "--model", "opt-13b", "--machine", "a100-80g", "--trace", trace, "--output", str(report)],
                          capture_output=True, timeout=120, check=False)
    expect_equal(done.returncode, 0, done.stderr)
    expect_equal(json.loads(report.read_text())["workload"]["name"], f"{tmp_path}/bad\ufffdname.jsonl", "its name")


def test_a_scenario_that_is_no_object_is_named(binary, prices, tmp_path):
    scenario = tmp_path / "s.json"
    scenario.write_text("[]")
    for arguments in ((), ("--advise", "--ttft", "2s@p90", "--prices", prices), ("--export", str(tmp_path / "t.jsonl"))):
        done = sim(binary, str(scenario), *arguments)
        expect_equal(done.returncode, 2, done.stderr)
        expect(f"{scenario}: the file: expected an object, found array" in done.stderr, done.stderr)
