# SPDX-License-Identifier: Apache-2.0
"""Figures that are closed forms: from the shapes and machines that `loci sim --presets` prints and from the papers' own
calibration points (never from a point that is compared). Each function gives Points."""
import math
from dataclasses import dataclass

GB = 1e9


@dataclass
class Point:
    """One comparison. `band`: A, B, D as docs/reproduction/README.md says, or P (percentage points)."""
    paper: str       # of the five
    figure: str
    label: str
    theirs: object   # a number, (least, most), or None where the paper prints none
    ours: float
    band: str
    why: str = ""
    how: str = "computed"
    holds: object = None  # whether the direction, or the order of the systems, holds; band D: that alone

    def inside(self):
        if self.band == "D":
            return bool(self.holds)
        if self.holds is False:
            return False
        low, high = self.theirs if isinstance(self.theirs, tuple) else (self.theirs, self.theirs)
        if self.band == "L":  # layers
            return low - 2 <= self.ours <= high + 2
        if self.band == "P":
            return low - 10 <= self.ours <= high + 10
        width = 1.15 if self.band == "A" else 1.5
        return low / width <= self.ours <= high * width


class HCache:
    """A layer's times for one token (§3.2), fp16: hidden states move 2D bytes, keys and values 4D; projecting takes 4D² and
    computing anew 24D² + 2nD operations (n: tokens in all; §3.2 has nD, but causal attention multiplies a query with half of
    them in the mean, once by keys and once by values)."""
    SPEED = {"llama2-7b": 197e12, "llama2-13b": 215e12, "opt-30b": 530e12}  # §6.1.3: one A100, one, four
    A100 = 312e12

    def __init__(self, presets, model, link, peak=A100, tokens=1024):
        shape = presets["models"][model]
        speed = self.SPEED[model] * peak / self.A100  # the same share of another processor's peak
        d = shape["width"]
        self.layers = shape["layers"]
        self.parameters, self.speed, self.width = shape["parameters"], speed, d
        self.project = 4 * d * d / speed
        self.hidden = 2 * d / link
        self.kv = 4 * d / link
        self.again = (24 * d * d + 2 * tokens * d) / speed

    def split(self):
        """(layers by hidden states, the others, what these are)."""
        n = self.layers
        if self.project > self.hidden:
            h = math.ceil(n * self.kv / (self.kv + self.project - self.hidden))
            return min(h, n), n - min(h, n), "KV"
        h = math.ceil(n * self.again / (self.again + self.hidden - self.project))
        return min(h, n), n - min(h, n), "recomputed"

    def restore(self):
        h, other, kind = self.split()
        if kind == "KV":
            return max(self.project * h, self.hidden * h + self.kv * other)
        return max(self.again * other + self.project * h, self.hidden * h)

    def load(self):
        return self.layers * self.kv

    def recompute(self):
        return self.layers * self.again

    def prefill(self, tokens, context, memory):
        """Computing `tokens` after `context`: at the projection's speed, or as fast as the weights are read."""
        products = max(2 * self.parameters * tokens / self.speed, 2 * self.parameters / memory)
        return products + 4 * tokens * context * self.width * self.layers / self.speed

    def hidden_only(self):
        return self.layers * max(self.project, self.hidden)

    def naive(self):
        """Recomputation and loading of KV at the same time."""
        return self.layers * self.kv * self.again / (self.kv + self.again)


