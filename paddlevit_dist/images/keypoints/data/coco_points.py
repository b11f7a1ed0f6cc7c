"""Files in COCO's format with keypoints. Source: https://cocodataset.org/#format-data, section 2."""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.runtime.errors import UserError
from ....core.runtime.spelling import compose
from ...detection.coco_files import CocoAnnotation, CocoCategory, CocoFile, short
from ...detection.json_lists import JsonElement
from ..described_points import DescribedPoints, pair_up

MARGIN = 0.1  # of the longer side of the extent of points, by which it is enlarged to a box
_VALUES = 3  # of a point: x, y, visibility
_NO_NUMBER = -2  # a stated number of points that cannot be one; -1: not stated


class KeypointCategory(CocoCategory):
    """A category with points; the last three fields are not COCO's."""

    keypoints: Any = None  # names
    skeleton: Any = None  # numbers of points from 1
    sigmas: Any = None
    flip_idx: Any = None  # as in YOLO's data.yaml: the point, from 0, that each becomes in a mirror
    flip_pairs: Any = None  # names, or numbers from 0


class KeypointAnnotation(CocoAnnotation):
    """An object with points."""

    keypoints: list[float] | None = None
    num_keypoints: Any = None


class KeypointFile(CocoFile):
    """A file whose objects may have points. An object without a box gets one around its labeled points."""

    kinds = {**CocoFile.kinds, "categories": KeypointCategory, "annotations": KeypointAnnotation}

    def __init__(self, file: str, allows_text_ids: bool = False) -> None:
        """Read the whole file; raise UserError, which names the entry, if it is not in COCO's format."""
        self._values, self._counts, self._stated = array("d"), array("q"), array("q")
        super().__init__(file, allows_text_ids)
        self.described = self._describe()
        self.points = self._read_points()

    def add_annotation(self, element: JsonElement) -> None:
        """Add an object with its points; raise UserError if its entry is wrong."""
        super().add_annotation(element)
        values, stated = element.value.keypoints or (), element.value.num_keypoints
        self._values.extend(values)
        self._counts.append(len(values))
        is_number = type(stated) in (int, float) and 0 <= stated <= len(values) and stated == int(stated)
        self._stated.append(-1 if stated is None else int(stated) if is_number else _NO_NUMBER)

    def read_box(self, number: int, entry: Any, id_: int) -> Sequence[float]:
        """Return the box of an object; one without sides, such as zeros, is none if there are labeled points."""
        box, is_labeled = entry.bbox, any(visibility > 0 for visibility in (entry.keypoints or ())[2::_VALUES])
        is_box = isinstance(box, list) and len(box) == 4 and all(type(side) in (int, float) for side in box)
        if is_labeled and is_box and box[2] == box[3] == 0:
            entry.bbox = None
        return super().read_box(number, entry, id_)

    def make_box(self, number: int, entry: Any) -> tuple[Sequence[float], str] | None:
        """Return the extent of the labeled points of an object without a box, with a margin; else that of its mask."""
        values = entry.keypoints or ()
        box = None if len(values) % _VALUES else surround(np.array(values, np.float64).reshape(-1, _VALUES))
        if box is None:
            return super().make_box(number, entry)
        return box, f"the extent of its points and {MARGIN:.0%} around it"

    def _describe(self) -> list[DescribedPoints]:
        """Return what each category says about its points; objects give the number where it says nothing."""
        counts, labels = np.array(self._counts), np.array(self.labels)
        described = []
        for label, category in enumerate(self.categories.values()):
            assert isinstance(category, KeypointCategory)
            names = self._read_names(category)
            present = counts[(labels == label) & (counts > 0)]
            of_objects = int(present[0]) // _VALUES if len(present) else 0
            number = of_objects if names is None else len(names)
            described.append(
                DescribedPoints(
                    number,
                    names,
                    self._read_pairs(category, names, number),
                    self._read_sigmas(category, number),
                    self._read_skeleton(category, names, number),
                )
            )
        if not any(points.number for points in described):
            raise UserError(
                f"{self.file} has no keypoints: expected objects with keypoints, and categories with their names; for "
                "boxes alone choose -dataset=coco and a recipe of a detector"
            )
        return described

    def _wrong(self, category: KeypointCategory, name: str, expected: str) -> UserError:
        value = getattr(category, name)
        return UserError(f"{self.file}: category '{category.name}' has {name} {short(value)}: {expected}")

    def _read_names(self, category: KeypointCategory) -> list[str] | None:
        names = category.keypoints
        if names is None or names == []:
            return None
        if not isinstance(names, list) or not all(isinstance(name, (str, int)) for name in names):
            raise self._wrong(category, "keypoints", "expected a list of names")
        names = [_tidy(str(name)) for name in names]
        if not all(names):
            raise self._wrong(category, "keypoints", "expected no empty name")
        if len(set(names)) < len(names):
            raise self._wrong(category, "keypoints", "expected each name only once")
        return names

    def _read_pairs(
        self, category: KeypointCategory, names: list[str] | None, number: int
    ) -> list[tuple[int, int]] | None:
        if category.flip_idx is not None:
            pairs = pair_up(category.flip_idx, number)
            if pairs is None:
                raise self._wrong(category, "flip_idx", f"expected the numbers 0 to {number - 1}, exchanged in pairs")
            return pairs
        pairs = category.flip_pairs
        if pairs is None:
            return None
        numbers: dict[Any, int] = {name: place for place, name in enumerate(names or ())}
        numbers |= {place: place for place in range(number)}
        expected = "expected pairs of its points, by names or numbers from 0"
        try:
            found = {(numbers[one], numbers[other]) for one, other in pairs}
        except (KeyError, TypeError, ValueError):
            raise self._wrong(category, "flip_pairs", expected) from None
        found = {(min(pair), max(pair)) for pair in found}  # some files have each pair in both orders
        members = [point for pair in found for point in set(pair)]
        if len(set(members)) < len(members):
            raise self._wrong(category, "flip_pairs", f"{expected}, each in one pair")
        return sorted(found)

    def _read_sigmas(self, category: KeypointCategory, number: int) -> list[float] | None:
        sigmas = category.sigmas
        if sigmas is None:
            return None
        is_list = isinstance(sigmas, list) and all(type(sigma) in (int, float) and 0 < sigma < 1e3 for sigma in sigmas)
        if not is_list or len(sigmas) != number:
            raise self._wrong(category, "sigmas", f"expected a number above 0 for each of its {number} points")
        return [float(sigma) for sigma in sigmas]

    def _read_skeleton(
        self, category: KeypointCategory, names: list[str] | None, number: int
    ) -> list[tuple[int, int]] | None:
        """Return the lines of a skeleton, from 0; those to points that do not exist are dropped and noted.

        Lines are pairs of numbers or, as in mmpose's descriptions of datasets, of names.
        """
        skeleton = category.skeleton
        if skeleton is not None and not isinstance(skeleton, list):
            self.odd.note("category", "whose skeleton is not a list of pairs of points, not drawn", category.name)
        if not isinstance(skeleton, list) or not number:
            return None
        lines = [tuple(line) for line in skeleton if isinstance(line, list) and len(line) == 2]
        number_of = {name: place for place, name in enumerate(names or (), 1)}
        lines = [
            tuple(number_of.get(_tidy(end), end) if isinstance(end, str) else end for end in line) for line in lines
        ]
        lines = [line for line in lines if all(type(end) is int for end in line)]
        first = 0 if any(0 in line for line in lines) else 1
        shifted = [(one - first, other - first) for one, other in lines]
        kept = [line for line in shifted if 0 <= min(line) <= max(line) < number]
        if len(kept) < len(skeleton):
            text = "whose skeleton has lines to points that it lacks, not drawn"
            self.odd.note("category", text, category.name)
        if not first:
            self.odd.note("category", "whose skeleton counts points from 0, although COCO counts from 1", category.name)
        return kept

    def _read_points(self) -> np.ndarray:
        """Return the points of all objects, float64 (objects, K, 3), zeros where an object has none."""
        counts, labels, numbers = np.array(self._counts), np.array(self.labels), np.array(self.numbers)
        expected = np.array([points.number * _VALUES for points in self.described])[labels]
        is_wrong = (counts != expected) & (counts > 0) & (labels >= 0)
        if is_wrong.any():
            at = int(np.flatnonzero(is_wrong)[0])
            name = list(self.categories.values())[labels[at]].name
            layout = f"{expected[at]}: x, y and visibility of each point of '{name}'"
            raise self._misplaced(at, f"has {counts[at]} numbers of keypoints", layout)
        owners = np.repeat(np.arange(len(labels)), counts)  # object of each value
        places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_known = labels[owners] >= 0
        points = np.zeros((len(labels), max(points.number for points in self.described), _VALUES))
        values = np.array(self._values)[is_known]
        points.reshape(len(labels), points.shape[1] * _VALUES)[owners[is_known], places[is_known]] = values
        is_finite = np.isfinite(points).all(axis=(1, 2)) & (np.abs(points) < 1e9).all(axis=(1, 2))
        self._refuse(~is_finite, "has keypoints far from any image", "finite numbers")
        is_known = np.isin(points[:, :, 2], (0, 1, 2)).all(axis=1)
        self._refuse(~is_known, "has another visibility", "0 (not labeled), 1 (hidden) or 2 (visible) for each point")
        labeled, stated = (points[:, :, 2] > 0).sum(axis=1), np.array(self._stated)
        text = "with points and an area of 0, found only by exact points, as by COCO's tools"
        self.odd.note_all("object", text, numbers[(labeled > 0) & (self.known_areas == 0)])
        text = "whose num_keypoints is not the number of its labeled points, which is used"
        self.odd.note_all("object", text, numbers[(stated != -1) & (stated != labeled)])
        if self.has_annotations and not labeled.any():
            reason = (
                "the visibility, third number of each point, is 0 everywhere" if len(counts) else "it has no objects"
            )
            raise UserError(f"{self.file} has no labeled point: {reason}; expected objects with visibilities 1 or 2")
        return points

    def _refuse(self, is_wrong: np.ndarray, problem: str, expected: str) -> None:
        if is_wrong.any():
            raise self._misplaced(int(np.flatnonzero(is_wrong)[0]), problem, expected)

    def _misplaced(self, at: int, problem: str, expected: str) -> UserError:
        return UserError(f"{self.file}: annotations[{at}] (id {self.numbers[at]}) {problem}: expected {expected}")


def _tidy(name: str) -> str:
    """Return a name on one line, in one spelling of its letters."""
    return " ".join(compose(name).split())


def surround(points: np.ndarray) -> tuple[float, float, float, float] | None:
    """Return the box x, y, width, height of labeled points, float64 (K, 3), with a margin; None without one.

    The margin on each side is ``MARGIN`` of the longer side of their extent, at least a pixel.
    """
    labeled = points[points[:, 2] > 0, :2]
    if not len(labeled):
        return None
    low, high = labeled.min(axis=0), labeled.max(axis=0)
    around = max(MARGIN * float((high - low).max()), 1.0)
    x, y = (low - around).tolist()
    width, height = (high - low + 2 * around).tolist()
    return x, y, width, height
