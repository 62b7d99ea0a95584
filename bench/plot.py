# SPDX-License-Identifier: Apache-2.0
"""A line plot as SVG: x by its logarithm to base 2, y from zero. Readable on light and dark pages."""

import math

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 48
COLOURS = ("#2f7d5b", "#b4632b", "#3b6fb6", "#a13f7c", "#7a7a2c", "#6a4fb3", "#2b8f9c", "#c0392b", "#555f6b")
LABEL_HEIGHT = 14


def _round_up(value):
    """The least 1, 2, 2.5 or 5 times a power of ten that is not below `value`."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value)


def lines(title, x_label, y_label, points, names):
    """points: [[x, y of the first name, y of the second ...]], x > 0; y None: not measured, at the end alone."""
    low, high = math.log2(points[0][0]), math.log2(points[-1][0])
    top = _round_up(max(y for point in points for y in point[1:] if y is not None))
    measured = [[point for point in points if point[1 + index] is not None] for index in range(len(names))]

    def at_x(x):
        return LEFT + (math.log2(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def at_y(y):
        return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" '
           'fill="#808080">',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>',
           f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}</text>',
           f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{y_label}</text>']
    for step in range(5):
        value = top * step / 4
        out.append(f'<path d="M{LEFT} {at_y(value):.1f}H{WIDTH - RIGHT}" stroke="#808080" stroke-opacity=".25"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at_y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for point in points:
        out.append(f'<text x="{at_x(point[0]):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{point[0]:,.0f}</text>')
    lasts = sorted((at_y(measured[index][-1][1 + index]), index) for index in range(len(names)))
    label_y, below = {}, -LABEL_HEIGHT  # labels keep apart
    for y, index in lasts:
        label_y[index] = below = max(y, below + LABEL_HEIGHT)
    for index, name in enumerate(names):
        colour = COLOURS[index % len(COLOURS)]
        places = [(at_x(point[0]), at_y(point[1 + index])) for point in measured[index]]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                   + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(f'<text x="{at_x(points[-1][0]) + 10:.1f}" y="{label_y[index] + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
