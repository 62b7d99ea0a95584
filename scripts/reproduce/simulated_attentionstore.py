# SPDX-License-Identifier: Apache-2.0
"""What is compared of AttentionStore's simulated runs (simulated.py has the other papers')."""
import svg
from computed import Point


def attentionstore(results, quick):
    points, charts = [], []
    names = {"13b": "LLaMA-13B", "65b": "LLaMA-65B", "70b": "LLaMA-70B", "falcon": "Falcon-40B"}
    # Of all turns: §4.3.5 has 100 % only "if not considering the newly arrived conversations".
    hit = lambda run: 100 * results[run]["hit_rate"]["of_turns"]
    returning = lambda run: 100 * results[run]["hit_rate"]["of_returning_turns"]
    busy = lambda run: results[run]["busy_s"]["total"]
    prompts = lambda run: results[run]["busy_s"]["prompts"] + results[run]["busy_s"]["waits_for_loads"]

    def add(figure, label, theirs, ours, band, why="", holds=None):
        points.append(Point("attentionstore", figure, label, theirs, ours, band, why, "simulated", holds))

    def chart(figure, title, labels, theirs, ours):
        charts.append(("attentionstore", figure, title, svg.bars(title, labels, {"paper": theirs, "ours": ours})))

    table = {"13": (86, 71, 89, 90), "14": (85, 61, 87, 86), "15": (6.8, 2.6, 7.8, 7.2), "16": (4.0, 1.9, 3.3, 3.4),
             "17": (70, 43, 66, 68), "22": (17.6, 41.5, 18.1, 18.4), "24a": (3.4, 1.7, 7.7, 19.1)}
    ours = {figure: [] for figure in table}
    for m in names:
        ours["13"].append(hit(f"as-{m}"))
        ours["14"].append(100 * (1 - prompts(f"as-{m}") / prompts(f"re-{m}")))
        ours["15"].append(prompts(f"re-{m}") / prompts(f"as-{m}"))
        ours["16"].append(busy(f"re-{m}") / busy(f"as-{m}"))
        ours["17"].append(100 * (1 - cost(results, m, "as") / cost(results, m, "re")))
        ours["22"].append(hit(f"as-{m}") - hit(f"of-{m}"))
        ours["24a"].append(hit(f"dram-{m}"))
    why15, why16 = why_prefill(results), why_gpu_time(results)
    why_live = ("the time between turns is not given: at 60 s the sessions that are open at once have at most 6.7 M tokens of state (13B), "
                "55 % of the 10 TB, so little of it is evicted; the paper's must be more than 10 TB holds")
    for i, (m, name) in enumerate(names.items()):
        add("13", f"{name}: hit rate of all turns, % (of returning turns {returning(f'as-{m}'):.1f})", table["13"][i], ours["13"][i], "P", why_live)
        add("14", f"{name}: time of prompts a turn (the paper's TTFT excludes the queue, ours here others' decodes too), of recomputing", 1 - table["14"][i] / 100, 1 - ours["14"][i] / 100, "B", why15)
        add("15", f"{name}: prompt tokens a busy second, over recomputing", table["15"][i], ours["15"][i], "B", why15)
        add("16", f"{name}: GPU time of recomputing over AttentionStore", table["16"][i], ours["16"][i], "B", why16 if m == "13b" else "as LLaMA-13B")
        add("17", f"{name}: cost left, of recomputing, with our GPU time", 1 - table["17"][i] / 100, 1 - ours["17"][i] / 100, "B", "follows from 16")
        add("22", f"{name}: hit rate lost when truncation invalidates, points", table["22"][i], ours["22"][i], "P",
            f"with a context of 2K, which is assumed here for LLaMA-65B alone, Falcon-40B would lose {hit('as-falcon-2k') - hit('of-falcon-2k'):.1f}" if m == "falcon" else
            "a hit is at least half of the history; whoever is cut once is cut again at every second or third turn")
        add("24a", f"{name}: hit rate of HBM and DRAM, %", table["24a"][i], ours["24a"][i], "P", "")
        add("24a", f"{name}: hit rate of HBM alone, %", 0, hit(f"hbm-{m}"), "P", "")
        dram, hbm, ours24 = (busy(f"{run}-{m}") for run in ("dram", "hbm", "as"))
        add("24b", f"{name}: GPU time of HBM and DRAM over AttentionStore (of HBM alone {hbm / ours24:.2f})", None, dram / ours24, "D",
            holds=dram > ours24 and hbm >= 0.99 * dram)
    rank = sorted(names, key=lambda m: hit(f"as-{m}"))
    add("13", "order but for the last two, which are LLaMA-70B and Falcon-40B: " + " < ".join(names[m] for m in rank), None, hit(f"as-{rank[-1]}"), "D",
        f"all but LLaMA-65B hit in {min(returning(f'as-{m}') for m in names if m != '65b'):.1f} % of returning turns, so what divides them is how many of the turns "
        "that are counted are first ones, which depends on how fast the queue is served", rank[:2] == ["65b", "13b"])
    order = sorted(names, key=lambda m: hit(f"of-{m}") - hit(f"as-{m}"))
    add("22", "65B is the worst", None, 0, "D", holds=order[0] == "65b", why=f"ours: {order[0]}")
    attentionstore_storage(results, add, charts, why_live)
    labels = list(names.values())
    for figure, title in (("13", "Hit rate, %"), ("14", "TTFT saved, %"), ("15", "Prefill throughput over recomputing"),
                          ("16", "GPU time of recomputing over ours"), ("17", "Cost saved, %"), ("22", "Hit rate lost, points"),
                          ("24a", "Hit rate of HBM and DRAM, %")):
        chart(figure, title, labels, list(table[figure]), ours[figure])
    title = "GPU time over AttentionStore's, by what is kept where"
    charts.append(("attentionstore", "24b", title, svg.bars(title, labels, {
        system: [busy(f"{run}-{m}") / busy(f"as-{m}") for m in names] for system, run in (("HBM", "hbm"), ("HBM and DRAM", "dram"), ("AttentionStore", "as"))})))
    del quick
    return points, charts


