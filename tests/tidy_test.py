#!/usr/bin/env python3
"""The rules of the house that a program can check; the first broken one of a kind is never excused.

  - a folder under src/loci includes only from floors below it
  - a file has at most 600 lines, a function 70, a kernel (compute/*/*.inl, *.cu) 150
  - headers begin with a comment that says what they are for, and with #pragma once
  - no paths of one machine
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = ["base", "model", "compute", "memory", "policy", "engine", "cluster", "serve", "sim", "cli"]
FILE_LINES, FUNCTION_LINES, KERNEL_LINES = 600, 70, 150
SOURCE = (".h", ".cc", ".inl", ".cu", ".cuh", ".rs", ".py", ".sh")
MACHINE_PATH = re.compile(r"(?<![\w./-])/(work|farm|root)/")


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
                         capture_output=True, check=True).stdout
    return [ROOT / name for name in out.splitlines() if (ROOT / name).is_file()]


def without_comments(text):
    """Comments, strings and character literals are blanked; lines stay where they are."""
    pattern = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def functions(text):
    """(first line, lines) of each function body that stands in a namespace or a class."""
    text = without_comments(text)
    stack, head, found = [], 0, []
    for at, char in enumerate(text):
        if char in ";}":
            if char == "}" and stack:
                kind, line = stack.pop()
                if kind == "function":
                    found.append((line, text.count("\n", 0, at) + 2 - line))
            head = at + 1
        elif char == "{":
            line = text.count("\n", 0, at) + 1
            words = text[head:at]
            if any(kind == "function" for kind, _ in stack):
                kind = "block"
            elif re.search(r"\bnamespace\b|\bextern\b", words):
                kind = "namespace"
            elif re.search(r"\b(class|struct|enum|union)\b(?![^{]*\))", words):
                kind = "class"
            elif ")" in words:
                kind = "function"
            else:
                kind = "block"
            stack.append((kind, line))
            head = at + 1
    return found


def check(path, problems):
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(errors="replace")
    lines = text.count("\n") + 1
    if lines > FILE_LINES:
        problems.append(f"{name}: {lines} lines, at most {FILE_LINES}: split it")
    if name != "tests/tidy_test.py":
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                problems.append(f"{name}:{number}: a path of one machine")
    if path.suffix not in (".h", ".cc", ".inl", ".cu", ".cuh"):
        return
    limit = KERNEL_LINES if re.match(r"src/loci/compute/.*\.(inl|cu|cuh)$", name) else FUNCTION_LINES
    for line, length in functions(text):
        if length > limit:
            problems.append(f"{name}:{line}: a function of {length} lines, at most {limit}")
    if path.suffix == ".h":
        if not text.startswith("//") or "#pragma once" not in text:
            problems.append(f"{name}: begin with a comment that says what it is for, then #pragma once")
    match = re.match(r"src/loci/(\w+)/", name)
    if match and not path.stem.endswith("_test"):
        floor = FLOORS.index(match.group(1))
        for number, line in enumerate(text.splitlines(), 1):
            included = re.match(r'\s*#include "loci/(\w+)/', line)
            if included and FLOORS.index(included.group(1)) > floor:
                problems.append(f"{name}:{number}: includes from a higher floor ({included.group(1)})")


def self_test():
    """The checks see what they are for."""
    text = "namespace a {\nclass B {\n int f(int x) {\n  if (x) {\n  }\n  return 1;\n }\n};\nvoid g() {\n}\n}\n"
    assert functions(text) == [(3, 5), (9, 2)], functions(text)
    assert MACHINE_PATH.search('"/' + 'work/x"') and not MACHINE_PATH.search("bench/" + "work/x")
    assert functions('void f() { // }\n "}";\n}\n') == [(1, 3)]


def main():
    self_test()
    problems, count = [], 0
    for path in tracked():
        if path.suffix in SOURCE or path.name in ("Makefile", "CMakeLists.txt"):
            check(path, problems)
            count += 1
    for problem in problems:
        print(problem)
    print(f"tidy: {count - len({p.split(':')[0] for p in problems})} passed, "
          f"{len({p.split(':')[0] for p in problems})} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
