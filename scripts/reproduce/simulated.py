# SPDX-License-Identifier: Apache-2.0
"""What is compared of the simulated runs. Each function takes the reports by run and gives (points, charts); a chart is
(paper, figure, title, SVG)."""
import svg
from computed import Point
from simulated_attentionstore import attentionstore


def at_latency(results, tag, latency):
    """The throughput at which the mean normalised latency passes `latency`, between the points of a sweep; (it, whether the
    sweep passes it)."""
    curve = sweep(results, tag)
    best = 0
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if y0 <= latency < y1:
            return x0 + (x1 - x0) * (latency - y0) / (y1 - y0), True
        best = max(best, x0 if y0 <= latency else 0)
    x, y = curve[-1]
    return (x if y <= latency else best or curve[0][0]), False


def sweep(results, tag, which="mean"):
    runs = [run for run in results if run.startswith(tag + "@")]
    runs.sort(key=lambda run: float(run.split("@")[1]))
    return [(results[r]["throughput"]["requests_per_s"], results[r]["latency_per_token_s"][which]) for r in runs]


def computed_share(results, run):
    tokens = results[run]["tokens"]
    return tokens["computed"] / tokens["prompt"]


def pensieve(results, quick):
    points, charts = [], []

    def add(figure, label, theirs, ours, band, why="", holds=None):
        points.append(Point("pensieve", figure, label, theirs, ours, band, why, "simulated", holds))

    for figure, model, work, latency, theirs in (("10a", "opt", "sharegpt", 0.120, 1.36), ("10b", "llama", "sharegpt", 0.180, 1.70),
                                                 ("10c", "opt", "ultrachat", 0.120, 1.17), ("10d", "llama", "ultrachat", 0.100, 1.58),
                                                 ("11", "opt66", "sharegpt", 0.200, 2.04), ("11", "llama70", "sharegpt", 0.400, 3.0)):
        tags = [f"{model}-{work}-{system}" for system in ("pensieve", "vllm")]
        if any(not sweep(results, tag) for tag in tags):
            continue
        (ours, passed), (base, base_passed) = (at_latency(results, tag, latency) for tag in tags)
        why = "" if passed and base_passed else (
            "no such value: " + " and ".join(f"{tag}'s sweep ends at {1000 * sweep(results, tag)[-1][1]:.0f} ms" for tag, done in zip(tags, (passed, base_passed)) if not done)
            + ", so the ratio is of the highest rates tried")
        add(figure, f"{model}, {work}: throughput at {1000 * latency:.0f} ms a token over stateless", theirs, ours / base, "B", why,
            holds=passed and base_passed and ours > base)
        title = f"Normalised latency, {model} {work}"
        # §6.1 has the 90th percentile, §6.2 the mean.
        charts.append(("pensieve", figure, title, svg.lines(title, "requests/s", "s a token", {
            f"{name}, {words}": sweep(results, tag, which) for which, words in (("mean", "mean"), ("p90", "90th percentile"))
            for name, tag in zip(("Pensieve", "stateless"), tags)})))
    if not quick:
        pensieve_details(results, add, charts)
    return points, charts


def pensieve_details(results, add, charts):
    """Figures 10 (GPU cache only), 13, 14 and 15."""

    def chart(figure, title, labels, series):
        charts.append(("pensieve", figure, title, svg.bars(title, labels, series)))

    latency = lambda run: results[run]["latency_per_token_s"]["mean"]
    saved = {rate: 100 * (1 - computed_share(results, f"opt-sharegpt-gpu@{rate}")) for rate in ("0.3", "0.8")}
    add("10", "GPU cache only: share of prompts' tokens that it saves at the lowest and at the highest rate, "
        + ", ".join(f"{s:.1f} %" for s in saved.values()), None, saved["0.3"], "D", holds=saved["0.3"] > saved["0.8"] >= 0)
    chart("10", "Share of prompts' tokens that is saved, %", [f"{rate} conversations/s" for rate in saved], {
        "GPU cache only": list(saved.values()), "with host memory": [100 * (1 - computed_share(results, f"opt-sharegpt-pensieve@{rate}")) for rate in saved]})
    retention_against_lru(results, add, charts)
    rates = ("1.2", "2.0")
    for rate in rates:
        gain = latency(f"llama-sharegpt-split@{rate}") / latency(f"llama-sharegpt-pensieve@{rate}")
        add("13", f"latency a token, split passes over unified, {rate} conversations/s", None, gain, "D", holds=gain > 1)
    chart("13", "Latency a token, s", [f"{rate} conversations/s" for rate in rates], {
        name: [latency(f"llama-sharegpt-{run}@{rate}") for rate in rates] for name, run in (("unified passes", "pensieve"), ("split passes", "split"))})
    times = (60, 300, 600)
    think = [latency(f"think-{t}@0.8") for t in times]
    anew = [100 * computed_share(results, f"think-{t}@0.8") for t in times]
    add("15", "share of prompts' tokens that is computed, which lowers the throughput, at think times of 60, 300, 600 s: "
        + ", ".join(f"{a:.0f} %" for a in anew), None, anew[-1], "D", holds=anew[0] < anew[1] < anew[2])
    base = latency("think-600-vllm@0.8")
    add("15", "at 600 s still better than stateless: its latency a token over ours", None, base / think[-1], "D", holds=base > think[-1])
    chart("15", "Share of prompts' tokens that is computed, %", [f"{t} s of thought" for t in times], {"ours": anew, "stateless": [100] * len(times)})


