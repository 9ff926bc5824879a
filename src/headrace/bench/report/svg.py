"""Small plots as SVG files: lines and horizontal bars, readable on light and dark pages.

A file needs nothing else: no script, no font, no other host. Colours of text and lines follow the
reader's colour scheme; those of series stand out on both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 44, 58
COLOURS = ("#2f81f7", "#e3873a", "#2da44e", "#d1467d", "#8957e5", "#0598a8", "#b08800", "#cf222e")
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
_STYLE = """<style>
svg { background: #ffffff; }
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.small { font-size: 12px; fill: #59636e; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.axis { stroke: #59636e; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; }
  text { fill: #f0f6fc; }
  .small { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .axis { stroke: #9198a1; }
}
</style>"""

Points = Sequence[tuple[float, float]]


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Points],
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """Lines through points, one for each series. Points that cannot be drawn are left out."""
    drawn = {
        name: [(x, y) for x, y in points if _fits(x, log_x) and _fits(y, log_y)]
        for name, points in series.items()
    }
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return _document(HEIGHT, title, [_note("nothing was measured")])
    xs = _Scale([x for points in drawn.values() for x, _ in points], LEFT, WIDTH - RIGHT, log_x)
    ys = [y for points in drawn.values() for _, y in points]
    legend = _Legend(list(drawn))
    bottom = HEIGHT - BOTTOM
    scale = _Scale(ys if log_y else [0.0, *ys], bottom, TOP + legend.height, log_y)
    parts = [*legend.parts]
    for tick in xs.ticks():
        at = xs(tick)
        parts.append(_line(at, TOP + legend.height, at, bottom, "grid"))
        parts.append(_text(at, bottom + 18, number(tick), "small", "middle"))
    for tick in scale.ticks():
        at = scale(tick)
        parts.append(_line(LEFT, at, WIDTH - RIGHT, at, "grid"))
        parts.append(_text(LEFT - 8, at + 4, number(tick), "small", "end"))
    parts.append(_line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label, "small", "middle"))
    parts.append(
        f'<text class="small" text-anchor="middle" transform="translate(16 '
        f'{(TOP + bottom) / 2:.0f}) rotate(-90)">{escape(y_label)}</text>'
    )
    for at, (_, points) in enumerate(drawn.items()):
        colour, dash = _look(at)
        path = " ".join(f"{xs(x):.1f},{scale(y):.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        )
        if len(points) <= 40:
            parts += [
                f'<circle cx="{xs(x):.1f}" cy="{scale(y):.1f}" r="3" fill="{colour}"/>'
                for x, y in points
            ]
    return _document(HEIGHT, title, parts)


def bar_chart(title: str, unit: str, bars: Mapping[str, float], *, log: bool = False) -> str:
    """Horizontal bars, each with its number."""
    known = {name: value for name, value in bars.items() if _fits(value, log) and value >= 0}
    if not known:
        return _document(120, title, [_note("nothing was measured")])
    label_width = min(300, 16 + round(7.2 * max(map(len, known))))
    first, last = LEFT // 2 + label_width, WIDTH - 110
    values = list(known.values())
    scale = _Scale([min(values) / 2, *values] if log else [0.0, *values], first, last, log)
    step = 28
    height = TOP + step * len(known) + 30
    parts = []
    for at, (name, value) in enumerate(known.items()):
        y = TOP + at * step
        width = max(1.0, scale(value) - first)
        shown = name if len(name) <= 42 else name[:41] + "…"
        parts.append(_text(first - 8, y + 16, shown, "", "end"))
        parts.append(
            f'<rect x="{first}" y="{y + 3}" width="{width:.1f}" height="18" rx="2" '
            f'fill="{COLOURS[0] if at == 0 else COLOURS[1 + (at - 1) % (len(COLOURS) - 1)]}"/>'
        )
        parts.append(_text(first + width + 6, y + 16, number(value), "", "start"))
    parts.append(_line(first, TOP, first, TOP + step * len(known), "axis"))
    scaled = f"{unit}, logarithmic" if log else unit
    parts.append(_text(first, height - 10, scaled, "small", "start"))
    return _document(height, title, parts)


class _Scale:
    """Maps numbers to places."""

    def __init__(self, values: Sequence[float], low: float, high: float, log: bool) -> None:
        self._low, self._high, self._log = low, high, log
        self._min, self._max = min(values), max(values)
        if log:
            self._min, self._max = math.log10(self._min), math.log10(self._max)
        if self._max <= self._min:
            self._max = self._min + 1

    def __call__(self, value: float) -> float:
        at = math.log10(value) if self._log else value
        return self._low + (at - self._min) / (self._max - self._min) * (self._high - self._low)

    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        if self._log:
            first, last = math.floor(self._min), math.ceil(self._max)
            steps = (1, 2, 5) if last - first <= 3 else (1,)
            every = [n * 10.0**power for power in range(first, last + 1) for n in steps]
            most = 10**self._max * 1.001
            return [each for each in every if 10**self._min * 0.999 <= each <= most]
        step = _round_step((self._max - self._min) / 5)
        tick = math.ceil(self._min / step) * step
        found = []
        while tick <= self._max + step / 1e6:
            found.append(round(tick, 10))
            tick += step
        return found


class _Legend:
    """The names of series above the plot, in as many lines as they need."""

    def __init__(self, names: Sequence[str]) -> None:
        self.parts: list[str] = []
        x, line = float(LEFT), 0
        for at, name in enumerate(names):
            width = 34 + 7.2 * len(name)
            if x + width > WIDTH - RIGHT and x > LEFT:
                x, line = float(LEFT), line + 1
            y = TOP + 4 + 18 * line
            colour, dash = _look(at)
            dashes = f' stroke-dasharray="{dash}"' if dash else ""
            self.parts.append(
                f'<line x1="{x:.0f}" y1="{y}" x2="{x + 20:.0f}" y2="{y}" stroke="{colour}" '
                f'stroke-width="3"{dashes}/>'
            )
            self.parts.append(_text(x + 26, y + 4, name, "", "start"))
            x += width + 12
        self.height = 18 * (line + 1) + 6


def number(value: float) -> str:
    """A number as people read it: 1,200, 35 k, 1.2 M, 0.05."""
    if value == 0:
        return "0"
    size = abs(value)
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if size >= limit:
            scaled = value / (1e3 if unit == " k" else limit)
            return f"{scaled:.3g}{unit}"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _fits(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _round_step(rough: float) -> float:
    power = 10 ** math.floor(math.log10(rough))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= rough)


def _look(at: int) -> tuple[str, str]:
    """Colour and dashes: series differ by both, for readers who see few colours."""
    return COLOURS[at % len(COLOURS)], _DASHES[at % len(_DASHES)]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _note(text: str) -> str:
    return _text(WIDTH / 2, 80, text, "small", "middle")


def _document(height: int, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
            _STYLE,
            _text(LEFT // 2, 24, title, "title", "start"),
            *parts,
            "</svg>",
            "",
        ]
    )
