#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of the five papers again: docs/reproduction/, a page for each paper, a chart and a table for each
figure with the paper's value beside ours. `make reproduce`, or ARGS=--quick for three minutes.

An experiment (experiments/*.json) names each parameter with the section that gives it, or says what was assumed; an
assumption has a second value, which gets a run of its own, or a sentence why it decides nothing. Runs are kept in
build/reproduce by their scenario and program, so that a run that was interrupted goes on.

Ends with 0; 1 where a run failed or a trace is missing (its experiments are skipped); 2 for wrong input; 130 after Ctrl-C.
"""
import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import computed
import computed_charts
import experiment as experiments
import pages
import runner as runners
import simulated

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def start_runs(runner, experiment, args):
    skip = experiment.get("quick_skips")
    runs = {name: (fields, args.scale) for name, fields in experiment["runs"].items() if not (args.quick and skip and re.search(skip, name))}
    if not args.quick:
        scale = args.scale * experiment.get("second_scale", 1)
        runs.update({name: (fields, scale) for name, fields in experiments.second_runs(experiment)})
    return {name: runner.start(f"{experiment['name']}.{name}", experiments.scenario(experiment, fields, scale, args.quick))
            for name, (fields, scale) in runs.items()}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller workloads, fewer points, no second runs")
    parser.add_argument("--only", default="", help="experiments whose names this regular expression finds; other figures are then listed as not drawn")
    parser.add_argument("--loci", default=str(ROOT / "build/release/loci"))
    parser.add_argument("--output", default=None, help="a folder; default: docs/reproduction for a whole run, build/reproduce/quick with --quick, else "
                        "(--only, --scale, a missing trace) build/reproduce/part, so that only a whole run replaces the pages of the docs")
    parser.add_argument("--experiments", default=str(HERE / "experiments"), help="the folder of the experiment files")
    parser.add_argument("--scale", type=float, default=1, help="of workloads and of the memory that they outgrow, 0.01 to 1")
    parser.add_argument("--fresh", action="store_true", help="run all again, whatever is kept")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    args = parser.parse_args()
    if not 0.01 <= args.scale <= 1:
        raise experiments.Refused(f"--scale: expected 0.01 to 1, found {args.scale}")
    if args.jobs < 1:
        raise experiments.Refused(f"--jobs: expected 1 or more, found {args.jobs}")
    if not pathlib.Path(args.loci).is_file():
        raise experiments.Refused(f"--loci: expected a program, found none at {args.loci}: scripts/build.sh release loci builds it")
    return args


def read_experiments(folder):
    found = [experiments.read(path) for path in sorted(pathlib.Path(folder).glob("*.json"))]
    for experiment in found:
        for field, known in (("name", simulated.EVALUATE), ("paper", pages.TITLES)):
            if experiment[field] not in known:
                raise experiments.Refused(f"{experiment['name']}: {field}: expected one of {', '.join(known)}, found {experiment[field]}")
    return found


def output_of(args, whole):
    if args.output:
        return pathlib.Path(args.output)
    return ROOT / ("build/reproduce/quick" if args.quick else "docs/reproduction" if whole else "build/reproduce/part")


def draw(args):
    """Runs and draws what is asked for; gives the experiments that a missing trace stopped."""
    begin = time.monotonic()
    found = read_experiments(args.experiments)
    chosen = [e for e in found if re.search(args.only, e["name"])]
    if not chosen:
        raise experiments.Refused(f"--only: expected to find one of {', '.join(e['name'] for e in found)}, found none by {args.only}")
    missing = {e["name"]: trace for e in chosen if (trace := experiments.missing_trace(e))}
    presets = json.loads(subprocess.run([args.loci, "sim", "--presets"], capture_output=True, text=True, check=True).stdout)
    points, sources = computed.all_points(presets), []
    charts = computed_charts.all_charts(presets, points)
    with runners.Runner(args.loci, args.jobs, args.fresh) as runner:
        started = {e["name"]: start_runs(runner, e, args) for e in chosen if e["name"] not in missing}
        runners.wait([future for runs in started.values() for future in runs.values()])
    for experiment in (e for e in chosen if e["name"] in started):
        results = {name: future.result() for name, future in started[experiment["name"]].items()}
        more, drawn = simulated.EVALUATE[experiment["name"]](results, args.quick)
        points += more
        charts += drawn
        sources.append((experiment, results))
    whole = not (args.quick or args.only or args.scale < 1 or missing)
    output = output_of(args, whole)
    pages.write(output, points, charts, sources, pages.kind_of_run(args, missing), whole)
    print(f"reproduce: {sum(p.inside() for p in points)} of {len(points)} points inside their bands; {output} "
          f"({time.monotonic() - begin:.0f} s)")
    return missing


def stop(*_):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGTERM, stop)
    try:
        missing = draw(options())
    except experiments.Refused as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2
    except runners.Failed as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("reproduce: stopped; what was run is kept, and the next call goes on from there", file=sys.stderr)
        return 130
    for name, trace in missing.items():
        print(f"reproduce: {name}: expected the trace {trace}, found no such file: skipped", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
