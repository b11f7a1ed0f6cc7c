"""Lines of ``inspect leaks`` and ``inspect data`` on samples of validation that stand in training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .. import settings as configuration
from ..commands.inspect_data import contact_sheet, enlarge
from ..images.data.image_dataset import ImageDataset
from ..logging.record import cache_folder, output_folder
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..settings.every_run import RunSettings
from ..tasks.task import Task, make_task
from .fingerprints import read_pixels
from .search import FILE, NEAR, SearchResult, find, write

_SHEET = "leaks.png"
_MOST_SHOWN = 8  # pairs on the sheet
_SHOWN_PX = 256
_NAMED = 3  # pairs in a line
_LONGEST_NAME = 24  # letters of it, from its end
SECONDS = 15.0  # for each split, where it is one look of many


def run(arguments: list[str]) -> None:
    """``inspect leaks FLAGS``: compare all samples of "val" with all of "train". Takes the main job's flags."""
    values = configuration.load(arguments, configuration.EXAMPLE, command="inspect leaks").values
    with output_folder(values.SAVE, (FILE, _SHEET)) as folder:
        task = make_task(values)
        train = task.build_dataset("train", cache_folder(values))
        _print_findings(*_search(values, task, train, float("inf")), task, folder)


def show(config: RunSettings, task: Task, train: Any, folder: Path) -> None:
    """After ``inspect data`` has written its sheet: the same for as many samples as a few seconds allow."""
    try:
        found = _search(config, task, train, SECONDS)
    except UserError as error:
        print(one_line(f"samples of val in train: not looked for: {error}"))
        return
    _print_findings(*found, task, folder)


def _search(config: RunSettings, task: Task, train: Any, seconds: float) -> tuple[SearchResult, Any, Any]:
    """Search, and return what is found, and the data sets "val" and "train"."""
    samples = task.build_dataset("val", cache_folder(config))
    val, train = (getattr(one, "dataset", None) for one in (samples, train))
    return find(val, train, cache_folder(config), seconds), val, train


def _print_findings(search: SearchResult, val: Any, train: Any, task: Task, folder: Path) -> None:
    """Print what was found, and write ``leaks.json`` and, of images, ``leaks.png`` into ``folder``."""
    print(one_line(f"leaks: {search.summary('val', task.sample_name)}"))
    if search.looked != search.totals:
        print("inspect leaks, with the same flags, compares all of them")
    for file in (folder / FILE, folder / _SHEET):
        file.unlink(missing_ok=True)  # of an earlier look
    if not search.pairs:
        return
    differ = other_classes(search, val, train)
    if differ:
        print(one_line(f"{len(differ):,} of these have another class in train: {'; '.join(differ[:_NAMED])}"))
    write(folder / FILE, search, val, train)
    files = [folder / FILE]
    if isinstance(val, ImageDataset):
        sheet(search, val, train).save(folder / _SHEET)
        files.append(folder / _SHEET)
    print(
        one_line(f"each with its partner: {', '.join(map(str, files))}; evaluate -exclude_leaked scores without them")
    )


def other_classes(search: SearchResult, val: Any, train: Any) -> list[str]:
    """The pairs whose samples have a class each, and not the same one: one of both labels is wrong."""
    names = [getattr(data, "class_names", None) for data in (val, train)]
    labels = [getattr(data, "labels", None) for data in (val, train)]
    if any(one is None or np.ndim(one) != 1 for one in labels):
        return []
    found = []
    for pair in search.pairs:
        own = [int(one[index]) for one, index in zip(labels, (pair.val, pair.train))]
        mine, other = (called[label] if called else str(label) for called, label in zip(names, own))
        if mine != other:
            found.append(f"{val.describe(pair.val)} is {mine}, {train.describe(pair.train)} is {other}")
    return found


def sheet(search: SearchResult, val: Any, train: Any) -> Image.Image:
    """Pairs side by side: near duplicates first, the least alike of them on top."""
    chosen = sorted(search.pairs, key=lambda pair: (pair.kind != NEAR, pair.likeness))[:_MOST_SHOWN]
    captions = [pair.kind + (f" {pair.likeness:.2f}" if pair.kind == NEAR else "") for pair in chosen]
    columns = []
    sides: tuple[tuple[str, Any, Callable[[Any], int]], ...] = (
        ("val", val, lambda pair: pair.val),
        ("train", train, lambda pair: pair.train),
    )
    for heading, dataset, index_of in sides:
        images = []
        for pair, caption in zip(chosen, captions):
            name = dataset.identity(index_of(pair))
            image = Image.fromarray(read_pixels(dataset, index_of(pair)))
            image.thumbnail((_SHOWN_PX, _SHOWN_PX))
            images.append((np.asarray(image), f"{caption}: {name[-_LONGEST_NAME:]}"))
        columns.append((heading, enlarge(images)))
    return contact_sheet(columns, Image.new("RGB", (0, 0)))
