"""``python -m paddlevit_dist inspect data FLAGS``: draw what the model will see."""

import collections
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .. import settings as configuration
from ..launch.tuning import import_paddle
from ..registry.extension_points import SHOW_LEAKS
from ..runtime.compiled import has_numba
from ..runtime.errors import UserError
from ..runtime.files import atomic_file, os_errors_as_user_errors
from ..runtime.printing import one_line
from ..runtime.text_rendering import LINE_PX, format_note, legend, render_text
from ..settings.every_run import RunSettings

_SHEET = "data.png"
_WIDEST, _TALLEST = 1300, 1400  # pixels of a sheet: a laptop shows it at full size
_ROWS, _EPOCHS = (4, 8), (1, 6)  # minimum and maximum
_SMALLEST_PX, _LARGEST_PX, _GAP = 112, 640, 4  # longer side of an image
_CAPTION_PX = 220  # that a small image leaves to its caption
_CAPTION_LINES = 3  # of a longer caption the end is shown
_SEARCHED = 5_000  # samples that are searched for different classes
CaptionedImage = tuple[np.ndarray, str]  # uint8 (height, width[, 3]), caption
Shown = tuple[Image.Image, str]


def run(arguments: list[str]) -> None:
    """Write ``SAVE/data.png``: training samples as the model sees them. Takes the main job's flags.

    Each row is one sample: as evaluated, then as augmented in the first epochs.
    """
    from ..logging.record import output_folder

    values = configuration.load(arguments, configuration.DEFAULT_RECIPE, command="inspect data").values
    import_paddle()
    with output_folder(values.SAVE, (_SHEET,)) as folder:
        with os_errors_as_user_errors(folder), tempfile.TemporaryFile(dir=folder):
            pass  # report an unwritable folder before reading the data
        draw(values, folder / _SHEET)


def draw(values: RunSettings, target: Path) -> None:
    """Draw training samples to ``target``, in epochs of one random sequence."""
    from ..data.sampler import SampleKey, sample_generator
    from ..logging.record import cache_folder
    from ..tasks.aspects import get_aspect
    from ..tasks.listed_samples import open_samples
    from ..tasks.protocols import Drawable
    from ..tasks.task_factory import make_task

    task = make_task(values)
    drawable = get_aspect(task, Drawable)
    if drawable is None:
        raise UserError(f"inspect data: TASK {values.TASK} cannot draw its samples")
    samples = open_samples(task, "train", cache_folder(values))
    order = choose_shown(samples, np.random.default_rng(values.SEED).permutation(len(samples)).tolist())
    names = legend(drawable.image_legend(), _TALLEST)
    evaluated = enlarge(drawable.visualize_eval_samples(samples, order[: _ROWS[1]]))
    rows, epochs = fit_sheet(evaluated, _WIDEST - names.width)
    columns = [("as evaluated", evaluated[:rows])]
    for epoch in range(1, epochs + 1):
        keys = [SampleKey(epoch, index, 0) for index in order[:rows]]
        readings = [samples.sample(key.index, sample_generator(values.SEED, key)) for key in keys]
        columns.append((f"epoch {epoch}", enlarge(drawable.visualize_batch(samples, task.collate(readings), epoch))))
    with atomic_file(target) as file:
        contact_sheet(columns, names).save(file, "PNG")
    for notice in [*task.notices, *samples.notices, *format_note(samples.class_names or ())]:
        print(one_line(notice))
    for line in drawable.summarize_samples(samples):
        print(one_line(line))
    shown = f"{len(columns[0][1])} of {len(samples):,} training {task.traits.sample_name}"
    print(one_line(f"{shown}, {epochs} epoch{'s' if epochs > 1 else ''}: {target}"))
    show_leaks = SHOW_LEAKS.find()
    if show_leaks is not None and has_numba():
        show_leaks(values, task, samples, target.parent)
    elif show_leaks is not None:
        print("leaks: not searched, since numba is not installed (pip install numba)")


