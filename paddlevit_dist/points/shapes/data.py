"""Shapes of which each has a class: what a dataset returns, ModelNet's two layouts, and reading their files."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...contracts.dataset import Dataset, require_split
from ...runtime.errors import UserError
from ...runtime.files import open_regular
from ..data.scene_store import read_lines

ENDINGS = (".txt", ".off")
_MESH_POINTS = 10_000  # that are taken of a mesh, as many as the resampled files have
_SPLITS = ("train", "test", "val")


class Shape(NamedTuple):
    """Points on the surface of one thing, in any unit.

    Attributes:
        xyz: float32 (points, 3).
        normals: float32 (points, 3), of length 1; None: unknown.
        label: number of its class.
    """

    xyz: np.ndarray
    normals: np.ndarray | None
    label: int


class ShapeDataset(Dataset):
    """Shapes: ``read(index)`` gives a ``Shape``; ``class_names`` and ``labels`` are known."""

    holds = "shapes"


class ModelNet40(ShapeDataset):
    """ModelNet in one of two layouts; "val" is its test split.

    - Resampled (modelnet40_normal_resampled): ``modelnet40_shape_names.txt``, ``modelnet40_train.txt``,
      ``modelnet40_test.txt`` and ``CLASS/CLASS_0001.txt`` with ``x,y,z,nx,ny,nz`` in each line.
    - Meshes: ``CLASS/train/*.off`` and ``CLASS/test/*.off``, of which points are drawn evenly over the area.
    """

    dataset_name = "modelnet40"

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None) -> None:
        """Open ``split``.

        Raises:
            UserError: the folder has neither layout, or lists a shape that is not there.
        """
        if data_path is None or not os.path.isdir(os.path.expanduser(data_path)):
            said = "needs -data_path=<folder>" if data_path is None else f"expects a folder, and {data_path} is none"
            raise UserError(f"dataset {self.dataset_name} {said}: modelnet40_normal_resampled, or CLASS/train/*.off")
        self.root = os.path.abspath(os.path.expanduser(data_path))
        require_split(split, _SPLITS, f"{self.dataset_name} at {self.root}")
        split = "train" if split == "train" else "test"
        listed = read_lines(os.path.join(self.root, f"{self.dataset_name}_{split}.txt"))
        self.names = self._of_folders(split) if listed is None else self._of_list(listed)
        self.class_names = self._classes(listed is not None)
        self.num_classes = len(self.class_names)
        numbers = {name: number for number, name in enumerate(self.class_names)}
        try:
            self.labels = np.array([numbers[name.split("/")[0]] for name in self.names], np.int64)
        except KeyError as error:
            raise UserError(f"{self.root}: {self.dataset_name}_shape_names.txt does not name class {error}") from error

    def _classes(self, is_listed: bool) -> list[str]:
        if not is_listed:
            return sorted(entry.name for entry in os.scandir(self.root) if os.path.isdir(os.path.join(entry, "train")))
        names = read_lines(os.path.join(self.root, f"{self.dataset_name}_shape_names.txt"))
        return sorted({name.split("/")[0] for name in self.names}) if names is None else names

    def _of_list(self, listed: list[str]) -> list[str]:
        names = [f"{name.rpartition('_')[0]}/{name}.txt" for name in listed]
        missing = [name for name in names if not os.path.isfile(os.path.join(self.root, name))]
        if missing or not names:
            said = (
                f"names {len(missing):,} shapes that are not there, the first is {missing[0]}"
                if missing
                else "is empty"
            )
            raise UserError(f"{self.root}: the list of {self.dataset_name} {said}; unpack the download again")
        return names

    def _of_folders(self, split: str) -> list[str]:
        files = sorted(Path(self.root).glob(f"*/{split}/*.off"))
        if not files:
            raise UserError(
                f"{self.root} has neither {self.dataset_name}_{split}.txt nor CLASS/{split}/*.off: unpack "
                f"modelnet40_normal_resampled.zip or {self.dataset_name}'s meshes, and name the folder with the classes"
            )
        return [file.relative_to(self.root).as_posix() for file in files]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> Shape:
        return read_shape(self.describe(index), int(self.labels[index]))

    def describe(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])


class ModelNet10(ModelNet40):
    """The ten classes of furniture, in the same layouts; the resampled download has both lists."""

    dataset_name = "modelnet10"


def read_shape(path: str, label: int = -1) -> Shape:
    """The shape in a text file or a mesh.

    Raises:
        UserError: it cannot be read; the message names file and line.
    """
    try:
        with open_regular(path, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if path.lower().endswith(".off"):
        return Shape(*sampled(*parsed_off(lines, path), _MESH_POINTS, np.random.default_rng(0)), label)
    values = _numbers(lines, path)
    normals = None
    if values.shape[1] == 6:
        lengths = np.linalg.norm(values[:, 3:], axis=1, keepdims=True)
        normals = values[:, 3:] / np.where(lengths > 0, lengths, 1)
    return Shape(np.ascontiguousarray(values[:, :3]), normals, label)


def _numbers(lines: list[str], path: str) -> np.ndarray:
    """float32 (points, 3 or 6)."""
    rows = [line.replace(",", " ").split() for line in lines]
    width = len(next((row for row in rows if row), ()))
    for number, row in enumerate(rows, 1):
        if row and (len(row) != width or width not in (3, 6)):
            raise UserError(f"{path}, line {number}: expected x,y,z or x,y,z,nx,ny,nz, found {len(row)} fields")
    try:
        values = np.array([row for row in rows if row], np.float32)
    except ValueError as error:
        raise UserError(f"{path}, line {_first_bad(rows)}: expected numbers, {error}") from error
    if not len(values) or not np.isfinite(values).all():
        raise UserError(f"{path}: {'a value is not a finite number' if len(values) else 'it has no points'}")
    return values


def _first_bad(rows: list[list[str]]) -> int:
    for number, row in enumerate(rows, 1):
        try:
            np.array(row, np.float32)
        except ValueError:
            return number
    return 0


def parsed_off(lines: list[str], path: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float32 (V, 3) and triangles int64 (T, 3) of a mesh in the OFF format; some files of ModelNet have their
    counts in the line of "OFF". Faces with more corners are divided into triangles around the first."""
    numbered = [(number, line.split("#")[0].split()) for number, line in enumerate(lines, 1)]
    numbered = [(number, words) for number, words in numbered if words]
    if not numbered or not numbered[0][1][0].upper().startswith("OFF"):
        raise UserError(f"{path}, line 1: expected OFF; it is no mesh in that format")
    first = [numbered[0][1][0][3:], *numbered[0][1][1:]]
    rest = iter([(numbered[0][0], [word for word in first if word]), *numbered[1:]][0 if any(first) else 1 :])
    number = numbered[0][0]
    try:
        number, words = next(rest)
        num_vertices, num_faces = int(words[0]), int(words[1])
        vertices = np.empty((num_vertices, 3), np.float32)
        for vertex in range(num_vertices):
            number, words = next(rest)
            vertices[vertex] = [float(word) for word in words[:3]]
        triangles = []
        for _ in range(num_faces):
            number, words = next(rest)
            corners = [int(word) for word in words[1 : 1 + int(words[0])]]
            if len(corners) != int(words[0]) or not all(0 <= corner < num_vertices for corner in corners):
                raise ValueError(f"a corner is missing, or none of {num_vertices} vertices")
            triangles += [(corners[0], *pair) for pair in zip(corners[1:-1], corners[2:])]
    except StopIteration:
        raise UserError(f"{path} ends too early, after line {number}; take it from the download again") from None
    except (ValueError, IndexError) as error:
        raise UserError(f"{path}, line {number}: not as a mesh in the OFF format has it: {error}") from error
    return vertices, np.array(triangles, np.int64).reshape(-1, 3)


def sampled(
    vertices: np.ndarray, triangles: np.ndarray, number: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Points drawn evenly over the area of a mesh, and the normals of their triangles, float32 (number, 3) each.

    Source: R. Osada et al., "Shape Distributions", ACM Transactions on Graphics 21, 2002, section 4.1.

    Raises:
        UserError: it has no area.
    """
    a, b, c = (vertices[triangles[:, corner]].astype(np.float64) for corner in range(3))
    crosses = np.cross(b - a, c - a)  # (triangles, 3), twice the area long
    ends = np.cumsum(np.linalg.norm(crosses, axis=1))
    if not len(ends) or not 0 < ends[-1] < np.inf:
        raise UserError("a mesh without area: expected triangles")
    chosen = np.minimum(np.searchsorted(ends, generator.random(number) * ends[-1], side="right"), len(ends) - 1)
    root, share = np.sqrt(generator.random((number, 1))), generator.random((number, 1))
    points = (1 - root) * a[chosen] + root * (1 - share) * b[chosen] + root * share * c[chosen]
    normals = crosses[chosen] / np.linalg.norm(crosses[chosen], axis=1, keepdims=True)
    return points.astype(np.float32), normals.astype(np.float32)
