"""Say which folders the tasks on volumes read, with the description that a folder of cases needs."""

import os
import re
from collections.abc import Mapping, Sequence

from ..core.registry.extension_points import FolderGuess
from ..core.registry.lookup import find_built_in
from ..core.runtime.errors import UserError
from ..core.runtime.json_format import format_json
from ..core.runtime.printing import count
from .reading import SUFFIXES, case_name

_LABEL_WORDS = "segmentations?|segs?|labelst[rs]|labels?|masks?|gt|truth"
_LABELS = re.compile(rf"(.*[^a-z])?({_LABEL_WORDS})([^a-z].*)?")
_KINDS = re.compile(rf"(?<![a-z])({_LABEL_WORDS}|imaging|images?|imgs?|volumes?|scans?)(?![a-z])[-_. ]*", re.IGNORECASE)
_CHANNEL = re.compile(r"(?<=.)_\d{4}$")


def is_label_file(file: str, root: str) -> bool:
    """Return whether a volume's name, or a folder below ``root`` that it is in, says that it is a label map."""
    *folders, _ = os.path.relpath(file, root).lower().split(os.sep)
    return any(map(_LABELS.fullmatch, [*folders, case_name(file).lower()]))


def remove_kinds(name: str) -> str:
    """Return a volume's name without words that say image or label map, such as "imaging"."""
    return _KINDS.sub("", name).strip("-_. ")


def guess(path: str, task: str, place: str) -> FolderGuess:
    """Refuse a folder with the layouts that the task reads, after ``place``, and its first volume as an example."""
    if find_built_in(task) == "landmarks":
        raise UserError(
            f"{place}: no dataset is named, and the files there are not recognized: -dataset=landmarks reads volumes "
            "in the folders train and val, each with its landmarks next to it as NAME.csv, .json, .fcsv or .mrk.json"
        )
    root = os.path.abspath(os.path.expanduser(path))
    cases = find_cases(root)
    expected = (
        "-dataset=nnunet reads a folder with dataset.json, which names channels and labels, next to imagesTr and "
        'labelsTr, or lists the files of each volume under "dataset"'
    )
    if not cases:
        raise UserError(f"{place}: no dataset is named, and the files there are not recognized: {expected}")
    name, (images, labels) = next(iter(cases.items()))
    what = f"{count(len(cases), 'volume')} with label maps, but no dataset.json"
    if len(labels) > 1:
        raise UserError(
            f"{place}: there are {what}, and {name} has {len(labels)} label maps, such as {labels[0]}: write one for "
            f"each volume with a number for each class, and dataset.json: {expected}"
        )
    channels = [remove_kinds(case_name(image).replace(name, "")) or "CT" for image in images]
    if len(set(channels)) < len(channels):
        channels = [f"channel {number}" for number in range(len(channels))]
    example = {
        "channel_names": {str(number): channel for number, channel in enumerate(channels)},
        "labels": {"background": 0, "NAME": 1},
        "dataset": {name: {"images": images, "label": labels[0]}},
    }
    raise UserError(
        f"{place}: there are {what}: write {os.path.join(root, 'dataset.json')} such as {format_json(example)}, with "
        "all labels and all volumes, which -dataset=nnunet reads"
    )


def find_cases(root: str) -> Mapping[str, tuple[Sequence[str], Sequence[str]]]:
    """Find labeled volumes, as pairs of one name or in a folder for each: name -> paths of images and of label maps.

    Paths begin at ``root``. Words for images and labels, and numbers of channels, are removed from names. Volumes
    without an image or without a label map are skipped.
    """
    pairs: dict[str, tuple[list[str], list[str]]] = {}
    folders: dict[str, tuple[list[str], list[str]]] = {}
    for parent, subfolders, names in os.walk(root):
        subfolders.sort()
        for name in sorted(names):
            if not name.lower().endswith(SUFFIXES) or name.startswith("."):
                continue
            file = os.path.relpath(os.path.join(parent, name), root)
            is_label = is_label_file(os.path.join(parent, name), root)
            own = remove_kinds(_CHANNEL.sub("", case_name(file)))
            case = os.path.dirname(file)
            while _LABELS.fullmatch(os.path.basename(case).lower()):
                case = os.path.dirname(case)
            for found, key in ((pairs, own), (folders, os.path.basename(case))):
                if key:
                    found.setdefault(key, ([], []))[is_label].append(file)
    complete = ({name: parts for name, parts in sorted(found.items()) if all(parts)} for found in (pairs, folders))
    return max(complete, key=len)