def hcache(presets):
    points = []
    add = lambda *a, **k: points.append(Point("hcache", *a, **k))
    ssd = 6.9 * GB
    models = {"7B": ("llama2-7b", 4), "13B": ("llama2-13b", 4), "30B": ("opt-30b", 4)}
    for name, theirs, paper in (("7B", 31, "31 H + 1 KV"), ("13B", 36, "36 H + 4 KV")):
        model, disks = models[name]
        h, other, kind = HCache(presets, model, disks * ssd).split()
        add("table 3", f"{name}: layers by hidden states (paper {paper}; ours {h} H + {other} {kind})", theirs, h, "L")
    for name, theirs in (("7B", 256 / 132), ("13B", 400 / 210), ("30B", 672 / 280)):
        model, disks = models[name]
        h, other, kind = HCache(presets, model, disks * ssd).split()
        n = h + other
        ratio = 2 * n / (h + (2 * other if kind == "KV" else 0))
        split = "" if name != "30B" else (f" (paper 40 H + 8 recomputed, which needs about 17 GB/s; at the 27.6 GB/s of its four disks "
                                          f"{h} H + {other} {kind})")
        add("table 3", f"{name}: bytes of KV over ours{split}", theirs, ratio, "A")
    for name, machine, theirs, band in (("7B", "a30", 1.33, "A"), ("13B", "a100-40g", 1.66, "A"), ("13B", "h800", 1.77, "B")):
        m = presets["machines"][machine]
        h = HCache(presets, models[name][0], m["link_bandwidth"], m["peak_flops"])
        add("11a-c", f"{name} on {machine}, DRAM: over KV offload", theirs, h.load() / h.restore(), band)
    for name, machine in (("7B", "a30"), ("7B", "4090"), ("7B", "l20"), ("13B", "a100-40g"), ("13B", "h800")):
        m = presets["machines"][machine]
        h = HCache(presets, models[name][0], m["link_bandwidth"], m["peak_flops"])
        add("11a-c", f"{name} on {machine}, DRAM: over recomputation", (5.04, 9.05), h.recompute() / h.restore(),
            "B" if machine in ("l20", "h800") else "A")
    for name in ("7B", "13B"):
        for disks in (1, 2, 3, 4):
            h = HCache(presets, models[name][0], disks * ssd)
            theirs = (2.09, 2.66) if disks == 1 else (1.7, 2.6)
            add("11d-f", f"{name}, {disks} SSD: over KV offload", theirs, h.load() / h.restore(), "A")
            add("11d-f", f"{name}, {disks} SSD: over recomputation", (2.3, 6.1), h.recompute() / h.restore(), "A")
    short, long = (HCache(presets, "llama2-7b", 4 * ssd, tokens=n) for n in (1024, 16384))
    add("11g-i", "7B, 16K against 1K: speed of recomputation", 0.72, short.again / long.again, "A")
    add("11g-i", "7B, 16K against 1K: speed of HCache", 1.0, short.restore() / long.restore(), "A")
    balanced = HCache(presets, "llama2-7b", 4 * ssd)
    compute = HCache(presets, "llama2-13b", ssd)
    rich_io = HCache(presets, "llama2-7b", 32 * GB, 165e12)
    for name, h in (("balanced (7B, A100, 4 SSD)", balanced), ("compute-rich (13B, A100, 1 SSD)", compute),
                    ("IO-rich (7B, A30, DRAM)", rich_io)):
        add("12", f"{name}: over the naive hybrid", (1.28, 1.42), h.naive() / h.restore(), "B",
            "the paper does not name the three settings' models; these are ours")
        add("12", f"{name}: over KV offload", (1.45, 2.66), h.load() / h.restore(), "B")
    add("12", "IO-rich: hidden states alone against KV offload, speed", 0.87, rich_io.load() / rich_io.hidden_only(), "B")
    add("12", "IO-rich: scheduler over hidden states alone", (1.35, 1.64), rich_io.hidden_only() / rich_io.restore(), "B")
    add("12", "compute-rich: scheduler over hidden states alone", (1.35, 1.64), compute.hidden_only() / compute.restore(), "B")
    h, other, _ = HCache(presets, "llama2-13b", ssd).split()
    add("13", f"13B, 1 SSD, 1,024 tokens: layers by hidden states (ours {h} + {other})", 31, h, "L")
    # 10: the time to the first token is restoring, then the prefill of the question (§6 Metrics); table 1 has the lengths.
    why = ("§6.2.2 has recomputation 5.46 to 6.08 times slower than HCache on four disks, where the calibrated speeds give 6.5 to 7.0: "
           "its whole layers run some 15 % nearer to the peak than the projections that are calibrated")
    memory = presets["machines"]["a100-40g"]["memory_bandwidth"]
    for name in ("7B", "13B"):
        for task, context, question in (("Paper Assistant", 10603.5, 142.7), ("GSM-100", 5451.7, 77.4), ("QuALITY", 7053.9, 92.4)):
            h = HCache(presets, models[name][0], 4 * ssd, tokens=context)
            asked = h.prefill(question, context, memory)
            ttft = context * h.restore() + asked
            add("10", f"{name}, {task}: over KV offload", (1.62, 1.93), (context * h.load() + asked) / ttft, "A")
            anew = HCache(presets, models[name][0], 4 * ssd, tokens=context + question)
            add("10", f"{name}, {task}: over recomputation", (2.66, 5.73), (context + question) * anew.recompute() / ttft, "A", why)
    # 4: its contexts are L-Eval's; ideal is the prefill of the question alone. The time of a pass beside its products and weights is
    # in no paper, and decides the ratios.
    for name in ("7B", "13B"):
        context, question = 16340.2, 44.7
        h = HCache(presets, models[name][0], 4 * ssd, tokens=context)
        ideal = h.prefill(question, context, memory)
        kv, anew = context * h.load() / ideal + 1, (context + question) * h.recompute() / ideal
        add("4", f"{name}, L-Eval's mean: KV offload over ideal (paper 6.5 to 13)", None, kv, "D", holds=1 < kv < anew)
        add("4", f"{name}, L-Eval's mean: recomputation over ideal (paper 20 to 26)", None, anew, "D", holds=anew > kv)
    return points


