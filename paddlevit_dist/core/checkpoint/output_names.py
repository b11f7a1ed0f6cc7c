"""Names of the outputs of weights: what a run recorded, or the program that trained them stored with them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runtime.text_files import read_json_facts
from .network_facts import find_config
from .published import find_published
from .records import read_weights_info
from .stored_names import parse_labels, read_stored_names
from .weight_files import local_file

_LABELS = ("id2label", "label_names", "labels")  # the last is timm's older name
_LANDMARKS = "landmarks"  # key in the preprocessing signature: outputs that have names but are not classes


def are_names(names: Sequence[str]) -> bool:
    """Return whether any name is more than the number of its class."""
    return any(name != str(number) for number, name in enumerate(names))


def mean_numbers(names: Sequence[str], numbers: Sequence[str]) -> bool:
    """Return whether any name at another place is one of the ``numbers`` that name the outputs of another side."""
    return not set(numbers).isdisjoint(name for number, name in enumerate(names) if name != str(number))


def get_class_names(data: Mapping[str, Any], described: Mapping[str, Any]) -> list[str] | None:
    """Return the names of a run's outputs: of the first split with classes, or of landmarks; None if unknown.

    ``data`` and ``described``: ``Task.signature`` of each split's samples and of the preprocessing.
    """
    classes = next(
        (facts["classes"] for facts in data.values() if isinstance(facts, Mapping) and facts.get("classes")), None
    )
    names = described.get(_LANDMARKS) or classes
    return drop_unnamed(names) if names else None


def drop_unnamed(names: Sequence[Any]) -> list[str]:
    """Return names without the numbers at the end, of outputs up to MODEL.NUM_CLASSES; numbers alone are kept.

    Folders 0 to 99 are sorted as text, so that 90 to 99 are at their own places and 10 is not.
    """
    listed = list(map(str, names))
    if all(map(str.isdecimal, listed)):
        return listed
    return listed[: next(place for place in range(len(listed), 0, -1) if listed[place - 1] != str(place - 1))]


def read_class_names(source: str) -> tuple[list[str] | None, bool]:
    """Return the class names of the weights at ``source``, and whether a run of this package recorded them.

    A run whose data name no classes has recorded their numbers. Others are from the file of transformers or timm in the
    same folder, or stored with the weights by the program that trained them; None if there are none. Raises UserError
    if there are no weights, or they or their metadata are damaged.
    """
    file = local_file(source).path
    about = read_weights_info(file)
    names = get_class_names(about.get("data") or {}, about.get("input") or {})
    if names:
        return names, True
    if find_published(source) is not None:  # timm's weights do not name their classes
        return None, False
    config = find_config(source, file, may_download=True)
    return (None if config is None else _labels_in(config)) or read_stored_names(file), False


def _labels_in(file: Path) -> list[str] | None:
    """Read the class names in a ``config.json``: transformers' ``id2label``, or timm's ``label_names``."""
    content = read_json_facts(file)
    of_timm = content.get("pretrained_cfg")
    places = [content, *([of_timm] if isinstance(of_timm, dict) else [])]
    listed = [place[key] for key in _LABELS for place in places if place.get(key)]
    return next(filter(None, map(parse_labels, listed)), None)
