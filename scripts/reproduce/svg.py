# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text, without a library: bars of the paper's value beside ours, and lines."""

COLOURS = ["#555555", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 320, 60, 70, 40


def text(x, y, words, size=11, anchor="middle", extra=""):
    words = str(words).replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-family="sans-serif" {extra}>{words}</text>'


def frame(title, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + text(WIDTH / 2, 18, title, 13) + "\n" + "\n".join(body) + "\n</svg>\n")


def legend(names):
    out = []
    for i, name in enumerate(names):
        x = LEFT + i * (WIDTH - LEFT) / max(len(names), 1)
        out.append(f'<rect x="{x:.1f}" y="26" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
        out.append(text(x + 14, 35, name, 10, "start"))
    return out


def scale(most):
    out = []
    for i in range(5):
        value = most * i / 4
        y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * i / 4
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 10}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(text(LEFT - 5, y + 4, f"{value:.3g}", 10, "end"))
    return out


def bars(title, labels, series):
    """`series`: name -> a value for each label (None: none)."""
    most = max([value for values in series.values() for value in values if value is not None] + [1e-12]) * 1.05
    body = scale(most) + legend(series)
    group = (WIDTH - LEFT - 20) / max(len(labels), 1)
    each = group * 0.8 / max(len(series), 1)
    for l, label in enumerate(labels):
        for s, values in enumerate(series.values()):
            if values[l] is None:
                continue
            tall = max(0, values[l]) / most * (HEIGHT - BOTTOM - TOP)
            x = LEFT + l * group + group * 0.1 + s * each
            body.append(f'<rect x="{x:.1f}" y="{HEIGHT - BOTTOM - tall:.1f}" width="{each:.1f}" height="{tall:.1f}" fill="{COLOURS[s % len(COLOURS)]}"/>')
        x, y = LEFT + l * group + group / 2, HEIGHT - BOTTOM + 12
        body.append(text(x, y, label, 9, "end" if len(labels) > 6 else "middle",
                         f'transform="rotate(-30 {x:.1f} {y:.1f})"' if len(labels) > 6 else ""))
    return frame(title, body)


def lines(title, x_name, y_name, series):
    """`series`: name -> [(x, y), ...]."""
    points = [point for values in series.values() for point in values]
    most_x = max([x for x, _ in points] + [1e-12])
    most_y = max([y for _, y in points] + [1e-12]) * 1.05
    body = scale(most_y) + legend(series)
    place = lambda x, y: (LEFT + x / most_x * (WIDTH - LEFT - 20), HEIGHT - BOTTOM - y / most_y * (HEIGHT - BOTTOM - TOP))
    for s, values in enumerate(series.values()):
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in values)
        colour = COLOURS[s % len(COLOURS)]
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += ['<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*place(x, y), colour) for x, y in values]
    for i in range(5):
        body.append(text(LEFT + (WIDTH - LEFT - 20) * i / 4, HEIGHT - BOTTOM + 14, f"{most_x * i / 4:.3g}", 10))
    body.append(text(WIDTH / 2, HEIGHT - BOTTOM + 32, f"{x_name}; upwards: {y_name}", 11))
    return frame(title, body)