def attentionstore(presets):
    points = []
    add = lambda *a, **k: points.append(Point("attentionstore", *a, **k))
    # §4.3.2 (calibration: 61 % saved with enough buffer): compute over load = 39 : 61, one A100, batch 16.
    compute_share = 0.39
    layers = presets["models"]["llama2-13b"]["layers"]
    load = 1 - compute_share
    no_buffer = max(load + compute_share / layers, compute_share + load / layers)
    add("19", "no read buffer: time left of loading, then computing", 0.65, no_buffer, "A")
    add("19", "layers to be read ahead so that nothing waits", 15, math.ceil((1 - compute_share / load) * layers), "A")
    # §2.4: 2K tokens of LLaMA-65B, 5 GB of 2^30 bytes, come in 192 ms. With 39 : 61 that gives the speed of a prefill.
    link = 2048 * presets["models"]["llama-65b"]["token_bytes"] / 0.192
    token_bytes = presets["models"]["llama2-13b"]["token_bytes"]
    parameters = presets["models"]["llama2-13b"]["parameters"]
    speed = 100 * 2 * parameters / (1000 * token_bytes / link * compute_share / load)
    hidden = True
    ahead = True
    for old in (500, 600, 700, 800, 900):
        compute = 16 * (1000 - old) * 2 * parameters / speed
        loads = 16 * old * token_bytes / link
        all_new = 16 * 1000 * 2 * parameters / speed
        ours = max(compute, loads)
        ahead = ahead and ours < all_new
        hidden = hidden and (loads <= compute) == (old < 900)
        add("18", f"{old} old, {1000 - old} new: AttentionStore over recomputation", None, all_new / ours, "D", holds=ours < all_new)
    add("18", "loading is hidden but at 900/100", None, float(hidden), "D", holds=hidden,
        why="" if hidden else "loading 800 tokens takes longer than computing 200; the paper's bars show it hidden")
    for tokens in (1000, 1600):
        save = 16 * tokens * token_bytes / link
        prefill = 16 * tokens * 2 * parameters / speed
        decode = 20 * (2 * parameters / 2.0e12 + 16 * (tokens + 10) * token_bytes / 2.0e12)
        add("20", f"{tokens} tokens: time that is left when saving overlaps", (0.85, 0.87), (prefill + decode) / (prefill + decode + save), "A",
            "decode at the vendor's memory bandwidth, which the paper does not give")
    # 25, 26. Calibration: 28K in 2.5 s (250 TFLOP/s), 56 ms a token.
    mistral = presets["models"]["mistral-7b"]
    n = 28_000
    compute = (256 * 2 * mistral["parameters"] + 4 * 256 * n * mistral["width"] * mistral["layers"]) / 250e12
    loads = n * mistral["token_bytes"] / link
    ttft = max(compute, loads) + min(compute, loads) / mistral["layers"]
    add("25", "28K: TTFT of AttentionStore, s", 0.12, ttft, "A",
        "the state alone takes 0.131 s at the rate of §2.4")
    add("25", "28K: prefill throughput over recomputation", 22, 2.5 / ttft, "A",
        "the paper's own 2.5 s over 0.12 s is 20.8; 22 needs 0.114 s, and so 32 GB/s, all of its PCIe link and more than §2.4's rate")
    add("26", "28K: output throughput over recomputation", 1.67, (2.5 + 64 * 0.056) / (ttft + 64 * 0.056), "A")
    # 17 from the paper's 16: GPU hours at $5, and its storage meanwhile (§4.2).
    storage = 128 * 0.0088 + 10_000 * 0.000082
    for name, gpus, times, saved, share in (("LLaMA-13B", 2, 4.0, 70, 16.4), ("LLaMA-65B", 4, 1.9, 43, 9.0),
                                            ("LLaMA-70B", 4, 3.3, 66, 9.0), ("Falcon-40B", 4, 3.4, 68, 9.0)):
        hour = gpus * 5 + storage
        add("17", f"{name}: cost left, of recomputing, with the paper's GPU time (figure 16)", 1 - saved / 100, hour / times / (gpus * 5), "A")
        add("17", f"{name}: storage's share of AttentionStore's cost, %", share, 100 * storage / hour, "A")
    # 4a: the workload's turns are alike, with 37.77 tokens in for 204.58 out (Pensieve's table 2); the figure ends with turn 40.
    history = 39 * (37.77 + 204.58)
    add("4a", "share of history in the prompt of turn 40, %", 99, 100 * history / (history + 37.77), "A")
    again = (n * 2 * mistral["parameters"]) / ((n + 256) * 2 * mistral["parameters"])
    add("4b", "Mistral-7B: share of prefill that is recomputation at 28K", None, 100 * again, "D", holds=again > 0.98)
    return points


