#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny/: random Llama models as GGUF files, and their logits by Hugging Face transformers in float64.

    python3 -m venv build/golden-venv
    build/golden-venv/bin/pip install torch==2.9.1 transformers==4.57.6 gguf==0.19.0
    build/golden-venv/bin/python tests/golden/make_transformers_golden.py

A model computes with the values that its GGUF file decodes to (quantised and dequantised again), so what
differs between this oracle and an engine is the engine's own rounding alone.

transformers keeps three steps of Llama in float32 whatever the model's type is: the norm, the rotation's
angles and (in eager attention) the softmax. Here they are float64 too; `check_against_stock` runs the
unchanged model beside it and demands that the two agree to float32's rounding.

tiny/NAME.json: {"model", "description", "sequences": [{"tokens": [...], "rows": [{"position", "logits"}]}]}.
"""

import json
import math
import pathlib
from dataclasses import dataclass, field

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from transformers.models.llama import modeling_llama

from tiny_tokenizer import add_tokenizer, VOCABULARY

PINNED = {"torch": "2.9.1", "transformers": "4.57.6"}
OUTPUT = pathlib.Path(__file__).resolve().parent / "tiny"
NORM_EPSILON = float(np.float32(1e-5))  # GGUF holds it as float32
SEQUENCE_LENGTHS = (1, 7, 33, 300)
ALL_ROWS_UP_TO = 7


@dataclass
class Variant:
    name: str
    description: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    types: dict  # tensor kind -> Type; "default" for the others
    tied: bool = False
    theta: float = 10000.0
    rope_scaling: dict = field(default_factory=dict)
    seed: int = 1


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 128}

VARIANTS = [
    Variant("f32", "float32, untied", 64, 2, 4, 2, 16, 96, {"default": Type.F32}, seed=1),
    Variant("f16-llama3", "float16, tied, Llama 3's RoPE factors, query width unlike the hidden size", 96, 2, 6, 2, 32,
            160, {"default": Type.F16}, tied=True, theta=500000.0, rope_scaling=LLAMA3, seed=2),
    Variant("q8_0", "Q8_0, tied, one kv head to four", 64, 3, 4, 1, 16, 96, {"default": Type.Q8_0}, tied=True, seed=3),
    Variant("q4_1", "Q4_1 with a Q8_0 embedding, tied, as the default model", 96, 3, 3, 1, 32, 256,
            {"default": Type.Q4_1, "token_embd": Type.Q8_0}, tied=True, theta=100000.0, seed=4),
    Variant("mixed", "Q4_0, Q6_K, BF16, untied, linear RoPE scaling", 256, 1, 8, 4, 32, 256,
            {"default": Type.Q4_0, "ffn_down": Type.Q6_K, "attn_v": Type.Q6_K, "token_embd": Type.BF16,
             "output": Type.Q6_K}, rope_scaling={"rope_type": "linear", "factor": 4.0}, seed=5),
]


def random_q6_k(rng, rows, columns, spread):
    """Random Q6_K blocks (gguf has no encoder for them): any bytes are a block once its scale is set."""
    blocks = rng.integers(0, 256, size=(rows, columns // 256, 210), dtype=np.uint8)
    scales = rng.integers(-40, 41, size=(rows, columns // 256, 16)).astype(np.int8)
    blocks[:, :, 192:208] = scales.view(np.uint8)
    delta = np.full((rows, columns // 256, 1), spread / (18.5 * 23.7), dtype=np.float16)
    blocks[:, :, 208:210] = delta.view(np.uint8)
    return blocks.reshape(rows, -1)


def encode(rng, kind, rows, columns, gain):
    """Random weights [rows, columns]: the file's bytes and the values that they stand for."""
    spread = gain / math.sqrt(columns)
    if kind == Type.Q6_K:
        data = random_q6_k(rng, rows, columns, spread)
    else:
        data = gguf.quants.quantize(rng.normal(0, spread, (rows, columns)).astype(np.float32), kind)
    return data, gguf.quants.dequantize(data, kind).reshape(rows, columns).astype(np.float64)


