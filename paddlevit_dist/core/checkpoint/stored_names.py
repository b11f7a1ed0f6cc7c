"""Class names that other training programs store in a file, next to its weights.

They are the arguments of a program (``args.class_names`` of RF-DETR's package), the hyperparameters of Lightning, the
``names`` of Ultralytics, or the classes of the data in mmengine's ``meta``.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..runtime.text_files import is_whole
from .file_formats import choose_format
from .torch_files import open_torch_file

_PLACES = ("", "args", "hyper_parameters", "datamodule_hyper_parameters", "config", "meta", "meta.dataset_meta")
_KEYS = ("class_names", "classes", "CLASSES", "names", "label_names", "id2label", "idx_to_class")
_LABELS = ("class_to_idx", "label2id")  # a number for each name
_UNNAMED = "LABEL_"  # with a number, transformers' name for a class without one


def read_stored_names(file: Path) -> list[str] | None:
    """Return the class names in a file of PyTorch, by label, without reading its arrays; None if it has none.

    Raises UserError if the file cannot be read.
    """
    if choose_format(file) != "torch":
        return None
    with open_torch_file(file) as content:
        return find_stored_names(content)


def find_stored_names(content: object) -> list[str] | None:
    """Return the class names in the content of a file, by label; None if it has none."""
    for place in _PLACES:
        part = _find_part(content, place)
        for key in (*_KEYS, *_LABELS) if isinstance(part, Mapping) else ():
            names = _invert(part.get(key)) if key in _LABELS else part.get(key)
            if (found := parse_labels(names)) is not None:
                return found
    return None


def _find_part(content: Any, place: str) -> Any:
    for name in filter(None, place.split(".")):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _invert(labels: object) -> object:
    if not isinstance(labels, Mapping) or not all(type(number) is int for number in labels.values()):
        return None
    return {number: name for name, number in labels.items()}


def parse_labels(labels: object) -> list[str] | None:
    """Parse a list of names, or names by number; "" is a number without one. None: placeholders, or anything else."""
    if isinstance(labels, (list, tuple)):
        labels = dict(enumerate(labels))
    if not isinstance(labels, Mapping) or not labels or not _are_plain([*labels, *labels.values()]):
        return None
    numbers = list(map(str, labels))
    if not all(number.isascii() and is_whole(number) for number in numbers):
        return None
    by_number = {int(number): "" if name is None else str(name) for number, name in zip(numbers, labels.values())}
    are_placeholders = all(name in (f"{_UNNAMED}{number}", str(number)) for number, name in by_number.items())
    if are_placeholders or max(by_number) > 10 * len(by_number) + 1000:
        return None
    return [by_number.get(number, "") for number in range(max(by_number) + 1)]


def _are_plain(values: Iterable[Any]) -> bool:
    return all(value is None or isinstance(value, (str, int, float)) for value in values)
