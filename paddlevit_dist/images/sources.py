"""From the configuration to the pictures of a split: data set, held-out part, cache folder, how files are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

from ..errors import UserError
from ..loading.atomic_file import atomic_file
from ..registry import resolve
from .datasets.held_out import Part, hold_out, list_held_out
from .datasets.reading import Reading

VAL_FILES = "val_files.txt"


def open_pictures(config: Any, split: str, cache_folder: Path) -> Tuple[Any, List[str]]:
    """The data set of DATA.DATASET for ``split``, and what the record should say of it.

    Raises:
        UserError: the data are missing or damaged, or a folder cannot be made.
    """
    data = config.DATA
    cache_folder = _cache_folder(data.CACHE_FOLDER, cache_folder)
    target = resolve("dataset", data.DATASET)
    if data.VAL_FRACTION is None:
        dataset = target(data.DATA_PATH, split, cache_folder)
    elif hasattr(target, "whole"):
        dataset = target.whole(data.DATA_PATH, cache_folder)
    else:
        dataset = target(data.DATA_PATH, "train", cache_folder)
    if hasattr(dataset, "reading"):
        dataset.reading = Reading(data.EXIF_ROTATE, data.MAX_PIXELS)
    notes = list(getattr(dataset, "notes", []))
    if data.VAL_FRACTION is not None:
        dataset = hold_out(dataset, split, data.VAL_FRACTION, data.VAL_SEED, cache_folder)
        if split == "val":
            notes.append(_list_part(config, dataset))
    return dataset, notes


def _cache_folder(wanted: Any, usual: Path) -> Path:
    if wanted is None:
        return usual
    folder = Path(wanted).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"DATA.CACHE_FOLDER {folder} cannot be made: {error.strerror}; choose another") from error
    return folder


def _list_part(config: Any, part: Part) -> str:
    data = config.DATA
    file = Path(config.SAVE, VAL_FILES)
    lines = list_held_out(part, getattr(part.dataset, "root", None))
    with atomic_file(file) as out:
        out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return (
        f"note: {len(part):,} of {len(part.dataset):,} training pictures are held out for validation "
        f"(DATA.VAL_FRACTION {data.VAL_FRACTION:g}, VAL_SEED {data.VAL_SEED}), listed in {file}"
    )
