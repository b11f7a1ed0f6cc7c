"""Lay out charts of lines and bars in pixels, with their values for the mouse pointer."""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

WIDTH, HEIGHT = 360, 240  # nearly the pixels of a phone, so that labels keep their size there
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 24, 40
_MOST_POINTS = 500  # of a line; a chart has fewer pixels in width
NUM_COLORS, MUTED = 12, 1  # the second color is gray, and the third the first of classes
_LOG_FROM = 5  # ratio of the largest to the smallest value
_ENDS = (1.0, 100.0)  # of shares and of percent
_MARKED = 30  # points up to which a line has dots

_numbers = itertools.count(1)
PointsByName = Mapping[str, Sequence[tuple[float, float]]]
RunSeries = tuple[str, PointsByName, PointsByName]  # name of a run, points of its training and of its evaluations


class CurveLine(NamedTuple):
    """Line or bars of a chart."""

    name: str  # shown in the legend and under the pointer
    points: Sequence[tuple[float, float]]  # (x, y), finite, sorted by x
    color: int = 0  # number of the color, from 0
    style: str = "line"  # or "dots" (a thin line with dots), "bar", "thin" (one of a bundle, not in the legend)


def build_chart(
    title: str, lines: Sequence[CurveLine], x_label: str, y_label: str = "", note: str = "", offers_log: bool = False
) -> dict[str, Any]:
    """Build a chart for its macro in ``parts.html.j2``; without lines it has only a title and a note.

    If it ``offers_log`` and its values differ much, it has a second view with a logarithmic axis.
    """
    empty = {"kind": "chart", "number": next(_numbers), "title": title, "note": note}
    ends = [f"{line.name} from {line.points[0][1]:.4g} to {line.points[-1][1]:.4g}" for line in lines if line.points]
    lines = [line._replace(points=thin(line.points), color=line.color % NUM_COLORS) for line in lines if line.points]
    if not lines:
        return empty
    scale = _AxisScale.fit(lines)
    data = {
        "box": [_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM],
        "x": [scale.x_low, scale.x_high],
        "y": [scale.y_low, scale.y_high],
        "lines": [
            {
                "name": line.name,
                "color": line.color,
                "style": line.style,
                "x": [_shorten(x) for x, _ in line.points],
                "y": [_shorten(y) for _, y in line.points],
            }
            for line in lines
        ],
    }
    return {
        **empty,
        "size": (WIDTH, HEIGHT),
        "x_label": x_label,
        "y_label": y_label,
        "description": ", ".join(ends),
        "x_ticks": [(f"{scale.x(tick):.1f}", format_tick(tick)) for tick in scale.x_ticks],
        "views": [
            (
                [(f"{view.y(tick):.1f}", format_tick(tick)) for tick in view.y_ticks],
                [_draw(line, view, lines) for line in lines],
            )
            for view in ([scale, *scale.make_logarithmic(lines)] if offers_log else [scale])
        ],
        "data": data,
    }


