"""Scores of existing landmark results, in folders of files that ``landmark_files`` reads."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, parse_cell, shorten
from ...core.runtime.tables import csv_errors_as_user_errors
from ...core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from .. import landmark_files
from ..dataset import VolumeDataset
from ..geometry import convert
from ..reading import SUFFIXES, case_name, find_conventions

# Factors of x, y, z, and the question to ask if they at least halve the mean error.
_LIKELY_MISTAKES = (
    ("x and y negated", (-1.0, -1.0, 1.0), "is LPS read as RAS?"),
    ("1,000 times the positions", (1000.0,) * 3, "are they meters?"),
    ("10 times the positions", (10.0,) * 3, "are they centimeters?"),
)
_CLEARLY = 10  # by which a volume's error has to become smaller for the question, if not all volumes' is halved
# Order of a volume's files: first formats that specify their coordinate system.
_UNKNOWN = "files do not specify LPS or RAS: both sides are assumed to be the same"
_PREFERRED = (".mrk.json", ".fcsv", ".json", ".csv")


class VolumeLandmarks(NamedTuple):
    """Landmarks of one volume."""

    case: str  # name of the volume
    source: str  # file, for messages
    positions: landmark_files.Positions  # by name, millimeters x, y, z; None: missing
    is_ras: bool = True  # whether positions are known to be in RAS
    # "ras" or "lps", of the volume that the file is next to, for files that do not specify one; None: unknown
    default_convention: str | None = None


def landmarks_from_dataset(dataset: VolumeDataset) -> list[VolumeLandmarks]:
    """Return the ground truth of a data set."""
    volumes = []
    for index in range(len(dataset)):
        world = dataset.world(index)
        positions = {
            name: position if np.isfinite(position).all() else None
            for name, position in zip(dataset.class_names, world)
        }
        volumes.append(
            VolumeLandmarks(dataset.case(index), dataset.describe(index), positions, True, dataset.convention(index))
        )
    return volumes


def read_landmarks(folder: str) -> list[VolumeLandmarks]:
    """Read all landmark files of a folder, or all rows of a table.

    UserError if there are none, one is damaged, or one has voxels instead of millimeters.
    """
    if os.path.isfile(folder):
        return list(_read_table(folder).values())
    cases = list(dict.fromkeys(map(landmark_files.get_case, landmark_files.list_files(folder))))
    if not cases:
        raise UserError(
            f"{folder} contains no landmark files; expected one for each volume (.fcsv, .mrk.json, .json or .csv)"
        )
    conventions = find_conventions(folder)
    return [_read(folder, case, conventions) for case in cases]


def _read(folder: str, case: str, conventions: Mapping[str, str]) -> VolumeLandmarks:
    files = landmark_files.find_landmark_files(folder, case)
    file = min(files, key=lambda path: next(k for k, end in enumerate(_PREFERRED) if path.lower().endswith(end)))
    listed = landmark_files.read(file)
    if listed.space == "ijk":
        raise UserError(f"{file}: landmarks are in voxels (IJK), expected millimeters: save them as LPS or RAS")
    return VolumeLandmarks(case, file, listed.positions, listed.space == "ras", conventions.get(case))


def _read_table(file: str) -> dict[str, VolumeLandmarks]:
    """Read the landmarks of all volumes from one table, by volume; UserError if the file is not such a table.

    Columns are case, landmark, x, y, z (or x_mm and so on), and optionally world, LPS or RAS, like ``landmarks.csv`` of
    an evaluation. Instead of the case, ``predictions.csv`` has the volume's file as input.
    """
    reader = csv.DictReader(io.StringIO(landmark_files.read_landmark_text(file), newline=""), skipinitialspace=True)
    with csv_errors_as_user_errors(file):
        columns = [heading.strip().lower().removesuffix("_mm") for heading in reader.fieldnames or []]
    has_files = "case" not in columns
    columns = ["case" if has_files and heading == "input" else heading for heading in columns]
    missing = [heading for heading in ("case", "landmark", "x", "y", "z") if columns.count(heading) != 1]
    if missing:
        raise UserError(
            f"{file}, line 1: no column {', '.join(missing)}, or two; expected case,landmark,x,y,z with commas"
        )
    reader.fieldnames = columns
    volumes: dict[str, VolumeLandmarks] = {}
    for row in _rows(file, reader):
        where = f"{file}, line {reader.line_num}"
        case, name = (parse_cell((row[column] or "").strip()) for column in ("case", "landmark"))
        if not case or not name:
            raise UserError(f"{where}: the row has no {'landmark' if case else 'case'}; write its name")
        if has_files:
            case = case_name(case) if case.lower().endswith(SUFFIXES) else os.path.basename(case)
        world = (row.get("world") or "").strip().lower()
        if world not in ("", "lps", "ras"):
            raise UserError(f"{where}: world is {world!r}, expected LPS or RAS")
        volume = volumes.setdefault(case, VolumeLandmarks(case, file, {}, bool(world)))
        if name in volume.positions or volume.is_ras != bool(world):
            twice = f"landmark '{shorten(name)}' appears twice"
            what = twice if name in volume.positions else "only some rows have a world"
            raise UserError(f"{where}: {what} in volume {shorten(case)}")
        position = landmark_files.parse_position(where, name, [row[axis] for axis in "xyz"])
        volume.positions[name] = position if position is None or not world else convert(position, world)
    if not volumes:
        raise UserError(f"{file} has no rows; expected case,landmark,x,y,z for each landmark of each volume")
    return volumes


def _rows(file: str, reader: csv.DictReader) -> Iterator[dict[str, Any]]:
    with csv_errors_as_user_errors(file):
        for row in reader:
            if None in row:
                problem = "more values than the header has columns; write decimals with a point"
                raise UserError(f"{file}, line {reader.line_num}: {problem}")
            if any(map(str.strip, filter(None, row.values()))):
                yield row


def score(
    folder: str,
    truth: Sequence[VolumeLandmarks],
    source: str,
    names: Sequence[str] | None = None,
    coordinate_system: str | None = None,
    identities: Iterable[str] | None = None,
    origin: ResultSource = UNKNOWN,
) -> ScoreReport:
    """Compare a folder of landmark files, or a table, with the ground truth.

    ``source`` is its name for messages, ``origin`` its record. ``names`` None means all its landmarks,
    ``coordinate_system`` is "ras" or "lps", the convention of files that do not specify one, and ``identities`` are
    names of the volumes in a run's table, by default their own. UserError if a volume or a landmark has no position, or
    a coordinate system is unknown.
    """
    from .metrics import RADII_MM, rate_name, sum_errors

    names = list(names or dict.fromkeys(name for volume in truth for name in volume.positions))
    compared = _compare(folder, truth, source, names, coordinate_system)
    sums = sum_errors(compared.errors)
    if not sums[..., 0].any():
        raise UserError(f"{source}: no landmark has a position: there is nothing to compare with")
    coordinates = _describe_spaces(compared.spaces)
    counted = f"{count(len(truth), 'volume')} with {count(int(sums[..., 0].sum()), 'landmark')}"
    return ScoreReport(
        counted=f"{counted}: {folder}, truth from {source}",
        names=[volume.case for volume in truth] if identities is None else list(identities),
        sample="volume",
        shown={"mre_mm": 4, "sd_mm": 4, **{rate_name(radius): 2 for radius in RADII_MM}},
        classes=names,
        protocol=[
            f"mre_mm: mean distance in millimeters over all landmarks and volumes; {coordinates}",
            "sdr: percent of landmarks within a distance; landmarks without a position in the truth are not counted",
        ],
        notices=compared.notices,
        task="landmarks",
        kind="landmarks",
        arrays={"sums": sums},
        more_is_better=False,
        origin=origin,
    )


class _ComparedVolumes(NamedTuple):
    errors: np.ndarray  # float64 (volumes, landmarks), millimeters; NaN where the truth has no position
    spaces: set[str]  # LPS, RAS or _UNKNOWN: how files that do not specify their coordinates are read
    notices: list[str]  # lines for the log


def _compare(
    folder: str, truth: Sequence[VolumeLandmarks], source: str, names: Sequence[str], coordinate_system: str | None
) -> _ComparedVolumes:
    table = _read_table(folder) if os.path.isfile(folder) else {}
    if not table and not os.path.isdir(folder):
        raise UserError(
            f"{folder} is not a folder; expected a folder with a landmark file for each volume, or a table of all "
            "volumes"
        )
    result_names = set(table or map(landmark_files.get_case, landmark_files.list_files(folder)))
    missing = [volume.case for volume in truth if volume.case not in result_names]
    if missing:
        problem = f"{len(missing):,} of {len(truth):,} volumes of {source} have no landmarks, for example {missing[0]}"
        raise UserError(f"{folder}: {problem}; scores need all volumes: add the missing files")
    positions, extra_names = np.full((len(truth), len(names), 2, 3), np.nan), set()
    spaces: set[str] = set()
    others_convention: list[str] = []  # files whose volumes have another convention than ``coordinate_system``
    conventions = {} if table else find_conventions(folder)
    for row, true in enumerate(truth):
        result = table[true.case] if table else _read(folder, true.case, conventions)
        extra_names |= set(result.positions) - set(names)
        positions[row] = _pair_positions(true, result, names, coordinate_system, spaces)
        others_convention += [
            volume.source
            for volume in (true, result)
            if not volume.is_ras and volume.default_convention not in (None, coordinate_system)
        ]
    errors, *corrected = (
        np.linalg.norm(positions[..., 0, :] - positions[..., 1, :] * factors, axis=-1)
        for factors in (1.0, *(factors for _, factors, _ in _LIKELY_MISTAKES))
    )
    notices = (
        [f"{folder}: ignored landmarks that are not in the truth: {', '.join(sorted(extra_names))}"]
        if extra_names
        else []
    )
    if coordinate_system and others_convention:
        concerned = f"{count(len(others_convention), 'file')} next to volumes of the other convention"
        notices.append(
            f"{folder}: -coordinate_system={coordinate_system} decides for {concerned}, for example "
            f"{others_convention[0]}; drop it to read each file in its volume's"
        )
    others = sorted(result_names - {volume.case for volume in truth})
    if others:
        are = "is" if len(others) == 1 else "are"
        found = f"{count(len(others), 'volume')} {are} not in {source}"
        notices.append(f"{folder}: {found} and {are} ignored, for example {others[0]}")
    notices += [f"{folder}: {text}" for text in _find_mistakes(truth, errors, corrected)]
    return _ComparedVolumes(errors, spaces, notices)


def _find_mistakes(
    truth: Sequence[VolumeLandmarks], errors: np.ndarray, corrected: Sequence[np.ndarray]
) -> Iterator[str]:
    """Yield likely mistakes, from the errors (volumes, landmarks) and those without each of ``_LIKELY_MISTAKES``."""
    for (change, _, question), corrected_errors in zip(_LIKELY_MISTAKES, corrected):
        if np.nansum(corrected_errors) < np.nansum(errors) / 2:
            yield f"with {change} the mean error would be {np.nanmean(corrected_errors):.4g} mm: {question}"
            continue
        is_better = np.nansum(corrected_errors, axis=1) < np.nansum(errors, axis=1) / _CLEARLY
        if is_better.any():
            before, after = (float(np.nanmean(each[is_better])) for each in (errors, corrected_errors))
            which = f"in {is_better.sum():,} of {count(len(truth), 'volume')}, such as {truth[is_better.argmax()].case}"
            yield f"{which}, with {change} the mean error would be {after:.4g} mm and not {before:.4g}: {question}"


def _pair_positions(
    true: VolumeLandmarks,
    result: VolumeLandmarks,
    names: Sequence[str],
    coordinate_system: str | None,
    spaces: set[str],
) -> np.ndarray:
    """Return true and predicted positions, float64 (landmarks, 2, 3), millimeters; NaN where the truth has none.

    How files without a coordinate system are read is added to ``spaces``.
    """
    both = [true.positions, result.positions]
    known = [volume.default_convention for volume in (true, result)]
    # The convention belongs to each file: it is its own volume's, or that of the same volume on the other side.
    conventions = [coordinate_system or own or other for own, other in zip(known, known[::-1])]
    if not any(conventions) and not true.is_ras and not result.is_ras:
        spaces.add(_UNKNOWN)
    else:
        both = [_convert_to_ras(*pair, spaces) for pair in zip((true, result), conventions)]
    pairs = np.full((len(names), 2, 3), np.nan)
    for row, name in enumerate(names):
        position, other = (positions.get(name) for positions in both)
        if position is not None and other is None:
            available = shorten(
                ", ".join(landmark for landmark in result.positions if result.positions[landmark] is not None), 80
            )
            problem = (
                f"{result.source} has no position of {name}, but {true.source} has one; its landmarks are {available}"
            )
            raise UserError(f"{problem}; scores need all landmarks: add the position")
        if position is not None:
            pairs[row] = position, other
    return pairs


def _describe_spaces(spaces: set[str]) -> str:
    """Return how the coordinates of files that do not specify LPS or RAS were read."""
    systems = sorted(spaces - {_UNKNOWN})
    texts = [_UNKNOWN] if _UNKNOWN in spaces else []
    if len(systems) == 1:
        texts.append(f"files without a coordinate system are read as {systems[0]}")
    elif systems:  # next to volumes of several formats
        texts.append("files without a coordinate system are read in that of their volume's format, LPS or RAS")
    return ", ".join(texts) or "coordinate systems from the files"


def _convert_to_ras(volume: VolumeLandmarks, convention: str | None, spaces: set[str]) -> landmark_files.Positions:
    """Return positions in RAS; raise UserError if the convention is unknown."""
    if volume.is_ras:
        return volume.positions
    if convention is None:
        raise UserError(
            f"{volume.source} does not specify LPS or RAS, but the other side does: add -coordinate_system=ras or "
            "lps, or give a folder with the volumes, or the data set, as TRUTH: then each volume's format decides"
        )
    spaces.add(convention.upper())
    return {
        name: None if position is None else convert(position, convention) for name, position in volume.positions.items()
    }