def from_gguf_rows(weights, heads):
    """GGUF's Llama rows rotate adjacent pairs, Hugging Face's rotate halves: reorders a head's rows."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def inverse_frequencies(variant):
    """float64 [head_dim / 2], and the float32 factors that the file divides them by (None without)."""
    pairs = np.arange(0, variant.head_dim, 2, dtype=np.float64) / variant.head_dim
    base = variant.theta ** -pairs
    scaling = variant.rope_scaling
    if scaling.get("rope_type") == "linear":
        return base / scaling["factor"], None
    if scaling.get("rope_type") != "llama3":
        return base, None
    factors = []
    for frequency in base:
        length, original = 2 * math.pi / frequency, scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(scaling["factor"])
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    factors = np.array(factors, dtype=np.float32)
    return base / factors.astype(np.float64), factors


def make_tensors(variant, rng):
    """The file's tensors {name: (bytes or float32 array, Type)} and transformers' state dict (float64)."""
    file, state = {}, {}

    def matrix(gguf_name, hf_name, rows, columns, gain=1.0, rotated_heads=0):
        kind = variant.types.get(gguf_name.split(".")[-2], variant.types["default"])
        data, values = encode(rng, kind, rows, columns, gain)
        file[gguf_name] = (data, kind)
        state[hf_name] = torch.from_numpy(from_gguf_rows(values, rotated_heads) if rotated_heads else values)

    def norm(gguf_name, hf_name):
        values = (1 + 0.2 * rng.normal(size=variant.hidden)).astype(np.float32)
        file[gguf_name] = (values, Type.F32)
        state[hf_name] = torch.from_numpy(values.astype(np.float64))

    hidden, width, kv_width = variant.hidden, variant.heads * variant.head_dim, variant.kv_heads * variant.head_dim
    matrix("token_embd.weight", "model.embed_tokens.weight", len(VOCABULARY), hidden, gain=math.sqrt(hidden))
    for i in range(variant.layers):
        g, h = f"blk.{i}.", f"model.layers.{i}."
        norm(g + "attn_norm.weight", h + "input_layernorm.weight")
        matrix(g + "attn_q.weight", h + "self_attn.q_proj.weight", width, hidden, 1.6, variant.heads)
        matrix(g + "attn_k.weight", h + "self_attn.k_proj.weight", kv_width, hidden, 1.6, variant.kv_heads)
        matrix(g + "attn_v.weight", h + "self_attn.v_proj.weight", kv_width, hidden)
        matrix(g + "attn_output.weight", h + "self_attn.o_proj.weight", hidden, width, 1.5)
        norm(g + "ffn_norm.weight", h + "post_attention_layernorm.weight")
        matrix(g + "ffn_gate.weight", h + "mlp.gate_proj.weight", variant.ffn, hidden)
        matrix(g + "ffn_up.weight", h + "mlp.up_proj.weight", variant.ffn, hidden)
        matrix(g + "ffn_down.weight", h + "mlp.down_proj.weight", hidden, variant.ffn, 1.5)
    norm("output_norm.weight", "model.norm.weight")
    if variant.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    else:
        matrix("output.weight", "lm_head.weight", len(VOCABULARY), hidden, 2.0)
    return file, state


def write_gguf(variant, tensors, factors):
    writer = gguf.GGUFWriter(OUTPUT / f"{variant.name}.gguf", "llama")
    writer.add_name(f"tiny {variant.name}")
    writer.add_context_length(512)
    writer.add_embedding_length(variant.hidden)
    writer.add_block_count(variant.layers)
    writer.add_feed_forward_length(variant.ffn)
    writer.add_head_count(variant.heads)
    writer.add_head_count_kv(variant.kv_heads)
    if variant.heads * variant.head_dim != variant.hidden:
        writer.add_key_length(variant.head_dim)
        writer.add_value_length(variant.head_dim)
    writer.add_rope_dimension_count(variant.head_dim)
    writer.add_rope_freq_base(variant.theta)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_vocab_size(len(VOCABULARY))
    if variant.rope_scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(variant.rope_scaling["factor"])
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    add_tokenizer(writer)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Norm64(torch.nn.Module):
    """LlamaRMSNorm without its passage through float32."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPSILON))


