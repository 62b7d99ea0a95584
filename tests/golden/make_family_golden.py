#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes families/NAME/: a random tiny model of each family as a Hugging Face directory and as GGUF, and its
logits by Hugging Face transformers in float64.

    make peers        # llama.cpp's source, whose converter writes the GGUF files
    python3 -m venv build/golden-venv
    build/golden-venv/bin/pip install torch==2.9.1 transformers==4.57.6
    build/golden-venv/bin/python tests/golden/make_family_golden.py [--llama-cpp SOURCE] [NAME ...]

The GGUF files are what llama.cpp's own converter makes of the directories (without a vocabulary), so that
names, keys, permuted rows, shifted norms and regrouped matrices are its work and not this script's. Two
things are added to them, which it leaves out: Mistral's window, and OPT as a whole (under Loci's keys).

transformers keeps norms, rotations and softmax in float32 whatever the model's type is. In `float64` those
steps take float64 instead, by name; `check_against_stock` runs the unchanged model beside it and demands
that the two agree to float32's rounding.

families/NAME/logits.json: {"description", "made_with", "sequences": [{"tokens", "rows": [{"position",
"logits"}]}]}, logits with 10 significant digits.
"""

import argparse
import contextlib
import copy
import json
import math
import pathlib
import sys
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINNED = {"torch": "2.9.1", "transformers": "4.57.6"}
OUTPUT = pathlib.Path(__file__).resolve().parent / "families"
VOCABULARY = 96
LENGTHS = (7, 100, 300)
ROWS_OF = {7: (0, 3, 6), 100: (0, 12, 13, 50, 99), 300: (128, 255, 256, 299)}


@dataclass
class Variant:
    name: str
    description: str
    model: str  # transformers' class
    config: dict
    lengths: tuple = LENGTHS
    extra: dict = field(default_factory=dict)  # GGUF's keys that the converter leaves out: name -> uint32
    mxfp4: bool = False  # experts' matrices, as GPT-OSS is published
    seed: int = 1


SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
FALCON = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "alibi": False, "bias": False, "bos_token_id": 1, "eos_token_id": 2}
LONGROPE = [1.0, 1.125, 1.5, 2.0, 3.5, 6.0, 9.0, 12.0]
SHORTROPE = [1.0, 1.0, 1.0, 1.0625, 1.125, 1.25, 1.375, 1.5]

VARIANTS = [
    Variant("llama3", "Llama 3.1: scaled frequencies, grouped queries", "LlamaForCausalLM",
            {**SMALL, "rope_theta": 500000.0, "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}}),
    Variant("llama-yarn", "Llama with YaRN, tied", "LlamaForCausalLM",
            {**SMALL, "tie_word_embeddings": True, "rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 16.0,
                "beta_slow": 2.0}}),
    Variant("mistral", "Mistral 7B v0.1: every layer with a window", "MistralForCausalLM",
            {**SMALL, "sliding_window": 12}, extra={"attention.sliding_window": 12}),
    Variant("smollm3", "SmolLM3: the fourth layer doesn't rotate", "SmolLM3ForCausalLM",
            {**SMALL, "num_hidden_layers": 5, "num_attention_heads": 2, "num_key_value_heads": 1,
             "intermediate_size": 32, "use_sliding_window": False, "rope_theta": 5e6,
             "tie_word_embeddings": True}),
    Variant("qwen2", "Qwen 2.5: biases, stretched positions", "Qwen2ForCausalLM",
            {**{k: v for k, v in SMALL.items() if k != "head_dim"}, "hidden_size": 64, "rope_theta": 1e6,
             "num_hidden_layers": 1, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    Variant("qwen3", "Qwen 3: norms of heads, tied", "Qwen3ForCausalLM",
            {**SMALL, "rope_theta": 1e6, "tie_word_embeddings": True}),
    Variant("qwen3moe", "Qwen 3 with 6 experts, 2 for each token", "Qwen3MoeForCausalLM",
            {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 6,
             "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True, "rope_theta": 1e6,
             "tie_word_embeddings": True}),
    Variant("gemma2", "Gemma 2: softcaps, every second layer with a window", "Gemma2ForCausalLM",
            {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4,
             "query_pre_attn_scalar": 16, "sliding_window": 12, "attn_logit_softcapping": 5.0,
             "final_logit_softcapping": 4.0}),
    Variant("gemma3", "Gemma 3: five layers with a window to one without, two rotations", "Gemma3ForCausalLM",
            {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 7,
             "intermediate_size": 32, "query_pre_attn_scalar": 16, "sliding_window": 12, "rope_theta": 1e6,
             "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    Variant("phi3-long", "Phi 4 mini: LongRoPE's long factors over three quarters of a head, tied",
            "Phi3ForCausalLM",
            {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "original_max_position_embeddings": 64,
             "partial_rotary_factor": 0.75, "tie_word_embeddings": True, "sliding_window": None,
             "rope_scaling": {"type": "longrope", "long_factor": LONGROPE[:6], "short_factor": SHORTROPE[:6]}},
            lengths=(100, 300)),  # transformers takes the short factors for what is shorter
    Variant("phi3-short", "Phi 3: LongRoPE's short factors, a window", "Phi3ForCausalLM",
            {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 2, "original_max_position_embeddings": 512,
             "sliding_window": 12,
             "rope_scaling": {"type": "longrope", "long_factor": LONGROPE, "short_factor": SHORTROPE}}),
    Variant("opt", "OPT: learned positions, LayerNorm, ReLU", "OPTForCausalLM",
            {"vocab_size": VOCABULARY, "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 64,
             "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 128,
             "do_layer_norm_before": True, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
            lengths=(7, 100)),
    Variant("falcon-old", "Falcon 7B: one key and value head, one norm for both parts", "FalconForCausalLM",
            {**FALCON, "num_hidden_layers": 1, "multi_query": True, "num_kv_heads": 1, "parallel_attn": True,
             "new_decoder_architecture": False}),
    Variant("falcon-new", "Falcon 40B: groups of heads, two norms", "FalconForCausalLM",
            {**FALCON, "num_hidden_layers": 1, "num_kv_heads": 2, "parallel_attn": True,
             "new_decoder_architecture": True}),
    Variant("starcoder", "StarCoder: learned positions, one key and value head", "GPTBigCodeForCausalLM",
            {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128,
             "multi_query": True, "bos_token_id": 0, "eos_token_id": 0}, lengths=(7, 100)),
    Variant("gpt-oss", "GPT-OSS: 4 experts with biases, sinks, YaRN, a window in every second layer",
            "GptOssForCausalLM",
            {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32,
             "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 12, "rope_theta": 150000.0,
             "layer_types": ["sliding_attention", "full_attention"],
             "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                              "truncate": False, "original_max_position_embeddings": 64}}),
]
VARIANTS.append(replace(VARIANTS[-1], name="gpt-oss-mxfp4", mxfp4=True, lengths=(7, 100),
                        description="GPT-OSS as it is published, its experts in MXFP4"))
GEMMA3 = next(variant for variant in VARIANTS if variant.name == "gemma3")
VARIANTS.append(Variant(
    "gemma3-vision", "Gemma 3 4B and larger: text and vision in one directory, of which text is computed",
    "Gemma3ForConditionalGeneration",
    {"text_config": {**GEMMA3.config, "num_hidden_layers": 6, "model_type": "gemma3_text"},
     "vision_config": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
                       "image_size": 8, "patch_size": 4, "model_type": "siglip_vision_model"},
     "mm_tokens_per_image": 4, "image_token_index": 5, "boi_token_index": 3, "eoi_token_index": 4},
    lengths=(7, 100)))


@contextlib.contextmanager
def float64():
    """Whoever asks for torch.float32 by name gets float64."""
    saved = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved


def new_model(variant):
    kind = getattr(transformers, variant.model)
    config = kind.config_class(**copy.deepcopy(variant.config), attn_implementation="eager")
    torch.set_default_dtype(torch.float64)
    return kind(config).eval()


def random_mxfp4(generator, shape):
    """Random blocks and scales for a matrix [experts, inputs, outputs], and the values they stand for."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    experts, inputs, outputs = shape
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(123, 125, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float64)
    assert values.shape == shape
    return blocks, scales, values


