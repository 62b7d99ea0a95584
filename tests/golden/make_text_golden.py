#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files of the tokenizer and chat-template tests with Hugging Face's libraries.

    python3 -m venv VENV
    VENV/bin/pip install tokenizers==0.22.2 transformers==4.57.6 jinja2==3.1.6 gguf==0.19.0
    VENV/bin/python tests/golden/make_text_golden.py SmolLM2-135M-Instruct.Q4_1.gguf tests/data/text

The tokenizer is put together from the model file's vocabulary as SmolLM2's tokenizer.json has it:
digits one by one, then GPT-2's byte-level pattern. Nothing here is random: a second run gives the same
files.
"""

import json
import pathlib
import sys

import gguf
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.utils.chat_template_utils import _compile_jinja_template

TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", "\r\n", " \n", "\n ", " \t \n \r\n ",
    "Hello, world!", "Hello  world", " leading", "trailing ", "  two  spaces  between  ", "a" * 300,
    "I'm you're he'll we've they'd it's don't DON'T I'M 'tis rock 'n' roll",
    "0", "7", "42", "1234567890", "3.14159", "1e-9", "0x1F", "12:34:56", "2026-11-21", "½ ² ٣ १२३ Ⅷ",
    "$1,234.56 + 7% = ?", "a1b2c3", "v1.2.3-rc4",
    "émigré naïve café", "cafe\u0301 e\u0301\u0301", "Ångström A\u030angstro\u0308m", "\u0e01\u0e33\u0e25\u0e31\u0e07",
    "Привет, мир", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "ដើម្បី",
    "你好，世界！", "こんにちは世界", "안녕하세요 세계", "漢字とkanaとlatin", "𠜎𠜱𠝹",
    "😀", "👩‍👩‍👧‍👦", "🏳️‍🌈 🇩🇪", "a😀b 😀😀", "\u200b\u200d\ufeff", "\u00a0nbsp\u3000ideographic\u2003em",
    "x\u0000y", "\u0001\u0002\u001f\u007f\u0080\u009f", "\ue000\uf8ff\U000f0000\U0010fffd", "\ufdd0\ufffe",
    "def f(x):\n    if x > 0:\n        return x ** 2\n\n    return -x\n",
    "for (int i = 0; i < n; ++i) { a[i] = b[i] << 2; }  // done",
    "<html>\n\t<body class=\"x\">&amp;</body>\n</html>", "{\"a\": [1, 2, {\"b\": null}]}",
    "https://example.org/a/b?c=d&e=%20f#g", "snake_case camelCase kebab-case UPPER_CASE",
    "'''\"\"\"```" * 3, "......!!!!????----____====####", "a" + " " * 50 + "b", "\n" * 40,
    "<", "<|", "<|im", "<|im_", "<|im_end", "<|im_end|", "im_end|>", "|>", "< |im_end|>", "<|IM_END|>",
    "<|im_end|", "<|im_start|user", "<<|>>", "<repo", "reponame>", "<issue_comment",
]

MESSAGES = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "user", "content": ""}],
    [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "What is 2+2?"}],
    [{"role": "user", "content": "a\n\n b "}, {"role": "assistant", "content": " It's 4.\n"},
     {"role": "user", "content": "漢字 😀 cafe\u0301"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "{{ 7 * 7 }} {% raw %} {# no #}"},
     {"role": "assistant", "content": "<|im_end"}, {"role": "user", "content": "|> <|im_ x"}],
    [{"role": "user", "content": "def f():\n    return 1\n" * 20}],
    [{"role": "tool", "content": "{\"t\": 20}"}, {"role": "user", "content": "  "}],
]

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather <now> for 'city' & \"more\"",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "n": {"type": "integer", "enum": [1, 2]},
        "f": {"type": "number", "default": 1.5e-7}, "g": {"type": "number", "default": 1e22},
        "b": {"type": "boolean", "default": True, "x": None}}, "required": ["city"]}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": {
        "city": "Zürich", "n": 1, "ok": True, "none": None, "f": 1.0}}}]}
CONTEXT = {"messages": [
    {"role": "system", "content": "  Be \"terse\".  "}, {"role": "user", "content": "What's <b>2+2</b>?"},
    CALL, {"role": "tool", "name": "get_weather", "content": "{\"t\": 20}"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt's 4."},
    {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "image"},
                                 {"type": "text", "text": "two"}]}],
    "tools": [TOOL], "add_generation_prompt": True, "enable_thinking": False, "date": "2026-11-21"}

# Each shows what chat templates use; all are rendered with CONTEXT.
TEMPLATES = [
    "{{ tools | tojson }}", "{{ tools | tojson(indent=2) }}", "{{ tools|tojson(indent=4)|length }}",
    "{{ messages }}", "{{ [1.0, 1e16, 1e-5, -0.0, none, true, 'it\\'s', \"q\\\"\", (1,), {}] }}",
    "{{ messages[2].tool_calls[0].function.arguments|tojson(sort_keys=true, separators=(',', ':')) }}",
    "{{ {'é': '\\u2028<&>\\''}|tojson }}|{{ 'é😀'|tojson(ensure_ascii=true) }}",
    "{% for m in messages %}\n  {%- if m.role == 'system' %}\n    {{ m.content|trim }}\n  {% endif %}\n{% endfor %}\nend\n",
    "  {% if true %}\n  x\n  {% endif %}\n  y\n",
    "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{% if loop.index > 4 %}{% break %}{% endif %}[{{ m.role }}]{% endfor %}",
    "{% set ns = namespace(n=0, last=none) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}{% set ns.last = m.role %}{% endfor %}{{ ns.n }}{{ ns.last }}",
    "{% macro show(m, tag='x') %}<{{ tag }}>{% if m.content is string %}{{ m.content }}{% elif m.content is iterable and m.content is not mapping %}{% for p in m.content %}{{ p.text if p.type == 'text' else '[' ~ p.type ~ ']' }}{% endfor %}{% else %}{{- m.content }}{% endif %}</{{ tag }}>{% endmacro %}{% for m in messages %}{{ show(m, tag=m.role) }}{% endfor %}",
    "{% generation %}{{ messages[4].content }}{% endgeneration %}|{%- generation -%}  a  {%- endgeneration -%}|",
    "{{ messages[4].content.split('</think>')[-1].lstrip('\\n') }}|{{ messages[4]['content'].startswith('<think>') }}|{{ '</think>' in messages[4].content }}",
    "{{ 'a,b,,c'.split(',') }}{{ ' x '.strip() }}{{ 'abc'.upper() }}{{ 'abc'.replace('b', '') }}{{ 'x-y'.title() }}{{ 'a b c'.split() }}{{ 'a b c'.rsplit(' ', 1) }}{{ 'prefix_x'.removeprefix('prefix_') }}",
    "{% for k, v in messages[2].tool_calls[0].function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in messages[2].tool_calls[0].function.arguments|dictsort %}{{ k }};{% endfor %}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|map(attribute='role')|join(', ') }}{{ messages|rejectattr('content')|map(attribute='role')|list }}",
    "{{ messages[0].get('name', 'none') }}{{ messages[0].name is defined }}{{ missing|default('d') }}{{ missing }}{{ messages[-1].content[0].text }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'b'] }}|{{ 3 // 2 }}{{ 7 % 3 }}{{ 2 ** 5 }}{{ 7 / 2 }}{{ -7 // 2 }}|{{ 'ab' * 3 }}{{ [1] * 2 }}|{{ [1] + [2] }}",
    "{{ messages[1].content|escape }}|{{ '<'|safe + '<b>' }}|{{ 'x'|upper }}{{ 'Abc dEf'|title }}{{ 'abc'|capitalize }}{{ none|trim }}",
    "{{ 'one\\ntwo\\n\\nthree'|indent(2) }}|{{ 'one\\ntwo'|indent(4, true) }}|{{ '%s has %d'|format('x', 3) }}",
    "{{ 'abc'[1:] }}{{ 'abc'[-1] }}{{ 'abc'[::-1] }}{{ [1, 2, 3][:-1] }}{{ (1, 2)[0] }}{{ 'é漢😀'|length }}",
    "{{ 1 is number }}{{ 'x' is sequence }}{{ none is none }}{{ {} is mapping }}{{ undefined_thing is undefined }}{{ 'a' is in ['a'] }}{{ 3 is odd }}",
    "{{ bos_token }}{{ messages[1].content }}{{ eos_token }}",
    "{{ 'x' if add_generation_prompt and not enable_thinking else 'y' }}{{ date }}{% if tools is not none and tools|length > 0 %}T{% endif %}",
    "{% set t %}captured {{ 1 + 1 }}{% endset %}{{ t|trim }}{% filter upper %}abc{% endfilter %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{% if loop.previtem is defined and loop.previtem.role == m.role %}={% endif %};{% else %}none{% endfor %}",
]


def read_tokenizer(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"].contents()],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"].contents()])
    wrapped.chat_template = fields["tokenizer.chat_template"].contents()
    return wrapped, control


def write(path, rows):
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    path.write_text("[\n" + lines + "\n]\n")


def main():
    model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    tokenizer, control = read_tokenizer(model)
    with_control = [f"a {text} b{text}" for text in control] + ["".join(control), " ".join(control)]
    rows = [{"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
            for text in TEXTS + with_control]
    write(folder / "smollm2_tokens.json", rows)
    chats = []
    for messages in MESSAGES:
        for add in (True, False):
            keep = {"messages": messages, "add_generation_prompt": add}
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add)
            ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=add)
            chats.append({"context": keep, "text": text, "ids": ids})
    write(folder / "smollm2_chats.json", chats)
    templates = []
    for source in TEMPLATES:
        template = _compile_jinja_template(source)
        text = template.render(bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token, **CONTEXT)
        templates.append({"template": source, "text": text})
    write(folder / "templates.json", [{"context": CONTEXT}] + templates)


if __name__ == "__main__":
    main()
