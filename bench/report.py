# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md's tables and plots from the raw results; nothing in them is typed by hand."""

import os
import platform
import statistics
import subprocess

from cases import CASES, CONTEXT_FLOOR, CONTEXT_FLOOR_TOKENS, DECODE, DEFAULT, LARGE, MEMORY_FLOOR, ROOT
from limits import Limits, ModelCost
from runners import LlamaCpp, Loci
import plot

DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
SECOND_TURN, SWEEPS = "The second turn of a conversation", "Over batch size and context length (the default model, decode)"
QUIET_SHARE = 0.05
SECOND_TURN_FACTOR, SECOND_TURN_SLACK_SECONDS = 1.2, 0.020


def _processor_info():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        info = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in info.items()}


def processor_flags():
    return set(_processor_info().get("flags", "").split())


def processor():
    info = _processor_info()
    interesting = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8")
    return (f"{info.get('model name', platform.processor())} (family {info.get('cpu family')}, model {info.get('model')}), "
            f"{os.cpu_count()} processors, {', '.join(flag for flag in interesting if flag in processor_flags())}")


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _spread(values, form="{:,.0f}"):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{form.format(middle)} ({form.format(low)}–{form.format(high)})"


def _quiet(result):
    share = result["disturbed_share"]
    text = f"Others used at most {share:.0%} of the machine during any one measurement"
    return text + ("." if share <= QUIET_SHARE else ". That is too much to trust these figures, the ratios included.")


def _limit(test, limits):
    if test.kind == "decode":
        return limits.decode_rate(1, test.prompt, test.generate)
    if test.kind == "prefill":
        return limits.prefill_rate(test.prompt)
    return limits.streams_rate(test.streams, test.prompt, test.generate)


def _ratio(measured):
    return statistics.median(a / b for a, b in zip(measured[Loci.name], measured[LlamaCpp.name]))


def _case_lines(case, result):
    limits = Limits(ModelCost.read(case.model.path()), result["rates"])
    rates = result["rates"]
    lines = ["", f"### {_case_heading(case)}", "",
             f"{result['threads']} threads, {result['rounds']} rounds, at commit {result['commit']}, {result['date']}. "
             f"Memory reads {rates['read_bytes_per_second'] / 1e9:.1f} GB/s (1 GiB), "
             f"{rates['read_model_bytes_per_second'] / 1e9:.1f} GB/s (a buffer of the model's size); int8 products "
             f"{rates['int8_operations_per_second'] / 1e9:,.0f} GOP/s ({rates['int8_instruction']}); float32 multiply-adds "
             f"{rates['float32_operations_per_second'] / 1e9:,.0f} GFLOP/s. {_quiet(result)}", "",
             "| tokens/s: median (min–max) | Loci | llama.cpp | ratio | wanted | | limit | Loci of limit |",
             "|---|---|---|---|---|---|---|---|"]
    for test in case.tests:
        measured, floor = result["tests"][test.name], case.floors.get(test)
        ratio, limit = _ratio(measured), _limit(test, limits)
        verdict = "" if floor is None else "met" if ratio >= floor else "**missed**"
        lines.append(f"| {test.name} | {_spread(measured[Loci.name])} | {_spread(measured[LlamaCpp.name])} | {ratio:.2f} | "
                     f"{'' if floor is None else f'≥ {floor:g}'} | {verdict} | {limit:,.0f} | "
                     f"{statistics.median(measured[Loci.name]) / limit:.0%} |")
    if case.model is LARGE:
        rate = statistics.median(result["tests"][DECODE.name][Loci.name])
        moved = rate * limits.step_bytes(1, DECODE.prompt + DECODE.generate / 2)
        share = moved / rates["read_bytes_per_second"]
        lines += ["", f"A step reads {limits.step_bytes(1, DECODE.prompt) / 1e9:.2f} GB, so decode moves {moved / 1e9:.1f} GB/s: "
                  f"{share:.0%} of the memory's measured rate (wanted: {MEMORY_FLOOR:.0%}; "
                  f"{'met' if share >= MEMORY_FLOOR else '**missed**'})."]
    return lines


def _second_turn_lines(result, limits):
    lines = ["", f"### {SECOND_TURN}", "", _quiet(result), "",
             "| | first token after, ms: median (min–max) | tokens reused | new tokens | limit, ms |", "|---|---|---|---|---|"]
    for name, turns in result["turns"].items():
        context = statistics.median_low([turn["context_tokens"] for turn in turns])
        new = statistics.median_low([turn["new_tokens"] for turn in turns])
        times = _spread([turn["first_token_seconds"] * 1e3 for turn in turns], "{:.0f}")
        lines.append(f"| {name} | {times} | {context:,} | {new} | {limits.prefill_seconds(new, context) * 1e3:.0f} |")
    alone = statistics.median(result["alone_seconds"])
    bound = SECOND_TURN_FACTOR * alone + SECOND_TURN_SLACK_SECONDS
    found = statistics.median(turn["first_token_seconds"] for turn in result["turns"][Loci.name])
    return lines + ["", f"The new tokens alone take {_spread([value * 1e3 for value in result['alone_seconds']], '{:.0f}')} ms: "
                    f"`bench_compute` measures a pass of the context and the new tokens, less a pass of the context. Wanted: at most "
                    f"{SECOND_TURN_FACTOR} × that + {SECOND_TURN_SLACK_SECONDS * 1e3:.0f} ms = {bound * 1e3:.0f} ms. "
                    f"Loci takes {found * 1e3:.0f} ms: {'met' if found <= bound else '**missed**'}."]


