"""PointGroup's prepared scenes, ``NAME_inst_nostuff.pth``: torch files of (xyz, rgb, classes, instances), read without
torch and without executing any code in them."""

import io
import struct
import zipfile
from typing import Any

import numpy as np

from ...checkpoint.unpickling import restricted_load
from ...runtime.errors import UserError
from ...runtime.files import open_regular
from ..data.scannet_classes import CLASS_NAMES
from ..data.scene import AS_GIVEN, CENTRED, Scene
from .coordinates import Placed, as_given
from .listing import RawScene, SceneReader

SUFFIXES = ("_inst_nostuff.pth", ".pth")
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_HEADER = 3  # pickles before the object: magic, version, sizes of numbers


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
    """The tuple of numpy arrays in a file by ``torch.save``, in zip format (since torch 1.6) or the legacy format.

    Raises:
        UserError: unreadable, damaged, or not numpy arrays; nothing is executed.
    """
    try:
        value = _load(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, RuntimeError, ValueError, struct.error) as error:  # RuntimeError: encrypted, or newer
        raise UserError(f"{path} is damaged: {error}; copy it again") from error
    except UserError as error:
        reason = str(error).split("; ")[0]
        raise UserError(
            f"{reason}; nothing was executed; a scene is a tuple of numpy arrays in a file of torch.save, as "
            "PointGroup's preparation writes it: write or copy it again"
        ) from error
    if not isinstance(value, (tuple, list)) or not all(isinstance(item, np.ndarray) for item in value):
        raise UserError(f"{path} is not a tuple of numpy arrays as PointGroup writes it; convert it to that or to PLY")
    return list(value)


def _load(path: str) -> Any:
    with open_regular(path, "rb") as stream:
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                return restricted_load(_pickle_of(archive, path))
        stream.seek(0)
        header = [restricted_load(stream) for _ in range(_LEGACY_HEADER)]
        if header[0] != _LEGACY_MAGIC:
            raise UserError(f"{path} is not a torch.save file")
        return restricted_load(stream)


def _pickle_of(archive: zipfile.ZipFile, path: str) -> io.BytesIO:
    members = [item for item in archive.infolist() if item.filename.split("/")[1:] == ["data.pkl"]]
    if len(members) != 1 or members[0].compress_type != zipfile.ZIP_STORED:  # as torch writes it; excludes zip bombs
        raise UserError(f"{path} is not a torch.save file")
    content = io.BytesIO(archive.read(members[0]))
    content.name = path  # for error messages
    return content
