"""Datasets in nnU-Net's layout.

``imagesTr/NAME_0000.nii.gz`` and so on for each channel, ``labelsTr/NAME.nii.gz``, and ``dataset.json`` with the names
of channels and labels, as versions 1 and 2 write it. Its entry "dataset" may list the files of each volume instead, at
any path. Also the layout of the Medical Segmentation Decathlon, whose volumes have no number: their channels, if there
are several, are the fourth axis of the file.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.printing import count, shorten
from ...core.runtime.text_files import is_whole, read_json
from ...core.tasks.dataset import peek_files, require_folder, require_split
from ...core.tasks.sample_groups import SUBJECT, find_groups
from ..nonzero import VOLUME
from ..reading import (
    FileChannel,
    VolumeHeader,
    case_name,
    common_spacing,
    format_remarks,
    list_channels,
    list_volumes,
    read_aligned_headers,
)
from ..store import DecodedStore, DecodedVolume
from .dataset import DEFAULT_OPTIONS, IGNORED, NOT_IN_FILES, LabelMap, LabelStore, SegmentationOptions, VolumeFiles
from .regions import LabelRegion, has_regions, read_regions

DESCRIPTION, SPLITS = "dataset.json", "splits_final.json"
_Case = tuple[str, tuple[str, ...], str | None]  # name, file of each channel, file of the labels
_FOLDERS = {"train": ("imagesTr", "labelsTr"), "val": ("imagesTr", "labelsTr"), "test": ("imagesTs", "labelsTs")}
_CHANNEL = re.compile(r"(.+)_(\d{4})")
_FOLDS, _SEED = 5, 12345  # nnU-Net's default split
_LAYOUT = "nnU-Net's: dataset.json, imagesTr/NAME_0000.nii.gz (one file for each channel) and labelsTr/NAME.nii.gz"


class DatasetDescription(NamedTuple):
    """Contents of ``dataset.json``."""

    channels: list[str]  # names of the channels, in order
    numbers: list[int]  # numbers of the labels, the background first
    class_names: list[str]  # names of the labels, or of the regions
    ignored: int | None  # number of voxels without a class, or None
    regions: list[LabelRegion]  # the regions; empty: each label is a class
    cases: Sequence[_Case] = ()  # labeled volumes that it lists; empty: those in imagesTr and labelsTr


class NnUNet(VolumeFiles):
    """Volumes of one fold, ``train`` or ``val``, or of ``test`` (imagesTs, which needs no labels).

    Folds are read from ``splits_final.json`` next to ``dataset.json``; without it, they are nnU-Net's default five. All
    headers are read and checked at once; voxels are read on demand and then from a decoded copy in ``cache_folder``.
    UserError if a folder or file is missing or damaged, labels and volume have different geometries, or spacings differ
    and no common one is set.
    """

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path, options: SegmentationOptions = DEFAULT_OPTIONS
    ) -> None:
        root = self.root = _find_root(data_path)
        description = read_description(os.path.join(root, DESCRIPTION))
        self.channels, self.numbers = description.channels, description.numbers
        self.class_names, self.regions = description.class_names, description.regions
        listed = ("train", "val") if description.cases else ()
        folders = {name: os.path.join(root, images) for name, (images, _) in _FOLDERS.items()}
        existing = [name for name in folders if name in listed or os.path.isdir(folders[name])]
        require_split(split, existing, root, "" if existing else f'; expected the layout {_LAYOUT}, or "dataset" in it')
        cases, self.notices = _cases(root, description, split, options.fold)
        self.names, self.files, self._label_files = zip(*cases)
        self.labeled = None not in self._label_files
        headers: dict[str, VolumeHeader] = {}
        for _, images, labels in tqdm(cases, desc="reading headers", unit="volume", disable=None, leave=False):
            headers.update(read_aligned_headers([*images, *filter(None, [labels])], options.max_voxels))
        self.headers = [headers[files[0]] for files in self.files]
        self.spacing = common_spacing({files[0]: headers[files[0]] for files in self.files}, options.spacing_mm)
        self.notices += format_remarks(headers)
        folder, self.max_voxels = Path(cache_folder) / "volumes", options.max_voxels
        self._store = DecodedStore(folder, options.spacing_mm, options.max_voxels)
        self._labels, self._stored = (
            LabelStore(folder, spacing, options.max_voxels, self.numbers, description.ignored)
            for spacing in (options.spacing_mm, None)
        )

    def take_classes(self, names: Sequence[str], numbers: Sequence[int]) -> list[str]:
        """Take the classes of weights that have all classes of the data, by name, and more, with their ``numbers``.

        The files keep their own numbers. Returns a line for the log that names the classes that the data lack; none if
        the classes are not taken.
        """
        of_files = dict(zip(self.class_names, self.numbers))
        lacking = [name for name in names if name not in of_files]
        if self.regions or not lacking or len(names) - len(lacking) < len(of_files) or names[0] != self.class_names[0]:
            return []
        stored = [of_files.get(name, NOT_IN_FILES + number) for name, number in zip(names, numbers)]
        self.numbers, self.class_names = list(numbers), list(names)
        self._labels, self._stored = (
            LabelStore(store.folder, store.spacing, store.max_voxels, stored, store.ignored)
            for store in (self._labels, self._stored)
        )
        return [
            f"note: {self.root}/{DESCRIPTION} lacks the class {shorten(', '.join(lacking), 200)} of the weights: "
            "no voxel has it, and where it is predicted, that is an error"
        ]

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        """Read the channels and labels of volume ``index``."""
        file = self._label_files[index]
        files = self.files[index]
        within = self.within or [VOLUME] * len(files)
        channels = [self._store.get(channel, region, files) for channel, region in zip(files, within)]
        return channels, None if file is None else self._labels.labels(file, files[0])

    def stored_labels(self, index: int) -> LabelMap | None:
        """Return the labels of volume ``index`` at their stored spacing; None without labels."""
        file = self._label_files[index]
        return None if file is None else self._stored.labels(file, self.files[index][0])

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of the files of volume ``index`` and its labels."""
        return peek_files(filter(None, [*self.files[index], self._label_files[index]]), length)

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return the facts that identify the dataset, by name."""
        shapes = [np.array(header.geometry.shape, "<i8") for header in self.headers]
        return {**super().listed(), "sizes": shapes}


def _find_root(data_path: str | None) -> str:
    root = require_folder(data_path, "nnunet", f"in the layout {_LAYOUT}")
    if not os.path.isfile(os.path.join(root, DESCRIPTION)):
        subfolders = [file.parent.name for file in sorted(Path(root).glob(f"*/{DESCRIPTION}"))]
        hint = f"; use one of its subfolders: {shorten(', '.join(subfolders), 200)}" if subfolders else ""
        raise UserError(f"data path {root} has no {DESCRIPTION}{hint or f'; expected the layout {_LAYOUT}'}")
    return root


def _cases(root: str, description: DatasetDescription, split: str, fold: int) -> tuple[list[_Case], list[str]]:
    cases, notices = list(description.cases), list[str]()
    if split == "test" or not cases:
        cases, notices = _find_cases(root, description.channels, split)
    if split == "test":
        return cases, notices
    names = [name for name, _, _ in cases]
    chosen = choose_cases(os.path.join(root, SPLITS), names, split, fold)
    notices += _note_fold(os.path.join(root, SPLITS), names, fold)
    return [case for case in cases if case[0] in chosen], notices


def _find_cases(root: str, expected: Sequence[str], split: str) -> tuple[list[_Case], list[str]]:
    """Find the volumes in the folders of a split, with lines for the log."""
    images, labels = (os.path.join(root, name) for name in _FOLDERS[split])
    volumes = group_channels(list_volumes(images), expected)
    if not volumes:
        raise UserError(
            f"{images} contains no volumes; expected the layout {_LAYOUT}, or files that {DESCRIPTION} lists under "
            '"dataset"'
        )
    label_files = {case_name(file): file for file in list_volumes(labels)} if os.path.isdir(labels) else {}
    cases = [(name, files, label_files.pop(name, None)) for name, files in volumes]
    unlabeled = [name for name, _, label_file in cases if label_file is None]
    notices = []
    if split == "test" and 0 < len(unlabeled) < len(cases):
        cases = [case for case in cases if case[2] is not None]
        notices.append(
            f"note: {labels}: {len(unlabeled):,} of {len(volumes):,} volumes of test have no labels and are not part "
            f"of any score, the first is {unlabeled[0]}"
        )
    elif unlabeled and split != "test":
        raise UserError(
            f"{labels} has no labels for {len(unlabeled):,} of {len(cases):,} volumes in {os.path.basename(images)}: "
            f"{shorten(', '.join(unlabeled), 200)}; add them, or remove these volumes"
        )
    if label_files:
        notices.append(f"note: {labels}: no volume matches {shorten(', '.join(sorted(label_files)), 200)}; not used")
    return cases, notices


def read_description(file: str) -> DatasetDescription:
    """Read a ``dataset.json``; UserError if it cannot be read or is not in nnU-Net's format."""
    with readable(file, "; copy it again"):
        content = read_json(Path(file))
    content = content if isinstance(content, dict) else {}
    channels, labels = content.get("channel_names", content.get("modality")), content.get("labels")
    if not isinstance(channels, dict) or sorted(channels) != sorted(map(str, range(len(channels)))) or not channels:
        raise UserError(f'{file}: expected "channel_names" (or "modality") such as {{"0": "CT"}}, numbered from 0')
    channel_names = [str(channels[str(number)]) for number in range(len(channels))]
    if has_regions(labels):
        numbers, regions, ignored = read_regions(file, labels, content.get("regions_class_order"))
        description = DatasetDescription(channel_names, numbers, list(regions), ignored, list(regions.values()))
    else:
        names = _labels_by_number(file, labels)
        ignored = next((number for number, name in names.items() if name == "ignore"), None)
        names = {number: name for number, name in names.items() if number != ignored}
        description = DatasetDescription(channel_names, list(names), list(names.values()), ignored, [])
    numbers = description.numbers
    if 0 not in numbers or not 2 <= len(numbers) <= IGNORED:
        raise UserError(
            f'{file}: "labels" has the numbers {numbers}, expected 0 for the background and 1 to {IGNORED - 1} more'
        )
    return description._replace(cases=_listed_cases(file, content.get("dataset"), channel_names))


