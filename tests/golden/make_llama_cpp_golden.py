#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes llama_cpp/: what llama.cpp answers on the default model, as the oracle of `oracle_test`.

    make peers
    python3 -m venv build/golden-venv
    build/golden-venv/bin/pip install numpy jinja2 diskcache typing-extensions
    build/golden-venv/bin/python tests/golden/make_llama_cpp_golden.py

It runs llama-cpp-python 0.3.36, bindings and library both from the archive that `make peers` unpacks and
builds (its stamp pins the hash), on the CPU, f16 state, two threads.

llama_cpp/chat.jsonl: a line that says how it was made, then one line for each prompt:
  {"question_id", "text", "prompt": [token...], "steps": [{"ids": [20], "logprobs": [20]}, ...64]}
  The prompt is the user's text in the model's own chat template. Each step's token is ids[0] (greedy, not
  stopped by an end token); ids and logprobs are the 20 most likely, descending, after the tokens before.
llama_cpp/perplexity.jsonl: the same, then one line for each window:
  {"tokens": [512], "nll": sum over i = 1..511 of -log p(tokens[i] | tokens[0..i-1])}
  Windows follow one another in the text; each starts with an empty context and no token is skipped.
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "build" / "peers"
OUTPUT = pathlib.Path(__file__).resolve().parent / "llama_cpp"
VERSION = "0.3.36"
PROMPTS, STEPS, TOP = 50, 64, 20
WINDOWS, WINDOW_TOKENS = 16, 512


def default_model():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "loci" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Makes the golden files of llama.cpp.")
    parser.add_argument("--model", type=pathlib.Path, default=default_model())
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared" / "data",
                        help="the folder with mt-bench and wikitext-2")
    parser.add_argument("--variant", default="default", help="which build of llama.cpp: default, avx512, avx2")
    parser.add_argument("--flash-attention", action="store_true", help="its fused attention (off by default)")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    arguments = parser.parse_args()
    if not arguments.model.exists():
        raise SystemExit(f"{arguments.model} is missing: 'make run' fetches it, or name it with --model")
    if not (arguments.data / "mt-bench").exists():
        raise SystemExit(f"{arguments.data}/mt-bench is missing: name the data folder with --data")
    return arguments


def load(arguments):
    libraries = PEERS / arguments.variant / "bin"
    if not libraries.exists():
        raise SystemExit(f"{libraries} is missing: run 'make peers'")
    os.environ["LLAMA_CPP_LIB_PATH"] = str(libraries)
    sys.path.insert(0, str(PEERS / "python"))
    import llama_cpp

    if llama_cpp.__version__ != VERSION:
        raise SystemExit(f"llama-cpp-python {VERSION} is pinned, found {llama_cpp.__version__}: run 'make peers'")
    return llama_cpp, llama_cpp.Llama(str(arguments.model), n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=2,
                                      n_threads_batch=2, logits_all=True, verbose=False,
                                      flash_attn=arguments.flash_attention)


def chat_tokens(llama_cpp, llm, text):
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    formatter = Jinja2ChatFormatter(template=llm.metadata["tokenizer.chat_template"], eos_token="<|im_end|>",
                                    bos_token="<|im_start|>", add_generation_prompt=True)
    prompt = formatter(messages=[{"role": "user", "content": text}]).prompt
    return llm.tokenize(prompt.encode(), add_bos=False, special=True)


def log_probabilities(logits):
    import numpy

    logits = logits.astype(numpy.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=-1, keepdims=True))


def answer(llm, prompt):
    """The greedy answer's steps."""
    import numpy

    llm.reset()
    llm.eval(prompt)
    steps = []
    for _ in range(STEPS):
        row = log_probabilities(llm.scores[llm.n_tokens - 1])
        ids = numpy.argsort(-row, kind="stable")[:TOP]
        steps.append({"ids": [int(i) for i in ids], "logprobs": [round(float(row[i]), 4) for i in ids]})
        llm.eval([int(ids[0])])
    return steps


def write(path, header, lines):
    with open(path, "w", encoding="utf-8") as file:
        for line in [header, *lines]:
            file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def make_chat(arguments, llama_cpp, llm, header):
    with gzip.open(arguments.data / "mt-bench" / "question.jsonl.gz", "rt", encoding="utf-8") as file:
        questions = [json.loads(line) for line in file][:PROMPTS]
    lines = []
    for number, question in enumerate(questions, 1):
        start = time.monotonic()
        prompt = chat_tokens(llama_cpp, llm, question["turns"][0])
        lines.append({"question_id": question["question_id"], "text": question["turns"][0], "prompt": prompt,
                      "steps": answer(llm, prompt)})
        print(f"\rchat {number}/{len(questions)}: {time.monotonic() - start:.1f} s ", end="", flush=True)
    print()
    write(arguments.output / "chat.jsonl", header, lines)


def make_perplexity(arguments, llm, header):
    import numpy

    with gzip.open(arguments.data / "wikitext-2" / "test_raw_part1.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read(WINDOWS * WINDOW_TOKENS * 8)
    tokens = llm.tokenize(text.encode(), add_bos=False, special=False)
    lines = []
    for i in range(WINDOWS):
        window = tokens[i * WINDOW_TOKENS:(i + 1) * WINDOW_TOKENS]
        assert len(window) == WINDOW_TOKENS
        llm.reset()
        llm.eval(window)
        rows = log_probabilities(llm.scores[:WINDOW_TOKENS - 1])
        nll = -rows[numpy.arange(WINDOW_TOKENS - 1), window[1:]].sum()
        lines.append({"tokens": window, "nll": round(float(nll), 4)})
        print(f"\rperplexity {i + 1}/{WINDOWS} ", end="", flush=True)
    mean = sum(line["nll"] for line in lines) / (WINDOWS * (WINDOW_TOKENS - 1))
    print(f": {numpy.exp(mean):.4f}")
    write(arguments.output / "perplexity.jsonl", header, lines)


def main():
    arguments = parse_arguments()
    llama_cpp, llm = load(arguments)
    header = {"made_with": f"llama-cpp-python {VERSION}", "model": arguments.model.name,
              "model_sha256": hashlib.sha256(arguments.model.read_bytes()).hexdigest(),
              "flash_attention": arguments.flash_attention, "variant": os.path.basename(
                  os.path.realpath(PEERS / arguments.variant)), "state": "f16"}
    arguments.output.mkdir(parents=True, exist_ok=True)
    make_perplexity(arguments, llm, header)
    make_chat(arguments, llama_cpp, llm, header)


if __name__ == "__main__":
    main()
