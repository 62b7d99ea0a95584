# SPDX-License-Identifier: Apache-2.0
"""What a program can check of the pages: links lead to files and headings that are there, and every metric of the code is
listed, and no other."""
import pathlib
import re

from tidy_test import ROOT, tracked

PAGES = sorted(str(path.relative_to(ROOT)) for path in tracked() if path.suffix == ".md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.*)$")
METRIC = re.compile(r'"(loci_[a-z0-9_]+)"')
LISTED = re.compile(r"`(loci_[a-z0-9_]+)(?:\{[a-z,]+\})?`")
METRIC_PAGES = ["docs/operations.md", "docs/cluster.md"]
METRIC_TABLE = re.compile(r"^\| (`loci_[^|]*) \|", re.M)


def anchor(heading):
    """As GitHub makes it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text):
    found, in_code = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        heading = None if in_code else HEADING.match(line)
        if heading:
            name = anchor(heading[1])
            found.append(name if name not in found else f"{name}-{sum(other == name for other in found)}")
    return set(found)


def broken_links(page, text, read):
    """`read`: the text of a file, None where there is none."""
    broken = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, name = target.partition("#")
        led_to = page if not path else str((ROOT / page).parent.joinpath(path).resolve().relative_to(ROOT))
        there = text if not path else read(led_to)
        if there is None or (name and led_to.endswith(".md") and name not in anchors(there)):
            broken.append(target)
    return broken


def read(path):
    file = ROOT / path
    if file.is_dir():
        return ""
    return file.read_text(errors="replace") if file.exists() else None


def metrics_of_the_code():
    names = set()
    for folder in ("serve", "cluster"):
        for source in pathlib.Path(ROOT / "src/loci" / folder).rglob("*.cc"):
            if not re.search(r"_(test|testing|benchmark|fuzz)\.cc$", source.name):
                names.update(METRIC.findall(source.read_text()))
    return names


def metrics_of_tables(text):
    return {name for cell in METRIC_TABLE.findall(text) for name in LISTED.findall(cell)}


def test_links_lead_somewhere():
    broken = {page: broken_links(page, read(page), read) for page in PAGES}
    assert not {page: links for page, links in broken.items() if links}


def test_every_metric_is_listed_and_no_other():
    listed = set().union(*(metrics_of_tables(read(page)) for page in METRIC_PAGES))
    assert listed == metrics_of_the_code()


def test_the_checks_see_what_they_are_for():
    text = "# A `--flag` [of it](README.md)\n\n```sh\n# no heading\n```\n\n[a](#a---flag-of-it) [b](#no-heading) [c](docs/none.md) [d](https://x.y/#z)\n"
    assert broken_links("README.md", text, read) == ["#no-heading", "docs/none.md"]
    assert metrics_of_tables("| `loci_a`, `loci_b_total{x,y}` | `loci_c` |\n") == {"loci_a", "loci_b_total"}
    assert "loci_ready" in metrics_of_the_code()
