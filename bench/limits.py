# SPDX-License-Identifier: Apache-2.0
"""The physical limit of each figure: what this machine could do if nothing but the model's bytes and
operations cost time. Sizes come from the GGUF file, rates from machine_rates.cc."""

import struct
from dataclasses import dataclass

# ggml_type: (elements, bytes) of a block.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136), 30: (1, 2),
          39: (32, 17)}
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class GgufHeader:
    """The metadata and the list of tensors of a GGUF file."""

    def __init__(self, path):
        with open(path, "rb") as self._file:
            magic, _version, tensors, pairs = struct.unpack("<4sIQQ", self._file.read(24))
            if magic != b"GGUF":
                raise SystemExit(f"{path}: not a GGUF file")
            self.metadata = {self._string(): self._value(self._scalar("<I")) for _ in range(pairs)}
            self.tensors = {}  # name -> (elements, bytes)
            for _ in range(tensors):
                name = self._string()
                elements = 1
                for _ in range(self._scalar("<I")):
                    elements *= self._scalar("<Q")
                block_elements, block_bytes = BLOCKS[self._scalar("<I")]
                self._scalar("<Q")
                self.tensors[name] = (elements, elements // block_elements * block_bytes)

    def _scalar(self, form):
        return struct.unpack(form, self._file.read(struct.calcsize(form)))[0]

    def _string(self):
        return self._file.read(self._scalar("<Q")).decode("utf-8", "replace")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            inner, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(inner) for _ in range(count)]
        return self._scalar(SCALARS[kind])


@dataclass
class ModelCost:
    layer_bytes: int           # weights of all layers
    layer_multiplications: int  # of all layers, for one token
    output_bytes: int
    output_multiplications: int
    attention_operations: int  # float operations for one token, per token of its context
    state_bytes: int           # of one token, in float16

    @staticmethod
    def read(path):
        header = GgufHeader(path)
        family = header.metadata["general.architecture"]

        def number(key, default=None):
            return header.metadata.get(f"{family}.{key}", default)

        heads, layers = number("attention.head_count"), number("block_count")
        head_dim = number("attention.key_length", number("embedding_length") // heads)
        kv_heads = number("attention.head_count_kv", heads)
        in_layers = [size for name, size in header.tensors.items() if name.startswith("blk.")]
        output = header.tensors.get("output.weight", header.tensors["token_embd.weight"])
        return ModelCost(layer_bytes=sum(size for _, size in in_layers),
                         layer_multiplications=sum(elements for elements, _ in in_layers),
                         output_bytes=output[1], output_multiplications=output[0],
                         attention_operations=4 * heads * head_dim * layers,
                         state_bytes=4 * kv_heads * head_dim * layers)


class Limits:
    """Shortest times in seconds. Rates are machine_rates' JSON."""

    def __init__(self, cost, rates):
        self.cost = cost
        self.read_rate = max(rates["read_bytes_per_second"], rates["read_model_bytes_per_second"])
        self.int8_rate = rates["int8_operations_per_second"]
        self.float_rate = rates["float32_operations_per_second"]

    def prefill_seconds(self, tokens, context=0):
        """`tokens` new ones after `context` others; one row of logits."""
        products = 2 * (self.cost.layer_multiplications * tokens + self.cost.output_multiplications)
        attention = self.cost.attention_operations * tokens * (context + (tokens + 1) / 2)
        return products / self.int8_rate + attention / self.float_rate

    def step_bytes(self, streams, context):
        """Weights and state that a step reads."""
        weights = self.cost.layer_bytes + self.cost.output_bytes
        return weights + streams * context * self.cost.state_bytes

    def step_seconds(self, streams, context):
        """One token for each of `streams`, each with `context` tokens of state."""
        read = self.step_bytes(streams, context) / self.read_rate
        products = 2 * streams * (self.cost.layer_multiplications + self.cost.output_multiplications)
        attention = streams * self.cost.attention_operations * context
        return max(read, products / self.int8_rate + attention / self.float_rate)

    def decode_rate(self, streams, prompt, generate):
        """Generated tokens a second, all streams together."""
        return streams / self.step_seconds(streams, prompt + generate / 2)

    def prefill_rate(self, tokens):
        return tokens / self.prefill_seconds(tokens)

    def streams_rate(self, streams, prompt, generate):
        """Prompt and generated tokens a second, from the first prompt to the last token."""
        seconds = streams * self.prefill_seconds(prompt)
        seconds += generate * self.step_seconds(streams, prompt + generate / 2)
        return streams * (prompt + generate) / seconds
