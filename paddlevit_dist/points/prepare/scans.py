"""Base class of readers of laser scans: a file of numbers for the points, another one for their labels."""

from dataclasses import replace

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import read_content
from ..data.scene import IGNORED, Scene
from .listing import RawScene, SceneChoices, SceneReader

UNKNOWN = IGNORED - 1  # class of a number that means neither a class nor none


class ScanReader(SceneReader):
    """Reads scans of ``columns``, float32, which have no colors: all points are gray."""

    columns: tuple[str, ...]

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(replace(choices or SceneChoices(), gray=True), kind)

    def read(self, source: RawScene) -> Scene:
        """Read a scan, with labels if ``source`` has them."""
        table = read_numbers(source.files[0], "<f4", len(self.columns)).reshape(-1, len(self.columns))
        columns = dict(zip(self.columns, table.T))
        if not source.labeled:
            return self.build_scene(source, columns)
        semantic, instance = self.read_labels(source.files[1])
        if len(semantic) != len(table):
            raise UserError(
                f"{source.files[1]} has {len(semantic):,} labels, its scan {len(table):,} points; extract both again"
            )
        return self.build_scene(source, columns, semantic, instance)

    def read_labels(self, path: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Read class and object of each point, integers (points,), ``IGNORED`` for none; no objects if not known."""
        raise NotImplementedError


def read_numbers(path: str, dtype: str, numbers_per_point: int = 1) -> np.ndarray:
    """Read a file of numbers, (points * numbers of each,); UserError if it ends within a point."""
    content, point_bytes = read_content(path), np.dtype(dtype).itemsize * numbers_per_point
    if len(content) % point_bytes:
        raise UserError(f"{path} has {len(content):,} bytes, not a multiple of {point_bytes}; copy it again")
    return np.frombuffer(content, dtype)


def map_classes(path: str, numbers: np.ndarray, classes: np.ndarray, known: str) -> np.ndarray:
    """Return the class of each number (points,) in a file of labels, int16 (points,), from ``classes`` by number.

    UserError if a number is ``UNKNOWN``; ``known`` says what it should be.
    """
    labels = classes[numbers]
    if (labels == UNKNOWN).any():
        row = int((labels == UNKNOWN).argmax())
        raise UserError(f"{path}: point {row} has the number {numbers[row]}, which is not {known}")
    return labels
