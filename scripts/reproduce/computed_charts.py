# SPDX-License-Identifier: Apache-2.0
"""Charts of the figures that are closed forms: the paper's value beside ours where it prints one, and else the curve. Each is
(paper, figure, title, SVG)."""
import svg
from computed import CONTEXTS, HISTORIES, LENGTHS, OLD_TOKENS, SHARES, Batch, Caching, Documents, GB, HCache, Passes, history_share, over_ideal

SSD = 6.9 * GB


def compared(points, paper, figure, measure, title):
    """Bars of a figure's points whose labels are `what: measure`."""
    mine = [p for p in points if p.paper == paper and p.figure == figure and p.label.split(": ", 1)[-1].startswith(measure)]
    labels = [p.label.split(": ", 1)[0] for p in mine]
    return paper, figure, title, svg.bars(title, labels, {"paper": [p.theirs for p in mine], "ours": [p.ours for p in mine]})


def hcache(presets, points):
    bars = lambda figure, measure, title: compared(points, "hcache", figure, measure, title)
    out = [bars("10", "over KV offload", "Time to the first token of KV offload over HCache's"),
           bars("10", "over recomputation", "Time to the first token of recomputation over HCache's"),
           bars("11a-c", "over KV offload", "Speed of restoring over KV offload, state in DRAM"),
           bars("11a-c", "over recomputation", "Speed of restoring over recomputation, state in DRAM"),
           bars("11d-f", "over KV offload", "Speed of restoring over KV offload, by disks"),
           bars("11d-f", "over recomputation", "Speed of restoring over recomputation, by disks"),
           bars("12", "over the naive hybrid", "Speed of restoring over the naive hybrid"),
           bars("12", "over KV offload", "Speed of restoring over KV offload"),
           bars("12", "scheduler over hidden states alone", "Speed of the scheduler's split over hidden states alone"),
           bars("table 3", "layers by hidden states", "Layers that come as hidden states"),
           bars("table 3", "bytes of KV over ours", "Bytes of keys and values over those that are kept")]
    ideal = {name: over_ideal(presets, model) for name, model in (("7B", "llama2-7b"), ("13B", "llama2-13b"))}
    for i, (system, theirs) in enumerate((("KV offload", (6.5, 13)), ("recomputation", (20, 26)))):
        title = f"Time to the first token of {system} over ideal, L-Eval's mean"
        out.append(("hcache", "4", title, svg.bars(title, list(ideal), {"paper": [theirs] * 2, "ours": [both[i] for both in ideal.values()]})))
    contexts = (1024, 2048, 4096, 8192, 16384)
    at = [HCache(presets, "llama2-7b", 4 * SSD, tokens=n) for n in contexts]
    title = "Tokens restored in a second, thousands, 7B"
    out.append(("hcache", "11g-i", title, svg.lines(title, "tokens of the context", "thousand tokens/s", {
        name: [(n, 1e-3 / speed(h)) for n, h in zip(contexts, at)]
        for name, speed in (("HCache", HCache.restore), ("KV offload", HCache.load), ("recomputation", HCache.recompute))})))
    h = HCache(presets, "llama2-13b", SSD)
    title = "Restoring 1,024 tokens of 13B from one disk, by layers that come as hidden states"
    took = lambda layers: 1024 * 1e3 * h.restore_with(layers)
    ours = h.split()[0]
    out.append(("hcache", "13", title, svg.lines(title, "layers by hidden states, of 40; the others are recomputed", "ms", {
        "ours": [(n, took(n)) for n in range(0, h.layers + 1, 2)], f"our split: {ours}": [(ours, took(ours))], "the paper's split: 31": [(31, took(31))]})))
    return out