def _plot(name, title, axis, points, programs):
    picture = DOCUMENT.parent / "images" / f"decode-{name}.svg"
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(plot.lines(title, axis, "generated tokens/s", points, programs), encoding="utf-8")
    return ["", f"![{title}](images/{picture.name})", ""]


def _batches_lines(result):
    title, axis = "Decode over batch size (each after 128 tokens)", "streams"
    lines = _plot("batches", title, axis, result["points"], (Loci.name, LlamaCpp.name))
    lines += [f"| {axis} | Loci | llama.cpp | ratio |", "|---|---|---|---|"]
    lines += [f"| {x:,} | {loci:,.0f} | {peer:,.0f} | {loci / peer:.2f} |" for x, loci, peer in result["points"]]
    return lines + ["", _quiet(result)]


def _contexts_lines(result, cost):
    title, axis = "Decode of one stream over its context", "tokens of context"
    limits, rate = Limits(cost, result["rates"]), result["rates"]["read_bytes_per_second"]
    lines = _plot("contexts", title, axis, result["points"],
                  (Loci.name, LlamaCpp.name, f"{Loci.name}, q8", f"{LlamaCpp.name}, q8_0"))
    lines += [f"| {axis} | Loci | llama.cpp | ratio | Loci, q8 | llama.cpp, q8_0 | ratio | q8 over f16 | GB/s that f16 reads |",
              "|---|---|---|---|---|---|---|---|---|"]
    missed = []
    for x, loci, peer, loci_q8, peer_q8 in result["points"]:
        peer_cells = "– | –" if peer_q8 is None else f"{peer_q8:,.0f} | {loci_q8 / peer_q8:.2f}"
        moved = loci * limits.step_bytes(1, x + result["generate"] / 2)
        share = moved / rate
        lines.append(f"| {x:,} | {loci:,.0f} | {peer:,.0f} | {loci / peer:.2f} | {loci_q8:,.0f} | {peer_cells} | "
                     f"{loci_q8 / loci:.2f} | {moved / 1e9:.1f} ({share:.0%}) |")
        if x >= CONTEXT_FLOOR_TOKENS and share < CONTEXT_FLOOR:
            missed.append(f"{x:,}")
    return lines + ["", f"State is f16 but where it says otherwise (llama.cpp's `q8_0` cache has a scale of 16 bits for 32 values). What a step "
                    f"reads is the weights and the state; in brackets the share of {rate / 1e9:.1f} GB/s, at which both threads read 1 GiB "
                    f"(wanted from {CONTEXT_FLOOR_TOKENS:,} tokens on: {CONTEXT_FLOOR:.0%}; "
                    f"{'**missed** at ' + ', '.join(missed) if missed else 'met'}). {_quiet(result)}"]


def _sections(text):
    """By heading: what stood there. Nothing where another machine was measured."""
    machine, *parts = text.strip("\n").split("\n### ")
    if machine.strip() != f"Machine: {processor()}.":
        return {}
    return {part.split("\n")[0]: ["", *f"### {part}".rstrip("\n").split("\n")] for part in parts}


def _case_heading(case):
    return f"{case.model.name}, {case.cpu}"


def write(results):
    """Sections that were measured; those that were not stay as they are, where they are of this machine."""
    text = DOCUMENT.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"bench: {DOCUMENT} must hold {BEGIN} and {END} once each")
    head, rest = text.split(BEGIN)
    old, tail = rest.split(END)
    sections, measured = _sections(old), results.get("cases", {})
    for case in CASES:
        if case.key in measured:
            sections[_case_heading(case)] = _case_lines(case, measured[case.key])
    default = next((case for case in CASES if case.key in measured), None)
    if "second_turn" in results and default:
        limits = Limits(ModelCost.read(default.model.path()), measured[default.key]["rates"])
        sections[SECOND_TURN] = _second_turn_lines(results["second_turn"], limits)
    if "batches" in results and "contexts" in results:
        cost = ModelCost.read(DEFAULT.path())
        sections[SWEEPS] = ["", f"### {SWEEPS}", *_batches_lines(results["batches"]), *_contexts_lines(results["contexts"], cost)]
    lines = [f"Machine: {processor()}."]
    for heading in (*map(_case_heading, CASES), SECOND_TURN, SWEEPS):
        lines += sections.get(heading, [])
    print("\n".join(lines))
    DOCUMENT.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail, encoding="utf-8")
    print(f"bench: wrote {DOCUMENT.relative_to(ROOT)}")