SEEDS = (1, 2, 3, 4)


def retention_against_lru(results, add, charts):
    """Figure 14: alike up to about 3 requests/s, then retention is better. Runs of one seed differ by more than the policies do, so each is the
    sum over four."""
    rates = rates_of(results, "lru-1")
    every = lambda tag, rate: [results[f"{tag}-{seed}@{rate}"] for seed in SEEDS]
    mean = lambda tag, rate, of: sum(of(report) for report in every(tag, rate)) / len(SEEDS)
    tokens, latency = lambda r: r["tokens"]["computed"], lambda r: r["latency_per_token_s"]["mean"]
    asked = {rate: mean("retention", rate, lambda r: r["throughput"]["requests_per_s"]) for rate in rates}
    gain = lambda of, rate, flat="": mean(f"lru{flat}", rate, of) / mean(f"retention{flat}", rate, of)
    apart = {rate: [b["tokens"]["computed"] / a["tokens"]["computed"] for a, b in zip(every("retention", rate), every("lru", rate))] for rate in rates}
    listed = lambda of: ", ".join(f"{gain(of, rate):.3f} at {asked[rate]:.1f}" for rate in rates)
    best, last = max(rates, key=lambda rate: gain(tokens, rate)), rates[-1]
    why = (f"where more is asked than is served, retention computes more tokens. It weighs what chunks cost, not how many there are, and keeps the ends of long "
           f"conversations in place of chunks that were used later. If attention ran at its peak, so that chunks cost nearly alike (runs -flat), LRU would compute "
           f"{gain(tokens, last, '-flat'):.3f} of its tokens here: so it is the weighing that costs them. The paper prints no cost of a chunk")
    add("14", f"tokens that LRU computes, divided by those that retention computes, at requests/s: {listed(tokens)}; the greatest (paper: up to 1.17)", None,
        gain(tokens, best), "D", f"by seed {min(apart[best]):.3f} to {max(apart[best]):.3f}", holds=gain(tokens, best) > 1.01 and min(apart[best]) > 1)
    add("14", "the same at the highest rate, where the paper's retention is still better", None, gain(tokens, last), "D", why, holds=gain(tokens, last) > 1)
    knee = next((rate for rate in rates if gain(latency, rate) > 1.02), None)
    add("14", f"requests/s from which LRU's latency a token is above retention's by 2 %: {listed(latency)}" + ("" if knee else "; none is, so here is the highest that was tried"), 3,
        asked[knee or last], "R", f"tokens differ by a few percent, and prompts are a tenth of the busy time; by seed the ratio of tokens at one rate is {min(apart[last]):.2f} to {max(apart[last]):.2f}",
        holds=knee is not None)
    hits = {tag: mean(tag, "0.7", lambda r: 100 * r["tokens"]["share_of_history_reused"]) for tag in ("lru", "retention")}
    add("14", f"both hit less than 80 % at {asked['0.7']:.1f} requests/s, of history: LRU {hits['lru']:.1f}, retention", None, hits["retention"], "D", holds=max(hits.values()) < 80)
    title = "Tokens that are computed, % of prompts'"
    charts.append(("pensieve", "14", title, svg.lines(title, "requests/s", "%", {
        name: [(asked[rate], mean(tag, rate, lambda r: 100 * r["tokens"]["computed"] / r["tokens"]["prompt"])) for rate in rates]
        for name, tag in (("LRU", "lru"), ("retention", "retention"))})))


