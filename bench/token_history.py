#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What remembered tokens save against tokenising histories again: token_history.py --data FOLDER MODEL...

MODEL is a GGUF file, or NAME=FILE, or NAME=FILE@TEMPLATE (one of those below, in place of the file's own). FOLDER holds the public conversations (mt-bench-101, oasst-trees, mt-eval,
schema-guided-dialogue). Replies are sampled from the model at each of the temperatures; with --replies data
they are the conversations' own (a proxy, for vocabularies without a model: such replies are tokenised as text
is, so what differs is where prompt and reply meet, and what templates do). Prints the rows of the table in
docs/decisions/token-history.md.

  ninja -C build/release token_history_benchmark
  bench/token_history.py --data FOLDER smollm2=~/.cache/loci/models/SmolLM2-135M-Instruct.Q4_1.gguf
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


# Formats of chats for files that have no template: control tokens and their places as their makers describe them.
TEMPLATES = {
    "gemma": "{{ bos_token }}{% for m in messages %}<start_of_turn>"
             "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content|trim }}<end_of_turn>\n{% endfor %}"
             "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    "llama-2": "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content|trim }} [/INST]"
               "{% else %} {{ m.content|trim }} {{ eos_token }}{% endif %}{% endfor %}",
    "llama-3": "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
               "{{ m.content|trim }}<|eot_id|>{% endfor %}"
               "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
}


def lines(folder, name):
    (path,) = pathlib.Path(folder, name).glob("*.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tree_paths(message, path=()):
    role = {"prompter": "user", "assistant": "assistant"}[message["role"]]
    path = path + ({"role": role, "content": message["text"]},)
    if not message["replies"]:
        yield list(path)
    for reply in message["replies"]:
        yield from tree_paths(reply, path)


def conversations(folder, count, bytes_max):
    """So many of each set, of at least two turns, users and assistants taking turns."""
    sets = {name: [row["messages"] for row in lines(folder, name)]
            for name in ("mt-bench-101", "mt-eval", "schema-guided-dialogue")}
    sets["oasst-trees"] = [path for row in lines(folder, "oasst-trees") for path in tree_paths(row["prompt"])]
    chosen = []
    for name, all_messages in sorted(sets.items()):
        roles = ["user", "assistant"]
        fitting = [m for m in all_messages
                   if len(m) >= 4 and all(one["role"] == roles[i % 2] for i, one in enumerate(m))
                   and sum(len(one["content"].encode()) for one in m) <= bytes_max]
        random.Random(1).shuffle(fitting)
        chosen += fitting[:count]
    return chosen


def share(part, whole):
    return f"{100 * part / max(whole, 1):.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--data", required=True, help="the folder of the data sets")
    parser.add_argument("--binary", default="build/release/token_history_benchmark")
    parser.add_argument("--conversations", type=int, default=8, help="of each data set")
    parser.add_argument("--bytes-max", type=int, default=3000, help="of a conversation's text")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--reply-tokens", type=int, default=64)
    parser.add_argument("--temperatures", default="0.7,1.0")
    parser.add_argument("--replies", choices=["sampled", "data"], default="sampled")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    chosen = conversations(options.data, options.conversations, options.bytes_max)
    given = "".join(json.dumps({"messages": messages}) + "\n" for messages in chosen)
    print("| tokenizer | replies | turns | turns that lose | tokens known | lost by tokenising again | "
          "computed again, per turn | lost with replies' ends alone | lost with the history | "
          "computed, per turn |\n|---|---|---|---|---|---|---|---|---|---|")
    temperatures = options.temperatures.split(",") if options.replies == "sampled" else ["-"]
    for model in options.models:
        name, _, path = model.rpartition("=")
        path, _, template = path.partition("@")
        for temperature in temperatures:
            command = [options.binary, os.path.expanduser(path), "--replies", options.replies, "--turns",
                       str(options.turns), "--reply-tokens", str(options.reply_tokens), "--threads",
                       str(options.threads)]
            if temperature != "-":
                command += ["--temperature", temperature]
            with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
                if template:
                    file.write(TEMPLATES[template])
                    file.flush()
                    command += ["--template", file.name]
                run = subprocess.run(command, input=given, text=True, capture_output=True)
            if run.returncode != 0:
                print(f"{model}: {run.stderr}", file=sys.stderr)
                continue
            report = json.loads(run.stdout)
            again, ends, history = report["retokenised"], report["ends"], report["history"]
            known = again["reused_tokens"] + again["lost_tokens"]

            def computed(way):
                return f"{(way['prompt_tokens'] - way['reused_tokens']) / max(way['turns'], 1):.1f}"

            replies = "own" if temperature == "-" else f"T = {temperature}"
            print(f"| {name or pathlib.Path(path).stem} | {replies} | {again['turns']} | "
                  f"{share(again['turns_lost'], again['turns'])} | {known} | {again['lost_tokens']} "
                  f"({share(again['lost_tokens'], known)}) | {computed(again)} | {ends['lost_tokens']} | "
                  f"{history['lost_tokens']} ({share(history['turns_lost'], history['turns'])} of turns) | "
                  f"{computed(history)} |", flush=True)


if __name__ == "__main__":
    main()