def _listed_cases(file: str, listed: object, channels: Sequence[str]) -> list[_Case]:
    """Return the volumes of the entry "dataset" by name, with absolute paths; none without this entry.

    As in nnU-Net, paths may have environment variables, and relative ones begin at the folder of ``dataset.json``.
    """
    if listed is None:
        return []
    expected = 'expected "dataset" such as {"case_1": {"images": ["files/ct.nii.gz"], "label": "files/seg.nii.gz"}}'
    if not isinstance(listed, Mapping) or not listed:
        raise UserError(f"{file}: {expected}, with paths from its folder, or no such entry and a folder imagesTr")
    cases: list[_Case] = []
    for name, entry in sorted(listed.items()):
        images, label = (entry.get(key) for key in ("images", "label")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(images, list) or not all(isinstance(path, str) for path in [*images, label]):
            raise UserError(f"{file}: {expected}; {shorten(name)} is {shorten(str(entry))}")
        if len(images) == 1:
            images = list(list_channels(_resolve(file, images[0]), len(channels)))
        if len(images) != len(channels):
            raise UserError(
                f"{file}: {shorten(name)} has {len(images)} images, expected one for each of the {len(channels)} "
                f"channels ({', '.join(channels)})"
            )
        *paths, label_path = (_resolve(file, path) for path in [*images, label])
        missing = [path for path in [*paths, label_path] if not os.path.exists(path)]
        if missing:
            raise UserError(f"{file}: {shorten(name)} names {missing[0]}, which does not exist; correct the path")
        cases.append((name, tuple(paths), label_path))
    return cases


def _resolve(file: str, path: str) -> str:
    """Return the absolute path of a file that ``dataset.json`` names."""
    if isinstance(path, FileChannel):
        return path
    return os.path.abspath(os.path.join(os.path.dirname(file), os.path.expandvars(path)))


def _labels_by_number(file: str, labels: object) -> dict[int, str]:
    expected = (
        f'{file}: expected "labels" such as {{"background": 0, "liver": 1}} or {{"0": "background", "1": "liver"}}'
    )
    if not isinstance(labels, Mapping) or not labels:
        raise UserError(expected)
    names: dict[int, str] = {}
    for name, number in labels.items():
        if isinstance(number, (list, tuple)):
            (number,) = number  # nnU-Net reads it as a label
        if is_whole(str(name)) and isinstance(number, str):
            name, number = number, int(name)  # version 1
        if isinstance(number, bool) or not isinstance(number, int) or number in names or not 0 <= number < 1 << 16:
            raise UserError(f"{expected}; label '{name}' has the number {number!r}")
        names[number] = str(name)
    if len(set(names.values())) < len(names):
        raise UserError(f"{file}: two labels have the same name ({', '.join(names.values())}); rename one")
    return dict(sorted(names.items()))


def group_channels(
    files: Sequence[str], channels: Sequence[str], refused: list[tuple[str, str]] | None = None
) -> list[tuple[str, tuple[str, ...]]]:
    """Group files by volume, each with the files of its channels in order, or the channels of its one file.

    A number that is not a channel's, as in ``scan_2024.nii.gz``, is part of the name, unless another file is channel 0
    of that volume. A volume that lacks a channel or has too many is a UserError, or is skipped: its first file and the
    reason are added to ``refused``.
    """
    cases: dict[str, dict[int, list[str]]] = {}
    names = set(map(case_name, files))
    for file in dict.fromkeys(files):
        name = case_name(file)
        match = _CHANNEL.fullmatch(name)
        number = 0
        if match is not None and (int(match[2]) < len(channels) or f"{match[1]}_0000" in names):
            name, number = match[1], int(match[2])
        cases.setdefault(name, {}).setdefault(number, []).append(file)
    volumes = []
    for name, of_channels in sorted(cases.items()):
        first, problem = of_channels[min(of_channels)][0], ""
        if len(of_channels) == 1 and case_name(first) == name and os.path.isfile(first):
            try:
                of_channels = {at: [part] for at, part in enumerate(list_channels(first, len(channels)))}
            except UserError as error:
                problem = str(error)
        problem = problem or _find_problem(name, of_channels, channels)
        if not problem:
            volumes.append((name, tuple(of_channels[i][0] for i in range(len(channels)))))
        elif refused is None:
            raise UserError(problem)
        else:
            refused.append((first, problem))
    return volumes


def group_by_names(files: Sequence[str], channels: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Group files of one folder by volume if each ends with a channel's name, such as p1_flair and p1_t1; else empty.

    The name of a volume is what precedes the channel's, without regard to its case. A volume with one channel, or that
    lacks one, is not grouped in this way.
    """
    longest_first = sorted(range(len(channels)), key=lambda index: -len(channels[index]))
    patterns = {i: re.compile(rf"(.*[-_. ])?{re.escape(channels[i])}", re.IGNORECASE) for i in longest_first}
    cases: dict[str, dict[int, str]] = {}
    for file in files if len(channels) > 1 else ():
        name = case_name(file)
        index = next((i for i, pattern in patterns.items() if pattern.fullmatch(name)), None)
        if index is None:
            return []
        start = name[: len(name) - len(channels[index])].rstrip("-_. ")
        if cases.setdefault(start, {}).setdefault(index, file) != file:
            return []
    if any(len(of_channels) < len(channels) for of_channels in cases.values()):
        return []
    return [(name, tuple(cases[name][index] for index in range(len(channels)))) for name in sorted(cases)]


def _find_problem(name: str, files: Mapping[int, Sequence[str]], channels: Sequence[str]) -> str:
    """Return why the files of a volume by channel are not one for each of ``channels``; empty: they are."""
    for number, (one, *others) in sorted(files.items()):
        if others:
            return f"{others[0]} and {os.path.basename(one)} are both channel {number} of one volume; rename one"
    missing, first = [i for i in range(len(channels)) if i not in files], files[min(files)][0]
    if not missing and len(files) == len(channels):
        return ""
    what = f"no file {name}_{missing[0]:04d}" if missing else f"{len(files)} files of {name}"
    expected = f"expected one for each of the {len(channels)} channels ({', '.join(channels)})"
    folder, base = os.path.split(first)
    if missing:
        other = f"{name}_{missing[0]:04d}{base[len(case_name(first)) :]}"
        if os.path.exists(os.path.join(folder, other)):  # an input named alone, whose folder has the others
            return f"{first}: {other} next to it is not named: {expected}; name the folder, or the file of each channel"
    return f"{folder} has {what} next to {base}: {expected}"


def choose_cases(file: str, names: Sequence[str], split: str, fold: int) -> set[str]:
    """Choose the volumes of a split of a fold, as listed in ``splits_final.json``.

    Without that file, nnU-Net's folds are reproduced: scikit-learn's ``KFold(5, shuffle=True, random_state=12345)`` of
    the sorted names. If names identify subjects, subjects are split instead of volumes.
    """
    if os.path.isfile(file):
        listed = _listed_folds(file)
        if fold >= len(listed):
            raise UserError(f"VOLUMES.FOLD {fold}: {file} has {len(listed)} folds, numbered from 0")
        unknown = sorted(set(listed[fold][split]) - set(names))
        if unknown:
            raise UserError(f"{file} lists {shorten(', '.join(unknown), 200)}, but imagesTr has no such volume")
        if not listed[fold][split]:
            raise UserError(f"{file}: fold {fold} has no volume in {split}; list one, or set another VOLUMES.FOLD")
        return set(listed[fold][split])
    unit, groups = find_groups(SUBJECT, names) or ("volume", names)
    unique_groups = sorted(set(groups))
    folds = min(_FOLDS, len(unique_groups))
    if folds < 2:
        raise UserError(f"VOLUMES.FOLD {fold}: there is one {unit}, but validation needs another one: add a {unit}")
    if fold >= folds:
        given = f"{count(len(unique_groups), unit)} give {folds} folds"
        raise UserError(f"VOLUMES.FOLD {fold}: {given}: set a number from 0 to {folds - 1}")
    order = np.arange(len(unique_groups))
    np.random.RandomState(_SEED).shuffle(order)
    chosen = {unique_groups[index] for index in np.array_split(order, folds)[fold]}  # the first folds are larger
    held_out = {name for name, group in zip(names, groups) if group in chosen}
    return held_out if split == "val" else set(names) - held_out


def _listed_folds(file: str) -> list[dict[str, list[str]]]:
    try:
        folds = read_json(Path(file))
        return [{part: list(map(str, fold[part])) for part in ("train", "val")} for fold in folds]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f'{file} cannot be read ({error}); expected [{{"train": [...], "val": [...]}}, ...]') from error


def _note_fold(file: str, names: Sequence[str], fold: int) -> list[str]:
    """Note volumes on both sides of a fold, or of one subject if names identify subjects, and those on neither."""
    groups = find_groups(SUBJECT, names)
    if not os.path.isfile(file):
        if groups is None:
            return []
        return [
            f"note: the {len(names):,} volumes belong to {len(set(groups[1])):,} subjects (sub-...), each on one side "
            f"of a fold; nnU-Net splits volumes instead: to use its folds, add {os.path.basename(file)}"
        ]
    listed = _listed_folds(file)[fold]
    unit, subjects = ("volume", {}) if groups is None else ("subject", dict(zip(names, groups[1])))
    train, val = ({subjects.get(name, name) for name in listed[part]} for part in ("train", "val"))
    both = sorted(train & val)
    counts = f"{shorten(', '.join(both), 120)}: {len(both):,} of {len(val):,} validated {unit}s are also in training"
    what = "volumes" if groups is None else "volumes of one subject"
    notes = [f"note: {file}, fold {fold}: {what} are in train and in val, {counts}"] if both else []
    unused = sorted(set(names) - set(listed["train"]) - set(listed["val"]))
    absent = f"{len(unused):,} of {len(names):,} volumes neither in train nor in val"
    text = f"note: {file}, fold {fold} lists {absent}, not used: {shorten(', '.join(unused), 120)}"
    return [*notes, text] if unused else notes