def berkeley(results, quick):
    points, charts = [], []

    def add(figure, label, theirs, ours, band, why="", holds=None):
        points.append(Point("berkeley", figure, label, theirs, ours, band, why, "simulated", holds))

    rate = lambda run: results[run]["throughput"]["requests_per_s"]
    # Contexts of 1,024 tokens, bodies of 64, which nobody shares.
    miss = lambda run: 100 * (1 - results[run]["tokens"]["share_cached"] * 1088 / 1024)
    tiers = ["none", "gpu", "cpu", "disk"]
    speeds = [rate(t) for t in tiers]
    add("throughput", "rises with each tier, requests/s: " + ", ".join(f"{s:.1f}" for s in speeds), None, speeds[-1] / speeds[0], "D",
        holds=all(a <= b * 1.02 for a, b in zip(speeds, speeds[1:])))
    add("throughput", "best over none (at least 1.5)", None, max(speeds) / speeds[0], "D", holds=max(speeds) / speeds[0] >= 1.5,
        why="decodes in a batch of two, which no tier makes shorter, are a large part of the time; the paper's batch is not given")
    for policy in ("fifo", "random"):
        other, faster = rate(f"disk-{policy}") / rate("disk"), rate(f"disk-{policy}-2gb") / rate("disk-2gb")
        found = [100 * results[run]["tokens"]["share_cached"] for run in (f"disk-{policy}", "disk")]
        add("throughput", f"{policy} is as LRU", None, other, "D", holds=0.9 < other < 1.1,
            why=f"bodies and replies are kept too, and LRU alone lets them go first ({found[0]:.0f} against {found[1]:.0f} % of prompts cached); at the "
                f"assumed 1 GB/s a prefix takes 0.54 s from the disk and 0.39 s to compute, so who finds less there is faster; at 2 GB/s it is {faster:.2f}")
    for run, theirs in (("gpu-no-prefetch", (93.8 - 2, 93.8 + 2)), ("cpu-no-prefetch", (68.8 - 2, 75 + 2)), ("disk-no-prefetch", (0, 2))):
        found = miss(run)
        add("miss rate", f"{run}, FCFS, LRU: % of prefix tokens", None, found, "D", holds=theirs[0] <= found <= theirs[1],
            why=f"expected {theirs[0]:.1f} to {theirs[1]:.1f} from 1 - capacity / 128"
                + ("; bodies and replies are kept on the disk too" if found > 2 and run.startswith("disk") else ""))
    for tier in ("cpu", "disk"):
        gain = rate(f"{tier}-fcfs") / rate(f"{tier}-no-prefetch")
        waits = results[f"{tier}-no-prefetch"]["busy_s"]["waits_for_loads"]
        add("prefetch", f"{tier}: requests/s with prefetch over without", None, gain, "D", holds=gain > 1.005,
            why="" if gain > 1.005 else f"without it passes wait {waits:.1f} s for loads in all, as these come layer by layer behind computing, so there is nothing to gain")
    labels = {"FCFS": "fcfs", "Relaxed-FPF": "relaxed-fpf", "FPF": "fpf"}
    fcfs, fpf, relaxed = rate("disk-fcfs"), rate("disk"), rate("disk-relaxed-fpf")
    add("admission", "FPF is at least as fast as FCFS, requests/s", None, fpf / fcfs, "D",
        holds=fpf >= fcfs * 0.99,
        why="" if fpf >= fcfs else "our core prefetches in the order of arrival, which FPF leaves: what it brought waits, and goes again")
    add("admission", "Relaxed-FPF is between the two, over FCFS", None, relaxed / fcfs, "D",
        why="all are there at once and have waited equally long, so its order is FPF's",
        holds=min(fcfs, fpf) * 0.98 <= relaxed <= max(fcfs, fpf) * 1.02)
    waited = {a: results[f"over-time-{a}"]["ttft_from_arrival_s"] for a in labels.values()}
    skew = {a: w["p99"] / w["mean"] for a, w in waited.items()}
    add("admission", "requests that arrive over time, 2.3/s: p99 of the time to the first token over its mean, FCFS, Relaxed-FPF, FPF: "
        + ", ".join(f"{skew[a]:.1f}" for a in labels.values()) + "; FPF starves", None, skew["fpf"] / skew["fcfs"], "D",
        "where all requests are there at once, who is last waits for the whole run under either, so these arrive, as many as all tiers can serve",
        holds=skew["fpf"] > 1.1 * skew["fcfs"])
    add("admission", "Relaxed-FPF starves less than FPF: its p99 over FPF's, s: " + ", ".join(f"{waited[a]['p99']:.1f}" for a in ("relaxed-fpf", "fpf")), None,
        waited["relaxed-fpf"]["p99"] / waited["fpf"]["p99"], "D", holds=waited["relaxed-fpf"]["p99"] < waited["fpf"]["p99"])
    waits = [results[run]["ttft_from_admission_s"]["mean"] for run in tiers]
    add("latency", "grows with swapping: from admission to the first token, none, GPU, CPU, disk: " + ", ".join(f"{w:.2f} s" for w in waits), None,
        waits[-1] / waits[0], "D", "ours loads layer by layer while it computes; from host memory at 6 GB/s a prefix comes in a quarter of the time "
        "that computing takes, while the paper copies unpinned memory before it computes", holds=waits[0] < waits[2] < waits[3])
    berkeley_chat(results, add, charts)

    def chart(figure, title, names, series):
        charts.append(("berkeley", figure, title, svg.bars(title, names, series)))

    chart("prefetch", "Requests/s with and without prefetch", ["CPU", "disk"], {
        "without": [rate(f"{t}-no-prefetch") for t in ("cpu", "disk")], "with": [rate(f"{t}-fcfs") for t in ("cpu", "disk")]})
    chart("admission", "Requests/s where all are there at once", list(labels), {"ours": [fcfs, relaxed, fpf]})
    chart("admission", "Time to the first token of requests that arrive over time, s", list(labels), {
        which: [waited[a][which] for a in labels.values()] for which in ("mean", "p99")})
    chart("latency", "From admission to the first token, s", tiers, {"ours": waits})
    title = "Requests/s by tiers"
    charts.append(("berkeley", "throughput", title, svg.bars(title, tiers, {"ours": speeds})))
    title = "Missed prefix tokens, %"
    charts.append(("berkeley", "miss rate", title, svg.bars(title, tiers[1:], {
        "expected, 1 - capacity / 128": [93.8, (68.8, 75), 0], "ours": [miss(f"{t}-no-prefetch") for t in tiers[1:]]})))
    del quick
    return points, charts


