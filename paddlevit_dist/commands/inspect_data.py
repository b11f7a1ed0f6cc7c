"""``python -m paddlevit_dist inspect data FLAGS``: a picture of what the model will see."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np
from PIL import Image, ImageDraw

from .. import config as configuration
from ..errors import UserError
from ..printing import one_line

_ROWS, _EPOCHS = 8, 6
_SMALLEST_CELL, _CAPTION_HEIGHT, _GAP = 112, 14, 4
_LEGEND_LINE, _LEGEND_WIDTH = 16, 160
Entry = Tuple[str, Tuple[int, int, int]]  # name and colour
Labelled = Tuple[np.ndarray, str]  # uint8 (height, width[, 3]), caption


def run(arguments: List[str]) -> None:
    """Write ``SAVE/data.png``: for some training samples, one row each with how it is evaluated and how the first
    epochs train on it. Takes the main job's flags."""
    from ..contracts.task import make_task
    from ..loading.loader import sample_generator
    from ..loading.sampler import SampleKey
    from ..observe.record import cache_folder, prepare_folder

    values = configuration.load(arguments, configuration.EXAMPLE, command="inspect data").values
    folder = prepare_folder(values.SAVE)
    task = make_task(values)
    if not task.draws_samples:
        raise UserError(f"inspect data: TASK {values.TASK} has no pictures of its samples")
    samples = task.build_dataset("train", cache_folder(values))
    order = np.random.default_rng(values.SEED).permutation(len(samples))[:_ROWS].tolist()
    columns = [("as evaluated", task.evaluation_pictures(samples, order))]
    for epoch in range(1, _EPOCHS + 1):
        keys = [SampleKey(epoch, index, 0) for index in order]
        readings = [samples.sample(key.index, sample_generator(values.SEED, key)) for key in keys]
        columns.append((f"epoch {epoch}", task.pictures(samples, task.collate(readings), epoch)))
    target = folder / "data.png"
    contact_sheet(columns, task.picture_legend()).save(target)
    for notice in [*task.notices, *samples.notices]:
        print(one_line(notice))
    print(one_line(f"{len(order)} of {len(samples):,} training {task.sample_name}, {_EPOCHS} epochs: {target}"))


def contact_sheet(columns: List[Tuple[str, List[Labelled]]], legend: Sequence[Entry] = ()) -> Image.Image:
    """Arrange pictures in columns, each under a heading, with their captions below them, and a legend beside them.

    Raises:
        UserError: there are no pictures.
    """
    if not columns or not columns[0][1]:
        raise UserError("the dataset is empty: there is nothing to show; look at -data_path")
    height, width = columns[0][1][0][0].shape[:2]
    enlarged = max(1, -(-_SMALLEST_CELL // max(height, width)))  # small pictures by an integer factor, pixel for pixel
    cell_width, cell_height = width * enlarged + _GAP, height * enlarged + _CAPTION_HEIGHT + _GAP
    rows = max(len(pictures) for _, pictures in columns)
    height_of_all = max(_CAPTION_HEIGHT + cell_height * rows, _LEGEND_LINE * (len(legend) + 1))
    width_of_legend = _LEGEND_WIDTH if legend else 0
    sheet = Image.new("RGB", (cell_width * len(columns) + width_of_legend, height_of_all), "white")
    draw = ImageDraw.Draw(sheet)
    for row, (name, colour) in enumerate(legend, 1):
        left, top = cell_width * len(columns) + _GAP, row * _LEGEND_LINE
        draw.rectangle([left, top, left + 10, top + 10], fill=tuple(colour), outline="black")
        draw.text((left + 16, top), name.encode("latin-1", "replace").decode("latin-1"), fill="black")
    for column, (heading, pictures) in enumerate(columns):
        draw.text((column * cell_width, 0), heading, fill="black")
        for row, (pixels, caption) in enumerate(pictures):
            left, top = column * cell_width, _CAPTION_HEIGHT + row * cell_height
            sheet.paste(_enlarge(pixels, enlarged), (left, top))
            draw.text((left, top + height * enlarged), caption[: cell_width // 6], fill="black")
    return sheet


def _enlarge(pixels: np.ndarray, factor: int) -> Any:
    picture = Image.fromarray(pixels)
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
