"""Scores of landmarks that others have placed, in folders of files as ``landmark_files`` reads them."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..contracts.scored import UNKNOWN, Origin, Scored
from ..runtime.errors import UserError
from . import landmark_files
from .dataset import VolumeDataset
from .geometry import convert

_PREFERRED = (".mrk.json", ".fcsv", ".json", ".csv")  # of several files of a volume: those that say their coordinates


class Placed(NamedTuple):
    """The landmarks of one volume.

    Attributes:
        case: name of the volume.
        source: file, for messages.
        positions: by name, millimetres x, y, z; None: missing.
        is_ras: positions are in RAS; else nobody has said.
        usual: "ras" or "lps", what files beside the volume mean that do not say; None: not known.
    """

    case: str
    source: str
    positions: landmark_files.Positions
    is_ras: bool = True
    usual: str | None = None


def of_data_set(dataset: VolumeDataset) -> list[Placed]:
    """The truth of a data set."""
    found = []
    for index in range(len(dataset)):
        world = dataset.world(index)
        positions = {name: place if np.isfinite(place).all() else None for name, place in zip(dataset.names, world)}
        found.append(Placed(dataset.case(index), dataset.describe(index), positions, True, dataset.convention(index)))
    return found


def of_folder(folder: str) -> list[Placed]:
    """All landmark files of a folder, by the names of their volumes.

    Raises:
        UserError: there are none, one is damaged, or has voxels in place of millimetres.
    """
    cases = list(dict.fromkeys(map(landmark_files.case_of, landmark_files.list_files(folder))))
    if not cases:
        raise UserError(f"{folder} holds no landmark files (.fcsv, .mrk.json, .json, .csv), one for each volume")
    return [_read(folder, case) for case in cases]


def _read(folder: str, case: str) -> Placed:
    files = landmark_files.files_of(folder, case)
    file = min(files, key=lambda one: next(k for k, end in enumerate(_PREFERRED) if one.lower().endswith(end)))
    listed = landmark_files.read(file)
    if listed.space == "ijk":
        raise UserError(f"{file}: landmarks are in voxels (IJK), expected millimetres: save them as LPS or RAS")
    return Placed(case, file, listed.positions, listed.space == "ras")


def score(
    folder: str,
    truth: Sequence[Placed],
    source: str,
    names: Sequence[str] | None = None,
    world: str | None = None,
    identities: Iterable[str] | None = None,
    origin: Origin = UNKNOWN,
) -> Scored:
    """Compare a folder of landmark files with the truth.

    Args:
        source: of the truth, for messages.
        names: of the landmarks; None: all that the truth has.
        world: "ras" or "lps", what positions are in files that do not say.
        identities: of the volumes, as a run's table has them; None: their names.
        origin: of the truth.
    Raises:
        UserError: a volume or a landmark has no position, or a coordinate system is not known.
    """
    from .metrics import RADII_MM, LandmarkMetrics, rate_name

    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder; expected one with a landmark file for each volume")
    there = set(map(landmark_files.case_of, landmark_files.list_files(folder)))
    missing = [placed.case for placed in truth if placed.case not in there]
    if missing:
        said = f"{len(missing):,} of {len(truth):,} volumes of {source} have no file of landmarks, such as {missing[0]}"
        raise UserError(f"{folder}: {said}; a score is of all of them")
    names = list(names or dict.fromkeys(name for placed in truth for name in placed.positions))
    metrics, more = LandmarkMetrics(names), set()
    spaces: set[str] = set()
    for true in truth:
        found = _read(folder, true.case)
        more |= set(found.positions) - set(names)
        metrics.update(_errors(true, found, names, world, spaces))
    sums = metrics.per_sample()[0]
    if not sums[..., 0].any():
        raise UserError(f"{source}: no landmark has a position: there is nothing to compare with")
    notices = [f"{folder}: landmarks that the truth does not have: {', '.join(sorted(more))}: left out"] if more else []
    others = sorted(there - {placed.case for placed in truth})
    if others:
        notices.append(f"{folder}: {len(others):,} files of no volume of {source}, such as {others[0]}: left out")
    cases = [placed.case for placed in truth]
    said = ", ".join(sorted(spaces)) or "coordinates as files say, LPS or RAS"
    return Scored(
        counted=f"{len(truth):,} volumes with {int(sums[..., 0].sum()):,} landmarks: {folder}, truth of {source}",
        names=cases if identities is None else list(identities),
        sample="volume",
        recompute=lambda weights: metrics.resampled([sums], weights),
        shown={"mre_mm": 4, "sd_mm": 4, **{rate_name(radius): 2 for radius in RADII_MM}},
        of_class=("{} mre_mm", 4),
        classes=names,
        protocol=[
            f"mre_mm: mean distance in millimetres over landmarks and volumes, each once; {said}",
            "sdr: percent of the landmarks within a distance; without those that have no position in the truth",
        ],
        notices=notices,
        task="landmarks",
        kind="landmarks",
        arrays={"sums": sums},
        more_is_better=False,
        origin=origin,
    )


def _errors(true: Placed, found: Placed, names: Sequence[str], world: str | None, spaces: set[str]) -> np.ndarray:
    """Distance of each landmark in millimetres, float64 (landmarks,), NaN where the truth has no position; how
    coordinates were understood is added to ``spaces``."""
    convention = world or true.usual
    if convention is None and not true.is_ras and not found.is_ras:
        spaces.add("files do not say whether they are LPS or RAS: both sides are taken for the same")
        convention = "ras"
    errors = np.full(len(names), np.nan)
    both = [_in_ras(placed, convention, spaces) for placed in (true, found)]
    for row, name in enumerate(names):
        place, other = (positions.get(name) for positions in both)
        if place is not None and other is None:
            raise UserError(
                f"{found.source} has no position of {name}, but {true.source} has; a score is of all of them"
            )
        if place is not None:
            errors[row] = np.linalg.norm(place - other)
    return errors


def _in_ras(placed: Placed, convention: str | None, spaces: set[str]) -> landmark_files.Positions:
    if placed.is_ras:
        return placed.positions
    if convention is None:
        raise UserError(f"{placed.source} does not say whether it is LPS or RAS, and the other side does: give -world")
    if not spaces:
        spaces.add(f"positions in files that do not say are {convention.upper()}")
    turned = {name: None if place is None else convert(place, convention) for name, place in placed.positions.items()}
    return turned