def berkeley_chat(results, add, charts):
    """§VII-B: inputs of ShareGPT, one at a time, behind a system prompt that all share; and what the paper could not do: whole conversations,
    whose prefixes grow."""
    # One after another: a request takes as long as there is between two.
    takes = {run: 1 / results[run]["throughput"]["requests_per_s"] for run in ("chat-none", "chat-disk", "talk-none", "talk-disk")}
    gain = {kind: takes[f"{kind}-none"] / takes[f"{kind}-disk"] for kind in ("chat", "talk")}
    add("chat", "inputs behind a system prompt: time of a request, and so throughput, without caching over with it (paper: virtually unchanged)", None, gain["chat"], "D",
        "the prompt is all that is shared, and computing it is a small part of a request, most of which writes the reply", holds=0.98 <= gain["chat"] <= 1.1)
    add("chat", "conversations, whose prefixes grow: the same (not in the paper, which could not grow them and expects a gain)", None, gain["talk"], "D",
        f"{100 * results['talk-disk']['tokens']['share_cached']:.0f} % of the prompts' tokens are found", holds=gain["talk"] > gain["chat"])
    title = "Time of a request, one at a time, s"
    charts.append(("berkeley", "chat", title, svg.bars(title, ["input behind a system prompt", "turn of a conversation"], {
        name: [takes[f"chat-{run}"], takes[f"talk-{run}"]] for name, run in (("without caching", "none"), ("with caching", "disk"))})))