def pensieve(presets):
    points = []
    add = lambda *a, **k: points.append(Point("pensieve", *a, **k))
    shape = presets["models"]["opt-13b"]
    peak, memory = 312e12 * 0.6, 2.0e12 * 0.8
    weights = 2 * shape["parameters"] / memory
    attend = lambda count, context: 4 * count * (context + count / 2) * shape["width"] * shape["layers"] / (0.4 * 312e12)
    generation = lambda history: 200 * (weights + 32 * (history + 132) * shape["token_bytes"] / memory)
    prefill = lambda history: 32 * ((history + 32) * 2 * shape["parameters"] / peak + attend(history + 32, 0))
    sizes = [0, 1024, 2048, 4096, 8192, 12288]
    ratios = [prefill(h) / generation(h) for h in sizes]
    add("3", "prefill over generation, history 0 to 12K: " + ", ".join(f"{r:.2f}" for r in ratios), None, ratios[-1], "D",
        "assumed: 60 % of the peak in products, 80 % of the memory's bandwidth",
        holds=all(a < b for a, b in zip(ratios, ratios[1:])) and ratios[0] < 1)
    rest = 32 * 2 * shape["parameters"] / peak
    curve = [max(attend(32, c), c * shape["token_bytes"] / memory) / rest for c in (512, 1024, 2048, 4096, 8192, 16384)]
    doubled = all(1.5 < b / a < 2.5 for a, b in zip(curve, curve[1:]))
    add("4", "attention of 32 tokens over all else, context 512 to 16K: " + ", ".join(f"{c:.2f}" for c in curve), None, curve[-1], "D",
        "with 40 % of the peak in attention it passes 1 only beyond 16K: their kernel reaches less" if curve[-1] <= 1 else "",
        holds=doubled and curve[-1] > 1)
    return points


def memserve(presets):
    """Figure 13: its time to the first token over what is cached, from the cost model: Llama 2 13B on two H800 (§8.1); half of the
    peak in products, 30 % in attention, and 64 GB/s a GPU from DRAM (HCache's table 2) are assumed."""
    points = []
    shape, machine = presets["models"]["llama2-13b"], presets["machines"]["h800"]
    products, attention, memory = 2 * machine["peak_flops"] * 0.5, 2 * machine["peak_flops"] * 0.3, 2 * machine["memory_bandwidth"] * 0.7

    def ttft(tokens, ratio, link=None):
        old, new = tokens * ratio, tokens * (1 - ratio)
        compute = max(2 * shape["parameters"] * new / products, 2 * shape["parameters"] / memory)
        compute += 4 * new * (old + new / 2) * shape["width"] * shape["layers"] / attention
        loads = old * shape["token_bytes"] / link if link else 0
        return max(compute, loads) + min(compute, loads) / shape["layers"]

    ratios, lengths = (0, 0.25, 0.5, 0.75, 0.9), (512, 1024, 2048, 4096)
    gain = lambda tokens, ratio, link=None: ttft(tokens, 0) / ttft(tokens, ratio, link)
    rises = lambda values: all(a <= b * 1.02 for a, b in zip(values, values[1:]))  # it ends at 1 / (1 - share)
    over = [gain(2048, r) for r in ratios]
    points.append(Point("memserve", "13", "gain at 2,048 tokens over the share that is cached, 0 to 0.9: " + ", ".join(f"{g:.2f}" for g in over),
                        None, over[-1], "D", holds=rises(over) and over[-1] > over[0]))
    over = [gain(n, 0.9) for n in lengths]
    points.append(Point("memserve", "13", "gain at a cached share of 0.9 over the length, 512 to 4,096: " + ", ".join(f"{g:.2f}" for g in over),
                        None, over[-1], "D", holds=rises(over) and over[-1] > over[0]))
    over = [gain(2048, r, 2 * machine["link_bandwidth"]) for r in ratios]
    points.append(Point("memserve", "13", "the same from DRAM, 0 to 0.9: " + ", ".join(f"{g:.2f}" for g in over), None, over[-1], "D",
                        "", holds=over[-1] > 1 and rises(over)))
    return points


def all_points(presets):
    return hcache(presets) + attentionstore(presets) + pensieve(presets) + memserve(presets)
