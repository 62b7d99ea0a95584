#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of the five papers again: docs/reproduction/, a page for each paper, a chart and a table for each
figure with the paper's value beside ours. `make reproduce`, or ARGS=--quick for three minutes.

An experiment (experiments/*.json) names each parameter with the section that gives it, or says what was assumed; an
assumption that has a second value gets a run of its own. Runs are kept in build/reproduce by their scenario and program,
so that a run that was interrupted goes on.
"""
import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import computed
import pages
import simulated

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def fail(words):
    print(f"reproduce: {words}", file=sys.stderr)
    sys.exit(2)


def read_experiment(path):
    """Checks what an experiment must have; errors name file and field."""
    try:
        experiment = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        fail(f"{path.name}:{error.lineno}: expected JSON, found {error.msg}")
    for field in ("paper", "name", "parameters", "main", "runs", "quick"):
        if field not in experiment:
            fail(f"{path.name}: {field}: expected, found nothing")
    for name, parameter in experiment["parameters"].items():
        if "value" not in parameter or ("from" in parameter) == ("assumed" in parameter):
            fail(f"{path.name}: parameters.{name}: expected a value and either from (a section) or assumed (why), "
                 f"found {json.dumps(parameter)}")
    add_sweeps(experiment)
    if experiment["main"] not in experiment["runs"]:
        fail(f"{path.name}: main: expected one of the runs, found {experiment['main']}")
    return experiment


def add_sweeps(experiment):
    """A sweep is a run `tag@rate` for each of its rates of conversations. What `by_rate` lists is so many times the rate, so
    that each run lasts as long, whatever its rate."""
    for tag, sweep in experiment.get("sweeps", {}).items():
        by_rate = {**experiment.get("by_rate", {}), **sweep.get("by_rate", {})}
        for rate in sweep["rates"]:
            scaled = {name: round(times * rate) for name, times in by_rate.items()}
            experiment["runs"][f"{tag}@{rate}"] = {**sweep["fields"], "workload.rate": rate, **scaled}


def scenario(experiment, overrides, args):
    """The scenario's fields: the experiment's parameters, the run's own; in a quick run fewer requests. What `scaled` lists (the
    workload and the memory that it outgrows) is multiplied by the scale."""
    fields = {name: parameter["value"] for name, parameter in experiment["parameters"].items()}
    fields.update(overrides)
    scale = args.scale
    if args.quick:
        fields.update(experiment["quick"])
        scale = min(scale, experiment.get("quick_scale", 1))
    for name in experiment.get("scaled", []):
        fields[name] = type(fields[name])(fields[name] * scale)
    if args.quick:
        for name, divisor in experiment.get("quick_shortens", {}).items():
            fields[name] = max(1, fields[name] // divisor)
    out = {}
    for name, value in fields.items():
        at = out
        *path, last = name.split(".")
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return out


class Runner:
    def __init__(self, loci, jobs, fresh):
        self.fresh = fresh
        self.loci, self.folder = loci, ROOT / "build" / "reproduce"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.program = hashlib.sha256(pathlib.Path(loci).read_bytes()).hexdigest()
        self.pool = ThreadPoolExecutor(jobs)

    def run(self, name, fields):
        text = json.dumps(fields, indent=1, sort_keys=True)
        key = hashlib.sha256((text + self.program).encode()).hexdigest()[:20]
        report = self.folder / f"{key}.json"
        if self.fresh or not report.exists():
            at = self.folder / f"{name}-{key}.scenario.json"
            at.write_text(text)
            begin = time.monotonic()
            done = subprocess.run([self.loci, "sim", str(at), "--output", f"{report}.part"], capture_output=True, text=True)
            if done.returncode != 0:
                fail(f"{name}: {done.stderr.strip()}")
            pathlib.Path(f"{report}.part").rename(report)
            print(f"  {name}: {time.monotonic() - begin:.1f} s", flush=True)
        return json.loads(report.read_text())

    def start(self, name, fields):
        return self.pool.submit(self.run, name, fields)


def start_runs(runner, experiment, args):
    quick = args.quick
    skip = experiment.get("quick_skips")
    started = {}
    for name, overrides in experiment["runs"].items():
        if quick and skip and re.search(skip, name):
            continue
        started[name] = runner.start(f"{experiment['name']}.{name}", scenario(experiment, overrides, args))
    if not quick:
        main = experiment["runs"][experiment["main"]]
        for field, parameter in experiment["parameters"].items():
            if "second" in parameter:
                fields = {**main, field: parameter["second"]}
                started[f"second:{field}"] = runner.start(f"{experiment['name']}.second.{field}", scenario(experiment, fields, args))
    return started


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller workloads, fewer points, no second runs")
    parser.add_argument("--only", default="", help="experiments whose names this regular expression finds")
    parser.add_argument("--loci", default=str(ROOT / "build/release/loci"))
    parser.add_argument("--output", default=None, help="default: docs/reproduction; with --quick build/reproduce/quick")
    parser.add_argument("--scale", type=float, default=1, help="of workloads and of the memory that they outgrow, 0.01 to 1")
    parser.add_argument("--fresh", action="store_true", help="run all again, whatever is kept")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    output = pathlib.Path(args.output) if args.output else ROOT / ("build/reproduce/quick" if args.quick else "docs/reproduction")
    if not 0.01 <= args.scale <= 1:
        fail(f"--scale: expected 0.01 to 1, found {args.scale}")
    begin = time.monotonic()
    presets = json.loads(subprocess.run([args.loci, "sim", "--presets"], capture_output=True, text=True, check=True).stdout)
    runner = Runner(args.loci, args.jobs, args.fresh)
    experiments = [read_experiment(path) for path in sorted((HERE / "experiments").glob("*.json"))]
    started = {e["name"]: start_runs(runner, e, args) for e in experiments if re.search(args.only, e["name"])}
    points, charts, sources = computed.all_points(presets), [], []
    for experiment in experiments:
        if experiment["name"] not in started:
            continue
        results = {name: future.result() for name, future in started[experiment["name"]].items()}
        more, drawn = simulated.EVALUATE[experiment["name"]](results, args.quick)
        points += more
        charts += drawn
        sources.append((experiment, results))
    pages.write(output, points, charts, sources, args)
    print(f"reproduce: {sum(p.inside() for p in points)} of {len(points)} points inside their bands; {output} "
          f"({time.monotonic() - begin:.0f} s)")


if __name__ == "__main__":
    main()