def memserve(results, quick):
    points, charts = [], []

    def add(figure, label, ours, holds, why=""):
        points.append(Point("memserve", figure, label, None, ours, "D", why, "simulated", holds))

    names = {"sharegpt": "ShareGPT", "loogle": "LooGLE", "react": "ReAct"}
    share = {w: results[f"{w}-cc"]["tokens"]["share_reusable"] for w in names}
    ratio = {w: results[f"{w}-cc"]["tokens"]["prompt"] / results[f"{w}-cc"]["tokens"]["reply"] for w in names}
    for w in ("loogle", "react"):
        add("7", f"{names[w]}: tokens of prompts for one of replies (ShareGPT {ratio['sharegpt']:.1f})", ratio[w], ratio[w] > ratio["sharegpt"])
        add("7", f"{names[w]}: share of prompts that is a known prefix, %", 100 * share[w], share[w] > 0.7)
    chart = lambda figure, title, series: charts.append(("memserve", figure, title, svg.bars(title, list(names.values()), series)))
    chart("7", "Tokens of prompts for one of replies", {"ours": [ratio[w] for w in names]})
    chart("7", "Share of prompts that is a known prefix, %", {"ours": [100 * share[w] for w in names]})
    fields = {"Time to the first token": "ttft_from_arrival_s", "Time of a request a token": "latency_per_token_s"}
    left = {(w, field, which): results[f"{w}-cc"][field][which] / results[f"{w}-pd"][field][which]
            for w in names for field in fields.values() for which in ("mean", "p99")}
    for w, name in names.items():
        for what, field in fields.items():
            for which in ("mean", "p99"):
                over = left[w, field, which]
                add("8 PD", f"{name}: {what[0].lower()}{what[1:]}, {which}, with caching of without", over, over < 1)
    for what, field in fields.items():
        chart("8 PD", f"{what}, with caching of without", {which: [left[w, field, which] for w in names] for which in ("mean", "p99")})
    del quick
    return points, charts


WHY_PD = ("in the model a prompt's pass holds replies up for 10 to 30 ms, at these rates some 10 % of the time, and two decode instances write what three wrote; the paper "
          "gives neither rates nor times of passes")
WHY_REACT = "the paper's text says that ReAct's times increase, where the others' decrease, and gives no cause; ours hardly change at this rate"
WHY_FIRST = "more than the paper's: the prefill instance without caching has a queue at this rate"


def why_reply(which, replied, first, their_reply, their_first, loaded):
    """Why caching shortens requests less than in the paper. It shortens the wait for the first token, so what it takes off both says which part of
    a request that wait is."""
    whose = 'In the paper, whose prefill instances were "heavily loaded" (§8.3)' if loaded else "In the paper,"
    return (f"replies take most of the time here, which caching does not shorten: without it the first token is {100 * first / replied:.0f} % of a request's time ({which}). "
            f"{whose} at rates that are not given, it was {100 * (1 - their_reply) / (1 - their_first):.0f} %: "
            "so much it must be where caching takes off as much of both as there")


