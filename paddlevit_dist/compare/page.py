"""A comparison as one HTML file, with images of some samples that changed."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..runtime.files import atomic_file
from ..runtime.thumbnails import encode
from . import telling
from .images import Images, choose_samples
from .tables import Table

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;color-scheme:light dark}"
    "table{border-collapse:collapse}td,th{padding:.2em .9em .2em 0;text-align:left;border-bottom:1px solid #8884}"
    ".note{opacity:.75}.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(19em,1fr));gap:2em}"
    ".sides ul{list-style:none;margin:0 0 1.5em;padding:0;display:flex;flex-wrap:wrap;gap:1em}.sides li{width:9em}"
    ".sides li:has(.wide){width:19em}.sides img{width:100%;height:auto;outline:1px solid #8886}"
    ".sides img.small{image-rendering:pixelated}"
    ".sides p{margin:0;font-size:.85em;overflow-wrap:anywhere}"
)
_LARGEST_SIDE = 256  # pixels of an image
_REMEDY = (
    "Where the data are, the same command shows some: with -data_path=PATH if they are not where the run has read them."
)


def write_page(
    target: Path, tables: Sequence[Table], comparisons: Sequence[dict[str, Any]], decimals: int, shown: Images
) -> None:
    """Write the page.

    Raises:
        UserError, OSError: it cannot be written.
    """
    title = html.escape("Comparison: " + ", ".join(telling.one_line(table.run) for table in tables))
    parts = [f"<h1>{title}</h1>", *(f'<p class="note">{html.escape(telling.about(table))}</p>' for table in tables)]
    parts.append(_table(telling.rows_of(comparisons, decimals)))
    parts.append(f'<p class="note">{html.escape(telling.method(comparisons))}</p>')
    if shown.problem:
        said = f"No images of samples: {shown.problem}. {_REMEDY}"
        parts.append(f'<p class="note">{html.escape(said)}</p>')
    images = {name: _image(pixels, name) for name, pixels in shown.drawn.items()}
    for other in comparisons:
        parts += _details(other, decimals, images)
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    foot = f'<p class="note">written by paddlevit_dist {html.escape(__version__)}</p>'
    content = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}{foot}</body></html>\n'
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file:
        file.write(content.encode("utf-8", "backslashreplace"))


def _image(pixels: np.ndarray, name: str) -> str:
    is_wide = pixels.shape[1] > 1.5 * pixels.shape[0]  # such as three slices of a volume
    suffix, content, size = encode(pixels, 2 * _LARGEST_SIDE if is_wide else _LARGEST_SIDE)
    kind, shown = ("png", "small") if suffix == "png" else ("jpeg", "wide" if is_wide else "")
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    alt = html.escape(telling.one_line(name))
    return f'<img class="{shown}" src="{source}" width="{size[0]}" height="{size[1]}" alt="{alt}">'


def _details(comparison: dict[str, Any], decimals: int, images: Mapping[str, str]) -> list[str]:
    parts = [f"<h2>{html.escape(telling.one_line(comparison['second']))}</h2>"]
    parts += [f"<p>Warning: {html.escape(telling.one_line(line))}</p>" for line in comparison["warnings"]]
    notes = [f"Note: {telling.one_line(note)}" for note in comparison["notes"]]
    parts += [f"<p>{html.escape(line)}</p>" for line in [*notes, *telling.tell_settings(comparison)]]
    if comparison["classes"]:
        parts.append(f"<h3>Classes</h3>{_table(telling.class_rows(comparison, decimals))}")
    sides = [_gallery(kind, comparison[kind], images) for kind in telling.CHANGES if comparison.get(kind)]
    if any(sides):
        parts.append(f'<div class="sides">{"".join(sides)}</div>')
    for kind in telling.CHANGES:
        found = comparison.get(kind)
        if found:
            entries = "".join(f"<li>{html.escape(telling.sample_of(row))}</li>" for row in found)
            parts.append(f"<details><summary>{len(found):,} samples are {kind}</summary><ol>{entries}</ol></details>")
    return parts


def _gallery(kind: str, samples: Sequence[dict[str, Any]], images: Mapping[str, str]) -> str:
    """Some samples of a kind; empty where none has an image."""
    shown = [row for row in choose_samples(samples) if row["sample"] in images]
    if not shown:
        return ""
    items = "".join(
        f"<li>{images[row['sample']]}<p>{html.escape(telling.image_of(row, kind))}</p></li>" for row in shown
    )
    heading = html.escape(f"{kind}: {len(shown)} of {len(samples):,}")
    return f"<section><h3>{heading}</h3><ul>{items}</ul></section>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the heading."""
    cells = [[html.escape(cell) for cell in row] for row in rows]
    heading = "".join(f"<th>{cell}</th>" for cell in cells[0])
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells[1:])
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"
