"""``python -m paddlevit_dist inspect data FLAGS``: a picture of what the model will see."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np
from PIL import Image

from .. import config as configuration
from ..errors import UserError
from ..lettering import LINE_PX, legend, letters, note_of
from ..printing import one_line

_WIDEST, _TALLEST = 1300, 1400  # of a sheet: a laptop shows it without making its letters smaller
_ROWS, _EPOCHS = (4, 8), (1, 6)  # least and most
_SMALLEST_CELL, _GAP = 112, 4
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
    order = np.random.default_rng(values.SEED).permutation(len(samples)).tolist()
    names = legend(task.picture_legend(), _TALLEST)
    columns = [("as evaluated", task.evaluation_pictures(samples, order[: _ROWS[1]]))]
    rows, epochs = _that_fit(columns[0][1], _WIDEST - names.width)
    columns = [("as evaluated", columns[0][1][:rows])]
    for epoch in range(1, epochs + 1):
        keys = [SampleKey(epoch, index, 0) for index in order[:rows]]
        readings = [samples.sample(key.index, sample_generator(values.SEED, key)) for key in keys]
        columns.append((f"epoch {epoch}", task.pictures(samples, task.collate(readings), epoch)))
    target = folder / "data.png"
    contact_sheet(columns, names).save(target)
    for notice in [*task.notices, *samples.notices, *note_of(samples.class_names or ())]:
        print(one_line(notice))
    shown = f"{len(columns[0][1])} of {len(samples):,} training {task.sample_name}"
    print(one_line(f"{shown}, {epochs} epoch{'s' if epochs > 1 else ''}: {target}"))


def _that_fit(pictures: List[Labelled], width: int) -> Tuple[int, int]:
    """How many rows, and how many epochs beside the first column, a sheet of readable size holds.

    Raises:
        UserError: there are no pictures.
    """
    if not pictures:
        raise UserError("the dataset is empty: there is nothing to show; look at -data_path")
    cell_width, cell_height, _ = _cell(pictures[0][0])
    return int(np.clip(_TALLEST // cell_height, *_ROWS)), int(np.clip(width // cell_width - 1, *_EPOCHS))


def _cell(pixels: np.ndarray) -> Tuple[int, int, int]:
    """Width and height of a picture's place with its caption, and by what whole number a small one is enlarged."""
    height, width = pixels.shape[:2]
    enlarged = max(1, -(-_SMALLEST_CELL // max(height, width)))
    return width * enlarged + _GAP, height * enlarged + LINE_PX + _GAP, enlarged


def contact_sheet(columns: List[Tuple[str, List[Labelled]]], beside: Image.Image) -> Image.Image:
    """Pictures in columns, each under a heading, with their captions below them, and a picture beside them all."""
    cell_width, cell_height, enlarged = _cell(columns[0][1][0][0])
    height = LINE_PX + cell_height * max(len(pictures) for _, pictures in columns)
    sheet = Image.new("RGB", (cell_width * len(columns) + beside.width, max(height, beside.height)), "white")
    sheet.paste(beside, (cell_width * len(columns), 0))
    for column, (heading, pictures) in enumerate(columns):
        left = column * cell_width
        sheet.paste("black", (left, 0), letters(heading))
        for row, (pixels, caption) in enumerate(pictures):
            top = LINE_PX + row * cell_height
            picture = Image.fromarray(pixels)
            size = picture.width * enlarged, picture.height * enlarged
            sheet.paste(picture.resize(size, Image.Resampling.NEAREST), (left, top))
            words = letters(caption)
            sheet.paste(
                "black",
                (left, top + size[1]),
                words.crop((0, 0, min(words.width, cell_width - 2 * _GAP), words.height)),
            )
    return sheet
