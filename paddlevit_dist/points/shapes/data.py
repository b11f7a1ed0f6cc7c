"""Labeled shapes: dataset classes, ModelNet in two layouts, and readers of its files."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import read_content
from ...core.runtime.printing import describe_value
from ...core.runtime.text_files import to_utf8
from ...core.tasks.class_names import make_class_names
from ...core.tasks.dataset import Dataset, require_folder, require_split
from ...core.tasks.sample_arrays import read_fields, require_same_length, to_array, to_classes, to_floats
from ...core.tasks.sample_checks import BadSample
from ..data.scene_store import is_hidden, read_lines
from ..prepare.tables import TABLES, read_table

MESH = ".off"
NO_LABEL = -1  # of a shape without a class
SUFFIXES = (MESH, *(suffix for table in TABLES.values() for suffix in table.suffixes))
_COLUMNS = ("x", "y", "z", "nx", "ny", "nz")
_HEADER = re.compile("(ST)?C?N?OFF", re.IGNORECASE)  # vertices may have more values than coordinates
_MESH_POINTS = 10_000  # sampled from a mesh, like in the resampled files
_SPLITS = ("train", "test", "val")


class SampledShape(NamedTuple):
    """Points on the surface of one object, in any unit; ``make_shape`` creates it."""

    xyz: np.ndarray  # float (points, 3)
    normals: np.ndarray | None  # float (points, 3), of length 1; None: unknown
    label: int  # class number, or ``NO_LABEL``


def make_shape(
    xyz: Any,
    normals: Any = None,
    label: Any = NO_LABEL,
    *,
    class_names: Sequence[str] | None = None,
    num_classes: int | None = None,
) -> SampledShape:
    """Create a shape with float32 or float64 arrays, which are not copied if they have this type.

    Args:
        xyz: numbers (points >= 1, 3).
        normals: numbers (points, 3); None: unknown.
        label: whole number or name of a class; ``NO_LABEL`` or None for none.
        class_names: names of the classes; None: they have none.
        num_classes: number of classes; None: that of the names, or unknown.

    Raises:
        BadSample: there are no points, or a field has another form, or numbers that are not finite or out of range.
    """
    points, vectors = (
        None if values is None and field == "normals" else _to_floats(values, field)
        for field, values in (("xyz", xyz), ("normals", normals))
    )
    assert points is not None  # only the normals may be
    if not len(points):
        raise BadSample("the shape has no points")
    if vectors is not None:
        require_same_length({"xyz": points, "normals": vectors})
    names = [] if class_names is None else make_class_names(class_names, "class_names")
    limit = num_classes or len(names) or 1 << 31
    single = to_classes([label] if isinstance(label, (str, type(None))) else label, "label", names, limit, NO_LABEL)
    if single.size != 1:
        raise BadSample(f"label is {describe_value(label)}, expected one class")
    return SampledShape(points, vectors, int(single.reshape(-1)[0]))


def _to_floats(values: Any, field: str) -> np.ndarray:
    array = to_array(values, field)
    return to_floats(array, field, 3, np.float32 if array.dtype == np.float32 else np.float64)


class ShapeDataset(Dataset):
    """Shapes: ``read(index)`` returns a ``SampledShape``; ``class_names`` are known, and optionally ``labels``.

    The ``read`` of a derived class may return what ``make_shape`` takes, as a ``SampledShape`` or as a dictionary.
    """

    holds = "shapes"

    def make_sample(self, sample: Any) -> SampledShape:
        """Return what ``read`` of a derived class returned as a ``SampledShape``; BadSample if a field is wrong."""
        fields = read_fields(sample, SampledShape, ("xyz",), f"{self.own_class.__name__}.read")
        return make_shape(**fields, class_names=self.list_class_names(), num_classes=self.num_classes)


class ModelNet40(ShapeDataset):
    """ModelNet in one of two layouts; "val" is its test split.

    - Resampled (modelnet40_normal_resampled): ``modelnet40_shape_names.txt``, ``modelnet40_train.txt``,
      ``modelnet40_test.txt`` and ``CLASS/CLASS_0001.txt`` with ``x,y,z,nx,ny,nz`` in each line.
    - Meshes: ``CLASS/train/*.off`` and ``CLASS/test/*.off``; points are sampled evenly over their area.
    """

    dataset_name = "modelnet40"
    root: str
    labels: np.ndarray

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None) -> None:
        """Open ``split``; UserError if ``data_path`` has neither layout, or lists a shape that does not exist."""
        layout = "such as modelnet40_normal_resampled, or with CLASS/train/*.off"
        self.root = require_folder(data_path, self.dataset_name, layout)
        require_split(split, _SPLITS, f"{self.dataset_name} at {self.root}")
        split = "train" if split == "train" else "test"
        lists = os.path.join(self.root, f"{self.dataset_name}_")
        listed_names = read_lines(f"{lists}{split}.txt")
        if listed_names is None:
            self.names = self._find_meshes(split)
            self.class_names = sorted({name.split("/")[0] for name in self._find_meshes("train")})
        else:
            self.names = [f"{name.rpartition('_')[0]}/{name}.txt" for name in listed_names]
            self.class_names = read_lines(f"{lists}shape_names.txt") or []
        if not self.names:
            raise UserError(
                f"{self.root} has no shapes in {self.dataset_name}_{split}.txt or CLASS/{split}/*.off: unpack "
                f"modelnet40_normal_resampled.zip or {self.dataset_name}'s meshes, and give the folder with the classes"
            )
        missing = [name for name in self.names if not os.path.isfile(os.path.join(self.root, name))]
        if missing:
            message = f"{len(missing):,} shapes that do not exist, the first is {missing[0]}"
            raise UserError(f"{lists}{split}.txt names {message}; unpack the download again")
        numbers = {name: number for number, name in enumerate(self.class_names)}
        unnamed = [name for name in self.names if name.split("/")[0] not in numbers]
        if unnamed:
            where = f"{lists}shape_names.txt" if listed_names else f"{self.root}/CLASS/train"
            raise UserError(f"{where} does not name the class of {unnamed[0]}; it needs all classes")
        self.labels = np.array([numbers[name.split("/")[0]] for name in self.names], np.int64)
        self.num_classes = len(self.class_names)

    def _find_meshes(self, split: str) -> list[str]:
        """Return the paths of a split's meshes in class folders, such as chair/train/chair_0001.off."""
        paths = [file.relative_to(self.root) for file in Path(self.root).glob(f"*/{split}/*{MESH}")]
        return sorted(path.as_posix() for path in paths if not any(map(is_hidden, path.parts)))

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> SampledShape:
        """Return shape ``index``."""
        return read_shape(self.describe(index), int(self.labels[index]))

    def describe(self, index: int) -> str:
        """Return the path of shape ``index``."""
        return os.path.join(self.root, self.names[index])


class ModelNet10(ModelNet40):
    """The ten classes of furniture, in the same layouts; the resampled download has both lists."""

    dataset_name = "modelnet10"


def read_shape(path: str, label: int = NO_LABEL) -> SampledShape:
    """Read a shape from a mesh (.off), or from a file of points in any format of scenes, without its faces.

    Columns without names are x, y, z, and optionally nx, ny, nz. UserError if the file cannot be read; the message
    names the file, and the line if it has lines.
    """
    if path.lower().endswith(MESH):
        return make_shape(*sample_mesh(*parse_off(path), _MESH_POINTS, np.random.default_rng(0), path), label)
    kind = next(option for option, candidate in TABLES.items() if path.lower().endswith(candidate.suffixes))
    table = read_table(path, kind, default_names={3: _COLUMNS[:3], 6: _COLUMNS})
    points, normals = (
        np.stack([table[name] for name in names], axis=1).astype(np.float64) if set(names) <= set(table) else None
        for names in (_COLUMNS[:3], _COLUMNS[3:])
    )
    if points is None:
        raise UserError(f"{path} has columns {', '.join(table)}; expected x, y, z, and optionally nx, ny, nz")
    if normals is not None:
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    return make_shape(points, normals, label)


def parse_off(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Parse a mesh in the OFF format: vertices float64 (V, 3) and triangles int64 (T, 3).

    Some files of ModelNet have the counts on the line of "OFF". Faces with more corners are divided into triangles
    around the first corner. UserError, with file and line, if it cannot be read, or is not such a mesh.
    """
    lines = to_utf8(read_content(path), "replace").decode("utf-8", "replace").splitlines()
    numbered_lines = [(i, line.split("#")[0].split()) for i, line in enumerate(lines, 1)]
    numbered_lines = [(i, fields) for i, fields in numbered_lines if fields]
    header = _HEADER.match(numbered_lines[0][1][0]) if numbered_lines else None
    if header is None:
        raise UserError(f"{path}, line 1: expected OFF; it is not a mesh in that format")
    first = [numbered_lines[0][1][0][header.end() :], *numbered_lines[0][1][1:]]
    rest = iter(
        [(numbered_lines[0][0], [word for word in first if word]), *numbered_lines[1:]][0 if any(first) else 1 :]
    )
    number = numbered_lines[0][0]
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
                raise ValueError(f"a corner is missing, or is not one of {num_vertices} vertices")
            triangles += [(corners[0], *pair) for pair in zip(corners[1:-1], corners[2:])]
    except StopIteration:
        raise UserError(f"{path} is truncated after line {number}; unpack the download again") from None
    except (ValueError, IndexError) as error:
        raise UserError(f"{path}, line {number}: invalid in the OFF format: {error}") from error
    return np.array(vertices, np.float64).reshape(-1, 3), np.array(triangles, np.int64).reshape(-1, 3)


def sample_mesh(
    vertices: np.ndarray, triangles: np.ndarray, number: int, generator: np.random.Generator, name: str = "a mesh"
) -> tuple[np.ndarray, np.ndarray]:
    """Sample points evenly over a mesh; return them with the normals of their triangles, float64 (number, 3) each.

    ``vertices`` are (V, 3), ``triangles`` (T, 3). UserError if the mesh has no area. Source: R. Osada et al., "Shape
    Distributions", ACM Transactions on Graphics 21, 2002, section 4.1.
    """
    a, b, c = (vertices[triangles[:, corner]] for corner in range(3))
    with np.errstate(all="ignore"):  # values that are not finite are reported below
        crosses = np.cross(b - a, c - a)  # (triangles, 3), twice the area long
        ends = np.cumsum(np.linalg.norm(crosses, axis=1))
    if not len(ends) or not 0 < ends[-1] < np.inf:
        raise UserError(f"{name} has no area, or coordinates that are not finite: expected a mesh of triangles")
    selected = np.minimum(np.searchsorted(ends, generator.random(number) * ends[-1], side="right"), len(ends) - 1)
    root, share = np.sqrt(generator.random((number, 1))), generator.random((number, 1))
    points = (1 - root) * a[selected] + root * (1 - share) * b[selected] + root * share * c[selected]
    return points, crosses[selected] / np.linalg.norm(crosses[selected], axis=1, keepdims=True)