def choose_shown(samples: Any, order: list[int]) -> list[int]:
    """Return the indices in an order in which no class, or label, comes again before all others were seen."""
    dataset, unknown = getattr(samples, "dataset", None), np.zeros(())
    matrix, labels = (np.asarray(getattr(dataset, name, unknown)) for name in ("label_matrix", "labels"))
    has_matrix = np.ndim(matrix) == 2  # (samples, classes)
    if not has_matrix and np.ndim(labels) != 1:
        return order
    seen, places = collections.Counter[int](), []
    for index in order[:_SEARCHED]:
        classes = np.flatnonzero(matrix[index] == 1).tolist() if has_matrix else [int(labels[index])]
        places.append(min((seen[label] for label in classes), default=len(order)))
        seen.update(classes)
    ranked = sorted(range(len(places)), key=places.__getitem__)
    return [*(order[place] for place in ranked), *order[_SEARCHED:]]


def fit_sheet(images: list[Shown], width: int) -> tuple[int, int]:
    """Return the numbers of rows, and of epochs next to the first column, that fit on a sheet of readable size."""
    if not images:
        raise UserError("the dataset is empty, nothing to show: check -data_path")
    cell_width, cell_height = _cell_size(images)
    return int(np.clip(_TALLEST // cell_height, *_ROWS)), int(np.clip(width // cell_width - 1, *_EPOCHS))


def _cell_size(images: list[Shown]) -> tuple[int, int]:
    """Return width and height of a cell: an image with the lines of its caption."""
    widths, heights = zip(*(image.size for image, _ in images))
    captions = {caption for _, caption in images}
    width = max(*widths, min(max(render_text(caption).width + _GAP for caption in captions), _CAPTION_PX)) + _GAP
    lines = max(len(wrap_caption(caption, width - 2 * _GAP)) for caption in captions)
    return width, max(heights) + lines * LINE_PX + _GAP


def wrap_caption(caption: str, width: int) -> list[str]:
    """Break a caption into lines of at most ``width`` pixels; of a very long one, such as a path, the end is left."""
    lines, line = [], ""
    for letter in caption:
        if line and render_text(line + letter).width > width:
            lines.append(line)
            line = ""
        line += letter
    if len(lines) >= _CAPTION_LINES:
        return wrap_caption("..." + caption[len(caption) // 10 + 4 :], width)
    return [*lines, line]


def enlarge(images: list[CaptionedImage]) -> list[Shown]:
    """Enlarge small images by a whole factor without interpolation, and shrink large ones."""
    shown = []
    for pixels, caption in images:
        image = Image.fromarray(pixels)
        factor = max(1, -(-_SMALLEST_PX // max(image.size)))
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
        image.thumbnail((_LARGEST_PX, _LARGEST_PX))
        shown.append((image, caption))
    return shown


def contact_sheet(columns: list[tuple[str, list[Shown]]], legend_image: Image.Image) -> Image.Image:
    """Draw columns of images with headings and captions, and the image ``legend_image`` to their right."""
    cell_width, cell_height = _cell_size([labeled for _, column_images in columns for labeled in column_images])
    height = LINE_PX + cell_height * max(len(column_images) for _, column_images in columns)
    sheet = Image.new(
        "RGB", (cell_width * len(columns) + legend_image.width, max(height, legend_image.height)), "white"
    )
    sheet.paste(legend_image, (cell_width * len(columns), 0))
    for column, (heading, images) in enumerate(columns):
        left = column * cell_width
        sheet.paste("black", (left, 0), render_text(heading))
        for row, (image, caption) in enumerate(images):
            top = LINE_PX + row * cell_height
            sheet.paste(image, (left, top))
            for number, line in enumerate(wrap_caption(caption, cell_width - 2 * _GAP)):
                sheet.paste("black", (left, top + image.height + number * LINE_PX), render_text(line))
    return sheet
