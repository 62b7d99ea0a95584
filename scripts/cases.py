#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums JUnit files, as pytest and ctest write them: cases.py FILE...

The first line is "PASSED FAILED SKIPPED"; a line for each skipped case follows: its name and why. parts.sh puts them
into the table of a run.
"""
import sys
import xml.etree.ElementTree


def read(path):
    """(name, outcome, why) of each case."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        skipped = case.find("skipped")
        name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", ""
        elif skipped is not None:
            yield name, "skipped", " ".join((skipped.get("message") or "it did not run").split())
        else:
            yield name, "passed", ""


cases = [case for path in sys.argv[1:] for case in read(path)]
print(*(sum(outcome == wanted for _, outcome, _ in cases) for wanted in ("passed", "failed", "skipped")))
for name, outcome, why in cases:
    if outcome == "skipped":
        print(f"{name}: {why}")
