#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a build takes after a change in one source and its test: the server and the test's program, on two processors.

    scripts/incremental.py [--over SECONDS]               every source whose change takes longer (10), by ninja's log
    scripts/incremental.py --measure [REGULAR_EXPRESSION] the same of those sources, but it touches them, one object's after the
                                                          other's, and builds without the compiler's cache

By the log, which has to be that of one build of everything without a cache and with nothing beside it: a step takes its
share of the processors while it ran, as ninja runs more steps at a time than there are processors. Measured: a build's
steps are scaled to the time that the processors worked for it, so that a busy machine gives the figures of an idle one.
Both then say how long two processors need for the steps in their order.
"""
import argparse
import collections
import heapq
import os
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST = re.compile(r"_(test|fuzz|benchmark)\.cc$")


class Graph:
    """The steps of a build folder. A step is named by its first output."""

    def __init__(self, folder):
        self.folder = folder
        self.inputs = {}  # by step
        self.step_of = {}  # by output
        self.readers = collections.defaultdict(list)  # steps by input
        self.objects = collections.defaultdict(set)  # by source: steps that compile it
        for line in (folder / "build.ninja").read_text().replace("$\n", "").splitlines():
            if match := re.match(r"build (.+?): (\S+)(.*)", line):
                self.add(match[1].split(), match[2], match[3].split(" || ")[0].split())

    def add(self, outputs, rule, inputs):
        step, inputs = outputs[0], [name for name in inputs if name != "|"]
        self.inputs[step] = inputs
        self.step_of.update(dict.fromkeys(outputs, step))
        for name in inputs:
            self.readers[name].append(step)
        if rule.startswith("CXX_COMPILER"):
            source = pathlib.Path(inputs[0])
            texts = re.findall(r'^#include "(.+)"', source.read_text(), re.M) if source.suffix == ".cxx" else [str(source)]
            for text in texts:
                self.objects[text].add(step)

    def read_log(self):
        """{step: (begin, end)} of its last build, in seconds."""
        times = {}
        for line in (self.folder / ".ninja_log").read_text().splitlines()[1:]:
            begin, end, _, output, _ = line.split("\t")
            times[output] = int(begin) / 1000, int(end) / 1000
        return times

    def programs(self, objects):
        """What is linked of these objects themselves."""
        return {step for name in objects for step in self.readers[name] if not step.endswith(".a")}

    def above(self, names):
        """All steps that these are needed for."""
        found, reached = set(), list(names)
        while reached:
            if (step := reached.pop()) not in found:
                found.add(step)
                reached += self.readers[step]
        return found

    def below(self, goals):
        found, reached = set(), list(goals)
        while reached:
            step = self.step_of.get(reached.pop())
            if step and step not in found:
                found.add(step)
                reached += self.inputs[step]
        return found

    def time(self, steps, seconds):
        """On two processors, the longest way first."""
        needs = {step: {self.step_of.get(name) for name in self.inputs[step]} & steps for step in steps}
        rest = {}

        def way(step):
            if step not in rest:
                rest[step] = seconds.get(step, 0) + max((way(reader) for reader in self.readers[step] if reader in steps), default=0)
            return rest[step]

        now, running, waiting = 0.0, [], set(steps)
        while waiting or running:
            ready = sorted((step for step in waiting if not needs[step]), key=way, reverse=True)
            for step in ready[:2 - len(running)]:
                heapq.heappush(running, (now + seconds.get(step, 0), step))
                waiting.remove(step)
            now, done = heapq.heappop(running)
            for open_needs in needs.values():
                open_needs.discard(done)
        return now


def shares(times, processors=2):
    """{step: seconds}: what each would take with a processor of its own, of steps that shared a few."""
    moments = sorted({moment for interval in times.values() for moment in interval})
    running, seconds = set(), dict.fromkeys(times, 0.0)
    begins, ends = collections.defaultdict(list), collections.defaultdict(list)
    for step, (begin, end) in times.items():
        begins[begin].append(step)
        ends[end].append(step)
    for now, then in zip(moments, moments[1:]):
        running.update(begins[now])
        running.difference_update(ends[now])
        for step in running:
            seconds[step] += (then - now) * min(1, processors / len(running))
    return seconds


def tests_of(source, sources):
    """The tests that are named after the source: of no other source in its folder with a longer name."""
    folder, _, name = source.rpartition("/")
    stems = [other.rpartition("/")[2][:-3] for other in sources if other.rpartition("/")[0] == folder and not TEST.search(other)]

    def owner(test):
        return max((stem for stem in stems if test.startswith(stem + "_")), key=len, default=None)

    return [other for other in sources if other.rpartition("/")[0] == folder and TEST.search(other)
            and owner(other.rpartition("/")[2]) == name[:-3]]


def changes(graph, pattern):
    """{(the changed objects, the goals): sources}, of sources of the server. Several sources lie in one object."""
    server = graph.below(["loci"])
    found = collections.defaultdict(list)
    for source in sorted(graph.objects):
        name = source.removeprefix(f"{ROOT}/")
        if not graph.objects[source] & server or not name.startswith(("src/", "deps/")) or not re.search(pattern, name):
            continue
        tests = [object for test in tests_of(source, graph.objects) for object in graph.objects[test]]
        objects = (graph.objects[source] & server) | set(tests)
        goals = {"loci"} | graph.programs(tests)
        found[frozenset(objects), frozenset(goals)].append((source, name, tests_of(source, graph.objects)))
    return found


def measure(graph, sources, goals):
    """Seconds of processors of a build after a change of these."""
    build = ["ninja", "-j2", "-C", str(graph.folder), *goals]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for source in sources:
        os.utime(source)
    subprocess.run(build, env={**os.environ, "CCACHE_DISABLE": "1"}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="of the paths of the sources to look at (all)")
    parser.add_argument("--over", type=float, default=10, metavar="SECONDS", help="list what takes longer (%(default)s)")
    parser.add_argument("--measure", action="store_true", help="build, rather than read the log")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path, metavar="FOLDER", help="of a build (build/release)")
    arguments = parser.parse_args()
    graph = Graph(arguments.build.resolve())
    by_log = shares(graph.read_log())
    found = []
    for (objects, goals), members in changes(graph, arguments.pattern).items():
        steps = graph.above(objects) & graph.below(goals)
        seconds = by_log
        if arguments.measure:
            source, _, tests = members[0]
            processors = measure(graph, [source, *tests], goals)
            log = {step: end - begin for step, (begin, end) in graph.read_log().items() if step in steps}
            seconds = {step: time * processors / sum(log.values()) for step, time in log.items()}
            print(f"{graph.time(steps, seconds):6.1f} s, {processors:6.1f} s of processors: {members[0][1]}", flush=True)
        found.append((graph.time(steps, seconds), max(steps, key=lambda step: seconds.get(step, 0)), [name for _, name, _ in members]))
    slow = sorted((entry for entry in found if entry[0] > arguments.over), reverse=True)
    for time, step, names in slow:
        print(f"{time:6.1f} s, most of it {step}:\n         {' '.join(names)}")
    count, all_of_them = (sum(len(names) for _, _, names in entries) for entries in (slow, found))
    print(f"{count} of {all_of_them} sources take more than {arguments.over:g} s after a change of them and of their tests")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
