# SPDX-License-Identifier: MIT
"""Lines in panels with axes, as SVG, for bench/plot."""
from xml.sax.saxutils import escape

COLOURS = ("#2a6f97", "#d1495b", "#c9a227", "#5b8e3e", "#7b5ea7", "#555555")
WIDTH, HEIGHT, LEFT, TOP, STEP = 230, 230, 62, 76, 310


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def round_up(v):
    """The next of 1, 2, 3, 5 and their tens, so that quarters are readable."""
    ten = 10 ** (len(str(int(v))) - 1)
    return next(m * ten for m in (1, 2, 3, 4, 6, 8, 10) if m * ten >= v)


def axes(left, title, xs, most, x_name, y_name):
    bottom = TOP + HEIGHT
    yield text(left + WIDTH / 2, TOP - 12, title, more='font-weight="bold"')
    yield f'<path d="M{left} {TOP}V{bottom}H{left + WIDTH}" fill="none" stroke="black"/>'
    for i, x in enumerate(xs):
        yield text(left + place(i, xs), bottom + 16, f"{x:g}")
    for i in range(5):
        y = bottom - HEIGHT * i / 4
        yield f'<path d="M{left - 4} {y:.1f}H{left + WIDTH}" stroke="#dddddd"/>' + text(left - 8, y + 4, f"{most * i / 4:g}", "end")
    yield text(left + WIDTH / 2, bottom + 36, x_name)
    yield text(left - 46, TOP + HEIGHT / 2, y_name, more=f'transform="rotate(-90 {left - 46} {TOP + HEIGHT / 2:.0f})"')


def place(i, xs):
    return WIDTH * (i + 0.5) / len(xs)


def panel(left, title, xs, lines, names, x_name, y_name):
    """@lines: of each name, {x: (lowest, middle, highest)}."""
    most = round_up(max(v[2] for points in lines.values() for v in points.values()))
    yield from axes(left, title, xs, most, x_name, y_name)

    def y(v):
        return TOP + HEIGHT - HEIGHT * v / most
    for name, points in lines.items():
        colour = COLOURS[names.index(name) % len(COLOURS)]
        at = [(left + place(i, xs), points[x]) for i, x in enumerate(xs) if x in points]
        way = " ".join(f"{px:.1f},{y(v[1]):.1f}" for px, v in at)
        yield f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for px, v in at:
            yield f'<path d="M{px:.1f} {y(v[0]):.1f}V{y(v[2]):.1f}" stroke="{colour}"/><circle cx="{px:.1f}" cy="{y(v[1]):.1f}" r="3" fill="{colour}"/>'


def draw(head, panels, names, x_name, y_name):
    """@panels: title, xs, lines. @names: of the lines, for the legend."""
    width = LEFT + STEP * len(panels)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 56}" font-family="sans-serif" font-size="12">'
           '<rect width="100%" height="100%" fill="white"/>', text(10, 20, head, "start")]
    for i, name in enumerate(names):
        x = 10 + 130 * i
        out.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>' + text(x + 18, 43, name, "start"))
    for i, (title, xs, lines) in enumerate(panels):
        out += panel(LEFT + STEP * i, title, xs, lines, names, x_name, y_name)
    return "\n".join([*out, "</svg>", ""])