def memserve_roles(results, quick):
    """Figures 8, disaggregated, 12 and 14: instances that compute prompts and others that write the replies."""
    points, charts = [], []

    def add(figure, label, theirs, ours, band="B", why="", holds=None, missed=""):
        """`missed`: why it is outside, where it is."""
        point = Point("memserve", figure, label, theirs, ours, band, why, "simulated", holds)
        point.why = "; ".join(text for text in (why, "" if point.inside() else missed) if text)
        points.append(point)

    jct = lambda run, which="mean": results[run]["latency_s"][which]
    ttft = lambda run, which="mean": results[run]["ttft_from_arrival_s"][which]
    names = {"sharegpt": "ShareGPT", "loogle": "LooGLE", "react": "ReAct"}
    theirs = {"sharegpt": ((0.70, 0.58), (0.83, 0.71), (0.42, 0.55)), "loogle": ((0.897, 0.892), (0.731, 0.775), (0.438, 0.548)),
              "react": ((1.408, 1.531), (0.733, 0.786), (0.215, 0.151))}
    drawn = [w for w in names if f"{w}-pd" in results]
    begun = lambda which: (
        "all prompts have one prefix, and both decode instances get some before the first reply has come back; read otherwise (§6 also has responses streamed), trees learn of a "
        f"prompt when its reply begins, one instance can write all replies, and it is {jct('react-1p2d-cc-begun', which) / jct('react-1p2d', which):.3g}")
    for w in drawn:
        for i, which in enumerate(("mean", "p99")):
            split, cached, first = (their[i] for their in theirs[w])
            add("8 1P1D", f"{names[w]}: time of a request, {which}, without caching: 1P2D over PD", split, jct(f"{w}-1p2d", which) / jct(f"{w}-pd", which),
                missed=WHY_PD if w != "react" else WHY_REACT)
            add("8 1P1D", f"{names[w]}: time of a request, {which}: 1P2D with caching over without", cached, jct(f"{w}-1p2d-cc", which) / jct(f"{w}-1p2d", which),
                why=begun(which) if w == "react" else "",
                missed="" if w == "react" else why_reply(which, jct(f"{w}-1p2d", which), ttft(f"{w}-1p2d", which), cached, first, w == "sharegpt"))
            add("8 1P1D", f"{names[w]}: time to the first token, {which}: 1P2D with caching over without", first, ttft(f"{w}-1p2d-cc", which) / ttft(f"{w}-1p2d", which),
                missed=WHY_FIRST)
    if "sharegpt-pd" in results:
        one, two = jct("sharegpt-1p2d-cc"), jct("sharegpt-2p1d-cc")
        add("8 1P1D", "ShareGPT: 1P2D writes faster than 2P1D, time of a request", None, one / two, "D", holds=one < two)
    for w in drawn if not quick else []:
        for other, name in (("1p2d-cc", "1P2D with caching"), ("ours-roles", "ours with one instance of role `prefill`")):
            better = jct(f"{w}-ours-both") / jct(f"{w}-{other}")
            add("8 1P1D", f"{names[w]}: time of a request, ours as it is by default (three instances of role `both`, unified passes, the first token predicted) over {name}",
                None, better, "D", holds=better < 1.02)
    if not quick:
        runs = {"PD": "pd", "1P2D": "1p2d", "2P1D": "2p1d", "1P2D-CC": "1p2d-cc", "2P1D-CC": "2p1d-cc", "ours, roles": "ours-roles", "ours, both": "ours-both"}
        title = "Time of a request, s"
        charts.append(("memserve", "8 1P1D", title, svg.bars(title, list(runs), {names[w]: [jct(f"{w}-{run}") for run in runs.values()] for w in drawn})))
        ratios, policies = (1, 2, 4), ("session", "prompt-tree", "first-token")
        for ratio in ratios:
            tree, first = (ttft(f"share-{ratio}-{policy}", "p99") / ttft(f"share-{ratio}-session", "p99") for policy in policies[1:])
            if ratio == 2:
                add("14", "share ratio 2: p99 time to the first token, routing by prompt trees over by session", 0.41, tree,
                    why="were an instance told by session, too, who has what it lacks, it would be "
                    f"{ttft('share-2-prompt-tree', 'p99') / ttft('share-2-session-read', 'p99'):.3g}",
                    missed="by session an instance computes a document that another one has, which takes some 20 ms here, and nobody waits long for it at this rate")
            add("14", f"share ratio {ratio}: the same for our default, which predicts the first token, over by session (prompt trees {tree:.2f})", None, first, "D", holds=first < tree * 1.02)
        title = "p99 time to the first token, s"
        charts.append(("memserve", "14", title, svg.bars(title, [f"ratio {r}" for r in ratios],
                                                         {p: [ttft(f"share-{r}-{p}", "p99") for r in ratios] for p in policies})))
        rates = rates_of(results, "transfer-pass")
        gains = {rate: jct(f"transfer-pass@{rate}") / jct(f"transfer-request@{rate}") for rate in rates}
        add("12", f"time of a request, state of each pass read while the next is computed over all at the end, at {', '.join(rates)} requests/s: "
            + ", ".join(f"{gain:.2f}" for gain in gains.values()), None, gains[rates[0]], "D",
            "by layer the paper has most, small, transfers, and so loses to aggregated ones under load; ours has as many as a prompt has passes", holds=max(gains.values()) < 1.02)
        title = "Time of a request, 1,024 + 32 tokens, s"
        ways = {"by pass": "transfer-pass", "by request, aggregated": "transfer-request"}
        charts.append(("memserve", "12", title, svg.lines(title, "requests/s", "s", {name: [(float(r), jct(f"{run}@{r}")) for r in rates] for name, run in ways.items()})))
    return points, charts


WHY_KV = ("ours overlaps loads with the pass that reads them, so loading keys and values costs it the link alone, where HCache's restoration ends "
          "before its prefill begins (§5)")
WHY_ANEW = ("whole layers run at the calibrated speed of projections, and §6.2.2 has recomputation 5.46 to 6.08 times slower than HCache, where that "
            "speed gives 6.3 to 6.8")
