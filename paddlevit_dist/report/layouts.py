"""Each kind of figure as HTML. What they show is not known here."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.printing import one_line
from . import curves
from .curves import embed, text

_LARGEST_GRID = 24  # classes: a matrix of more is drawn on a canvas
_TALL = 12  # rows: a table of more scrolls, and can be searched
_ENLARGED_BELOW = 64  # pixels
_END_OF_CHARTS = "<!-- charts --></div>"


def laid_out(figures: Sequence[dict[str, Any]], notices: list[str]) -> str:
    """Figures as ``store.load`` returns them, in their order; of one that is damaged there is a line in ``notices``."""
    parts = []
    for figure in figures:
        try:
            part = _LAYOUTS[figure["kind"]](figure)
            is_beside = figure["kind"] == "chart" and parts and parts[-1].endswith(_END_OF_CHARTS)
            if is_beside:
                parts[-1] = parts[-1][: -len(_END_OF_CHARTS)] + part + _END_OF_CHARTS
            else:
                parts.append(f'<div class="charts">{part}{_END_OF_CHARTS}' if figure["kind"] == "chart" else part)
        except Exception as error:  # the file may hold anything; the other figures are still worth showing
            notices.append(one_line(f"a figure cannot be shown: {type(error).__name__}: {error}"))
    return f'<div class="figures">{"".join(parts)}</div>' if parts else ""


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> str:
    """A table whose columns can be sorted; the first cell of a row is its heading."""
    kinds = [
        ' class="n"' if place and any(_is_number(row[place]) for row in rows) else "" for place in range(len(columns))
    ]
    head = "".join(f'<th scope="col"{kind}>{text(column)}</th>' for column, kind in zip(columns, kinds))
    body = "".join(
        f'<tr><th scope="row">{_cell(row[0])}</th>{"".join(map(_data_cell, row[1:]))}</tr>' for row in rows if row
    )
    tall = " tall" if len(rows) > _TALL else ""
    caption = _caption(title, note)
    return (
        f'<figure class="table">{caption}<div class="scroll{tall}" tabindex="0" role="region" '
        f'aria-label="{text(title)}"><table class="sorted"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div></figure>"
    )


def _caption(title: str, note: str) -> str:
    said = f'<p class="note">{text(note)}</p>' if note else ""
    return f"<figcaption>{text(title)}</figcaption>{said}"


def _data_cell(value: Any) -> str:
    kind = ' class="n"' if _is_number(value) else ""
    return f"<td{kind}>{_cell(value)}</td>"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return text(f"{value:.4g}" if isinstance(value, float) else value)


def _table(figure: dict[str, Any]) -> str:
    return table(figure["title"], figure["columns"], figure["rows"], figure["note"])


def _matrix(figure: dict[str, Any]) -> str:
    names, flat = figure["names"], figure["cells"]
    cells = [tuple(flat[place : place + 3]) for place in range(0, len(flat), 3)]
    caption = _caption(figure["title"], figure["note"])
    if len(names) <= _LARGEST_GRID:
        return f'<figure class="matrix">{caption}{_grid(names, cells)}</figure>'
    label = f"{figure['title']}: {len(names)} classes; arrow keys move, + and - enlarge"
    return (
        f'<figure class="matrix">{caption}<p class="note">Rows are true classes, columns predicted ones. Point at a '
        "cell, or move with the arrow keys; enlarge with the wheel or + and -.</p>"
        f'<div class="canvas"><canvas class="cells" width="640" height="640" tabindex="0" role="img" '
        f'aria-label="{text(label)}"></canvas></div>'
        '<p class="tools"><button type="button" data-do="in" aria-label="enlarge">+</button>'
        '<button type="button" data-do="out" aria-label="reduce">−</button>'
        '<button type="button" data-do="reset">all</button></p><p class="under" aria-live="polite"></p>'
        f"{embed({'names': names, 'cells': flat}, 'data')}</figure>"
    )


def _grid(names: Sequence[str], cells: Sequence[Any]) -> str:
    size = len(names)
    values = [[0] * size for _ in names]
    for row, column, count in cells:
        values[row][column] = count
    head = "".join(f'<th scope="col"><span>{text(name)}</span></th>' for name in names)
    rows = []
    for name, row in zip(names, values):
        total = sum(row) or 1
        shown = (
            f'<td style="--share:{count / total:.3f}" class="{"hit" if place == len(rows) else "miss"}'
            f'{" strong" if count > total / 2 else ""}">{f"{count:,}" if count else ""}</td>'
            for place, count in enumerate(row)
        )
        rows.append(f'<tr><th scope="row">{text(name)}</th>{"".join(shown)}</tr>')
    return (
        '<p class="note">Rows are true classes, columns predicted ones; the shade is the share of the row.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="matrix"><table class="grid"><thead><tr>'
        f"<td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _chart(figure: dict[str, Any]) -> str:
    lines = []
    for number, line in enumerate(figure["lines"]):
        points = [(float(x), float(y)) for x, y in zip(line["x"], line["y"]) if x is not None and y is not None]
        style = "bar" if figure["shape"] == "bar" else "line"
        lines.append(curves.Line(line["name"], points, number, style))
    return curves.chart(figure["title"], lines, figure["x_label"], figure["y_label"], figure["note"])


def _gallery(figure: dict[str, Any]) -> str:
    items = []
    for image in figure["pictures"]:
        kind = "png" if image["suffix"] == "png" else "jpeg"
        width, height = (int(side) for side in image["size"])
        content = base64.b64encode(image["picture"]).decode()
        lines = [str(line) for line in image["caption"]]
        size = "small" if max(width, height) <= _ENLARGED_BELOW else "large" if max(width, height) > 300 else "middle"
        items.append(
            f'<li class="{size}"><img src="data:image/{kind};base64,{content}" width="{width}" height="{height}" '
            f'decoding="async" alt="{text(lines[0])}"><p>{"<br>".join(map(text, lines))}</p></li>'
        )
    return f'<figure class="gallery">{_caption(figure["title"], figure["note"])}<ul>{"".join(items)}</ul></figure>'


def _points(figure: dict[str, Any]) -> str:
    number, layers = int(figure["number"]), [str(layer) for layer in figure["layers"]]
    content = base64.b64encode(figure["content"]).decode()
    buttons = "".join(
        f'<button type="button" data-layer="{place}" aria-pressed="{"false" if place else "true"}">{text(layer)}'
        "</button>"
        for place, layer in enumerate(layers)
    )
    legends = "".join(
        f'<ul class="legend" data-layer="{place}"{" hidden" if place else ""}>'
        + "".join(
            f'<li><span class="key" style="background:rgb({",".join(str(int(part)) for part in colour)})"></span>'
            f"{text(name)}</li>"
            for name, colour in figure["legends"].get(layer, ())
        )
        + "</ul>"
        for place, layer in enumerate(layers)
    )
    shown = f"{number:,} points" if number == figure["of"] else f"{number:,} of {figure['of']:,} points"
    label = f"{figure['title']}: {shown}; arrow keys turn, + and - zoom, 0 resets, page up and down tilt"
    return (
        f'<figure class="points" data-number="{number}" data-layers="{len(layers)}" '
        f'data-size="{float(figure["size_m"]):.6g}">{_caption(figure["title"], figure["note"])}'
        f'<p class="tools">{buttons}</p><div class="canvas"><canvas class="view" width="960" height="600" tabindex="0" '
        f'role="img" aria-label="{text(label)}"></canvas></div>'
        '<p class="tools"><button type="button" data-do="in" aria-label="closer">+</button>'
        '<button type="button" data-do="out" aria-label="farther">−</button>'
        '<button type="button" data-do="bigger" aria-label="larger points">●</button>'
        '<button type="button" data-do="smaller" aria-label="smaller points">·</button>'
        '<button type="button" data-do="reset">reset</button>'
        f'<span class="under" aria-live="polite">{shown}; drag to turn, shift-drag to move, wheel or pinch to zoom'
        f'</span></p>{legends}<script type="text/plain" class="content">{content}</script></figure>'
    )


_LAYOUTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "table": _table,
    "matrix": _matrix,
    "chart": _chart,
    "gallery": _gallery,
    "points": _points,
}
