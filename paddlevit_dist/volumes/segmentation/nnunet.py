"""nnU-Net's layout: ``imagesTr/NAME_0000.nii.gz`` and so on for each channel, ``labelsTr/NAME.nii.gz``, and
``dataset.json`` with the names of channels and labels, as versions 1 and 2 write it; also that of the Medical
Segmentation Decathlon, whose volumes of one channel have no number."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ...runtime.errors import UserError
from ...runtime.printing import shorten
from ...runtime.text_files import read_json
from ...tasks.dataset import require_split
from ...tasks.sample_groups import SUBJECT, find_groups
from ..nonzero import VOLUME
from ..reading import VolumeHeader, case_name, common_spacing, headers_in_one_place, list_volumes, remarks_on
from ..store import DecodedStore, DecodedVolume
from .dataset import AS_THEY_ARE, IGNORED, LabelMap, LabelStore, SegmentationOptions, VolumeFiles

DESCRIPTION, SPLITS = "dataset.json", "splits_final.json"
_Case = tuple[str, tuple[str, ...], str | None]  # name, a file for each channel, and that of the labels
_FOLDERS = {"train": ("imagesTr", "labelsTr"), "val": ("imagesTr", "labelsTr"), "test": ("imagesTs", "labelsTs")}
_CHANNEL = re.compile(r"(.+)_(\d{4})")
_FOLDS, _SEED = 5, 12345  # of nnU-Net's own division
_LAYOUT = "nnU-Net's: dataset.json, imagesTr/NAME_0000.nii.gz (one file for each channel) and labelsTr/NAME.nii.gz"


class DatasetDescription(NamedTuple):
    """Contents of ``dataset.json``.

    Attributes:
        channels: their names, in order.
        labels: names of the classes by their numbers, the background first.
        ignored: the number of voxels without a class, or None.
    """

    channels: list[str]
    labels: dict[int, str]
    ignored: int | None


class NnUNet(VolumeFiles):
    """The volumes of one fold, ``train`` or ``val``, or of ``test`` (imagesTs, which need no labels).

    Folds are those of ``splits_final.json`` beside ``dataset.json``, or else the same five that nnU-Net makes. All
    headers are read and checked at once; voxels on demand, and then from a decoded copy in ``cache_folder``.

    Raises:
        UserError: a folder or file is missing or damaged, labels do not lie where their volume does, or spacings
            differ and no common one is given.
    """

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path, options: SegmentationOptions = AS_THEY_ARE
    ) -> None:
        root = self.root = _existing(data_path)
        described = read_description(os.path.join(root, DESCRIPTION))
        self.channels = described.channels
        self.numbers, self.class_names = list(described.labels), list(described.labels.values())
        require_split(
            split, [name for name, own in _FOLDERS.items() if os.path.isdir(os.path.join(root, own[0]))], root
        )
        cases, self.notices = _cases(root, self.channels, split, options.fold)
        self.names, self.files, self._label_files = zip(*cases)
        self.labeled = None not in self._label_files
        headers: dict[str, VolumeHeader] = {}
        for _, images, labels in tqdm(cases, desc="looking at headers", unit="volume", disable=None, leave=False):
            headers.update(headers_in_one_place([*images, *filter(None, [labels])], options.max_voxels))
        self.headers = [headers[files[0]] for files in self.files]
        self.spacing = common_spacing({files[0]: headers[files[0]] for files in self.files}, options.spacing_mm)
        self.notices += remarks_on(headers)
        folder, self.max_voxels = Path(cache_folder) / "volumes", options.max_voxels
        self._store = DecodedStore(folder, options.spacing_mm, options.max_voxels)
        self._labels, self._stored = (
            LabelStore(folder, spacing, options.max_voxels, self.numbers, described.ignored)
            for spacing in (options.spacing_mm, None)
        )

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        file = self._label_files[index]
        files = self.files[index]
        within = self.within or [VOLUME] * len(files)
        channels = [self._store.get(channel, own, files) for channel, own in zip(files, within)]
        return channels, None if file is None else self._labels.labels(file, files[0])

    def stored_labels(self, index: int) -> LabelMap | None:
        file = self._label_files[index]
        return None if file is None else self._stored.labels(file, self.files[index][0])

    def listed(self) -> dict[str, Iterable[Any]]:
        shapes = [np.array(header.geometry.shape, "<i8") for header in self.headers]
        return {**super().listed(), "sizes": shapes}


def _existing(data_path: str | None) -> str:
    if data_path is None:
        raise UserError(f"dataset nnunet needs -data_path=<folder> in the layout {_LAYOUT}")
    root = os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    if not os.path.isfile(os.path.join(root, DESCRIPTION)):
        below = [name for name in _names(root) if os.path.isfile(os.path.join(root, name, DESCRIPTION))]
        hint = f"; give one of the folders in it: {shorten(', '.join(below), 200)}" if below else ""
        raise UserError(f"data path {root} has no {DESCRIPTION}{hint or f'; expected the layout {_LAYOUT}'}")
    return root


def _cases(root: str, expected: Sequence[str], split: str, fold: int) -> tuple[list[_Case], list[str]]:
    images, labels = (os.path.join(root, name) for name in _FOLDERS[split])
    found = group_channels(list_volumes(images), expected)
    if not found:
        raise UserError(f"{images} holds no volumes; expected the layout {_LAYOUT}")
    truth = {case_name(file): file for file in list_volumes(labels)} if os.path.isdir(labels) else {}
    cases = [(name, files, truth.pop(name, None)) for name, files in found]
    without = [name for name, _, own in cases if own is None]
    if without and (split != "test" or len(without) < len(cases)):
        raise UserError(
            f"{labels} has no labels of {len(without):,} of {len(cases):,} volumes in {os.path.basename(images)}: "
            f"{shorten(', '.join(without), 200)}; add them, or take these volumes out"
        )
    notices = []
    if truth:
        notices.append(f"note: {labels}: no volume belongs to {shorten(', '.join(sorted(truth)), 200)}; not used")
    if split == "test":
        return cases, notices
    names = [name for name, _, _ in cases]
    chosen = choose_cases(os.path.join(root, SPLITS), names, split, fold)
    notices += _note_subjects(os.path.join(root, SPLITS), names, fold)
    return [case for case in cases if case[0] in chosen], notices


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def read_description(file: str) -> DatasetDescription:
    """Read what a ``dataset.json`` says.

    Raises:
        UserError: it cannot be read or says it otherwise than nnU-Net does.
    """
    try:
        content = read_json(Path(file))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}); copy it again") from error
    content = content if isinstance(content, dict) else {}
    channels, labels = content.get("channel_names", content.get("modality")), content.get("labels")
    if not isinstance(channels, dict) or sorted(channels) != sorted(map(str, range(len(channels)))) or not channels:
        raise UserError(f'{file}: expected "channel_names" (or "modality") such as {{"0": "CT"}}, numbered from 0')
    names = _labels_by_number(file, labels)
    ignored = next((number for number, name in names.items() if name == "ignore"), None)
    names = {number: name for number, name in names.items() if number != ignored}
    if 0 not in names or not 2 <= len(names) <= IGNORED:
        raise UserError(
            f'{file}: "labels" are {list(names)}, expected 0 for the background and 1 to {IGNORED - 1} more'
        )
    return DatasetDescription([str(channels[str(number)]) for number in range(len(channels))], names, ignored)


def _labels_by_number(file: str, labels: Any) -> dict[int, str]:
    expected = (
        f'{file}: expected "labels" such as {{"background": 0, "liver": 1}} or {{"0": "background", "1": "liver"}}'
    )
    if not isinstance(labels, Mapping) or not labels:
        raise UserError(expected)
    names: dict[int, str] = {}
    for name, number in labels.items():
        if isinstance(number, (list, tuple)):
            raise UserError(
                f"{file}: label '{name}' is a region of several numbers ({list(number)}), which are not learned as "
                "such here: name each number as a label of its own"
            )
        if str(name).isdecimal() and isinstance(number, str):
            name, number = number, int(name)  # version 1
        if isinstance(number, bool) or not isinstance(number, int) or number in names or not 0 <= number < 1 << 16:
            raise UserError(f"{expected}; label '{name}' has the number {number!r}")
        names[number] = str(name)
    if len(set(names.values())) < len(names):
        raise UserError(f"{file}: two labels have one name ({', '.join(names.values())}); rename one")
    return dict(sorted(names.items()))


def group_channels(files: Sequence[str], channels: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Volumes by name, each with the files of its channels in their order. A number that is no channel's, as in
    ``scan_2024.nii.gz``, is part of a name, unless another file is channel 0 of that volume.

    Raises:
        UserError: a channel is missing, or there are more than there should be.
    """
    cases: dict[str, dict[int, str]] = {}
    names = set(map(case_name, files))
    for file in files:
        name = case_name(file)
        match = _CHANNEL.fullmatch(name)
        is_channel = match and (int(match[2]) < len(channels) or f"{match[1]}_0000" in names)
        name, number = (match[1], int(match[2])) if is_channel else (name, 0)
        other = cases.setdefault(name, {}).setdefault(number, file)
        if other != file:
            raise UserError(f"{file} and {os.path.basename(other)} are channel {number} of one volume; rename one")
    for name, own in cases.items():
        missing = [number for number in range(len(channels)) if number not in own]
        if missing or len(own) > len(channels):
            some = own[min(own)]
            what = f"no file {name}_{missing[0]:04d}" if missing else f"{len(own)} files of {name}"
            raise UserError(
                f"{os.path.dirname(some)} has {what} beside {os.path.basename(some)}: expected one for each of the "
                f"{len(channels)} channels ({', '.join(channels)})"
            )
    return [(name, tuple(own[number] for number in range(len(channels)))) for name, own in sorted(cases.items())]


