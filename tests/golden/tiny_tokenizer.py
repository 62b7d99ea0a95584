# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of the tiny models: byte-level BPE with a few merges and ChatML's control tokens, so that
they can be served, chatted with and tokenised like a real model."""

import gguf

MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "a"), ("e", "r"), ("o", "n"), ("r", "e"),
          ("a", "n"), ("Ġ", "s"), ("in", "g"), ("e", "s"), ("o", "r"), ("Ġ", "o"), ("i", "s"), ("a", "t"),
          ("Ġo", "f"), ("an", "d"), ("Ġ", "and"), ("i", "t"), ("Ġ", "in"), ("l", "l"), ("e", "d"), ("Ġ", "h"),
          ("a", "r"), ("Ġt", "o"), ("o", "u"), ("e", "n"), ("Ġ", "b"), ("Ġ", "c"), ("s", "t")]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                 "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
                 "{% endif %}")


def byte_characters():
    """GPT-2's printable stand-ins for the 256 bytes, in the order of its vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


VOCABULARY = CONTROL + byte_characters() + [left + right for left, right in MERGES]
assert len(set(VOCABULARY)) == len(VOCABULARY) == 290


def add_tokenizer(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([gguf.TokenType.CONTROL if token in CONTROL else gguf.TokenType.NORMAL
                            for token in VOCABULARY])
    writer.add_token_merges([f"{left} {right}" for left, right in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
