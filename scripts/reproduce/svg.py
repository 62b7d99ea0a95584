# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text, without a library: bars of the paper's value beside ours, and lines. On white, so that they can be read
in light and dark pages; heights follow from what the legend and the labels need, so that no text is cut off."""
import math

COLOURS = ["#555555", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"]
WIDTH, PLOT, LEFT, RIGHT = 640, 210, 60, 14
SLANT = math.radians(30)


def width_of(words, size):
    """About what sans-serif letters take, rather more than less."""
    return 0.58 * size * len(str(words))


def text(x, y, words, size=11, anchor="middle", extra=""):
    words = str(words).replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-family="sans-serif" {extra}>{words}</text>'


def wrapped(words, size, room):
    """Lines of whole words that fit into the room, where words do."""
    out = [""]
    for word in str(words).split():
        longer = f"{out[-1]} {word}".strip()
        if out[-1] and width_of(longer, size) > room:
            out.append(word)
        else:
            out[-1] = longer
    return out


def head(title, names):
    """The title and the legend, and where the plot may begin."""
    out, y = [], 18
    for line in wrapped(title, 13, WIDTH - 20):
        out.append(text(WIDTH / 2, y, line, 13))
        y += 16
    x = LEFT
    for i, name in enumerate(names):
        room = 14 + width_of(name, 10) + 14
        if x + room > WIDTH - RIGHT and x > LEFT:
            x, y = LEFT, y + 15
        out.append(f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
        out.append(text(x + 14, y + 1, name, 10, "start"))
        x += room
    return out, y + 22


def frame(body, height):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}">\n'
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def step_of(most):
    """The distance of about five grid lines: 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(most / 6))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= most / 6)


def scale(most, top):
    out, step = [], step_of(most)
    for i in range(int(most / step + 1e-9) + 1):
        y = top + PLOT * (1 - i * step / most)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(text(LEFT - 5, y + 4, f"{i * step:,.5g}", 10, "end"))
    return out


def labels_below(labels, group, bottom):
    """The groups' names, slanted where they are too long to stand side by side; and the height that they need."""
    lines = [wrapped(label, 10, group - 4) for label in labels]
    if all(width_of(line, 10) <= group for label in lines for line in label):
        out = [text(LEFT + (l + 0.5) * group, bottom + 14 + 12 * i, line, 10) for l, label in enumerate(lines) for i, line in enumerate(label)]
        return out, 14 + 12 * max(map(len, lines))
    out, tall = [], 0
    for l, label in enumerate(labels):
        x, y = LEFT + (l + 0.5) * group + 4, bottom + 12
        room = (x - 6) / math.cos(SLANT)  # to the left edge
        for i, line in enumerate(wrapped(label, 10, room)):
            out.append(text(x, y + 12 * i, line, 10, "end", f'transform="rotate(-30 {x:.1f} {y + 12 * i:.1f})"'))
            tall = max(tall, 12 + 12 * i + width_of(line, 10) * math.sin(SLANT))
    return out, tall + 6


def top_of(value):
    return max(value) if isinstance(value, tuple) else value


def bars(title, labels, series):
    """`series`: name -> a value for each label: a number, (least, most), or None for none. Between least and most a bar is pale."""
    most = max([top_of(value) for values in series.values() for value in values if value is not None] + [1e-12]) * 1.12
    pale = lambda values: any(isinstance(value, tuple) for value in values)
    body, top = head(title, [f"{name} (pale: up to its most)" if pale(values) else name for name, values in series.items()])
    bottom = top + PLOT
    body += scale(most, top)
    group = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    each = min(group * 0.8 / max(len(series), 1), 60)
    for s, values in enumerate(series.values()):
        for l, value in enumerate(values):
            if value is None:
                continue
            x = LEFT + (l + 0.5) * group + (s - len(series) / 2) * each
            low, high = value if isinstance(value, tuple) else (value, value)
            for up_to, opacity in ((high, 0.4), (low, 1)):
                tall = max(0, up_to) / most * PLOT
                body.append(f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{each * 0.94:.1f}" height="{tall:.1f}" '
                            f'fill="{COLOURS[s % len(COLOURS)]}" fill-opacity="{opacity}"/>')
            said = f"{low:.3g}–{high:.3g}" if low != high else f"{high:.3g}"
            if width_of(said, 8) <= each:
                body.append(text(x + each / 2, bottom - max(0, high) / most * PLOT - 3, said, 8))
    names, tall = labels_below(labels, group, bottom)
    return frame(body + names, bottom + tall + 6)


def lines(title, x_name, y_name, series):
    """`series`: name -> [(x, y), ...]."""
    points = [point for values in series.values() for point in values]
    most_x = max([x for x, _ in points] + [1e-12])
    most_y = max([y for _, y in points] + [1e-12]) * 1.05
    body, top = head(title, series)
    bottom, across = top + PLOT, WIDTH - LEFT - RIGHT - 10
    body += scale(most_y, top)
    place = lambda x, y: (LEFT + x / most_x * across, bottom - y / most_y * PLOT)
    for s, values in enumerate(series.values()):
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in values)
        colour = COLOURS[s % len(COLOURS)]
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += ['<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*place(x, y), colour) for x, y in values]
    step = step_of(most_x)
    for i in range(int(most_x / step + 1e-9) + 1):
        body.append(text(LEFT + across * i * step / most_x, bottom + 14, f"{i * step:,.5g}", 10))
    body.append(text(WIDTH / 2, bottom + 32, f"{x_name}; upwards: {y_name}", 11))
    return frame(body, bottom + 44)