WHY_MOST = ("projecting takes processor time, which our KV offload does not: its loads move while others compute; the paper's holds the processor up "
            "while it restores (§5)")
HCACHE_MODELS = {"7b": "7B", "13b": "13B", "30b": "30B"}


def rates_of(results, tag):
    return sorted((run.split("@")[1] for run in results if run.startswith(tag + "@")), key=float)


def hcache_talks(results, quick):
    """Figure 9: ShareGPT4's conversations, restored from four disks, at rates up to which recomputation keeps up."""
    points, charts = [], []

    def add(figure, label, theirs, ours, band, why="", holds=None):
        points.append(Point("hcache", figure, label, theirs, ours, band, why, "simulated", holds))

    # From admission: the paper's TTFT is "the duration of the restoration and prefill phase" (§6).
    ttft = lambda run: results[run]["ttft_from_admission_s"]["mean"]
    between = lambda run: results[run]["between_tokens_s"]["mean"]
    turns = lambda run: results[run]["throughput"]["requests_per_s"]
    share = lambda run: 100 * results[run]["busy_s"]["projecting"] / results[run]["busy_s"]["total"]
    for m, name in HCACHE_MODELS.items():
        for rate in rates_of(results, f"{m}-hcache"):
            runs = {s: f"{m}-{s}@{rate}" for s in ("hcache", "kv", "recompute", "ideal")}
            at = f"{name}, {turns(runs['hcache']):.2f} turns/s"
            add("9a-c", f"{at}: TTFT of KV offload over HCache's", (1.27, 1.90), ttft(runs["kv"]) / ttft(runs["hcache"]), "B", WHY_KV,
                holds=ttft(runs["kv"]) > ttft(runs["hcache"]))
            add("9a-c", f"{at}: TTFT of recomputation over HCache's", (2.21, 3.57), ttft(runs["recompute"]) / ttft(runs["hcache"]), "B", WHY_ANEW,
                holds=ttft(runs["recompute"]) > ttft(runs["kv"]))
            if runs["ideal"] in results:
                over = {s: between(runs[s]) / between(runs["ideal"]) for s in ("hcache", "kv", "recompute")}
                add("9d-f", f"{at}: time between tokens over ideal (paper at most 1.04; KV offload {over['kv']:.3f}, recomputation {over['recompute']:.3f})",
                    None, over["hcache"], "D",
                    f"projecting takes {share(runs['hcache']):.1f} % of the processor's time at this rate, and the paper's rates are not given",
                    holds=over["hcache"] <= 1.04)
        for most in rates_of(results, f"{m}-hcache-most"):
            gain = turns(f"{m}-hcache-most@{most}") / turns(f"{m}-kv-most@{most}")
            add("9a-c", f"{name}, more than the memory carries: requests/s over KV offload (paper up to 1.11)", None, gain, "D", WHY_MOST, holds=gain >= 0.99)
        for figure, title, value in (("9a-c", "TTFT", ttft), ("9d-f", "Time between tokens", between)):
            curves = {s: [(turns(f"{m}-{s}@{r}"), value(f"{m}-{s}@{r}")) for r in rates_of(results, f"{m}-{s}")]
                      for s in ("hcache", "kv", "recompute", "ideal")}
            curves = {s: curve for s, curve in curves.items() if len(curve) > 1}
            if curves:
                charts.append(("hcache", figure, f"{title} {name}", svg.lines(f"{title}, {name}", "turns/s", "s", curves)))
    if not quick:
        in_passes = ttft("second:efficiency.projects") / ttft("7b-hcache@0.05")
        add("9a-c", "7B, 0.05 conversations/s: TTFT where the pass that reads a block projects it, as our CPU backend does, over projecting on arrival, as HCache does",
            None, in_passes, "D", holds=in_passes > 1)
        best = min(ttft(f"7b-{plan}@0.05") for plan in ("kv", "hidden", "hcache"))
        auto = ttft("7b-auto@0.05") / best
        add("9a-c", "7B, 0.05 conversations/s: TTFT of our plan `auto` over the best of `kv`, `hidden` and `hcache`", None, auto, "D", holds=auto <= 1.02)
    return points, charts


