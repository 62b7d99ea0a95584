# SPDX-License-Identifier: Apache-2.0
"""Writes the pages: README.md with every figure's row, one page for each paper, an SVG for each chart."""
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
TITLES = {"attentionstore": "AttentionStore", "berkeley": "Prefix caching (Berkeley)", "hcache": "HCache", "memserve": "MemServe",
          "pensieve": "Pensieve"}
BANDS = {"A": "×/÷ 1.15", "B": "×/÷ 1.5", "P": "±10 points", "L": "±2 layers", "D": "direction"}


def number(value):
    if value is None:
        return "—"
    if isinstance(value, tuple):
        return " to ".join(number(v) for v in value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def state(point):
    return "inside" if point.inside() else "**outside**"


def table(points):
    out = ["| what | paper | ours | band | | why |", "|---|---|---|---|---|---|"]
    for p in points:
        why = "" if p.inside() else p.why
        out.append(f"| {p.label} | {number(p.theirs)} | {number(float(p.ours))} | {BANDS[p.band]} | {state(p)} | {why} |")
    return out


def slug(paper, figure, title):
    keep = "".join(c if c.isalnum() else "-" for c in f"{figure}-{title}".lower())
    return f"{paper}-{keep}.svg"[:90].replace("-.svg", ".svg")


def parameters(experiment, results):
    title = f": {experiment['title']}" if "title" in experiment else ""
    out = ["", f"### Parameters of its simulated runs{title}", "", "| field of the scenario | value | from |", "|---|---|---|"]
    for name, parameter in experiment["parameters"].items():
        source = parameter.get("from") or f"assumed: {parameter['assumed']}"
        if "second" in parameter:
            source += f"; second run at {parameter['second']}"
        out.append(f"| `{name}` | {json.dumps(parameter['value'])} | {source} |")
    main = results.get(experiment["main"])
    if main:
        out += ["", f"The workload as drawn (`{experiment['main']}`):", ""] + [f"- {note}" for note in main["workload"]["notes"]]
    seconds = {run: r for run, r in results.items() if run.startswith("second:")}
    if seconds and main:
        out += ["", f"What the assumptions decide (`{experiment['main']}`):", "",
                "| assumption changed | hit rate of returning turns, % | TTFT from admission, s | from arrival, s | busy, s |", "|---|---|---|---|---|"]
        for run, r in [("none", main), *seconds.items()]:
            out.append(f"| {run.removeprefix('second:')} | {100 * r['hit_rate']['of_returning_turns']:.1f} | "
                       f"{r['ttft_from_admission_s']['mean']:.3f} | {r['ttft_from_arrival_s']['mean']:.2f} | {r['busy_s']['total']:.0f} |")
    return out


def runs_table(experiment, results):
    title = f": {experiment['title']}" if "title" in experiment else ""
    out = ["", f"### All runs{title}", "", "| run | hit rate of turns, returning turns, % | tokens cached, of prompts | TTFT from admission mean, p90, s | from arrival mean, p90, s | s a token | requests/s | busy: prompts, decodes, waits for loads, s |",
           "|---|---|---|---|---|---|---|---|"]
    for run, r in results.items():
        admission, arrival, busy = r["ttft_from_admission_s"], r["ttft_from_arrival_s"], r["busy_s"]
        out.append(f"| {run} | {100 * r['hit_rate']['of_turns']:.1f}, {100 * r['hit_rate']['of_returning_turns']:.1f} | "
                   f"{100 * r['tokens']['share_cached']:.1f} % | {admission['mean']:.3f}, {admission['p90']:.3f} | {arrival['mean']:.2f}, {arrival['p90']:.2f} | "
                   f"{r['latency_per_token_s']['mean']:.4f} | {r['throughput']['requests_per_s']:.3f} | "
                   f"{busy['prompts']:.0f}, {busy['decodes']:.0f}, {busy['waits_for_loads']:.1f} |")
    return out


def status(row, points):
    mine = [p for p in points if p.paper == row["paper"] and p.figure == row["figure"]]
    if not mine:
        return row["status"], row["why"]
    inside = sum(p.inside() for p in mine)
    return f"{mine[0].how}: {inside} of {len(mine)} inside", row["why"]


def kind_of_run(args):
    """What is to be known of a run that is not whole."""
    if args.quick:
        return ["", "**A quick run**: smaller workloads, no second runs of assumptions."]
    if args.scale < 1:
        return ["", f"**A run at scale {args.scale}**: the workloads and the memory that they outgrow (`scaled` of an experiment) are so much "
                "smaller than the papers'; `make reproduce` without `--scale` draws them whole."]
    return []


def write(output, points, charts, sources, args):
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.svg"):
        old.unlink()
    rows = json.loads((HERE / "figures.json").read_text())
    listed = {(row["paper"], row["figure"]) for row in rows}
    lost = {(p.paper, p.figure) for p in points} - listed
    if lost:
        raise SystemExit(f"reproduce: figures.json: expected a row for each figure that is drawn, found none for {sorted(lost)}")
    names = {}
    for paper, figure, title, drawing in charts:
        name = slug(paper, figure, title)
        (output / name).write_text(drawing)
        names.setdefault((paper, figure), []).append((title, name))
    for paper, title in TITLES.items():
        write_paper(output, paper, title, rows, points, names, sources, args)
    write_index(output, rows, points, args)


def write_paper(output, paper, title, rows, points, names, sources, args):
    out = [f"# {title}: its figures beside ours", "", "Written by `make reproduce`. [All papers](README.md) says what the columns mean."]
    out += kind_of_run(args)
    for row in rows:
        if row["paper"] != paper:
            continue
        mine = [p for p in points if p.paper == paper and p.figure == row["figure"]]
        what, why = status(row, points)
        out += ["", f"## {row['figure']}: {row['title']}", "", f"{what[0].upper()}{what[1:]}." + (f" {why}" if why else "")]
        if mine:
            out += ["", *table(mine)]
        for chart, name in names.get((paper, row["figure"]), []):
            out += ["", f"![{chart}]({name})"]
    for experiment, results in sources:
        if experiment["paper"] == paper:
            out += parameters(experiment, results) + runs_table(experiment, results)
    (output / f"{paper}.md").write_text("\n".join(out) + "\n")


def write_index(output, rows, points, args):
    inside = sum(p.inside() for p in points)
    out = ["# The five papers' figures, redrawn", "",
           "After this page you know which figures of the papers Loci's code gives again, how near, and which not. `make reproduce`",
           "writes it; `make reproduce ARGS=--quick` draws a smaller one in build/reproduce/quick.", ""]
    out += kind_of_run(args)[1:] + [""]
    out += ["- *simulated*: the production core with its policies on modelled hardware in virtual time ([simulation](../simulation.md))",
            "- *computed*: a closed form over the shapes of models and the papers' calibration points, which are never compared themselves",
            "- *measured*: on this project's CPU backend, in the page that the row names",
            "- *waits*: for a feature that the product lacks; *not reproducible*: says why", "",
            f"{inside} of {len(points)} compared points are inside their bands: "
            + ", ".join(f"{BANDS[b]} {sum(p.inside() for p in points if p.band == b)} of {sum(p.band == b for p in points)}" for b in BANDS if any(p.band == b for p in points)) + ".", "",
            "| paper | figure | | state | |", "|---|---|---|---|---|"]
    for row in rows:
        what, why = status(row, points)
        out.append(f"| [{TITLES[row['paper']]}]({row['paper']}.md) | {row['figure']} | {row['title']} | {what} | {why} |")
    (output / "README.md").write_text("\n".join(out) + "\n")
