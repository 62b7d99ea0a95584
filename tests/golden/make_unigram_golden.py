#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/text/nomic-bert-moe.jsonl: the ids that llama.cpp gives the texts of its vocabulary tests on
ggml-vocab-nomic-bert-moe.gguf, the one unigram vocabulary that it carries, which has no test cases.

    make peers && tests/golden/fetch_vocabularies.sh build/vocabularies
    build/golden-venv/bin/python tests/golden/make_unigram_golden.py     # see make_llama_cpp_golden.py
"""
import ctypes
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ["LLAMA_CPP_LIB_PATH"] = str(ROOT / "build/peers/default/bin")
sys.path.insert(0, str(ROOT / "build/peers/python"))
from llama_cpp import llama_cpp  # noqa: E402

VOCABULARIES = ROOT / "build/vocabularies"


def main():
    with open(VOCABULARIES / "ggml-vocab-gpt-2.gguf.inp", encoding="utf8", newline="") as file:
        texts = file.read().split("\n__ggml_vocab_test__\n")[:-1]
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    path = VOCABULARIES / "ggml-vocab-nomic-bert-moe.gguf"
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    with open(ROOT / "tests/data/text/nomic-bert-moe.jsonl", "w", encoding="utf8") as out:
        for text in texts:
            raw = text.encode()
            ids = (ctypes.c_int * (len(raw) + 16))()
            count = llama_cpp.llama_tokenize(vocabulary, raw, len(raw), ids, len(ids), False, False)
            out.write(json.dumps({"text": text, "ids": ids[:count]}, ensure_ascii=False) + "\n")


main()
