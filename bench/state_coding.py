#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far real state can be compressed without loss, block by block: state_coding.py MODEL TEXT (plain or .gz).

A server computes the text's last 1,500 words and saves them to a disk; the saved slots are compressed by lz4 and zstd, as they
are and with the bytes or bits of equal weight side by side. bf16 is f16's state, converted. Prints the rows of the table
in docs/numerics.md: what is left, and megabytes of state a second of one processor, there and back.

    python3 -m venv build/coding-venv && build/coding-venv/bin/pip install numpy==2.4.6 lz4==4.4.5 zstandard==0.25.0
    build/coding-venv/bin/python bench/state_coding.py ~/.cache/loci/models/SmolLM2-135M-Instruct.Q4_1.gguf book.txt.gz
"""
import argparse
import gzip
import os
import pathlib
import sys
import tempfile
import time

import lz4.block
import numpy
import zstandard

from cases import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from live_client import Server, wait_saved  # noqa: E402

BLOCKS = 40
CODERS = {
    "lz4": (lz4.block.compress, lz4.block.decompress),
    "zstd 1": (zstandard.ZstdCompressor(level=1).compress, zstandard.ZstdDecompressor().decompress),
    "zstd 9": (zstandard.ZstdCompressor(level=9).compress, zstandard.ZstdDecompressor().decompress),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--words", type=int, default=1500)
    parser.add_argument("--loci", default=ROOT / "build/release/loci")
    return parser.parse_args()


def written(path, slot_bytes):
    """The slots of a sparse file that hold something."""
    at, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while at < size:
            try:
                slot = os.lseek(file.fileno(), at, os.SEEK_DATA) // slot_bytes
            except OSError:
                return
            yield os.pread(file.fileno(), slot_bytes, slot * slot_bytes)
            at = (slot + 1) * slot_bytes


def saved_blocks(options, text, state_type):
    with tempfile.TemporaryDirectory() as folder:
        with Server(options.loci, options.model, "--disk", f"{folder}/disk:2GiB", "--store", "", "--state-type", state_type) as server:
            reply = server.post("/v1/completions", {"prompt": text, "max_tokens": 1})
            if reply.status != 200:
                raise SystemExit(f"bench: the server answered {reply.status}: {reply.body!r}")
            wait_saved(server)
            slots, = pathlib.Path(folder).rglob("group-0.slots")
            total = int(sum(value for name, value in server.metrics().items() if name.startswith('loci_tier_slots{tier="disk"')))
        return list(written(slots, slots.stat().st_size // total))[:BLOCKS]


def bf16(block):
    wide = numpy.frombuffer(block, numpy.float16).astype(numpy.float32).view(numpy.uint32)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(numpy.uint16).tobytes()


def byte_planes(block):
    return numpy.frombuffer(block, numpy.uint8).reshape(-1, 2).T.tobytes()


def bit_planes(block, kind):
    values = numpy.frombuffer(block, kind)
    return b"".join(numpy.packbits((values >> bit) & 1).tobytes() for bit in reversed(range(8 * values.itemsize)))


def measure(name, blocks, views):
    total = sum(map(len, blocks))
    for view, arrange in views.items():
        arranged, cells = [arrange(block) for block in blocks], []
        for compress, decompress in CODERS.values():
            begin = time.process_time()
            small = [compress(block) for block in arranged]
            middle = time.process_time()
            if [decompress(block) for block in small] != arranged:
                raise SystemExit("bench: what comes back is something else")
            end = time.process_time()
            cells.append(f"{sum(map(len, small)) / total:.3f} ({total / (middle - begin) / 1e6:,.0f}, "
                         f"{total / (end - middle) / 1e6:,.0f})")
        print(f"| {name} | {view} | " + " | ".join(cells) + " |", flush=True)


def main():
    options = parse_arguments()
    data = options.text.read_bytes()
    words = (gzip.decompress(data) if options.text.suffix == ".gz" else data).decode().split()
    text = " ".join(words[-options.words:])
    print("| state | order | " + " | ".join(CODERS) + " |\n|---|---|" + "---|" * len(CODERS))
    f16 = saved_blocks(options, text, "f16")
    wide = {"as it is": bytes, "bytes": byte_planes, "bits": lambda block: bit_planes(block, numpy.uint16)}
    measure("f16", f16, wide)
    measure("bf16", [bf16(block) for block in f16], wide)
    measure("q8", saved_blocks(options, text, "q8"),
            {"as it is": bytes, "bits": lambda block: bit_planes(block, numpy.uint8)})


if __name__ == "__main__":
    main()
