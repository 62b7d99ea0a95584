# SPDX-License-Identifier: Apache-2.0
"""Writes the pages: README.md with every figure's row, one page for each paper, an SVG for each chart."""
import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
TITLES = {"attentionstore": "AttentionStore", "berkeley": "Prefix caching (Berkeley)", "hcache": "HCache", "memserve": "MemServe",
          "pensieve": "Pensieve"}
BANDS = {"A": "×/÷ 1.15", "B": "×/÷ 1.5", "P": "±10 points", "L": "±2 layers", "R": "±1 request/s", "D": "direction"}


def number(value):
    if value is None:
        return "—"
    if isinstance(value, tuple):
        return " to ".join(number(v) for v in value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def state(point):
    return "inside" if point.inside() else "**outside**"


def table(points):
    out = ["| what | paper | ours | band | | remarks |", "|---|---|---|---|---|---|"]
    for p in points:
        out.append(f"| {p.label} | {number(p.theirs)} | {number(float(p.ours))} | {BANDS[p.band]} | {state(p)} | {p.why} |")
    return out


def slug(paper, figure, title):
    words = re.sub("[^a-z0-9]+", "-", f"{figure}-{title}".lower()).strip("-")
    return f"{paper}-{words}.svg"


def at_field(report, field):
    for part in field.split("."):
        report = report[part]
    return report


def parameters(experiment, results):
    title = f": {experiment['title']}" if "title" in experiment else ""
    out = ["", f"### Parameters of its simulated runs{title}", "", "| field of the scenario | value | from |", "|---|---|---|"]
    for name, parameter in experiment["parameters"].items():
        source = parameter.get("from") or f"assumed: {parameter['assumed']}"
        if "second" in parameter:
            source += f"; second run at {json.dumps(parameter['second'])}"
        if "cannot_matter" in parameter:
            source += f". No second run: {parameter['cannot_matter']}"
        out.append(f"| `{name}` | {json.dumps(parameter['value'])} | {source} |")
    main = results.get(experiment["main"])
    if main:
        out += ["", f"The workload as drawn (`{experiment['main']}`):", ""] + [f"- {note}" for note in main["workload"]["notes"]]
    return out + decided(experiment, results, main)


def decided(experiment, results, main):
    """What the assumptions decide: the main run at each second value, and how it then compares with the run that it is compared with."""
    seconds = {run.removeprefix("second:"): r for run, r in results.items() if run.startswith("second:")}
    if not seconds or not main:
        return []
    against = experiment.get("against")
    others = {field: results[f"second-against:{field}"] for field in seconds} if against else {}
    if "none" not in seconds:
        seconds, others = {"none": main, **seconds}, {"none": results[against["run"]] if against else main, **others}
    scale = f", all at scale {experiment['second_scale']}" if "second_scale" in experiment else ""
    says = f" {against['says']} |" if against else ""
    out = ["", f"What the assumptions decide (`{experiment['main']}`{scale}):", "",
           "| assumption changed | to | hit rate of returning turns, % | tokens cached, % | TTFT from admission, s | from arrival, s | s a token | busy, s |" + says,
           "|---|---|---|---|---|---|---|---|" + ("---|" if against else "")]
    for field, r in seconds.items():
        value = "" if field == "none" else json.dumps(experiment["parameters"][field]["second"])
        row = (f"| {field} | {value} | {100 * r['hit_rate']['of_returning_turns']:.1f} | {100 * r['tokens']['share_cached']:.1f} | "
               f"{r['ttft_from_admission_s']['mean']:.3f} | {r['ttft_from_arrival_s']['mean']:.2f} | {r['latency_per_token_s']['mean']:.4f} | {r['busy_s']['total']:.0f} |")
        if against:
            row += f" {at_field(others[field], against['field']) / at_field(r, against['field']):.2f} |"
        out.append(row)
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
    """How a figure was had. A row without results says why there are none; one that is compared has them in a whole run."""
    mine = [p for p in points if p.paper == row["paper"] and p.figure == row["figure"]]
    if mine:
        inside = sum(p.inside() for p in mine)
        return f"{mine[0].how}: {inside} of {len(mine)} inside"
    return "not drawn in this run" if row["status"] == "compared" else row["status"]


def kind_of_run(args, missing):
    """What is to be known of a run that is not whole."""
    out = []
    if args.quick:
        out += ["", "**A quick run**: smaller workloads, no second runs of assumptions."]
    elif args.scale < 1:
        out += ["", f"**A run at scale {args.scale}**: the workloads and the memory that they outgrow (`scaled` of an experiment) are so much "
                "smaller than the papers'; `make reproduce` without `--scale` draws them whole."]
    if args.only:
        out += ["", f"**A part**: of the simulated experiments those that `{args.only}` finds."]
    for name, trace in missing.items():
        out += ["", f"**Without {name}**: its trace {trace} is missing."]
    return out


def write(output, points, charts, sources, kind, whole):
    """Makes all pages, then writes them, so that an error leaves a folder as it was; charts that are drawn no more are removed."""
    rows = json.loads((HERE / "figures.json").read_text())
    listed = {(row["paper"], row["figure"]) for row in rows}
    drawn = {(p.paper, p.figure) for p in points}
    if drawn - listed:
        raise SystemExit(f"reproduce: figures.json: expected a row for each figure that is drawn, found none for {sorted(drawn - listed)}")
    compared = {(row["paper"], row["figure"]) for row in rows if row["status"] == "compared"}
    if whole and compared - drawn:
        raise SystemExit(f"reproduce: figures.json: expected results of each figure that is compared, found none for {sorted(compared - drawn)}")
    uncharted = drawn - {(paper, figure) for paper, figure, _, _ in charts}
    if whole and uncharted:
        raise SystemExit(f"reproduce: expected a chart of each figure that is compared, found none of {sorted(uncharted)}")
    names, files = {}, {}
    for paper, figure, title, drawing in charts:
        name = slug(paper, figure, title)
        assert name not in files, name
        files[name] = drawing
        names.setdefault((paper, figure), []).append((title, name))
    for paper, title in TITLES.items():
        files[f"{paper}.md"] = paper_page(paper, title, rows, points, names, sources, kind)
    files["README.md"] = index_page(rows, points, kind)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (output / name).write_text(text)
    for old in output.glob("*.svg"):
        if old.name not in files:
            old.unlink()


def paper_page(paper, title, rows, points, names, sources, kind):
    out = [f"# {title}: its figures beside ours", "", "Written by `make reproduce`. [All papers](README.md) says what the columns mean.", *kind]
    for row in rows:
        if row["paper"] != paper:
            continue
        mine = [p for p in points if p.paper == paper and p.figure == row["figure"]]
        what = status(row, points)
        out += ["", f"## {row['figure']}: {row['title']}", "", f"{what[0].upper()}{what[1:]}." + (f" {row['why']}" if row["why"] else "")]
        if mine:
            out += ["", *table(mine)]
        for chart, name in names.get((paper, row["figure"]), []):
            out += ["", f"![{chart}]({name})"]
    for experiment, results in sources:
        if experiment["paper"] == paper:
            out += parameters(experiment, results) + runs_table(experiment, results)
    return "\n".join(out) + "\n"


def counts(points):
    by_band = ", ".join(f"{words} {sum(p.inside() for p in points if p.band == band)} of {sum(p.band == band for p in points)}"
                        for band, words in BANDS.items() if any(p.band == band for p in points))
    return f"{sum(p.inside() for p in points)} of {len(points)} compared points are inside their bands: {by_band}."


def index_page(rows, points, kind):
    out = ["# The five papers' figures, redrawn", "",
           "After this page you know which figures of the papers Loci's code gives again, how near, and which not. A whole `make reproduce`",
           "writes it; `make reproduce ARGS=--quick` draws a smaller one in build/reproduce/quick, and `ARGS=\"--only pensieve\"` the pages of some",
           "experiments in build/reproduce/part. `make reproduce ARGS=--help` lists the options.", *kind, "",
           "- *simulated*: the production core with its policies on modelled hardware in virtual time ([simulation](../simulation.md))",
           "- *computed*: a closed form over the shapes of models and the papers' calibration points, which are never compared themselves",
           "- *measured*: on this project's CPU backend, in the page that the row names",
           "- *input*: what the runs are given; *not reproducible*: says why", "",
           "A ratio is inside its band if it is so near to the paper's and, where the band is ×/÷ 1.5, on the same side of 1: which of two systems is",
           "better must be the same. *Direction* compares order and monotony alone, where the paper prints no number or leaves open what decides it.",
           "Each assumption has a second value, whose run is in the paper's page, or a sentence there why it decides nothing.", "",
           counts(points), "",
           "| paper | figure | | state | |", "|---|---|---|---|---|"]
    for row in rows:
        out.append(f"| [{TITLES[row['paper']]}]({row['paper']}.md) | {row['figure']} | {row['title']} | {status(row, points)} | {row['why']} |")
    return "\n".join(out) + "\n"