def attentionstore_storage(results, add, charts, why_live):
    """Figures 21 and 23: evictions and capacities."""
    hit = lambda run: 100 * results[run]["hit_rate"]["of_turns"]
    busy = lambda run: results[run]["busy_s"]["total"]
    for name, theirs, run in (("AttentionStore 10T", 86, "as-13b"), ("LRU 10T", 58, "lru-13b"), ("FIFO 10T", 48, "fifo-13b"),
                              ("LRU 2T", 12.9, "lru-13b-2t"), ("FIFO 2T", 9.5, "fifo-13b-2t"), ("AttentionStore 2T", 40, "as-13b-2t")):
        add("21a", f"{name}: hit rate of all turns, %", theirs, hit(run), "P", why_live if name.endswith("10T") else "")
    share = 100 * results["as-13b"]["hit_rate"]["of_hits_without_disk"]
    lru = 100 * results["lru-13b"]["hit_rate"]["of_hits_without_disk"]
    add("21a", "AttentionStore's hits in DRAM, %", None, share, "D", holds=share > 90, why="paper > 99.6; ours loads from the disk itself what was not brought before its turn")
    add("21a", "LRU's hits in DRAM, %", None, lru, "D", holds=lru < 10, why="paper 1; the last conversations of the run have no queue before them, and what is on the device counts too, whose size a smaller run keeps")
    # The sessions of an hour can need 3,600 x 4,096 tokens, 12.1 TB: 2.1 TB are 0.18 of it, 10.1 TB 0.84.
    sizes = [hit(run) for run in ("ttl-0.1", "as-13b-2t", "as-13b")]
    add("23", "hit rate at 0.10 (with a TTL of an hour), 0.18 and 0.84 of what the sessions of an hour can need, % (paper 51 at 0.1 and 98 at 0.25; in "
        "figure 21 about 40 at 0.18): " + ", ".join(f"{s:.1f}" for s in sizes), None, sizes[1], "D", holds=sizes[0] < sizes[1] < sizes[2])
    slower = {f"{policy.upper()} {size}": busy(f"{policy}-13b{end}") / busy(f"as-13b{end}")
              for policy in ("lru", "fifo") for size, end in (("10T", ""), ("2T", "-2t"))}
    add("21b", "greatest GPU time over AttentionStore's (" + ", ".join(f"{name} {over:.2f}" for name, over in slower.items()) + "); paper up to 2.7",
        2.7, max(slower.values()), "B", "decodes take most of the time, as in figure 16, and no eviction makes them shorter")
    runs = ("as-13b", "lru-13b", "fifo-13b", "as-13b-2t", "lru-13b-2t", "fifo-13b-2t")
    title = "Hit rate by eviction, %"
    charts.append(("attentionstore", "21a", title, svg.bars(title, list(runs), {"paper": [86, 58, 48, 40, 12.9, 9.5], "ours": [hit(r) for r in runs]})))
    charts.append(("attentionstore", "21b", "GPU time over AttentionStore", svg.bars("GPU time of LRU and FIFO over AttentionStore's (paper: up to 2.7)",
                                                                                   list(slower), {"ours": list(slower.values())})))
    title = "Hit rate by capacity, % (paper's 98 at 0.25 contradicts its 40 at 0.18)"
    charts.append(("attentionstore", "23", title, svg.lines(title, "capacity over what the sessions of an hour can need", "%", {
        "paper's figure 23": [(0.1, 51), (0.25, 98)], "paper's figure 21": [(0.18, 40), (0.84, 86)], "ours": list(zip((0.1, 0.18, 0.84), sizes))})))


