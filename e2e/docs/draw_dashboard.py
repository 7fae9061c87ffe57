"""Draws the dashboard's picture for docs/monitoring.md from what Prometheus answered in a test.

After e2e/agent/test_dashboard.py: PYTHONPATH=e2e python3 e2e/docs/draw_dashboard.py
"""

import json
import time
from html import escape

from harness import dashboard, places

PICTURE = places.ROOT / "docs/images/dashboard.svg"
ANSWERS = places.ROOT / "build/dashboard.json"
COLUMN, ROW, GAP, HEAD = 50, 24, 6, 46
WIDTH = 24 * COLUMN
COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#6ed0e0", "#ef843c")
# Grafana's names, in its dark theme.
NAMED = dict(
    zip(
        (*dashboard.PALETTE, "text"),
        ("#73bf69", "#fade2a", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#ccccdc"),
        strict=True,
    )
)
LINE, LETTER = 16, 0.56  # of the legend; a letter's width by its size
STYLE = """
text { font-family: Inter, Helvetica, Arial, sans-serif; font-size: 11px; fill: #ccccdc }
.title { font-size: 13px; font-weight: 500 } .row { font-size: 15px; font-weight: 500 }
.axis { font-size: 10px; fill: #8e8e9c } .grid { stroke: #2c3038; stroke-width: 1 }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round }
.board { fill: #111217 } .panel { fill: #181b1f; stroke: #2c3038 }
"""


def text(x, y, words, kind="", **more):
    rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{named}{rest}>{escape(words)}</text>'


def short(value):
    """As Grafana shortens a number."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def duration(value):
    for size, name in ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if abs(value) >= size:
            return f"{value / size:.4g} {name}"
    return "0 s" if value == 0 else f"{value * 1e6:.3g} µs"


def bytes_a_second(value):
    number, letter = short(value), ""
    if not number[-1].isdigit():
        number, letter = number[:-1], number[-1]
    return f"{number} {letter}B/s"


def capacity(value):
    for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(value) >= 1 << power:
            return f"{value / (1 << power):.4g} {name}"
    return f"{value:.0f} B"


def percent(value):
    return f"{value * 100:.3g} %"


UNITS = {"s": duration, "Bps": bytes_a_second, "bytes": capacity, "percentunit": percent}


def unit_of(panel):
    return UNITS.get(panel.get("fieldConfig", {}).get("defaults", {}).get("unit"), short)


def steps(highest):
    """Round numbers from 0 to above the highest value, about four of them."""
    size = 10.0 ** len(str(int(highest))) if highest >= 1 else 1.0
    while size / 10 > highest / 4:
        size /= 10
    size = next(size / part for part in (10, 5, 4, 2, 1) if size / part * 4 >= highest * 0.999)
    return [size * number for number in range(5)]


class Panel:
    """One panel at its place; `body` is what is below its title."""

    def __init__(self, panel, shown, begin, end):
        place = panel["gridPos"]
        self.panel, self.shown, self.begin, self.end = panel, shown, begin, end
        self.x, self.y = place["x"] * COLUMN + GAP / 2, HEAD + place["y"] * ROW + GAP / 2
        self.width, self.height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        self.say = unit_of(panel)

    def draw(self):
        title = self.panel["title"]
        size = min(13, (self.width - 16) / (LETTER * len(title)))
        frame = (
            f'<rect class="panel" x="{self.x}" y="{self.y}" width="{self.width}"'
            f' height="{self.height}" rx="2"/>'
        )
        named = text(self.x + 8, self.y + 17, title, "title", style=f"font-size: {size:.1f}px")
        draw = {"stat": self.stats, "bargauge": self.bars, "timeseries": self.graph}[self.panel["type"]]
        return [frame, named, *draw()]

    def stats(self):
        drawn, part = [], (self.width - 8) / len(self.shown)
        for number, each in enumerate(self.shown):
            middle = self.x + 4 + part * (number + 0.5)
            last = each["values"][-1][1]
            value = self.say(last)
            lower = 14 if each["legend"] else 0
            size = min(34, part / (LETTER * len(value)))
            drawn.append(
                text(
                    middle,
                    self.y + self.height / 2 + 24 - lower / 2,
                    value,
                    text_anchor="middle",
                    style=f"font-size: {size:.0f}px; fill: {self.colour(last, number)}",
                )
            )
            if each["legend"]:
                words = self.fit(each["legend"], part)
                drawn.append(text(middle, self.y + self.height - 10, words, text_anchor="middle"))
        return drawn

    def colour(self, value, number):
        return NAMED[dashboard.colour(self.panel, value, number)]

    def bars(self):
        drawn, most = [], max(each["values"][-1][1] for each in self.shown) or 1
        part = (self.height - 28) / len(self.shown)
        room = self.width - 110
        for number, each in enumerate(self.shown):
            y, value = self.y + 24 + part * number, each["values"][-1][1]
            drawn.append(text(self.x + 8, y + 12, self.fit(each["legend"], room)))
            drawn.append(
                f'<rect x="{self.x + 8}" y="{y + 16:.0f}" width="{max(1, room * value / most):.0f}"'
                f' height="{max(3, part - 22):.0f}" fill="{self.colour(value, number)}" opacity="0.8"/>'
            )
            drawn.append(text(self.x + self.width - 8, y + 20, self.say(value), text_anchor="end"))
        return drawn

    def fit(self, words, room):
        most = int(room / (11 * LETTER))
        return words if len(words) <= most else words[: most - 1] + "…"

    def graph(self):
        lines = self.legend_lines()
        left, top = self.x + 58, self.y + 30
        right, bottom = self.x + self.width - 12, self.y + self.height - 24 - LINE * len(lines)
        highest = max(value for each in self.shown for _, value in each["values"])
        ticks = steps(highest if highest > 0 else 1)
        drawn = []
        for tick in ticks:
            y = bottom - (bottom - top) * tick / ticks[-1]
            drawn.append(f'<path class="grid" d="M{left:.0f} {y:.0f}H{right:.0f}"/>')
            drawn.append(text(left - 6, y + 3, self.say(tick), "axis", text_anchor="end"))
        for part in range(5):
            at = self.begin + (self.end - self.begin) * part / 4
            drawn.append(
                text(
                    left + (right - left) * part / 4,
                    bottom + 14,
                    time.strftime("%H:%M:%S", time.gmtime(at)),
                    "axis",
                    text_anchor="middle" if part < 4 else "end",
                )
            )
        for number, each in enumerate(self.shown):
            points = [
                (
                    left + (right - left) * (at - self.begin) / (self.end - self.begin),
                    bottom - (bottom - top) * max(0, value) / ticks[-1],
                    at,
                )
                for at, value in each["values"]
            ]
            colour = COLOURS[number % len(COLOURS)]
            drawn.append(f'<path class="line" stroke="{colour}" d="{self.path(points)}"/>')
        for number, line in enumerate(lines):
            x = self.x + 12
            for index, words in line:
                y = bottom + 32 + LINE * number
                drawn.append(
                    f'<rect x="{x:.0f}" y="{y - 6:.0f}" width="12" height="3"'
                    f' fill="{COLOURS[index % len(COLOURS)]}"/>'
                )
                drawn.append(text(x + 17, y, words))
                x += self.legend_width(words)
        return drawn

    def path(self, points):
        """Broken where a sample is missing; what lies on a level line is left out."""
        step = (self.end - self.begin) / dashboard.POINTS * 2.5
        drawn = ""
        for number, (x, y, at) in enumerate(points):
            before = points[number - 1] if number else None
            after = points[number + 1] if number + 1 < len(points) else None
            joined = before is not None and at - before[2] <= step
            goes_on = after is not None and after[2] - at <= step
            if joined and goes_on and f"{before[1]:.0f}" == f"{y:.0f}" == f"{after[1]:.0f}":
                continue
            drawn += f"{'L' if joined else 'M'}{x:.0f} {y:.0f}"
        return drawn

    @staticmethod
    def legend_width(words):
        return 17 + len(words) * 11 * LETTER + 16

    def legend_lines(self):
        """[[(number of its series, words), …] of each line], as many as there is room for."""
        most = 1 if self.height < 150 else 3
        lines, width = [[]], 0.0
        for number, each in enumerate(self.shown):
            words = self.fit(each["legend"], self.width - 60)
            if lines[-1] and width + self.legend_width(words) > self.width - 20:
                if len(lines) == most:
                    break
                lines.append([])
                width = 0
            lines[-1].append((number, words))
            width += self.legend_width(words)
        return lines


def row(panel):
    y = HEAD + panel["gridPos"]["y"] * ROW + 18
    return [text(10, y, f"⌄ {panel['title']}", "row")]


def draw(answers):
    panels = dashboard.panels()
    height = HEAD + ROW * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + GAP
    begin, end = answers["begin"], answers["end"]
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The dashboard of Lunkeeper</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="board" width="{WIDTH}" height="{height}"/>',
        text(10, 28, "Lunkeeper", style="font-size: 18px"),
        text(WIDTH - 10, 28, f"{end - begin:.0f} seconds of a test", "axis", text_anchor="end"),
    ]
    for panel in panels:
        if panel["type"] == "row":
            drawn += row(panel)
        else:
            drawn += Panel(panel, answers["panels"][str(panel["id"])], begin, end).draw()
    return "\n".join([*drawn, "</svg>", ""])


def main():
    PICTURE.write_text(draw(json.loads(ANSWERS.read_text())))
    print(f"{PICTURE}: {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
