# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness over a running server beside transformers on the same weights.

    pip install "lm_eval[api]" transformers gguf accelerate torch     (in an environment of its own; 6 GB)
    python3 bench/lm_eval_scores.py --loci build/release/loci --model MODEL.gguf --text TEXT [--items 400]

The task is made of the text: each item is a passage of it and four continuations, its own and three from elsewhere;
who gives its own the highest likelihood is right. The harness asks the server through /v1/completions (`echo`,
`logprobs`, `max_tokens` 1), and transformers with the model's weights decoded to float32.
Prints both accuracies and their difference, which must be below half a point; exit code 1 where it is not.
"""
import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile

CONTEXT_WORDS, CONTINUATION_WORDS, CHOICES = 48, 12, 4
DIFFERENCE_MAX = 0.5  # points

TASK = """task: passages
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
"""


def make_items(text, count, seed=1):
    words = re.sub(r"\s+", " ", text).split(" ")
    chance, length = random.Random(seed), CONTEXT_WORDS + CONTINUATION_WORDS
    piece = lambda start, size: " " + " ".join(words[start:start + size])
    for _ in range(count):
        start = chance.randrange(len(words) - length)
        choices = [piece(start + CONTEXT_WORDS, CONTINUATION_WORDS)]
        choices += [piece(chance.randrange(len(words) - length), CONTINUATION_WORDS) for _ in range(CHOICES - 1)]
        order = chance.sample(range(CHOICES), CHOICES)
        yield {"context": piece(start, CONTEXT_WORDS).strip(), "choices": [choices[i] for i in order], "answer": order.index(0)}


def start_server(loci, model, state):
    server = subprocess.Popen([loci, "serve", model, "--port", "0", "--disk", "none", "--alias", "model", "--log-level", "warn"],
                              stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_STATE_HOME": state})
    for line in server.stdout:
        if match := re.match(r"ready .*: (http://\S+)$", line):
            return server, match.group(1)
    sys.exit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loci", required=True)
    parser.add_argument("--model", required=True, help="a GGUF file that transformers can read")
    parser.add_argument("--text", required=True, help="a text file, or one that gzip made")
    parser.add_argument("--items", type=int, default=400)
    arguments = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import lm_eval
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer

    with (gzip.open if arguments.text.endswith(".gz") else open)(arguments.text, "rt", encoding="utf-8") as file:
        items = list(make_items(file.read(), arguments.items))
    folder, name = os.path.split(os.path.abspath(arguments.model))
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "passages.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in items)
        with open(os.path.join(work, "passages.yaml"), "w", encoding="utf-8") as file:
            file.write(TASK.format(data=data))
        AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(work)
        tasks = TaskManager(include_path=work, include_defaults=False)

        def accuracy(model, model_args, batch):
            results = lm_eval.simple_evaluate(model=model, model_args=model_args, tasks=["passages"], task_manager=tasks,
                                              batch_size=batch, bootstrap_iters=0)
            return 100 * results["results"]["passages"]["acc,none"]

        server, url = start_server(arguments.loci, arguments.model, work)
        try:
            ours = accuracy("local-completions", {"model": "model", "base_url": url + "/v1/completions", "tokenizer": work,
                                                  "tokenizer_backend": "huggingface", "num_concurrent": 4, "max_length": 2048}, 1)
        finally:
            server.terminate()
            server.wait()
        theirs = accuracy("hf", {"pretrained": folder, "gguf_file": name, "dtype": "float32", "device": "cpu"}, 16)
    print(f"loci {ours:.2f} %, transformers {theirs:.2f} % of {len(items)} items: {abs(ours - theirs):.2f} points apart")
    return 0 if abs(ours - theirs) < DIFFERENCE_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
