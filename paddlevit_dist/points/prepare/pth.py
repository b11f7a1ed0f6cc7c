"""PointGroup's prepared scenes, ``NAME_inst_nostuff.pth``: torch files of (xyz, rgb, classes, instances), read without
torch and without executing any code in them."""

import numpy as np

from ...checkpoint.torch_files import open_torch_file
from ...runtime.errors import UserError
from ...runtime.files import content_of
from ..data.scannet_classes import CLASS_NAMES
from ..data.scene import AS_GIVEN, CENTRED, Scene
from .coordinates import Placed, as_given
from .listing import RawScene, SceneReader

SUFFIXES = ("_inst_nostuff.pth", ".pth")


class PthReader(SceneReader):
    """Reads files that ``torch.save`` wrote with two (test) or four numpy arrays. PointGroup's preparation has already
    centred each scene on its mean, so they are not moved."""

    kind = "pth"
    ends = SUFFIXES
    own_classes = CLASS_NAMES
    own_coordinates = f"{AS_GIVEN}; PointGroup's preparation puts the {CENTRED}"

    def find(self, root: str) -> dict[str, str]:
        self.ends = SUFFIXES[:1]
        try:
            return super().find(root)
        except UserError:
            self.ends = SUFFIXES[1:]
            return super().find(root)

    def read(self, source: RawScene) -> Scene:
        """A scene with its labels, if ``source`` should have them. Colours from -1 to 1 are converted to bytes."""
        path = source.files[0]
        arrays = load_arrays(path)
        wanted = 4 if source.labelled else 2
        if len(arrays) < wanted or len(arrays) not in (2, 4):
            raise UserError(
                f"{path} holds {len(arrays)} arrays, expected 4 (xyz, rgb, class, instance), or 2 for a test scene; "
                "write it again with PointGroup's prepare_data_inst.py"
            )
        points = len(arrays[0])
        shapes = ((points, 3), (points, 3), (points,), (points,))
        for array, shape, what in zip(arrays, shapes, ("xyz", "rgb", "class", "instance")):
            if array.shape != shape or array.dtype.kind not in "iuf":
                raise UserError(f"{path}: its {what} is {array.dtype} {array.shape}, expected {shape}; write it again")
        columns = dict(zip("xyz", np.asarray(arrays[0]).T))
        colors = arrays[1] if arrays[1].dtype.kind != "f" else np.rint((arrays[1].astype(np.float64) + 1.0) * 127.5)
        columns.update(zip(("red", "green", "blue"), np.asarray(colors, np.int64).T))
        return self.scene_of(source, columns, *(arrays[2:] if source.labelled else ()))

    def placed(self, path: str, xyz: np.ndarray) -> Placed:
        return as_given(path, xyz)


def load_arrays(path: str) -> list[np.ndarray]:
    """The tuple of numpy arrays in a file by ``torch.save``.

    Raises:
        UserError: unreadable, damaged, or not numpy arrays; nothing is executed.
    """
    content_of(path, 0)  # no pipe
    with open_torch_file(path) as value:
        if isinstance(value, (tuple, list)) and all(isinstance(item, np.ndarray) for item in value):
            return list(value)
    raise UserError(f"{path} is not a tuple of numpy arrays as PointGroup writes it; convert it to that or to PLY")
