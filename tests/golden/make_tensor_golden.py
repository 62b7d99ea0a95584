#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/tensor/blocks.bin: blocks of every quantised GGUF type and what gguf-py decodes them to.

    python3 -m venv VENV
    VENV/bin/pip install gguf==0.19.0
    VENV/bin/python tests/golden/make_tensor_golden.py tests/data/tensor/blocks.bin

Little-endian, for each type: u32 number of the type, u32 count of blocks, u32 bytes, u32 floats, then the
blocks' bytes and the float32 values. The bytes are random but for the first blocks, whose bytes are all the
same: 00, ff, 7f, 80. A second run gives the same file.
"""

import pathlib
import struct
import sys

import gguf
import numpy
from gguf.quants import dequantize

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
EDGES = [0x00, 0xFF, 0x7F, 0x80]


def main() -> None:
    target = pathlib.Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(20)
    out = b""
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = len(EDGES) + (4 if elements == 256 else 12)
        blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
        for i, edge in enumerate(EDGES):
            blocks[i] = edge
        with numpy.errstate(all="ignore"):
            values = dequantize(blocks, kind).astype("<f4")
        assert values.shape == (count, elements)
        out += struct.pack("<4I", kind.value, count, blocks.size, values.size)
        out += blocks.tobytes() + values.tobytes()
    target.write_bytes(out)


if __name__ == "__main__":
    main()
