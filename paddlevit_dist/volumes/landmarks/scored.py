"""Scores of landmarks that others have placed, in folders of files as ``landmark_files`` reads them."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...intervals import ProportionRecompute
from ...runtime.errors import UserError
from ...runtime.printing import parse_cell, shorten
from ...tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from .. import landmark_files
from ..dataset import VolumeDataset
from ..geometry import convert

_MISTAKES = (  # of all positions: what to multiply x, y, z by, and what is asked where that at least halves the error
    ("x and y negated", (-1.0, -1.0, 1.0), "is LPS taken for RAS?"),
    ("1,000 times the positions", (1000.0,) * 3, "are they meters?"),
    ("10 times the positions", (10.0,) * 3, "are they centimeters?"),
)
_PREFERRED = (".mrk.json", ".fcsv", ".json", ".csv")  # of several files of a volume: those that say their coordinates


class VolumeLandmarks(NamedTuple):
    """The landmarks of one volume.

    Attributes:
        case: name of the volume.
        source: file, for messages.
        positions: by name, millimeters x, y, z; None: missing.
        is_ras: positions are in RAS; else nobody has said.
        usual: "ras" or "lps", what files beside the volume mean that do not say; None: not known.
    """

    case: str
    source: str
    positions: landmark_files.Positions
    is_ras: bool = True
    usual: str | None = None


def of_data_set(dataset: VolumeDataset) -> list[VolumeLandmarks]:
    """The truth of a data set."""
    found = []
    for index in range(len(dataset)):
        world = dataset.world(index)
        positions = {name: place if np.isfinite(place).all() else None for name, place in zip(dataset.names, world)}
        found.append(
            VolumeLandmarks(dataset.case(index), dataset.describe(index), positions, True, dataset.convention(index))
        )
    return found


def of_files(folder: str) -> list[VolumeLandmarks]:
    """All landmark files of a folder, by the names of their volumes; or all rows of a table.

    Raises:
        UserError: there are none, one is damaged, or has voxels in place of millimeters.
    """
    if os.path.isfile(folder):
        return list(_of_table(folder).values())
    cases = list(dict.fromkeys(map(landmark_files.get_case, landmark_files.list_files(folder))))
    if not cases:
        raise UserError(f"{folder} holds no landmark files (.fcsv, .mrk.json, .json, .csv), one for each volume")
    return [_read(folder, case) for case in cases]


def _read(folder: str, case: str) -> VolumeLandmarks:
    files = landmark_files.find_landmark_files(folder, case)
    file = min(files, key=lambda one: next(k for k, end in enumerate(_PREFERRED) if one.lower().endswith(end)))
    listed = landmark_files.read(file)
    if listed.space == "ijk":
        raise UserError(f"{file}: landmarks are in voxels (IJK), expected millimeters: save them as LPS or RAS")
    return VolumeLandmarks(case, file, listed.positions, listed.space == "ras")


def _of_table(file: str) -> dict[str, VolumeLandmarks]:
    """The landmarks of all volumes in one table, by volume: columns case, landmark, x, y, z (or x_mm and so on), and
    perhaps world, LPS or RAS, as in the ``landmarks.csv`` of an evaluation.

    Raises:
        UserError: it is no such table.
    """
    reader = csv.DictReader(io.StringIO(landmark_files.read_landmark_text(file), newline=""), skipinitialspace=True)
    columns = [name.strip().lower().removesuffix("_mm") for name in reader.fieldnames or []]
    missing = [name for name in ("case", "landmark", "x", "y", "z") if name not in columns]
    if missing:
        raise UserError(f"{file}, line 1: no column {', '.join(missing)}; expected case,landmark,x,y,z with commas")
    reader.fieldnames = columns
    found: dict[str, VolumeLandmarks] = {}
    for row in _rows(file, reader):
        where = f"{file}, line {reader.line_num}"
        case, name = (parse_cell((row[column] or "").strip()) for column in ("case", "landmark"))
        world = (row.get("world") or "").strip().lower()
        if world not in ("", "lps", "ras"):
            raise UserError(f"{where}: world is {world!r}, expected LPS or RAS")
        placed = found.setdefault(case, VolumeLandmarks(case, file, {}, bool(world)))
        if name in placed.positions or placed.is_ras != bool(world):
            what = f"landmark '{name}' appears twice" if name in placed.positions else "only some rows say their world"
            raise UserError(f"{where}: {what} in volume {case}")
        place = landmark_files.parse_position(where, name, [row[axis] for axis in "xyz"])
        placed.positions[name] = place if place is None or not world else convert(place, world)
    if not found:
        raise UserError(f"{file} has no rows; expected case,landmark,x,y,z for each landmark of each volume")
    return found


def _rows(file: str, reader: csv.DictReader) -> Iterator[dict[str, Any]]:
    try:
        for row in reader:
            if None in row:
                said = "more values than the header has columns; write decimals with a point"
                raise UserError(f"{file}, line {reader.line_num}: {said}")
            if any(map(str.strip, filter(None, row.values()))):
                yield row
    except csv.Error as error:
        raise UserError(f"{file} is not a table: {error}") from error


def score(
    folder: str,
    truth: Sequence[VolumeLandmarks],
    source: str,
    names: Sequence[str] | None = None,
    world: str | None = None,
    identities: Iterable[str] | None = None,
    origin: ResultSource = UNKNOWN,
) -> ScoreReport:
    """Compare a folder of landmark files, or a table, with the truth.

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

    names = list(names or dict.fromkeys(name for placed in truth for name in placed.positions))
    compared = _compare(folder, truth, source, names, world)
    metrics = LandmarkMetrics(names)
    for errors in compared.errors:
        metrics.update(errors)
    sums = metrics.per_sample()[0]
    if not sums[..., 0].any():
        raise UserError(f"{source}: no landmark has a position: there is nothing to compare with")
    said = ", ".join(sorted(compared.spaces)) or "coordinates as files say, LPS or RAS"
    return ScoreReport(
        counted=f"{len(truth):,} volumes with {int(sums[..., 0].sum()):,} landmarks: {folder}, truth of {source}",
        names=[placed.case for placed in truth] if identities is None else list(identities),
        sample="volume",
        recompute=ProportionRecompute(
            lambda weights: metrics.bootstrap_values([sums], weights), metrics.proportions([sums])
        ),
        shown={"mre_mm": 4, "sd_mm": 4, **{rate_name(radius): 2 for radius in RADII_MM}},
        of_class=("{} mre_mm", 4),
        classes=names,
        protocol=[
            f"mre_mm: mean distance in millimeters over landmarks and volumes, each once; {said}",
            "sdr: percent of the landmarks within a distance; without those that have no position in the truth",
        ],
        notices=compared.notices,
        task="landmarks",
        kind="landmarks",
        arrays={"sums": sums},
        more_is_better=False,
        origin=origin,
    )


