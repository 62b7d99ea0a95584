# SPDX-License-Identifier: Apache-2.0
"""One measurement of one program: Loci's bench_compute, llama.cpp's llama-bench and
llama-batched-bench. Each returns tokens per second."""

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import time

from cases import Test

TIMEOUT_SECONDS = 600


class Disturbance:
    """What share of the machine others used while something of ours was measured: its largest value is told
    with the results, since programs that spin at barriers (llama.cpp) lose far more by it than it says."""

    worst = 0.0

    def __enter__(self):
        self._start = self._others_seconds(), time.monotonic()

    def __exit__(self, *_):
        seconds = time.monotonic() - self._start[1]
        used = self._others_seconds() - self._start[0]
        if seconds > 0.5:  # the kernel counts in hundredths
            Disturbance.worst = max(Disturbance.worst, min(1.0, used / seconds / os.cpu_count()))

    @staticmethod
    def _others_seconds():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _idle, _iowait, irq, soft_irq, steal = map(int, file.readline().split()[1:9])
        busy = (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return busy - sum(usage.ru_utime + usage.ru_stime for usage in ours) - _seconds_of_running_children()


def _seconds_of_running_children():
    """The processor time of servers that this process has started, and that still run."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _state, parent, *numbers = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(parent) == os.getpid():
                ticks += int(numbers[9]) + int(numbers[10])  # utime and stime
    return ticks / os.sysconf("SC_CLK_TCK")


def run(command):
    """The command's standard output; a failure ends the benchmark with one line."""
    with Disturbance():
        return _run([str(part) for part in command])


def _run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        raise SystemExit(f"bench: {command[0]} is missing: run 'make build' and 'make peers'")
    except subprocess.TimeoutExpired:
        raise SystemExit(f"bench: no result after {TIMEOUT_SECONDS} s from: {' '.join(command)}")
    if done.returncode != 0:
        tail = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise SystemExit(f"bench: exit code {done.returncode} ({tail}) from: {' '.join(command)}")
    return done.stdout


def last_json(output):
    """The last line that is a JSON object."""
    for line in reversed(output.splitlines()):
        if line.lstrip().startswith("{"):
            return json.loads(line)
    raise SystemExit(f"bench: expected a line of JSON, found: {output.strip()[-200:]!r}")


class Loci:
    """`bench_compute --json`: the backend alone, as llama.cpp's programs are. It prints one JSON object:
    seconds (decode: of the steps after the prompt; otherwise of everything) and tokens_per_second."""

    name = "Loci"

    def __init__(self, program, model, threads, cpu, state="f16"):
        self.program, self.model, self.threads, self.cpu = pathlib.Path(program), model, threads, cpu
        self.state = state

    def compute(self, *flags):
        return last_json(run([self.program, "--json", "--model", self.model, "--device", "cpu", "--threads", self.threads,
                              "--cpu", self.cpu, "--state-type", self.state, *flags]))

    def measure(self, test):
        flags = ["--test", test.kind, "--prompt", test.prompt]
        if test.kind != "prefill":
            flags += ["--generate", test.generate]
        if test.kind == "streams":
            flags += ["--streams", test.streams]
        return self.compute(*flags)["tokens_per_second"]

    def decode_rate(self, streams, context, generate):
        """Generated tokens per second of all streams, prompts not counted."""
        if streams == 1:
            return self.measure(Test("", "decode", context, generate))
        flags = ["--test", "streams", "--streams", streams, "--prompt", context]
        whole = self.compute(*flags, "--generate", generate)["seconds"]
        return streams * generate / (whole - self.compute(*flags, "--generate", 0)["seconds"])

    def prefill_seconds(self, tokens, context):
        """What `tokens` cost after `context` others: a pass of both less a pass of the context alone."""
        flags = ["--test", "prefill", "--max-batch-tokens", context, "--repeats", 2]
        context_alone = self.compute(*flags, "--prompt", context)["seconds"]
        return self.compute(*flags, "--prompt", context + tokens)["seconds"] - context_alone


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, folder, model, threads, state="f16"):
        self.folder, self.model, self.threads = pathlib.Path(folder), model, threads
        self.state = state
        # It takes values in 8 bits only with flash attention, which "auto" turns on here anyway.
        self.cache = [] if state == "f16" else ["-ctk", state, "-ctv", state, "-fa", "1"]

    def measure(self, test):
        if test.kind == "streams":
            return self._streams(test.streams, test.prompt, test.generate)["speed"]
        # Both programs measure their first pass over a prompt: a warm-up would take as long again.
        command = [self.folder / "llama-bench", "-m", self.model, "-t", self.threads, "-r", 1, "-o", "json",
                   "--no-warmup", *self.cache]
        if test.kind == "decode":
            command += ["-p", 0, "-n", test.generate, "-d", test.prompt]
        else:
            command += ["-p", test.prompt, "-n", 0]
        return json.loads(run(command))[0]["avg_ts"]

    def decode_rate(self, streams, context, generate):
        if streams == 1:
            return self.measure(Test("", "decode", context, generate))
        return self._streams(streams, context, generate)["speed_tg"]

    def _streams(self, streams, prompt, generate):
        return last_json(run([self.folder / "llama-batched-bench", "-m", self.model, "-t", self.threads,
                              "-c", streams * (prompt + generate), "-b", 2048, "-ub", 512, "-npp", prompt,
                              "-ntg", generate, "-npl", streams, "--output-format", "jsonl"]))
