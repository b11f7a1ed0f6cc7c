"""Shapes of which each has a class: what a dataset returns, ModelNet's two layouts, and reading their files."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import read_content
from ...tasks.dataset import Dataset, require_split
from ..data.scene_store import read_lines
from ..prepare.tables import TABLES, read_table

MESH = ".off"
ENDINGS = (MESH, *(suffix for table in TABLES.values() for suffix in table.suffixes))
_COLUMNS = ("x", "y", "z", "nx", "ny", "nz")
_HEADER = re.compile("(ST)?C?N?OFF", re.IGNORECASE)  # vertices may have more than their places
_MESH_POINTS = 10_000  # that are taken of a mesh, as many as the resampled files have
_SPLITS = ("train", "test", "val")


class SampledShape(NamedTuple):
    """Points on the surface of one thing, in any unit.

    Attributes:
        xyz: float (points, 3).
        normals: float (points, 3), of length 1; None: unknown.
        label: number of its class.
    """

    xyz: np.ndarray
    normals: np.ndarray | None
    label: int


class ShapeDataset(Dataset):
    """Shapes: ``read(index)`` gives a ``SampledShape``; ``class_names`` and ``labels`` are known."""

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
        lists = os.path.join(self.root, f"{self.dataset_name}_")
        listed = read_lines(f"{lists}{split}.txt")
        if listed is None:
            self.names = sorted(
                file.relative_to(self.root).as_posix() for file in Path(self.root).glob(f"*/{split}/*.off")
            )
            self.class_names = sorted({file.parent.parent.name for file in Path(self.root).glob("*/train/*.off")})
        else:
            self.names = [f"{name.rpartition('_')[0]}/{name}.txt" for name in listed]
            self.class_names = read_lines(f"{lists}shape_names.txt") or []
        if not self.names:
            raise UserError(
                f"{self.root} has no shapes in {self.dataset_name}_{split}.txt or CLASS/{split}/*.off: unpack "
                f"modelnet40_normal_resampled.zip or {self.dataset_name}'s meshes, and name the folder with the classes"
            )
        missing = [name for name in self.names if not os.path.isfile(os.path.join(self.root, name))]
        if missing:
            said = f"{len(missing):,} shapes that are not there, the first is {missing[0]}"
            raise UserError(f"{lists}{split}.txt names {said}; unpack the download again")
        numbers = {name: number for number, name in enumerate(self.class_names)}
        unnamed = [name for name in self.names if name.split("/")[0] not in numbers]
        if unnamed:
            where = f"{lists}shape_names.txt" if listed else f"{self.root}/CLASS/train"
            raise UserError(f"{where} does not name the class of {unnamed[0]}; it needs all classes")
        self.labels = np.array([numbers[name.split("/")[0]] for name in self.names], np.int64)
        self.num_classes = len(self.class_names)

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> SampledShape:
        return read_shape(self.describe(index), int(self.labels[index]))

    def describe(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])


class ModelNet10(ModelNet40):
    """The ten classes of furniture, in the same layouts; the resampled download has both lists."""

    dataset_name = "modelnet10"


def read_shape(path: str, label: int = -1) -> SampledShape:
    """The shape in a mesh (.off), or in a file of points of any format that scenes are read from, whose faces are not
    looked at. Columns without names are x, y, z, and perhaps nx, ny, nz.

    Raises:
        UserError: it cannot be read; the message names the file, and the line where it has lines.
    """
    if path.lower().endswith(MESH):
        return SampledShape(*sample_mesh(*parse_off(path), _MESH_POINTS, np.random.default_rng(0), path), label)
    kind = next(kind for kind, table in TABLES.items() if path.lower().endswith(table.suffixes))
    table = read_table(path, kind, usual={3: _COLUMNS[:3], 6: _COLUMNS})
    points, normals = (
        np.stack([table[name] for name in names], axis=1).astype(np.float64) if set(names) <= set(table) else None
        for names in (_COLUMNS[:3], _COLUMNS[3:])
    )
    if points is None:
        raise UserError(f"{path} has columns {', '.join(table)}; expected x, y, z, and perhaps nx, ny, nz")
    if normals is not None:
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    return SampledShape(points, normals, label)


def parse_off(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float64 (V, 3) and triangles int64 (T, 3) of a mesh in the OFF format; some files of ModelNet have their
    counts in the line of "OFF". Faces with more corners are divided into triangles around the first.

    Raises:
        UserError: it cannot be read, or is no such mesh; the message names file and line.
    """
    lines = read_content(path).decode("utf-8", "replace").splitlines()
    numbered = [(number, line.split("#")[0].split()) for number, line in enumerate(lines, 1)]
    numbered = [(number, words) for number, words in numbered if words]
    header = _HEADER.match(numbered[0][1][0]) if numbered else None
    if header is None:
        raise UserError(f"{path}, line 1: expected OFF; it is no mesh in that format")
    first = [numbered[0][1][0][header.end() :], *numbered[0][1][1:]]
    rest = iter([(numbered[0][0], [word for word in first if word]), *numbered[1:]][0 if any(first) else 1 :])
    number = numbered[0][0]
    try:
        number, words = next(rest)
        num_vertices, num_faces = int(words[0]), int(words[1])
        vertices = []
        for _ in range(num_vertices):
            number, words = next(rest)
            x, y, z = map(float, words[:3])
            vertices.append((x, y, z))
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
    return np.array(vertices, np.float64).reshape(-1, 3), np.array(triangles, np.int64).reshape(-1, 3)


def sample_mesh(
    vertices: np.ndarray, triangles: np.ndarray, number: int, generator: np.random.Generator, name: str = "a mesh"
) -> tuple[np.ndarray, np.ndarray]:
    """Points drawn evenly over the area of a mesh, and the normals of their triangles, float64 (number, 3) each.

    Source: R. Osada et al., "Shape Distributions", ACM Transactions on Graphics 21, 2002, section 4.1.

    Raises:
        UserError: it has no area.
    """
    a, b, c = (vertices[triangles[:, corner]] for corner in range(3))
    with np.errstate(all="ignore"):  # what is not finite is told
        crosses = np.cross(b - a, c - a)  # (triangles, 3), twice the area long
        ends = np.cumsum(np.linalg.norm(crosses, axis=1))
    if not len(ends) or not 0 < ends[-1] < np.inf:
        raise UserError(f"{name} has no area, or coordinates that are not finite: expected a mesh of triangles")
    chosen = np.minimum(np.searchsorted(ends, generator.random(number) * ends[-1], side="right"), len(ends) - 1)
    root, share = np.sqrt(generator.random((number, 1))), generator.random((number, 1))
    points = (1 - root) * a[chosen] + root * (1 - share) * b[chosen] + root * share * c[chosen]
    return points, crosses[chosen] / np.linalg.norm(crosses[chosen], axis=1, keepdims=True)
