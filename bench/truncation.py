#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Perplexity of texts that outgrow the context, by what becomes of the kept tokens' state: truncation.py MODEL TEXT...

TEXT is a file of plain text, or one compressed by gzip. Prints the rows of the table in docs/decisions/truncation.md;
with --json all that was measured. Some minutes a text: progress goes to standard error.

  ninja -C build/release bench_truncation
  bench/truncation.py ~/.cache/loci/models/SmolLM2-135M-Instruct.Q4_1.gguf wikitext.txt.gz book.txt.gz
"""
import argparse
import gzip
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

SCHEMES = ("recomputed, first block kept", "recomputed, first block dropped", "rotated, first block kept",
           "rotated, first block dropped", "naive, first block kept", "naive, first block dropped")


def plain(path, folder):
    path = pathlib.Path(path)
    if path.suffix != ".gz":
        return str(path)
    out = pathlib.Path(folder, path.stem)
    out.write_bytes(gzip.decompress(path.read_bytes()))
    return str(out)


def row(name, tokens, perplexities):
    base = {True: perplexities[SCHEMES[0]], False: perplexities[SCHEMES[1]]}
    cells = []
    for scheme in SCHEMES:
        perplexity, recomputed = perplexities[scheme], base[scheme.endswith("kept")]
        ratio = perplexity / recomputed
        note = "" if scheme.startswith("recomputed") else \
            f" ({100 * (ratio - 1):+.2f} %)" if ratio < 2 else f" ({ratio:.1f} times)"
        cells.append(f"{perplexity:.2f}{note}")
    return f"| {name} | {tokens} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--binary", default="build/release/bench_truncation")
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--ratio", type=float, default=0.5)
    parser.add_argument("--truncations", type=int, default=12, help="of each text")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [options.binary, "--model", os.path.expanduser(options.model), "--json", "--window", str(options.window),
                   "--ratio", str(options.ratio), "--truncations", str(options.truncations),
                   "--threads", str(options.threads)]
        for text in options.texts:
            command += ["--text", plain(text, folder)]
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if out.returncode != 0:
        return out.returncode
    results = [json.loads(line) for line in out.stdout.splitlines()]
    if options.json:
        print(json.dumps(results, indent=1))
        return 0
    print("| text | tokens | " + " | ".join(SCHEMES) + " |")
    print("|---|---|" + "---|" * len(SCHEMES))
    logs = {scheme: 0.0 for scheme in SCHEMES}
    tokens = sum(result["tokens"] for result in results)
    for result in results:
        found = {s["scheme"]: s["perplexity"] for s in result["schemes"]}
        for scheme in SCHEMES:
            logs[scheme] += math.log(found[scheme]) * result["tokens"] / tokens
        print(row(pathlib.Path(result["text"]).stem, result["tokens"], found))
    if len(results) > 1:
        print(row("all", tokens, {scheme: math.exp(value) for scheme, value in logs.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