def choose_cases(file: str, names: Sequence[str], split: str, fold: int) -> set[str]:
    """Choose the volumes that ``split`` of a fold has: those that ``splits_final.json`` lists. Without that file those
    that nnU-Net would draw, which are scikit-learn's ``KFold(5, shuffle=True, random_state=12345)`` of the sorted
    names; where names say which volumes are of one subject, its subjects are drawn in that way."""
    if os.path.isfile(file):
        listed = _listed_folds(file)
        if fold >= len(listed):
            raise UserError(f"VOLUMES.FOLD {fold}: {file} has {len(listed)} folds, from 0")
        unknown = sorted(set(listed[fold][split]) - set(names))
        if unknown:
            raise UserError(f"{file} lists {shorten(', '.join(unknown), 200)}, of which imagesTr has no volume")
        if not listed[fold][split]:
            raise UserError(f"{file}: fold {fold} has no volume in {split}; list one, or take another VOLUMES.FOLD")
        return set(listed[fold][split])
    word, groups = find_groups(SUBJECT, names) or ("volume", names)
    drawn = sorted(set(groups))
    folds = min(_FOLDS, len(drawn))
    if folds < 2 or fold >= folds:
        raise UserError(f"VOLUMES.FOLD {fold}: {len(drawn)} {word}s are divided into {folds} folds, from 0; at least 2")
    order = np.arange(len(drawn))
    np.random.RandomState(_SEED).shuffle(order)
    chosen = {drawn[place] for place in np.array_split(order, folds)[fold]}  # the first ones are larger
    held_out = {name for name, group in zip(names, groups) if group in chosen}
    return held_out if split == "val" else set(names) - held_out


def _listed_folds(file: str) -> list[dict[str, list[str]]]:
    try:
        folds: Any = read_json(Path(file))
        return [{part: list(map(str, one[part])) for part in ("train", "val")} for one in folds]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f'{file} cannot be read ({error}); expected [{{"train": [...], "val": [...]}}, ...]') from error


def _note_subjects(file: str, names: Sequence[str], fold: int) -> list[str]:
    """Note how a fold that ``choose_cases`` knows divides volumes of one subject, if names say that there are any."""
    found = find_groups(SUBJECT, names)
    if found is None:
        return []
    if not os.path.isfile(file):
        return [
            f"note: the {len(names):,} volumes are of {len(set(found[1])):,} subjects (sub-...), each on one side of a "
            f"fold; nnU-Net's own folds divide volumes: {os.path.basename(file)} would set them"
        ]
    subject_of = dict(zip(names, found[1]))
    train, val = ({subject_of.get(name, name) for name in _listed_folds(file)[fold][part]} for part in ("train", "val"))
    both = sorted(train & val)
    said = f"{shorten(', '.join(both), 120)}: {len(both):,} of {len(val):,} subjects validated are trained on"
    return [f"note: {file}, fold {fold}: volumes of one subject are in train and in val, {said}"] if both else []
