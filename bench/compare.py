#!/usr/bin/env python3
"""`make bench`: Loci beside llama.cpp on the same file, threads and machine, in interleaved rounds, each
figure with its physical limit. Writes the table into docs/performance.md between its markers.

    bench/compare.py [--model FILE] [--threads 2] [--rounds 5] [--cpu auto|avx512|avx2] [--peer-only]
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

from limits import Limits, ModelCost
from runners import TESTS, WHOLE_STREAMS, Disturbance, LlamaCpp, Loci, last_json, run
import second_turn

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
CONVERSATION_TOKENS, QUESTION_WORDS = 2000, 36
SECOND_TURN_FACTOR, SECOND_TURN_SLACK_SECONDS = 1.2, 0.020
QUIET_SHARE = 0.05


def default_model():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "loci" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compares Loci with llama.cpp.")
    parser.add_argument("--model", type=pathlib.Path, default=default_model())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", choices=("auto", "avx512", "avx2"), default="auto",
                        help="the instruction set of both programs")
    parser.add_argument("--peer-only", action="store_true", help="measure llama.cpp alone")
    parser.add_argument("--loci", type=pathlib.Path, default=ROOT / "build" / "release" / "loci")
    parser.add_argument("--compute", type=pathlib.Path, default=ROOT / "build" / "release" / "bench_compute")
    parser.add_argument("--rates", type=pathlib.Path, default=ROOT / "build" / "release" / "machine_rates")
    parser.add_argument("--no-document", action="store_true", help="print the table only")
    arguments = parser.parse_args()
    if not arguments.model.exists():
        raise SystemExit(f"bench: {arguments.model} is missing: run 'make model', or name a file with --model")
    if arguments.rounds < 1:
        raise SystemExit(f"bench: --rounds must be at least 1, found {arguments.rounds}")
    return arguments


def peer_folder(cpu):
    folder = ROOT / "build" / "peers" / ("default" if cpu == "auto" else cpu) / "bin"
    if not folder.exists():
        raise SystemExit(f"bench: {folder} is missing: run 'make peers'")
    return folder.resolve()


def progress(text):
    print(f"bench: {text}", flush=True)


def measure_compute(programs, rounds):
    """{test name: {program name: [tokens per second of each round]}}; who goes first alternates."""
    results = {test.name: {program.name: [] for program in programs} for test in TESTS}
    for number in range(rounds):
        order = programs if number % 2 == 0 else programs[::-1]
        for test in TESTS:
            for program in order:
                results[test.name][program.name].append(program.measure(test))
            progress(f"round {number + 1}/{rounds}, {test.name}: " + ", ".join(
                f"{program.name} {results[test.name][program.name][-1]:.0f}" for program in programs) + " tokens/s")
    return results


def server_command(name, arguments, port):
    if name == Loci.name:
        cpu = [] if arguments.cpu == "auto" else ["--cpu", arguments.cpu]
        return [arguments.loci, "serve", arguments.model, "--port", port, "--threads", arguments.threads, *cpu]
    return [peer_folder(arguments.cpu) / "llama-server", "-m", arguments.model, "--port", port, "-t", arguments.threads,
            "-c", 4096, "-np", 1, "--no-webui"]


def measure_second_turns(names, arguments):
    """{program name: [SecondTurn of each round]}; one server runs at a time, since two would share the cores."""
    turns = {name: [] for name in names}
    for name in names:
        port = second_turn.free_port()
        with second_turn.Server(server_command(name, arguments, port), port) as server:
            for number in range(arguments.rounds):
                turn = second_turn.measure(server.port, number + 1, CONVERSATION_TOKENS, QUESTION_WORDS)
                turns[name].append(turn)
                progress(f"second turn {number + 1}/{arguments.rounds}, {name}: {turn.first_token_seconds * 1e3:.0f} ms, "
                         f"{turn.context_tokens} tokens reused, {turn.new_tokens} new")
    return turns


def limit_of(test, limits):
    if test.kind == "decode":
        return limits.decode_rate(1, test.prompt, test.generate)
    if test.kind == "prefill":
        return limits.prefill_rate(test.prompt)
    if test.name == WHOLE_STREAMS:
        return limits.streams_rate(test.streams, test.prompt, test.generate)
    return limits.decode_rate(test.streams, test.prompt, test.generate)


def spread(values, form="{:,.0f}"):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{form.format(middle)} ({form.format(low)}–{form.format(high)})"


def compute_table(results, limits):
    lines = ["| tokens/s: median (min–max) | Loci | llama.cpp | ratio (floor) | limit | Loci of limit |",
             "|---|---|---|---|---|---|"]
    for test in TESTS:
        loci, peer = results[test.name].get(Loci.name), results[test.name][LlamaCpp.name]
        limit = limit_of(test, limits)
        ratio = share = "–"
        if loci:
            ratio = f"{statistics.median(a / b for a, b in zip(loci, peer)):.2f}"
            share = f"{statistics.median(loci) / limit:.0%}"
        floor = f" ({test.floor:.1f})" if test.floor else ""
        lines.append(f"| {test.name} | {spread(loci) if loci else '–'} | {spread(peer)} | {ratio}{floor} | {limit:,.0f} | "
                     f"{share} |")
    return lines


def second_turn_table(turns, limits, alone_seconds):
    lines = ["| second turn of a conversation | first token after, ms: median (min–max) | tokens reused | new tokens | "
             "limit, ms |", "|---|---|---|---|---|"]
    for name, measured in turns.items():
        context = statistics.median_low([turn.context_tokens for turn in measured])
        new = statistics.median_low([turn.new_tokens for turn in measured])
        times = spread([turn.first_token_seconds * 1e3 for turn in measured], "{:.0f}")
        limit = limits.prefill_seconds(new, context) * 1e3
        lines.append(f"| {name} | {times} | {context:,} | {new} | {limit:.0f} |")
    if Loci.name in turns:
        alone = statistics.median(alone_seconds)
        bound = SECOND_TURN_FACTOR * alone + SECOND_TURN_SLACK_SECONDS
        found = statistics.median(turn.first_token_seconds for turn in turns[Loci.name])
        lines += ["", f"The new tokens alone take "
                  f"{spread([value * 1e3 for value in alone_seconds], '{:.0f}')} ms, by `bench_compute`: a pass of context and new "
                  f"tokens less a pass of the context. The floor is {SECOND_TURN_FACTOR} × that "
                  f"+ {SECOND_TURN_SLACK_SECONDS * 1e3:.0f} ms = {bound * 1e3:.0f} ms: "
                  f"{'met' if found <= bound else 'missed'} with {found * 1e3:.0f} ms."]
    return lines


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        info = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    info = {key.strip(): value.strip() for key, value in info.items()}
    flags = set(info.get("flags", "").split())
    interesting = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8")
    return (f"{info.get('model name', platform.processor())} (family {info.get('cpu family')}, model {info.get('model')}), "
            f"{os.cpu_count()} processors, {', '.join(flag for flag in interesting if flag in flags)}")


def describe(arguments, rates):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip()
    disturbed = Disturbance.worst
    return [f"Machine: {processor()}. Both programs: {arguments.threads} threads, instruction set "
            f"`{arguments.cpu}`, {arguments.model.name}, {arguments.rounds} rounds, interleaved"
            f"{', at commit ' + commit if commit else ''}, {time.strftime('%Y-%m-%d')}. "
            f"Other programs used at most {disturbed:.0%} of the machine during any one measurement"
            f"{'.' if disturbed <= QUIET_SHARE else ': too much for these figures to be trusted, the ratios included.'}", "",
            f"Rates of {rates['threads']} threads together: memory reads {rates['read_bytes_per_second'] / 1e9:.1f} GB/s (1 GiB), "
            f"{rates['read_model_bytes_per_second'] / 1e9:.1f} GB/s (a buffer of the model's size, partly in the last "
            f"cache); int8 products {rates['int8_operations_per_second'] / 1e9:,.0f} GOP/s ({rates['int8_instruction']}); "
            f"float32 multiply-adds {rates['float32_operations_per_second'] / 1e9:,.0f} GFLOP/s.", ""]


def write_document(lines):
    text = DOCUMENT.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"bench: {DOCUMENT} must hold {BEGIN} and {END} once each")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    DOCUMENT.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail, encoding="utf-8")
    progress(f"wrote {DOCUMENT.relative_to(ROOT)}")


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))  # so that servers are stopped too
    with Disturbance():
        time.sleep(2)
    if Disturbance.worst > QUIET_SHARE:
        progress(f"others use {Disturbance.worst:.0%} of the machine: stop them for figures to trust")
    Disturbance.worst = 0.0
    peer = LlamaCpp(peer_folder(arguments.cpu), arguments.model, arguments.threads)
    loci = Loci(arguments.compute, arguments.model, arguments.threads, arguments.cpu)
    programs = [peer] if arguments.peer_only else [loci, peer]
    progress("measuring the machine's rates")
    model_mib = max(1, arguments.model.stat().st_size >> 20)
    rates = last_json(run([arguments.rates, arguments.threads, model_mib]))
    limits = Limits(ModelCost.read(arguments.model), rates)

    results = measure_compute(programs, arguments.rounds)
    turns = measure_second_turns([program.name for program in programs], arguments)
    alone = []
    if not arguments.peer_only:
        turn = turns[Loci.name][0]
        alone = [loci.prefill_seconds(turn.new_tokens, turn.context_tokens) for _ in range(arguments.rounds)]

    lines = describe(arguments, rates) + compute_table(results, limits) + [""]
    lines += second_turn_table(turns, limits, alone)
    print("\n" + "\n".join(lines) + "\n")
    raw = {"rates": rates, "disturbed_share": Disturbance.worst, "tokens_per_second": results, "alone_seconds": alone,
           "second_turns": {name: [vars(turn) for turn in measured] for name, measured in turns.items()}}
    output = ROOT / "build" / "bench-results.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    if not (arguments.no_document or arguments.peer_only):
        write_document(lines)


if __name__ == "__main__":
    main()