def random_weights(variant, model):
    """Values of bfloat16 whose products keep a vector's size; attention is peaked, norms and biases vary.

    Returns what replaces matrices in model.safetensors: experts' blocks and scales."""
    generator = torch.Generator().manual_seed(variant.seed)
    packed = {}
    gemma = variant.model.startswith("Gemma")
    for name, parameter in model.named_parameters():
        if variant.mxfp4 and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales, parameter.data = random_mxfp4(generator, parameter.shape)
            packed[name] = {f"{name}_blocks": blocks, f"{name}_scales": scales}
            continue
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if "norm" in name or ".ln_" in name:
            values = (0.0 if gemma and "vision" not in name else 1.0) + 0.2 * values if name.endswith("weight") else 0.1 * values
        elif name.endswith("bias"):
            values *= 0.2
        elif "embed_tokens" in name or "word_embeddings" in name or ".wte" in name:
            values *= 1 / math.sqrt(parameter.shape[1]) if gemma else 1.0
        elif "embed_positions" in name or ".wpe" in name:
            values *= 0.5
        elif "lm_head" in name:
            values *= 2 / math.sqrt(parameter.shape[1])
        elif "sinks" not in name:
            inputs = parameter.shape[1] if len(parameter.shape) > 1 else 1
            gain = 1.6 if any(part in name for part in ("q_proj", "k_proj", "qkv", "c_attn", "query_key")) else 1.2
            values *= gain / math.sqrt(inputs)
        parameter.data = values.to(torch.bfloat16).to(torch.float64)
    model.tie_weights()
    return packed


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
    assert 0.3 < spread < 50, f"{variant.name}: logits that test nothing"


