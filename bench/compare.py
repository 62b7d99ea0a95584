#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench`: Loci beside llama.cpp on the same files, threads, instruction set and machine, in
interleaved rounds, each figure with its physical limit. Raw results go to build/bench-results.json case by
case; the tables and plots of docs/performance.md are made from them (report.py).

    bench/compare.py [--case KEY ...] [--rounds 5] [--threads 2] [--no-sweeps] [--no-second-turn] [--report-only]
"""

import argparse
import json
import pathlib
import signal
import statistics
import sys
import time

from cases import BATCHES, CASES, CONTEXTS, DEFAULT, EIGHT_BIT_PEER_MAX, ROOT
from runners import Disturbance, LlamaCpp, Loci, last_json, run
import report
import second_turn

RESULTS = ROOT / "build" / "bench-results.json"
CONVERSATION_TOKENS, QUESTION_WORDS = 2000, 36
SWEEP_GENERATE = 32  # tokens
SWEEP_PROMPT = 128
SWEEP_SHORT_TOKENS = 1024


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compares Loci with llama.cpp.")
    parser.add_argument("--case", action="append", choices=[case.key for case in CASES],
                        help="measure this one alone (may be repeated); the results of others are kept")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-sweeps", action="store_true", help="leave out the plots' measurements")
    parser.add_argument("--no-second-turn", action="store_true", help="leave out the servers")
    parser.add_argument("--report-only", action="store_true", help="only write the document from the last results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        raise SystemExit(f"bench: --rounds must be at least 1, found {arguments.rounds}")
    return arguments


def peer_folder(cpu):
    folder = ROOT / "build" / "peers" / cpu / "bin"
    if not folder.exists():
        raise SystemExit(f"bench: {folder} is missing: run 'make peers'")
    return folder.resolve()


def machine_has(cpu):
    return cpu == "avx2" or "avx512_vnni" in report.processor_flags()


def progress(text):
    print(f"bench: {text}", flush=True)


def load_results():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def save_results(results):
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def stamp(arguments):
    return {"threads": arguments.threads, "rounds": arguments.rounds, "commit": report.commit(),
            "date": time.strftime("%Y-%m-%d"), "disturbed_share": Disturbance.worst}


def programs_of(case, arguments):
    path = case.model.ensure(arguments.build / "loci-random-model")
    return [Loci(arguments.build / "bench_compute", path, arguments.threads, case.cpu),
            LlamaCpp(peer_folder(case.cpu), path, arguments.threads)]


def eight_bit_programs_of(case, arguments):
    """The same with state in 8 bits, each in its own way."""
    path = case.model.path()
    return [Loci(arguments.build / "bench_compute", path, arguments.threads, case.cpu, "q8"),
            LlamaCpp(peer_folder(case.cpu), path, arguments.threads, "q8_0")]


def machine_rates(arguments, path, cpu):
    return last_json(run([arguments.build / "machine_rates", arguments.threads, max(1, path.stat().st_size >> 20),
                          *([cpu] if cpu == "avx2" else [])]))


def measure_case(case, arguments):
    """{"tests": {test: {program: [tokens per second of each round]}}}; who goes first alternates."""
    Disturbance.worst = 0.0
    programs = programs_of(case, arguments)
    progress(f"{case.model.name}, {case.cpu}: the machine's rates")
    rates = machine_rates(arguments, programs[0].model, case.cpu)
    tests = {test.name: {program.name: [] for program in programs} for test in case.tests}
    for number in range(arguments.rounds):
        order = programs if number % 2 == 0 else programs[::-1]
        for test in case.tests:
            for program in order:
                tests[test.name][program.name].append(program.measure(test))
            progress(f"{case.key}, round {number + 1}/{arguments.rounds}, {test.name}: " + ", ".join(
                f"{program.name} {tests[test.name][program.name][-1]:.0f}" for program in programs) + " tokens/s")
    return {"rates": rates, "tests": tests, **stamp(arguments)}


def measure_sweep(case, arguments, points, programs):
    """[[x, the rate of each program]], generated tokens per second, medians, None where one is left out; points:
    (x, streams, context)."""
    Disturbance.worst = 0.0
    rates_of_machine = machine_rates(arguments, programs[0].model, case.cpu)
    rows = []
    for x, streams, context in points:
        repeats = 3 if streams * context <= SWEEP_SHORT_TOKENS else 1  # long prompts take most of the time
        rates = []
        for program in programs:
            is_left_out = program.name == LlamaCpp.name and program.state != "f16" and context > EIGHT_BIT_PEER_MAX
            rates.append(None if is_left_out else statistics.median(
                program.decode_rate(streams, context, SWEEP_GENERATE) for _ in range(repeats)))
        rows.append([x, *rates])
        progress(f"{streams} streams after {context} tokens: " + ", ".join(
            f"{program.name} ({program.state}) {rate:.0f}" for program, rate in zip(programs, rates) if rate is not None) + " tokens/s")
    return {"points": rows, "rates": rates_of_machine, "generate": SWEEP_GENERATE, **stamp(arguments)}


def server_command(name, case, arguments, port):
    path = case.model.path()
    if name == Loci.name:
        return [arguments.build / "loci", "serve", path, "--port", port, "--threads", arguments.threads,
                "--cpu", case.cpu]
    return [peer_folder(case.cpu) / "llama-server", "-m", path, "--port", port, "-t", arguments.threads,
            "-c", 4096, "-np", 1, "--no-webui"]


def measure_second_turns(case, arguments):
    """One server runs at a time, since two would share the cores."""
    Disturbance.worst = 0.0
    turns = {}
    for name in (Loci.name, LlamaCpp.name):
        turns[name] = []
        port = second_turn.free_port()
        with second_turn.Server(server_command(name, case, arguments, port), port) as server:
            for number in range(arguments.rounds):
                turn = second_turn.measure(server.port, number + 1, CONVERSATION_TOKENS, QUESTION_WORDS)
                turns[name].append(vars(turn))
                progress(f"second turn {number + 1}/{arguments.rounds}, {name}: {turn.first_token_seconds * 1e3:.0f} ms, "
                         f"{turn.context_tokens} tokens reused, {turn.new_tokens} new")
    loci = programs_of(case, arguments)[0]
    turn = turns[Loci.name][0]
    alone = [loci.prefill_seconds(turn["new_tokens"], turn["context_tokens"]) for _ in range(arguments.rounds)]
    return {"turns": turns, "alone_seconds": alone, **stamp(arguments)}


def measure(arguments):
    results = load_results()
    wanted = [case for case in CASES if (arguments.case is None or case.key in arguments.case)]
    for case in wanted:
        if not machine_has(case.cpu):
            progress(f"{case.key}: left out, as this machine lacks {case.cpu}")
            continue
        results.setdefault("cases", {})[case.key] = measure_case(case, arguments)
        save_results(results)
    first = next(case for case in CASES if case.model is DEFAULT and machine_has(case.cpu))
    if not arguments.no_second_turn:
        results["second_turn"] = measure_second_turns(first, arguments)
        save_results(results)
    if not arguments.no_sweeps:
        programs = programs_of(first, arguments)
        results["batches"] = measure_sweep(first, arguments, [(batch, batch, SWEEP_PROMPT) for batch in BATCHES], programs)
        save_results(results)
        programs += eight_bit_programs_of(first, arguments)
        results["contexts"] = measure_sweep(first, arguments, [(context, 1, context) for context in CONTEXTS], programs)
        save_results(results)


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))  # so that servers are stopped too
    if not arguments.report_only:
        with Disturbance():
            time.sleep(2)
        if Disturbance.worst > report.QUIET_SHARE:
            progress(f"others use {Disturbance.worst:.0%} of the machine: stop them for figures to trust")
        measure(arguments)
    report.write(load_results())


if __name__ == "__main__":
    main()
