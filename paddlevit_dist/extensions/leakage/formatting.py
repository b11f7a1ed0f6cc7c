"""Output of ``inspect leaks`` and ``inspect data`` about validation samples that are also in the training set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from ...core import settings as configuration
from ...core.commands.inspect_data import contact_sheet, enlarge
from ...core.logging.record import cache_folder, output_folder
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.printing import one_line
from ...core.settings.every_run import RunSettings
from ...core.tasks.dataset import Dataset, TransformedDataset
from ...core.tasks.listed_samples import open_samples
from ...core.tasks.task import Task
from ...core.tasks.task_factory import make_task
from ...images.data.image_dataset import ImageDataset
from .fingerprints import read_pixels
from .search import ALIKE, FILE, NEAR, SearchResult, find_copies, write_leaks

_SHEET = "leaks.png"
_MOST_SHOWN = 8  # pairs on the sheet
_SHOWN_PX = 256
_NAMED = 3  # pairs in a line
SECONDS = 15.0  # time limit of ``inspect data`` for each split


def run(arguments: list[str]) -> None:
    """Run ``inspect leaks FLAGS``, with the main job's flags: compare all samples of "val" with all of "train"."""
    values = configuration.load(arguments, configuration.DEFAULT_RECIPE, command="inspect leaks").values
    with output_folder(values.SAVE, (FILE, _SHEET)) as folder:
        task = make_task(values)
        train = open_samples(task, "train", cache_folder(values))
        print_findings(*_search(values, task, train, float("inf")), task, folder)


def show_leaks(config: RunSettings, task: Task, train: TransformedDataset, folder: Path) -> None:
    """Compare the samples that can be read in a few seconds, after ``inspect data`` has written its sheet."""
    try:
        search, val, train_dataset = _search(config, task, train, SECONDS)
    except UserError as error:
        print(one_line(f"samples of val in train: not searched: {error}"))
        return
    print_findings(search, val, train_dataset, task, folder)


def _search(
    config: RunSettings, task: Task, train: TransformedDataset, seconds: float
) -> tuple[SearchResult, Dataset, Dataset]:
    """Return the search result, and the datasets "val" and "train"."""
    samples = open_samples(task, "val", cache_folder(config))
    val, train_dataset = (cast(Dataset, getattr(split, "dataset", None)) for split in (samples, train))
    return find_copies(val, train_dataset, cache_folder(config), seconds), val, train_dataset


def print_findings(search: SearchResult, val: Dataset, train: Dataset, task: Task, folder: Path) -> None:
    """Print the result, and write ``leaks.json`` and, for images, ``leaks.png`` into ``folder``."""
    print(one_line(f"leaks: {search.summary('val', task.traits.sample_name)}"))
    if search.compared != search.totals:
        print("to compare all samples, run inspect leaks with the same flags")
    for file in (folder / FILE, folder / _SHEET):
        file.unlink(missing_ok=True)  # of an earlier search
    if not search.pairs and not search.alike:
        return
    conflicts = find_label_conflicts(search, val, train)
    if conflicts:
        print(one_line(f"{len(conflicts):,} of these have another class in train: {'; '.join(conflicts[:_NAMED])}"))
    if search.alike:
        print(one_line(f"look alike: {search.suspicion('val', task.traits.sample_name)}"))
    write_leaks(folder / FILE, search, val, train)
    files = [folder / FILE]
    if isinstance(val, ImageDataset):
        with atomic_file(folder / _SHEET) as out:
            draw_sheet(search, val, train).save(out, "PNG")
        files.append(folder / _SHEET)
    advice = "; evaluate -exclude_leaked scores without them" if search.pairs else ""
    print(one_line(f"pairs written to {', '.join(map(str, files))}{advice}"))


def find_label_conflicts(search: SearchResult, val: Dataset, train: Dataset) -> list[str]:
    """Describe the pairs whose two samples are labeled with different classes: one of both labels is wrong."""
    names = [getattr(data, "class_names", None) for data in (val, train)]
    split_labels: list[Any] = [getattr(data, "labels", None) for data in (val, train)]
    if any(labels is None or np.ndim(labels) != 1 for labels in split_labels):
        return []
    conflicts = []
    for pair in search.pairs:
        classes = [int(labels[index]) for labels, index in zip(split_labels, (pair.val, pair.train))]
        val_class, train_class = (
            class_names[label] if class_names else str(label) for class_names, label in zip(names, classes)
        )
        if val_class != train_class:
            conflicts.append(f"{val.describe(pair.val)} is {val_class}, {train.describe(pair.train)} is {train_class}")
    return conflicts


def draw_sheet(search: SearchResult, val: Dataset, train: Dataset) -> Image.Image:
    """Draw pairs side by side, as ``list_shown`` lists them."""
    columns = [(heading, enlarge(images)) for heading, images in list_shown(search, val, train)]
    return contact_sheet(columns, Image.new("RGB", (0, 0)))


def list_shown(search: SearchResult, val: Dataset, train: Dataset) -> list[tuple[str, list[tuple[np.ndarray, str]]]]:
    """List pixels and captions of pairs under a heading for each dataset.

    Near duplicates come first, the least similar ones ahead, and those that only look alike last, the most similar ones
    ahead; these have up to half the rows.
    """
    alike = sorted(search.alike, key=lambda pair: -pair.likeness)
    chosen = sorted(search.pairs, key=lambda pair: (pair.kind != NEAR, pair.likeness))
    chosen = chosen[: _MOST_SHOWN - min(len(alike), _MOST_SHOWN // 2)]
    chosen += alike[: _MOST_SHOWN - len(chosen)]
    captions = [each.kind + (f" {each.likeness:.2f}" if each.kind in (NEAR, ALIKE) else "") for each in chosen]
    columns = []
    sides: tuple[tuple[str, Any, Callable[[Any], int]], ...] = (
        ("val", val, lambda pair: pair.val),
        ("train", train, lambda pair: pair.train),
    )
    for heading, dataset, get_index in sides:
        images = []
        for pair, caption in zip(chosen, captions):
            name = dataset.identity(get_index(pair))
            image = Image.fromarray(read_pixels(dataset, get_index(pair)))
            image.thumbnail((_SHOWN_PX, _SHOWN_PX))
            images.append((np.asarray(image), f"{caption}: {name}"))
        columns.append((heading, images))
    return columns