class Rotary64(torch.nn.Module):
    """LlamaRotaryEmbedding without its passage through float32."""

    def __init__(self, frequencies):
        super().__init__()
        self.frequencies = torch.from_numpy(frequencies)

    def forward(self, x, position_ids):
        angles = position_ids[0].to(torch.float64)[:, None] * self.frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)[None]
        return angles.cos(), angles.sin()


def stock_model(variant, state):
    config = transformers.LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=variant.hidden, intermediate_size=variant.ffn,
        num_hidden_layers=variant.layers, num_attention_heads=variant.heads, num_key_value_heads=variant.kv_heads,
        head_dim=variant.head_dim, max_position_embeddings=512, rms_norm_eps=NORM_EPSILON, rope_theta=variant.theta,
        rope_scaling=variant.rope_scaling or None, tie_word_embeddings=variant.tied, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float64)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(state, strict=True)
    return model


def float64_model(variant, state, frequencies):
    model = stock_model(variant, state)
    model.model.rotary_emb = Rotary64(frequencies)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, modeling_llama.LlamaRMSNorm):
                setattr(module, name, Norm64(child.weight.data))
        if isinstance(module, modeling_llama.LlamaAttention):
            module.scaling = float(np.float32(1 / math.sqrt(variant.head_dim)))  # as Loci holds it
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    assert logits.dtype == torch.float64
    return logits.numpy()


def check_against_stock(variant, stock, logits, tokens):
    worst = np.abs(logits_of(stock, tokens) - logits).max()
    spread = logits.std()
    print(f"  {len(tokens):4} tokens: logits' spread {spread:.3f}, largest difference to stock {worst:.2e}")
    assert worst < 2e-4 * spread, f"{variant.name}: the float64 model is not transformers' model"
    assert 0.5 < spread < 50, f"{variant.name}: logits that test nothing"


def wanted_positions(length):
    if length <= ALL_ROWS_UP_TO:
        return range(length)
    return sorted({0, length // 2, length - 1} | {p for p in (31, 32, 255, 256) if p < length})


def make(variant):
    print(f"{variant.name}: {variant.description}")
    rng = np.random.default_rng(variant.seed)
    tensors, state = make_tensors(variant, rng)
    frequencies, factors = inverse_frequencies(variant)
    write_gguf(variant, tensors, factors)
    model, stock = float64_model(variant, state, frequencies), stock_model(variant, state)
    sequences = []
    for length in SEQUENCE_LENGTHS:
        tokens = [int(t) for t in rng.integers(0, len(VOCABULARY), size=length)]
        logits = logits_of(model, tokens)
        check_against_stock(variant, stock, logits, tokens)
        rows = [{"position": p, "logits": [float(f"{v:.13g}") for v in logits[p]]} for p in wanted_positions(length)]
        sequences.append({"tokens": tokens, "rows": rows})
    golden = {"model": f"{variant.name}.gguf", "description": variant.description, "made_with": PINNED,
              "sequences": sequences}
    (OUTPUT / f"{variant.name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def main():
    for package, version in PINNED.items():
        found = {"torch": torch, "transformers": transformers}[package].__version__.split("+")[0]
        if found != version:
            raise SystemExit(f"{package} {version} is pinned, found {found}: install the pinned one (see the top)")
    OUTPUT.mkdir(exist_ok=True)
    for variant in VARIANTS:
        make(variant)


if __name__ == "__main__":
    main()
