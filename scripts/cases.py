#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums JUnit files, as pytest and ctest write them: cases.py FILE...

Where a folder FILE.programs (without .xml) has what a test program of ctest's wrote itself, its cases count in place of
the program. A case that says that it is left to another part is none here.

The first line is "PASSED FAILED SKIPPED"; a line for each skipped case follows: its name and why. parts.sh puts them
into the table of a run.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

LEFT = "left to another part"


def read(path):
    """(name, outcome, why) of each case."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        skipped = case.find("skipped")
        name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", ""
        elif skipped is not None:
            why = " ".join((skipped.get("message") or "it did not run").split())
            if LEFT not in why:
                yield name, "skipped", why
        else:
            yield name, "passed", ""


def read_whole(path):
    """The same with the cases of each program that passed; one that failed may not have come to write them."""
    programs = {}
    for file in sorted(pathlib.Path(path.removesuffix(".xml") + ".programs").glob("*.xml")):
        programs.setdefault(re.sub(r"_\d+$", "", file.stem), []).append(file)
    for name, outcome, why in read(path):
        inner = programs.pop(name.rpartition(".")[2], None) if outcome == "passed" else None
        if inner is None:
            yield name, outcome, why
        for file in inner or ():
            yield from ((f"{file.stem}: {case}", *rest) for case, *rest in read(file))


cases = [case for path in sys.argv[1:] for case in read_whole(path)]
print(*(sum(outcome == wanted for _, outcome, _ in cases) for wanted in ("passed", "failed", "skipped")))
for name, outcome, why in cases:
    if outcome == "skipped":
        print(f"{name}: {why}")