def replace_packed(folder, packed):
    """Puts blocks and scales where their matrices are."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    for name, parts in packed.items():
        del tensors[name]
        tensors |= parts
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_opt(folder, model):
    import gguf

    names = {"model.decoder.embed_tokens": "token_embd", "model.decoder.embed_positions": "position_embd",
             "model.decoder.final_layer_norm": "output_norm"}
    parts = {"self_attn_layer_norm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output", "final_layer_norm": "ffn_norm",
             "fc1": "ffn_up", "fc2": "ffn_down"}
    config = model.config
    for i in range(config.num_hidden_layers):
        names |= {f"model.decoder.layers.{i}.{hf}": f"blk.{i}.{ours}" for hf, ours in parts.items()}
    writer = gguf.GGUFWriter(folder / "model.gguf", "opt")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.ffn_dim)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(1e-5)
    for name, parameter in model.named_parameters():
        module, kind = name.rsplit(".", 1)
        values = parameter.data.to(torch.bfloat16)
        if len(values.shape) == 1:
            writer.add_tensor(f"{names[module]}.{kind}", values.to(torch.float32).numpy())
        else:
            writer.add_tensor(f"{names[module]}.{kind}", values.view(torch.uint8).numpy(),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(variant, folder, model):
    """By llama.cpp's converter. Gemma's asks how many tokens the tokenizer has."""
    if variant.model == "OPTForCausalLM":
        return write_opt(folder, model)
    import conversion
    import gguf

    kind = conversion.get_model_class(variant.model)
    kind.set_vocab = lambda self: None
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(VOCABULARY)}},
                                     "added_tokens": []}))
    with torch.inference_mode():
        converter = kind(folder, gguf.LlamaFileType.MOSTLY_BF16, folder / "model.gguf", eager=True)
        for key, value in variant.extra.items():
            converter.gguf_writer.add_uint32(f"{converter.gguf_writer.arch}.{key}", value)
        converter.write()
    tokenizer.unlink()


def make(variant):
    print(f"{variant.name}: {variant.description}")
    folder = OUTPUT / variant.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    with float64():
        model = new_model(variant)
        packed = random_weights(variant, model)
    stock = new_model(variant)
    stock.load_state_dict(model.state_dict(), strict=True)
    rng = np.random.default_rng(variant.seed)
    sequences = []
    for length in variant.lengths:
        tokens = [int(t) for t in rng.integers(0, VOCABULARY, size=length)]
        with float64():
            logits = logits_of(model, tokens)
        check_against_stock(variant, stock, logits, tokens)
        rows = [{"position": p, "logits": [float(f"{v:.10g}") for v in logits[p]]} for p in ROWS_OF[length]]
        sequences.append({"tokens": tokens, "rows": rows})
    golden = {"description": variant.description, "made_with": PINNED, "sequences": sequences}
    (folder / "logits.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    saved = new_model(variant)
    saved.load_state_dict(model.state_dict(), strict=True)
    torch.set_default_dtype(torch.float32)
    saved.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if packed:
        replace_packed(folder, packed)
    write_gguf(variant, folder, model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path, default=ROOT / "build/peers/source/vendor/llama.cpp")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    for package, version in PINNED.items():
        found = {"torch": torch, "transformers": transformers}[package].__version__.split("+")[0]
        if found != version:
            raise SystemExit(f"{package} {version} is pinned, found {found}: install the pinned one (see the top)")
    sys.path[:0] = [str(arguments.llama_cpp), str(arguments.llama_cpp / "gguf-py")]
    known = {variant.name for variant in VARIANTS}
    if unknown := set(arguments.names) - known:
        raise SystemExit(f"expected names out of {', '.join(sorted(known))}, found {', '.join(sorted(unknown))}")
    for variant in VARIANTS:
        if not arguments.names or variant.name in arguments.names:
            make(variant)


if __name__ == "__main__":
    main()