def hcache_reuse(results, quick):
    """Figure 15: contexts that the GPU keeps by LRU, drawn by Zipf's law."""
    points, charts = [], []

    def add(label, ours, holds, why=""):
        points.append(Point("hcache", "15", label, None, ours, "D", why, "simulated", holds))

    steps = sorted({run.split("-")[1] for run in results if run.startswith("hcache-")}, key=float)
    ttft = lambda run: results[run]["ttft_from_admission_s"]["mean"]
    hits = lambda run: 100 * results[run]["tokens"]["from_device"] / results[run]["tokens"]["history"]
    found = [hits(f"hcache-{z}") for z in steps]
    add(f"hits on the GPU, exponents {', '.join(steps)}: " + ", ".join(f"{h:.0f}" for h in found) + " % (paper 15 to 94)", found[-1],
        all(a < b for a, b in zip(found, found[1:])) and found[-1] > 84)
    over = {s: [ttft(f"{s}-{z}") / ttft(f"hcache-{z}") for z in steps] for s in ("kv", "recompute")}
    add("exponent 0: TTFT of KV offload over HCache's (paper 1.67)", over["kv"][0], over["kv"][0] > 1.3)
    add("exponent 2: TTFT of KV offload over HCache's (paper 1.15)", over["kv"][-1], 1 < over["kv"][-1] < over["kv"][0])
    add("exponent 2: TTFT of recomputation over HCache's (paper 1.98)", over["recompute"][-1], 1 < over["recompute"][-1] < over["recompute"][0])
    for s, name in (("hcache", "HCache"), ("kv", "KV offload"), ("recompute", "recomputation")):
        less = ttft(f"{s}-{steps[0]}") / ttft(f"{s}-{steps[-1]}")
        add(f"{name}: TTFT at exponent 0 over that at 2 (paper 3.76 to 10.03 over all)", less, less > 2)
    if not quick:
        title = "TTFT by skewness"
        curves = {s: [(float(z), ttft(f"{s}-{z}")) for z in steps] for s in ("hcache", "kv", "recompute")}
        charts.append(("hcache", "15", title, svg.lines(title, "Zipf's exponent", "s", curves)))
        title = "Hits on the GPU, %"
        charts.append(("hcache", "15", title, svg.lines(title, "Zipf's exponent", "%", {"ours": list(zip(map(float, steps), found))})))
    return points, charts


def hcache_saving(results, quick):
    """Figure 14: hidden states saved in two stages, or directly while the pass waits."""
    points, charts = [], []

    def add(label, ours, holds, why=""):
        points.append(Point("hcache", "14", label, None, ours, "D", why, "simulated", holds))

    # The median: the first sequence waits for the others' prompts.
    between = lambda run: results[run]["between_tokens_s"]["p50"]
    batches = sorted({int(run.split("-")[-1]) for run in results if run.startswith("7b-direct-")})
    over = {m: {b: between(f"{m}-direct-{b}") / between(f"{m}-two-stage-{b}") for b in batches} for m in ("7b", "13b")}
    said = lambda m: ", ".join(f"{over[m][b]:.2f}" for b in batches)
    for m, batch in (("7b", 16), ("13b", 32)):
        two = between(f"{m}-two-stage-{batch}") / between(f"{m}-none-{batch}")
        add(f"{HCACHE_MODELS[m]}, batch {batch}: time between tokens with two stages, over none saved", two, two < 1.01)
    add(f"7B, saved directly over two stages, batches of {', '.join(map(str, batches))}: {said('7b')} (16 is the calibration); small ones do not stall",
        over["7b"][4], over["7b"][1] < 1.01 and over["7b"][4] < 1.01)
    add(f"13B, the same: {said('13b')}; it stalls at 32 (paper 1.13)", over["13b"][32], over["13b"][32] > 1.01)
    add("13B stalls less than 7B at the same batch, as its layers take longer", over["13b"][16], all(over["13b"][b] <= over["7b"][b] for b in batches))
    if not quick:
        title = "Time between tokens, direct over two stages"
        charts.append(("hcache", "14", title, svg.bars(title, list(map(str, batches)), {HCACHE_MODELS[m]: [over[m][b] for b in batches] for m in over})))
    return points, charts


EVALUATE = {"attentionstore": attentionstore, "pensieve": pensieve, "berkeley": berkeley, "memserve": memserve, "memserve-roles": memserve_roles,
            "hcache-talks": hcache_talks, "hcache-reuse": hcache_reuse, "hcache-saving": hcache_saving}