def color_lines(names: Iterable[str], classes: Sequence[str]) -> dict[str, int]:
    """Choose a color for each name: of a class the same in all charts, of others the first free one."""
    colors: dict[str, int] = {}
    for name in sorted(dict.fromkeys(names), key=lambda name: name not in classes):  # classes first
        first = MUTED + 1 + classes.index(name) % (NUM_COLORS - MUTED - 1) if name in classes else 0
        free = ((first + step) % NUM_COLORS for step in range(NUM_COLORS))
        colors[name] = next((color for color in free if color not in colors.values()), first)
    return colors


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most ``_MOST_POINTS`` points that preserve peaks: each interval retains its lowest and highest."""
    points = list(points)
    if len(points) <= _MOST_POINTS:
        return points
    thinned: list[tuple[float, float]] = []
    stretches = _MOST_POINTS // 2 - 1
    for number in range(stretches):
        part = range(number * len(points) // stretches, (number + 1) * len(points) // stretches)
        ends = {min(part, key=lambda place: points[place][1]), max(part, key=lambda place: points[place][1])}
        thinned += [points[place] for place in sorted(ends)]
    return [points[0], *(point for point in thinned if point not in (points[0], points[-1])), points[-1]]


class _AxisScale(NamedTuple):
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    x_ticks: list[float]
    y_ticks: list[float]
    is_logarithmic: bool = False

    @classmethod
    def fit(cls, lines: Sequence[CurveLine]) -> "_AxisScale":
        xs = [x for line in lines for x, _ in line.points]
        ys = [y for line in lines for _, y in line.points]
        x_low, x_high = min(xs), max(xs)
        are_bars = any(line.style == "bar" for line in lines)
        if are_bars:
            half = _bar_width(lines) / 2
            x_low, x_high, ys = x_low - half, x_high + half, [*ys, 0.0]
        x_low, x_high = _widen(x_low, x_high)
        are_counts = are_bars and all(map(float.is_integer, map(float, ys)))
        y_ticks = ticks(*_widen(min(ys), max(ys), is_score=True), are_whole=are_counts)
        y_low, y_high = min(y_ticks[0], min(ys)), max(y_ticks[-1], max(ys))  # nearly equal values have equal ticks
        are_whole = all(map(float.is_integer, map(float, xs)))  # such as numbers of updates
        x_ticks = [tick for tick in ticks(x_low, x_high, are_whole=are_whole) if x_low <= tick <= x_high]
        return cls(x_low, x_high, y_low, y_high, x_ticks, y_ticks)

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        if self.is_logarithmic:
            share = math.log(value / self.y_low) / math.log(self.y_high / self.y_low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    def make_logarithmic(self, lines: Sequence[CurveLine]) -> list["_AxisScale"]:
        """Make the scale of the values above 0; none if they hardly differ."""
        values = [y for line in lines for _, y in line.points if y > 0]
        if not values or max(values) < _LOG_FROM * min(values):
            return []
        first, last = (math.floor(math.log10(value)) for value in (min(values), max(values)))
        factors = (1, 2, 5) if last - first < 3 else (1,)
        y_ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        y_ticks = [tick for tick in y_ticks if min(values) <= tick <= max(values)]
        return [self._replace(y_low=min(values), y_high=max(values), y_ticks=y_ticks, is_logarithmic=True)]


def _widen(low: float, high: float, is_score: bool = False) -> tuple[float, float]:
    """Widen limits that are nearly equal, so that their distance is a valid divisor.

    An axis on which a score may be does not cross 0, 1 or 100: shares and percent end there.
    """
    if high - low > 1e-12 * max(abs(low), high):
        return low, high
    space = abs(low) * 0.05 or 0.5
    wide_low, wide_high = low - space, high + space
    if is_score:
        wide_low = max(wide_low, 0.0) if low >= 0 else wide_low
        wide_high = next((end for end in _ENDS if high <= end < wide_high), wide_high)
    return wide_low, wide_high


def ticks(low: float, high: float, about: int = 5, are_whole: bool = False) -> list[float]:
    """Return evenly spaced round numbers that cover the range from ``low`` to ``high``; whole ones if they must be."""
    raw = max((high - low) / about, 1.0 if are_whole else 0.0)
    power = 10.0 ** math.floor(math.log10(raw))
    steps = [factor * power for factor in (1, 2, 2.5, 5, 10)]
    step = next(step for step in steps if step >= raw * 0.999 and (step.is_integer() or not are_whole))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def format_tick(value: float) -> str:
    """Format a number as short as possible: 1.5k, 20M, 3e-05."""
    size = abs(value)
    if size >= 1e15 or (0 < size < 1e-3):
        return f"{value:.3g}"
    for limit, divisor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            return f"{value / divisor:.4g}{unit}"
    return f"{value:.5g}"


def _draw(line: CurveLine, scale: _AxisScale, lines: Sequence[CurveLine]) -> dict[str, Any]:
    """Return a line's path and dots (x, y), or bars (x, y, width, height)."""
    drawn = {"color": line.color, "style": line.style, "path": "", "dots": [], "bars": []}
    if line.style == "bar":
        return {**drawn, "bars": _place_bars(line, scale, lines)}
    points = [(x, y) for x, y in line.points if y > 0 or not scale.is_logarithmic]
    places = [(f"{scale.x(x):.1f}", f"{scale.y(y):.1f}") for x, y in points]
    has_dots = line.style == "dots" or len(places) == 1 or (2 < len(places) <= _MARKED and line.style != "thin")
    return {
        **drawn,
        "path": "M" + "L".join(map(" ".join, places)) if places else "",
        "dots": places if has_dots else [],
    }


def _place_bars(line: CurveLine, scale: _AxisScale, lines: Sequence[CurveLine]) -> list[tuple[str, ...]]:
    groups = [other for other in lines if other.style == "bar"]
    width = _bar_width(lines) * 0.9
    each = width / len(groups)
    start = -width / 2 + each * next(n for n, other in enumerate(groups) if other is line)
    bars = []
    for x, y in line.points:
        left, right = scale.x(x + start), scale.x(x + start + each)
        top, base = sorted((scale.y(y), scale.y(0.0)))
        bars.append(tuple(f"{side:.1f}" for side in (left, top, max(right - left, 0.5), max(base - top, 0.3))))
    return bars


def _bar_width(lines: Sequence[CurveLine]) -> float:
    """Return the smallest distance between bars."""
    places = sorted({x for line in lines if line.style == "bar" for x, _ in line.points})
    return min((b - a for a, b in zip(places, places[1:])), default=1.0)


def _shorten(value: float) -> Any:
    """Round a number to six digits for a short text."""
    if float(value).is_integer() and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.6g}")


def build_lines(runs: Sequence[RunSeries], name: str, groups: Sequence[str] = ()) -> list[CurveLine]:
    """Build the lines of one quantity for all runs: plain for training, with dots for evaluations.

    The lines of a group of seeds are a bundle of one color around their mean.

    Args:
        runs: points by quantity of each run.
        name: of the quantity.
        groups: name of the group of each run, empty for single runs; default: no groups.
    """
    groups = groups or [""] * len(runs)
    several = len(runs) > 1
    colors: dict[str, int] = {}  # of groups and single runs
    lines: list[CurveLine] = []
    bundles: dict[tuple[str, str, str], list[Any]] = {}  # points of each run by group, kind and style
    for (run, training, evaluation), group in zip(runs, groups):
        number = colors.setdefault(group or run, len(colors))
        for kind, style, points in (("training", "line", training), ("evaluation", "dots", evaluation)):
            if points.get(name):
                # Of a single run, evaluations have the accent color.
                color = number if several else MUTED if kind == "training" and evaluation.get(name) else 0
                label = f"{run} {kind}" if several else kind
                lines.append(CurveLine(label, points[name], color, "thin" if group else style))
                if group:
                    bundles.setdefault((group, kind, style), []).append(points[name])
    for (group, kind, style), bundle in bundles.items():
        lines.append(CurveLine(f"{group} {kind}, mean of {len(bundle)}", _compute_mean(bundle), colors[group], style))
    return lines


def _compute_mean(bundle: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Compute the mean at each x of the lines that have a point there."""
    values: dict[float, list[float]] = {}
    for points in bundle:
        for x, y in dict(points).items():
            values.setdefault(x, []).append(y)
    return [(position, statistics.fmean(values[position])) for position in sorted(values)]
