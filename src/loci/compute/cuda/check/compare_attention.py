#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's and PyTorch's attention on the shapes of loci-gpu-bench's rows `attention/...`, in the same units.

usage: compare_attention.py [--loci TABLE]    TABLE: what `gpu-bench attention/` printed

Needs a Python with torch (CUDA); flashinfer where it is installed. With --loci each row has Loci's figure beside
it and the ratio. Exit status: 0 where Loci is at least as fast in all rows that both have, 1 where not, 2 where
there is nothing to measure on. Ends in `N passed, N failed`.
"""
import argparse
import re
import statistics
import sys

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 32, 8, 128, 32
DECODE = [(batch, context) for context in (1024, 8192, 32768, 131072)
          for batch in (1, 4, 16, 40, 64, 256) if batch * context <= 1 << 21]
PROMPT = [1024, 2048, 4096, 8192, 16384, 32768]


def short(value):
    return f"{value // 1024}K" if value >= 1024 else str(value)


class Timer:
    """The median time of a call, the second-level cache overwritten before each."""

    def __init__(self, torch):
        self.torch = torch
        self.scratch = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def ms(self, call, repeats=30):
        for _ in range(3):
            call()
        times = []
        for _ in range(repeats):
            self.scratch.zero_()
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)


def paged(torch, batch, context):
    """A pool of permuted blocks, heads before tokens as Loci's, and the tables."""
    blocks = -(-context // BLOCK)
    pool = torch.randn(batch * blocks, 2, KV_HEADS, BLOCK, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
    begins = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * blocks
    slots = torch.randperm(batch * blocks, device="cuda").to(torch.int32)
    last = torch.full((batch,), context - (blocks - 1) * BLOCK, dtype=torch.int32, device="cuda")
    return pool, begins, slots, last


def decode_bytes(batch, context):
    return batch * (context * 2 * KV_HEADS * HEAD_DIM * 2 + HEADS * HEAD_DIM * 4)


def prompt_operations(rows):
    return rows * (rows + 1) / 2 * HEADS * HEAD_DIM * 4


def flashinfer_rows(torch, flashinfer, timer):
    workspace = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    for batch, context in DECODE:
        pool, begins, slots, last = paged(torch, batch, context)
        queries = torch.randn(batch, HEADS, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
        wrapper.plan(begins, slots, last, HEADS, KV_HEADS, HEAD_DIM, BLOCK, q_data_type=torch.bfloat16,
                     kv_data_type=torch.bfloat16)
        ms = timer.ms(lambda: wrapper.run(queries, pool))
        yield f"attention/decode {short(context)} batch {batch}", decode_bytes(batch, context) / ms / 1e6, "GB/s"
    for rows in PROMPT:
        pool, begins, slots, last = paged(torch, 1, rows)
        queries = torch.randn(rows, HEADS, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")
        offsets = torch.tensor([0, rows], dtype=torch.int32, device="cuda")
        wrapper.plan(offsets, begins, slots, last, HEADS, KV_HEADS, HEAD_DIM, BLOCK, causal=True,
                     q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
        ms = timer.ms(lambda: wrapper.run(queries, pool))
        yield f"attention/prompt {short(rows)} of {short(rows)}", prompt_operations(rows) / ms / 1e9, "TFLOP/s"


def torch_rows(torch, timer):
    """Contiguous state: PyTorch's kernels have no tables."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def tensors(batch, queries, context):
        make = lambda heads, rows: torch.randn(batch, heads, rows, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        return make(HEADS, queries), make(KV_HEADS, context), make(KV_HEADS, context)

    for batch, context in DECODE:
        q, k, v = tensors(batch, 1, context)
        ms = timer.ms(lambda: attend(q, k, v, enable_gqa=True))
        yield f"attention/decode {short(context)} batch {batch}", decode_bytes(batch, context) / ms / 1e6, "GB/s"
    for rows in PROMPT:
        q, k, v = tensors(1, rows, rows)
        ms = timer.ms(lambda: attend(q, k, v, is_causal=True, enable_gqa=True))
        yield f"attention/prompt {short(rows)} of {short(rows)}", prompt_operations(rows) / ms / 1e9, "TFLOP/s"


def loci_figures(path):
    figures = {}
    for line in open(path, encoding="utf-8"):
        match = re.match(r"(attention/.*?)\s{2,}([0-9.]+)\s", line)
        if match:
            figures[match.group(1)] = float(match.group(2))
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loci", metavar="TABLE")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("there is no torch to compare with")
        return 2
    if not torch.cuda.is_available():
        print("there is no GPU")
        return 2
    timer = Timer(torch)
    libraries = [("torch " + torch.__version__, torch_rows(torch, timer))]
    try:
        import flashinfer
        libraries.insert(0, ("flashinfer " + flashinfer.__version__, flashinfer_rows(torch, flashinfer, timer)))
    except ImportError:
        print("there is no flashinfer: PyTorch's attention over contiguous state alone")
    loci = loci_figures(arguments.loci) if arguments.loci else {}
    passed = failed = 0
    for library, rows in libraries:
        for name, figure, unit in rows:
            text = f"{library:24} {name:40} {figure:9.1f} {unit}"
            if name in loci:
                ratio = loci[name] / figure
                passed += ratio >= 1
                failed += ratio < 1
                text += f"   loci {loci[name]:9.1f}   {ratio:.3f}"
            print(text, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
