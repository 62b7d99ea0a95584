# SPDX-License-Identifier: Apache-2.0
"""docs/grafana/loci.json is a dashboard that Grafana can load and that shows what there is.

Every metric, and every value of a label, that a panel asks for exists at /metrics of a live server.
"""
import json
import pathlib
import re

import pytest

from live_client import chat_body, expect, expect_equal

pytestmark = pytest.mark.serve("--threads", "1", "--device-memory", "64MiB", model="tiny")
DASHBOARD = pathlib.Path(__file__).resolve().parents[1] / "docs" / "grafana" / "loci.json"
WIDTH = 24
PANEL_TYPES = {"row", "timeseries", "stat"}
METRIC = re.compile(r"\b((?:loci|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
TARGET_LABELS = {"instance", "job"}  # Prometheus adds them
LABEL = re.compile(r'(\w+)="([^"]*)"')


def read(path=DASHBOARD):
    return json.loads(path.read_text(encoding="utf-8"))


def check_schema(dashboard):
    """What Grafana's schema of a dashboard (39) asks of the parts that are used here."""
    for name, kind in (("title", str), ("uid", str), ("schemaVersion", int), ("panels", list), ("templating", dict),
                       ("time", dict), ("tags", list), ("annotations", dict)):
        expect(isinstance(dashboard.get(name), kind), f"{name}: expected {kind.__name__}, got {dashboard.get(name)!r}")
    expect(len(dashboard["uid"]) <= 40, "a uid has at most 40 characters")
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    expect_equal(variables["datasource"]["type"], "datasource", "type of the data source's variable")
    ids = [panel["id"] for panel in dashboard["panels"]]
    expect_equal(len(ids), len(set(ids)), "ids of panels that are unique")
    taken = set()
    for panel in dashboard["panels"]:
        what = f"panel {panel['id']}"
        expect(panel["type"] in PANEL_TYPES and panel["title"], f"{what}: type and title")
        place = panel["gridPos"]
        expect(all(isinstance(place[key], int) and place[key] >= 0 for key in "xywh"), f"{what}: {place}")
        expect(place["w"] > 0 and place["h"] > 0 and place["x"] + place["w"] <= WIDTH, f"{what}: {place}")
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        expect(not cells & taken, f"{what} lies on another")
        taken |= cells
        if panel["type"] == "row":
            continue
        expect(panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, f"{what}: its data source")
        expect(panel["description"] and panel["fieldConfig"]["defaults"]["unit"], f"{what}: description and unit")
        refs = [target["refId"] for target in panel["targets"]]
        expect(refs and len(refs) == len(set(refs)), f"{what}: targets with names of their own")
        for target in panel["targets"]:
            expect(target["expr"].count("(") == target["expr"].count(")"), f"{what}: {target['expr']}")
            used = set(re.findall(r"\$\{?(\w+)", target["expr"])) - {"__rate_interval"}
            expect(used <= set(variables), f"{what}: variables {used - set(variables)} are not there")


def queries(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def series_of(text):
    """{metric: [labels of each series]}"""
    out = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, labels = line.rsplit(" ", 1)[0].partition("{")
            out.setdefault(name, []).append(dict(LABEL.findall(labels)))
    return out


def missing(dashboard, series):
    """What the queries ask for and the server does not have."""
    out = []
    for title, expression in queries(dashboard):
        for name, matchers in METRIC.findall(expression):
            if name not in series:
                out.append(f"{title}: {name}")
                continue
            for label, operator, value in MATCHER.findall(matchers):
                known = {labels.get(label) for labels in series[name]}
                if label not in TARGET_LABELS and (known == {None} or (operator == "=" and value not in known)):
                    out.append(f'{title}: {name} with {label}{operator}"{value}"')
    return out


def test_the_schema():
    check_schema(read())


def test_every_metric_is_there(server):
    server.post("/v1/chat/completions", chat_body("Say hello.", max_tokens=3))
    server.post("/v1/responses", {"input": "Hello", "max_output_tokens": 2})
    expect_equal(missing(read(), series_of(server.get("/metrics").text)), [], "what is asked for and not there")


def test_the_test_sees_what_is_wrong(server):
    series = series_of(server.get("/metrics").text)
    wrong = read()
    wrong["panels"][1]["targets"][0]["expr"] = 'sum(rate(loci_nothing_total[1m])) + loci_blocks{state="lost"} + loci_ready{tier="x"}'
    expect_equal(len(missing(wrong, series)) - len(missing(read(), series)), 3, "found")
    for change in ({"id": 1}, {"gridPos": {"x": 20, "y": 900, "w": 8, "h": 8}}, {"targets": []}, {"type": "pie"}):
        broken = read()
        broken["panels"][1] |= change
        try:
            check_schema(broken)
        except AssertionError:
            continue
        raise AssertionError(f"{change} was not noticed")
