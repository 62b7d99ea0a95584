#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes llama_cpp/gemma3.jsonl: how llama.cpp continues texts with Gemma 3 270M (Q4_K_M), greedily.

    make peers
    tests/golden/fetch_gemma3.sh build/models/gemma-3-270m-q4_k_m.gguf
    python3 -m venv build/golden-venv
    build/golden-venv/bin/pip install numpy jinja2 diskcache typing-extensions
    build/golden-venv/bin/python tests/golden/make_gemma3_golden.py

A line that says how it was made, then one for each text, as in chat.jsonl (make_llama_cpp_golden.py): prompts
begin with <bos>, the last one is longer than the model's window of 512 tokens.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = pathlib.Path(__file__).resolve().parent / "llama_cpp" / "gemma3.jsonl"
VERSION = "0.3.36"
STEPS, TOP, LONG_TOKENS = 32, 10, 640
TEXTS = [
    "The capital of France is", "Once upon a time there was a", "Water boils at a temperature of",
    "def fibonacci(n):\n    ", "The three primary colours are red,", "In 1969 the first man", "1, 2, 3, 4, 5,",
    "Der Himmel ist", "To make a cup of tea, first",
]


def main():
    parser = argparse.ArgumentParser(description="Makes llama_cpp/gemma3.jsonl.")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "build/models/gemma-3-270m-q4_k_m.gguf")
    parser.add_argument("--peers", type=pathlib.Path, default=ROOT / "build/peers")
    arguments = parser.parse_args()
    os.environ["LLAMA_CPP_LIB_PATH"] = str(arguments.peers / "default/bin")
    sys.path.insert(0, str(arguments.peers / "python"))
    import llama_cpp

    if llama_cpp.__version__ != VERSION:
        raise SystemExit(f"llama-cpp-python {VERSION} is pinned, found {llama_cpp.__version__}: run 'make peers'")
    llm = llama_cpp.Llama(str(arguments.model), n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=2,
                          n_threads_batch=2, verbose=False, swa_full=True)

    def last_row():
        logits = llama_cpp.llama_get_logits_ith(llm._ctx.ctx, -1)
        row = numpy.ctypeslib.as_array(logits, shape=(llm.n_vocab(),)).astype(numpy.float64)
        row = row - row.max()
        return row - numpy.log(numpy.exp(row).sum())

    # The long text is this repository's own.
    long_text = (ROOT / "docs/numerics.md").read_text(encoding="utf-8")
    prompts = [(text, llm.tokenize(text.encode(), add_bos=True, special=False)) for text in TEXTS]
    prompts.append(("docs/numerics.md", llm.tokenize(long_text.encode(), add_bos=True, special=False)[:LONG_TOKENS]))
    lines = [{"made_with": f"llama-cpp-python {VERSION}",
              "model_sha256": hashlib.sha256(arguments.model.read_bytes()).hexdigest(), "state": "f16"}]
    for text, prompt in prompts:
        llm.reset()
        llm.eval(prompt)
        steps = []
        for _ in range(STEPS):
            row = last_row()
            ids = numpy.argsort(-row, kind="stable")[:TOP]
            steps.append({"ids": [int(i) for i in ids], "logprobs": [round(float(row[i]), 4) for i in ids]})
            llm.eval([int(ids[0])])
        lines.append({"text": text, "prompt": prompt, "steps": steps})
        print(repr(text), "->", repr(llm.detokenize([step["ids"][0] for step in steps]).decode(errors="replace")))
    OUTPUT.write_text("".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()