def attentionstore(presets):
    batch, documents, out = Batch(presets), Documents(presets), []

    def lines(figure, title, x, y, series):
        out.append(("attentionstore", figure, title, svg.lines(title, x, y, series)))

    turns = range(1, 41)
    lines("4a", "Share of history in a turn's prompt, %", "turn", "%",
          {"ours": [(t, 100 * history_share(t)) for t in turns], "paper: up to 99 %": [(40, 99)]})
    sizes = (0, 4000, 8000, 12000, 16000, 20000, 24000, 28000)
    lines("4b", "Mistral-7B: prefill of all and of the new tokens", "tokens of history, before 256 new ones", "s",
          {"all tokens": [(n, documents.compute(n + 256, 0)) for n in sizes], "new tokens": [(n, documents.compute(256, n)) for n in sizes]})
    title = "Computing 1,000 tokens, or the new ones while the old are loaded, batch 16"
    out.append(("attentionstore", "18", title, svg.bars(f"{title}, s", [f"{old} old, {1000 - old} new" for old in OLD_TOKENS], {
        "recomputation": [batch.compute(1000) for _ in OLD_TOKENS], "loading": [batch.move(old) for old in OLD_TOKENS],
        "AttentionStore": [max(batch.compute(1000 - old), batch.move(old)) for old in OLD_TOKENS]})))
    lines("19", "Time left of loading, then computing, %", "layers that are read ahead, of 40", "%",
          {"ours": [(b, 100 * batch.left(b)) for b in range(0, 21)], "paper: none (15 layers are its calibration)": [(0, 65), (15, 39)]})
    prompts = (1000, 1200, 1400, 1600)
    title = "Time that is left when saving overlaps, %"
    out.append(("attentionstore", "20", title, svg.bars(title, [f"{n} tokens" for n in prompts], {
        "paper": [(85, 87)] * len(prompts), "ours": [100 * batch.saving(n) for n in prompts]})))
    sizes = sizes[1:]
    lines("25", "Time to the first token of a question about a document", "tokens of the document", "s",
          {"recomputation (28K: its calibration)": [(n, documents.recompute(n)) for n in sizes],
           "AttentionStore": [(n, documents.ttft(n)) for n in sizes], "paper's AttentionStore": [(28_000, 0.12)]})
    rate = lambda ttft: 64 / (ttft + documents.DECODES)
    lines("26", "Tokens of replies in a second", "tokens of the document", "tokens/s",
          {"recomputation": [(n, rate(documents.recompute(n))) for n in sizes], "AttentionStore": [(n, rate(documents.ttft(n))) for n in sizes],
           "paper: 1.67 times recomputation": [(28_000, 1.67 * rate(2.5))]})
    return out


def pensieve(presets):
    passes = Passes(presets)
    title = "A batch of 32 over its history: prefill, and 200 steps of generation"
    out = [("pensieve", "3", title, svg.lines(title, "tokens of history", "s", {
        "prefill": [(h, passes.prefill(h)) for h in HISTORIES], "generation": [(h, passes.generation(h)) for h in HISTORIES]}))]
    title = "Attention of 32 tokens over all else"
    out.append(("pensieve", "4", title, svg.lines(title, "tokens of the context", "times", {
        "attention": [(c, passes.attention_share(c)) for c in CONTEXTS], "all else": [(c, 1) for c in (0, CONTEXTS[-1])]})))
    return out


def memserve(presets):
    caching = Caching(presets)
    title = "Time to the first token without caching over with it, by the share that is cached"
    out = [("memserve", "13", title, svg.lines(title, "share cached", "times", {
        f"{n:,} tokens, {place}": [(r, caching.gain(n, r, link)) for r in SHARES]
        for n in (LENGTHS[0], LENGTHS[2]) for place, link in (("HBM", None), ("DRAM", caching.dram))}))]
    title = "The same by the length of the prompt, nine tenths of which are cached"
    out.append(("memserve", "13", title, svg.lines(title, "tokens of the prompt", "times", {
        place: [(n, caching.gain(n, 0.9, link)) for n in LENGTHS] for place, link in (("HBM", None), ("DRAM", caching.dram))})))
    return out


def all_charts(presets, points):
    return hcache(presets, points) + attentionstore(presets) + pensieve(presets) + memserve(presets)