class _ComparedVolumes(NamedTuple):
    """Findings of all volumes.

    Attributes:
        errors: float64 (volumes, landmarks), millimeters; NaN where the truth has no position.
        spaces: how coordinates were understood that files do not say.
        notices: lines.
    """

    errors: np.ndarray
    spaces: set[str]
    notices: list[str]


def _compare(
    folder: str, truth: Sequence[VolumeLandmarks], source: str, names: Sequence[str], world: str | None
) -> _ComparedVolumes:
    table = _of_table(folder) if os.path.isfile(folder) else {}
    if not table and not os.path.isdir(folder):
        raise UserError(
            f"{folder} is not a folder; expected one with a landmark file for each volume, or a table of all"
        )
    there = set(table or map(landmark_files.get_case, landmark_files.list_files(folder)))
    missing = [placed.case for placed in truth if placed.case not in there]
    if missing:
        said = f"{len(missing):,} of {len(truth):,} volumes of {source} have no landmarks, such as {missing[0]}"
        raise UserError(f"{folder}: {said}; a score is of all of them")
    places, more = np.full((len(truth), len(names), 2, 3), np.nan), set()
    spaces: set[str] = set()
    for row, true in enumerate(truth):
        found = table[true.case] if table else _read(folder, true.case)
        more |= set(found.positions) - set(names)
        places[row] = _places(true, found, names, world, spaces)
    errors, *others_if = (
        np.linalg.norm(places[..., 0, :] - places[..., 1, :] * factors, axis=-1)
        for factors in (1.0, *(factors for _, factors, _ in _MISTAKES))
    )
    notices = [f"{folder}: landmarks that the truth does not have: {', '.join(sorted(more))}: left out"] if more else []
    others = sorted(there - {placed.case for placed in truth})
    if others:
        notices.append(f"{folder}: {len(others):,} volumes that are not in {source}, such as {others[0]}: left out")
    for (change, _, question), changed in zip(_MISTAKES, others_if):
        if np.nansum(changed) < np.nansum(errors) / 2:
            mean = np.nanmean(changed)
            notices.append(f"{folder}: with {change} the mean error would be {mean:.4g} mm: {question}")
    return _ComparedVolumes(errors, spaces, notices)


def _places(
    true: VolumeLandmarks, found: VolumeLandmarks, names: Sequence[str], world: str | None, spaces: set[str]
) -> np.ndarray:
    """Where landmarks are and were found, float64 (landmarks, 2, 3), millimeters, NaN where the truth has no position;
    how coordinates were understood is added to ``spaces``."""
    convention, both = world or true.usual, [true.positions, found.positions]
    if convention is None and not true.is_ras and not found.is_ras:
        spaces.add("files do not say whether they are LPS or RAS: both sides are taken for the same")
    else:
        both = [_in_ras(placed, convention, spaces) for placed in (true, found)]
    places = np.full((len(names), 2, 3), np.nan)
    for row, name in enumerate(names):
        place, other = (positions.get(name) for positions in both)
        if place is not None and other is None:
            there = shorten(", ".join(own for own in found.positions if found.positions[own] is not None), 80)
            said = f"{found.source} has no position of {name}, but {true.source} has; there are {there}"
            raise UserError(f"{said}; a score is of all of them")
        if place is not None:
            places[row] = place, other
    return places


def _in_ras(placed: VolumeLandmarks, convention: str | None, spaces: set[str]) -> landmark_files.Positions:
    if placed.is_ras:
        return placed.positions
    if convention is None:
        raise UserError(f"{placed.source} does not say whether it is LPS or RAS, and the other side does: give -world")
    spaces.add(f"positions in files that do not say are {convention.upper()}")
    return {name: None if place is None else convert(place, convention) for name, place in placed.positions.items()}
