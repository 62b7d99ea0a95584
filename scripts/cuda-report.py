#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each CUDA kernel takes on each GPU: registers, shared memory, stack and spills, as ptxas said when it was
compiled (build/PRESET/nvcc/**/*.ptxas). Writes a table and fails where a kernel spills registers to memory
beyond what is accepted (ACCEPTED: a kernel's name without template arguments, bytes of stores and loads).

cuda-report.py [--build build/release] [--out build/cuda-kernels.md]
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Kernel -> (bytes spilled at most in stores and loads together, why that is no harm).
ACCEPTED = {}

COMPILING = re.compile(r"ptxas info\s+: Compiling entry function '(\w+)' for '(\w+)'")
PROPERTIES = re.compile(r"ptxas info\s+: Function properties for (\w+)")
STACK = re.compile(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"ptxas info\s+: Used (\d+) registers(.*)")
SHARED = re.compile(r"(\d+) bytes smem")


class Kernel:
    """One kernel on one architecture."""

    def __init__(self, source, name, architecture):
        self.source, self.name, self.architecture = source, name, architecture
        self.registers = self.shared = self.stack = self.stores = self.loads = 0


def parse(text, source):
    """The kernels that one object's report tells of. Functions that were not inlined belong to whichever
    kernel stands before them: their stack and spills are added to it."""
    kernels, entry = [], None
    for line in text.splitlines():
        if match := COMPILING.match(line):
            entry = Kernel(source, match.group(1), match.group(2))
            kernels.append(entry)
        elif entry is None or PROPERTIES.match(line):
            continue
        elif match := STACK.match(line):
            stack, stores, loads = map(int, match.groups())
            entry.stack += stack
            entry.stores += stores
            entry.loads += loads
        elif match := USED.match(line):
            entry.registers = int(match.group(1))
            shared = SHARED.search(match.group(2))
            entry.shared = int(shared.group(1)) if shared else 0
    return kernels


def demangle(names):
    """Readable names, without the return type, the parameters and the namespaces of the house."""
    out = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True).stdout
    readable = {}
    for name, line in zip(names, out.splitlines()):
        line = re.sub(r"\(anonymous namespace\)::|loci::cuda::|loci::", "", line)
        line = re.sub(r"\((?:int|bool|unsigned int)\)", "", line)
        depth = 0
        for at, char in enumerate(line):  # up to the parameters
            depth += (char == "<") - (char == ">")
            if char == "(" and depth == 0:
                line = line[:at]
                break
        readable[name] = line.removeprefix("void ").strip()
    return readable


def bare(name):
    return name.split("<")[0]


def table(kernels, names):
    """Markdown: a row a kernel, its registers on each architecture."""
    architectures = sorted({k.architecture for k in kernels})
    rows = collections.defaultdict(dict)
    for kernel in kernels:
        rows[(kernel.source, names[kernel.name])][kernel.architecture] = kernel
    lines = ["# CUDA kernels: what each takes\n",
             "Registers a thread; with static shared memory, stack and spills (stores + loads, bytes) where there are any.\n",
             "| source | kernel | " + " | ".join(architectures) + " |", "|---|---|" + "---|" * len(architectures)]
    for (source, name), on in sorted(rows.items()):
        cells = []
        for architecture in architectures:
            kernel = on.get(architecture)
            if kernel is None:
                cells.append("not compiled")
                continue
            cell = str(kernel.registers)
            if kernel.shared:
                cell += f", shared {kernel.shared}"
            if kernel.stack:
                cell += f", stack {kernel.stack}"
            if kernel.stores or kernel.loads:
                cell += f", **spills {kernel.stores} + {kernel.loads}**"
            cells.append(cell)
        lines.append(f"| {source} | `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spilling(kernels, names):
    """Those that spill more than is accepted, one line each."""
    out = []
    for kernel in kernels:
        limit = ACCEPTED.get(bare(names[kernel.name]), (0, ""))[0]
        if kernel.stores + kernel.loads > limit:
            out.append(f"{kernel.source}: {names[kernel.name]} spills {kernel.stores} + {kernel.loads} bytes for "
                       f"{kernel.architecture}, accepted are {limit}")
    return out


def self_test():
    text = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN4loci4cuda5scaleILi8EEEvNS0_6ParamsE' for 'sm_80'
ptxas info    : Function properties for _ZN4loci4cuda5scaleILi8EEEvNS0_6ParamsE
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 16 bytes stack, 1024 bytes smem, 368 bytes cmem[0]
"""
    (kernel,) = parse(text, "rows/scale.cu")
    assert (kernel.registers, kernel.shared, kernel.stack, kernel.stores, kernel.loads) == (12, 1024, 16, 4, 8)
    names = demangle([kernel.name])
    assert names[kernel.name] == "scale<8>", names
    assert len(spilling([kernel], names)) == 1
    assert "12, shared 1024, stack 16, **spills 4 + 8**" in table([kernel], names)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--out", default="build/cuda-kernels.md")
    arguments = parser.parse_args()
    self_test()
    folder = ROOT / arguments.build / "nvcc"
    kernels = []
    for path in sorted(folder.rglob("*.ptxas")):
        source = path.relative_to(folder).as_posix().removesuffix(".o.ptxas")
        if (ROOT / "src/loci" / source).is_file():
            kernels += parse(path.read_text(), source)
    if not kernels:
        print(f"cuda-report: no kernel was compiled in {folder}: run make cuda-toolkit, then build cuda_kernels")
        return 1
    names = demangle(sorted({k.name for k in kernels}))
    (ROOT / arguments.out).write_text(table(kernels, names))
    problems = spilling(kernels, names)
    for problem in problems:
        print(problem)
    architectures = ", ".join(sorted({k.architecture for k in kernels}))
    print(f"{len(names)} kernels for {architectures}: {arguments.out}; "
          f"{len(kernels) - len(problems)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
