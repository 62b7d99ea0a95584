#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a type of state (--state-type) costs in replies: state_types.py MODEL --data FOLDER [--types f16,q8].

    perplexity    of WikiText-2 and two books, in windows of 512, 4,096 and 8,192 tokens (build/release/bench_state)
    replies       MT-Bench's questions, two turns each, greedily: how many replies are f16's to the last character, and
                  after what part of a reply the first difference comes
    recall        a sentence with a number, hidden in a book at some depths: how often the reply has the number

FOLDER has mt-bench/, wikitext-2/ and books/ (LOCI_DATA). --only chooses parts; on two cores and the default model each
takes some minutes, and recall more.

    scripts/build.sh release loci bench_state
    bench/state_types.py ~/.cache/loci/models/SmolLM2-135M-Instruct.Q4_1.gguf --data DATA --only replies
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from cases import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from live_client import Server  # noqa: E402

TEXTS = ("wikitext-2/test_raw_part1.txt.gz", "books/moby-dick.txt.gz", "books/tinyshakespeare.txt.gz")
PARTS = ("perplexity", "replies", "recall")
REPLY_TOKENS = 128
DEPTHS = (0.05, 0.25, 0.5, 0.75, 0.95)
CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("LOCI_DATA"))
    parser.add_argument("--types", default="f16,q8", help="the first is compared with")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--loci", default=ROOT / "build/release/loci")
    parser.add_argument("--contexts", default="512,4096,8192", help="of the windows of texts")
    parser.add_argument("--windows", type=int, default=6, help="of each text and context")
    parser.add_argument("--questions", type=int, default=80, help="of MT-Bench")
    parser.add_argument("--haystacks", default="2000,4000,7500", help="tokens, about")
    parser.add_argument("--threads", default="0")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only: expected {', '.join(PARTS)}, found {', '.join(unknown)}")
    if options.data is None:
        parser.error("--data or LOCI_DATA: expected a folder with mt-bench, wikitext-2 and books")
    options.data = pathlib.Path(options.data)
    return options


def read(path):
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except OSError as error:
        raise SystemExit(f"bench: {error}")


def perplexity(options):
    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for name in TEXTS:
            texts.append(pathlib.Path(folder, pathlib.Path(name).stem))
            texts[-1].write_text(read(options.data / name))
        done = subprocess.run([ROOT / "build/release/bench_state", options.model, *texts, "--contexts", options.contexts,
                               "--windows", str(options.windows), "--threads", options.threads], check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)


def serve(options, state_type):
    return Server(options.loci, options.model, "--disk", "none", "--store", "", "--state-type", state_type, "--context", "8192",
                  "--threads", options.threads)


def reply(server, messages, tokens):
    response = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "temperature": 0})
    if response.status != 200:
        raise SystemExit(f"bench: the server answered {response.status}: {response.body!r}")
    return response.json["choices"][0]["message"]["content"]


def replies(options):
    questions = [json.loads(line) for line in read(options.data / "mt-bench/question.jsonl.gz").splitlines()]
    questions = questions[:options.questions]
    types, said = options.types.split(","), {}
    for state_type in types:
        said[state_type] = []
        with serve(options, state_type) as server:
            for number, question in enumerate(questions):
                messages = []
                for turn in question["turns"]:
                    messages.append({"role": "user", "content": turn})
                    text = reply(server, messages, REPLY_TOKENS)
                    said[state_type].append(text)
                    # Both types answer to the same history.
                    first = said[types[0]][len(said[state_type]) - 1]
                    messages.append({"role": "assistant", "content": first})
                print(f"{state_type}: {number + 1} of {len(questions)} questions", end="\r", file=sys.stderr)
    base = said[types[0]]
    print("| type | replies | the same | of a reply before the first difference, mean | median |\n|---|---|---|---|---|")
    for state_type, texts in said.items():
        shares = sorted(len(os.path.commonprefix(pair)) / max(1, max(map(len, pair))) for pair in zip(texts, base))
        same = sum(text == first for text, first in zip(texts, base))
        print(f"| {state_type} | {len(texts)} | {same} | {100 * sum(shares) / len(shares):.0f} % | "
              f"{100 * shares[len(shares) // 2]:.0f} % |")


def haystacks(options):
    """(tokens, messages, number): a book with one sentence more, and the question."""
    words = read(options.data / TEXTS[1]).split()
    chance = random.Random(1)
    for tokens in map(int, options.haystacks.split(",")):
        count = int(tokens / 1.35)  # tokens a word, about
        for city in CITIES:
            start = chance.randrange(len(words) - count)
            number = str(chance.randrange(10_000, 100_000))
            for depth in DEPTHS:
                text = words[start:start + count]
                text.insert(int(depth * count), f"The special number of {city} is {number}.")
                question = f"What is the special number of {city}? Answer with the number alone."
                yield tokens, [{"role": "user", "content": " ".join(text) + "\n\n" + question}], number


def recall(options):
    found = {}
    for state_type in options.types.split(","):
        with serve(options, state_type) as server:
            for place, (tokens, messages, number) in enumerate(haystacks(options)):
                found.setdefault((tokens, state_type), []).append(number in reply(server, messages, 24))
                print(f"{state_type}: {place + 1} texts", end="\r", file=sys.stderr)
    print("| tokens, about | type | found |\n|---|---|---|")
    for (tokens, state_type), hits in sorted(found.items()):
        print(f"| {tokens:,} | {state_type} | {sum(hits)} of {len(hits)} |")


def main():
    options = parse_arguments()
    for part in options.only.split(","):
        {"perplexity": perplexity, "replies": replies, "recall": recall}[part](options)


if __name__ == "__main__":
    main()
