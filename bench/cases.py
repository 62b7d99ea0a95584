# SPDX-License-Identifier: Apache-2.0
"""What `make bench` compares: model files, instruction sets, tests, and the ratios to llama.cpp that must
be reached."""

import os
import pathlib
import subprocess
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]
GENERATED = ROOT / "build" / "bench-models"


@dataclass(frozen=True)
class Test:
    name: str
    kind: str  # decode, prefill, streams
    prompt: int
    generate: int = 0
    streams: int = 1


DECODE = Test("decode, 1 stream after 128 tokens", "decode", 128, 128)
PREFILL_512 = Test("prefill of 512", "prefill", 512)
PREFILL_4096 = Test("prefill of 4,096", "prefill", 4096)
STREAMS = Test("8 streams of 128 + 64", "streams", 128, 64, 8)
TESTS = (DECODE, PREFILL_512, PREFILL_4096, STREAMS)


@dataclass(frozen=True)
class Model:
    name: str
    shape: str = ""  # of a random model; empty: the default model
    type: str = ""
    embedding: str = ""

    def path(self):
        if not self.shape:
            cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
            return cache / "loci" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
        return GENERATED / f"{self.shape}.{self.type}.gguf"

    def ensure(self, generator):
        """The file; a random one is made once. Speed depends on sizes and types alone, not on values."""
        path = self.path()
        if path.exists():
            return path
        if not self.shape:
            raise SystemExit(f"bench: {path} is missing: run 'make model'")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        done = subprocess.run([str(generator), "--shape", self.shape, "--type", self.type, "--embedding-type",
                               self.embedding, str(part)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {(done.stderr or done.stdout).strip()} from {generator}")
        part.rename(path)
        return path


DEFAULT = Model("SmolLM2-135M, Q4_1")
Q4_0 = Model("SmolLM2-135M's shape, Q4_0", "smollm2-135m", "Q4_0", "Q8_0")
Q8_0 = Model("SmolLM2-135M's shape, Q8_0", "smollm2-135m", "Q8_0", "Q8_0")
Q4_K = Model("a Llama of 150M, Q4_K", "llama-150m", "Q4_K", "Q6_K")
LARGE = Model("Llama 3.2 1B's shape, Q4_1", "llama-1b", "Q4_1", "Q8_0")


@dataclass(frozen=True)
class Case:
    key: str
    model: Model
    cpu: str  # avx512, avx2
    floors: dict = field(default_factory=dict)  # test: ratio
    tests: tuple = TESTS


def _floors(*ratios):
    return dict(zip(TESTS, ratios))


CASES = (
    Case("q4_1-avx512", DEFAULT, "avx512", _floors(2.5, 5, 4, 4)),
    Case("q4_1-avx2", DEFAULT, "avx2", _floors(2.5, 3, 3, 2.5)),
    Case("q4_0-avx512", Q4_0, "avx512", _floors(1.8, 2, 2, 2.5)),
    Case("q8_0-avx512", Q8_0, "avx512", _floors(1.3, 1.5, 1.5, 1.5)),
    Case("q8_0-avx2", Q8_0, "avx2", _floors(1.3, 1.5, 1.5, 1.5)),
    Case("q4_k-avx512", Q4_K, "avx512", _floors(1.3, 1.5, 1.5, 1.5)),
    Case("q4_k-avx2", Q4_K, "avx2", _floors(1.3, 1.5, 1.5, 1.5)),
    Case("1b-avx512", LARGE, "avx512", {}, (DECODE,)),
)
# Of the memory's measured rate that decode of the large model must reach.
MEMORY_FLOOR = 0.85
# Likewise decode of one stream behind CONTEXT_FLOOR_TOKENS and more, of the weights and the state that it reads.
CONTEXT_FLOOR, CONTEXT_FLOOR_TOKENS = 0.75, 4096
# What the plots show, on the default model: generated tokens per second.
BATCHES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (128, 512, 1024, 2048, 4096, 16384)
EIGHT_BIT_PEER_MAX = 4096  # behind more its cache in 8 bits takes more than ten minutes to fill
