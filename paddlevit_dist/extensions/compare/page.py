"""Write a comparison as one HTML file from ``page.html.j2``, with images of changed samples."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.files import atomic_file
from ...core.runtime.thumbnails import encode
from ...core.runtime.version import __version__
from . import formatting
from .images import ChangedImages, choose_samples
from .tables import EvaluationTable

_LARGEST_SIDE = 256  # pixels of an image


def write_page(
    target: Path,
    tables: Sequence[EvaluationTable],
    comparisons: Sequence[dict[str, Any]],
    decimals: int,
    shown: ChangedImages,
) -> None:
    """Write the page.

    Raises:
        UserError: if the file cannot be written.
        OSError: if the folder cannot be created.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported here, as most comparisons need no page

    folder = Path(__file__).parent
    pages = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    images = {name: encode_image(pixels, name) for name, pixels in shown.drawn.items()}
    content = pages.get_template("page.html.j2").render(
        title="Comparison: " + ", ".join(formatting.one_line(table.run) for table in tables),
        evaluations=[formatting.format_evaluation(table) for table in tables],
        scores=formatting.build_rows(comparisons, decimals),
        method=formatting.format_method(comparisons),
        problem=shown.problem,
        others=[_build_details(other, decimals, images) for other in comparisons],
        version=__version__,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file:
        file.write(content.encode("utf-8", "backslashreplace"))


def encode_image(pixels: np.ndarray, name: str) -> dict[str, Any]:
    """Return the entry of an image, uint8 (height, width, 3), for the page."""
    is_wide = pixels.shape[1] > 1.5 * pixels.shape[0]  # such as three slices of a volume
    suffix, content, (width, height) = encode(pixels, 2 * _LARGEST_SIDE if is_wide else _LARGEST_SIDE)
    kind, shown = ("png", "small") if suffix == "png" else ("jpeg", "wide" if is_wide else "")
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return {"source": source, "shown": shown, "width": width, "height": height, "name": formatting.one_line(name)}


def _build_details(comparison: dict[str, Any], decimals: int, images: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the page's content about the comparison of a run with the first."""
    lines = [f"Warning: {line}" for line in comparison["warnings"]] + [f"Note: {note}" for note in comparison["notes"]]
    changed = {key: comparison[key] for key in formatting.CHANGES if comparison.get(key)}
    galleries = []
    for kind, samples in changed.items():
        with_images = [row for row in choose_samples(samples) if row["sample"] in images]
        if with_images:
            heading = f"{kind}: {len(with_images)} of {len(samples):,}"
            galleries.append(
                (heading, [(images[row["sample"]], formatting.format_caption(row, kind)) for row in with_images])
            )
    return {
        "run": formatting.one_line(comparison["second"]),
        "lines": [*map(formatting.one_line, lines), *formatting.format_settings(comparison)],
        "classes": formatting.build_class_rows(comparison["classes"], decimals) if comparison["classes"] else [],
        "galleries": galleries,
        "changed": [(key, [formatting.format_sample(row) for row in rows]) for key, rows in changed.items()],
    }
