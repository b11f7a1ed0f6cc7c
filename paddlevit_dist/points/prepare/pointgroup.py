"""Scenes that PointGroup's preparation has written: tuples of numpy arrays in files of ``torch.save``."""

import numpy as np

from ...core.checkpoint.torch_files import open_torch_file
from ...core.runtime.errors import UserError
from ...core.runtime.files import read_content
from ..data.scannet_classes import CLASS_NAMES
from ..data.scene import AS_GIVEN, CENTERED, Scene
from .coordinates import StoredPoints, as_given
from .listing import ROUNDING, RawScene, SceneReader

SUFFIXES = ("_inst_nostuff.pth", ".pth")  # of PointGroup's prepared scenes


class PthReader(SceneReader):
    """Reads files that ``torch.save`` wrote with two (test) or four numpy arrays.

    Scenes are not moved, because PointGroup's preparation has already centered each scene on its mean.
    """

    kind = "pth"
    meaning = "PointGroup's NAME_inst_nostuff.pth"
    options = ("class_names",)
    unique_instances = None
    suffixes: tuple[str, ...] = SUFFIXES
    default_classes = CLASS_NAMES
    fixed_coordinates = f"{AS_GIVEN}; PointGroup's preparation puts the {CENTERED}"

    def find(self, root: str) -> dict[str, str]:
        """Return the path of each scene below ``root``, by name."""
        self.suffixes = SUFFIXES[:1]
        try:
            return super().find(root)
        except UserError:
            self.suffixes = SUFFIXES[1:]
            return super().find(root)

    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them. Colors from -1 to 1 are converted to bytes."""
        path = source.files[0]
        arrays = load_arrays(path)
        num_required = 4 if source.labeled else 2
        if len(arrays) < num_required or len(arrays) not in (2, 4):
            raise UserError(
                f"{path} contains {len(arrays)} arrays, expected 4 (xyz, rgb, class, instance), or 2 for a test scene; "
                "write it again with PointGroup's prepare_data_inst.py"
            )
        points = len(arrays[0])
        shapes = ((points, 3), (points, 3), (points,), (points,))
        for array, shape, field in zip(arrays, shapes, ("xyz", "rgb", "class", "instance")):
            if array.shape != shape or array.dtype.kind not in "iuf":
                raise UserError(f"{path}: its {field} is {array.dtype} {array.shape}, expected {shape}; write it again")
        columns = dict(zip("xyz", np.asarray(arrays[0]).T))
        colors = arrays[1]
        if colors.dtype.kind == "f":
            low, high = colors.min(initial=0.0), colors.max(initial=0.0)
            if not (low >= -1 - ROUNDING and high <= 1 + ROUNDING):
                raise UserError(f"{path} has colors from {low:g} to {high:g}; expected -1 to 1 as float, or 0 to 255")
            if high > 0 == low:
                self.remarks.append(f"{path}: its colors are from 0 to {high:g}, taken as parts of -1 to 1")
            colors = np.rint((colors.astype(np.float64) + 1.0) * 127.5).astype(np.uint8)
        columns.update(zip(("red", "green", "blue"), colors.T))
        return self.build_scene(source, columns, *(() if source.labeled is False else arrays[2:]))

    def place_points(self, path: str, xyz: np.ndarray) -> StoredPoints:
        """Return points unchanged, or centered if float32 would lose a millimeter."""
        return as_given(path, xyz)


def load_arrays(path: str) -> list[np.ndarray]:
    """Load a tuple of numpy arrays that ``torch.save`` wrote, executing nothing; UserError if it is anything else."""
    read_content(path, 0)  # rejects pipes
    with open_torch_file(path) as value:
        if isinstance(value, (tuple, list)) and all(isinstance(item, np.ndarray) for item in value):
            return list(value)
    raise UserError(f"{path} is not a tuple of numpy arrays in PointGroup's format; convert it to that or to PLY")