def why_prefill(results):
    """What figures 14 and 15 hang on."""
    main = results["as-13b"]
    new = (main["tokens"]["prompt"] - main["tokens"]["history"]) / main["counted_requests"]
    said = []
    for field, words in (("none", "as assumed"), ("efficiency.memory", "with memory at 0.85 of its rate"), ("efficiency.fixed_ms", "with a fixed part of 40 ms")):
        if f"second:{field}" in results:  # not of a quick run
            ours, again = (results[f"second{of}:{field}"]["busy_s"] for of in ("", "-against"))
            said.append(f"{again['prompts'] / (ours['prompts'] + ours['waits_for_loads']):.1f} {words}")
    return (f"only what no turn has said before is computed, but for {100 - 100 * main['tokens']['share_of_history_reused']:.1f} % of the history (13B: ends of conversations, which are "
            f"brought when a turn comes and have mostly gone again when the queue lets it in). For so few tokens, {new:.0f} new ones a turn, a pass is bound by reading the weights, and "
            "it has a fixed part. Both are assumed" + (f": at a fifth of the scale 13B's figure 15 is {', '.join(said)}" if said else ""))


def why_gpu_time(results):
    """And figure 16."""
    anew = results["re-13b"]
    decode, written = anew["busy_s"]["decodes"] / anew["busy_s"]["prompts"], anew["tokens"]["reply"] / anew["counted_requests"]
    return (f"in the recomputing run decodes take {decode:.1f} times what prompts do, and the paper's figures 15 and 16 together mean 0.14 times (4.0 = (1 + d) / (1 / 6.8 + d); of the "
            f"others 0.30, 0.25 and 0.22). At our time of a pass a turn would then write {written * 0.14 / decode:.0f} tokens; here it writes {written:.0f}, as the lengths of "
            "conversations (§2.3) and their turns (§4.2) need. How a turn's tokens divide into question and reply is not given, and ours is Pensieve's. "
            + " ".join(divided(results, run, words) for run, words in (("even", "With as long questions as replies"), ("swapped", "With both exchanged")))
            + " Shorter replies bring figure 16 nearer and take figure 15 away, as longer questions are computed in any case: no division of the same tokens gives both")


def divided(results, run, words):
    """What figures 15 and 16 are where a turn's tokens divide otherwise into question and reply."""
    ours, again = results[f"as-13b-{run}"], results[f"re-13b-{run}"]
    time = lambda report: report["busy_s"]["prompts"] + report["busy_s"]["waits_for_loads"]
    return (f"{words}, figure 15 is {time(again) / time(ours):.1f} and figure 16 {again['busy_s']['total'] / ours['busy_s']['total']:.2f} "
            f"(decodes {again['busy_s']['decodes'] / again['busy_s']['prompts']:.1f} times prompts).")


def cost(results, model, system):
    """$5 an hour a GPU, $0.0088 an hour a GB of DRAM, $0.000082 an hour a GB of SSD (§4.2)."""
    hours = results[f"{system}-{model}"]["busy_s"]["total"] / 3600
    gpus = 2 if model == "13b" else 4
    storage = 128 * 0.0088 + 10_000 * 0.000082 if system == "as" else 0
    return hours * (gpus * 5 + storage)
