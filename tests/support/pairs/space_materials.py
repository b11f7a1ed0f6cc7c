"""Data sets of scenes and shapes of points, and of volumes with label maps or landmarks."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.shapes.solids import SyntheticSolids
from support.files import nnunet_folders
from support.files.volume_files import write_landmarks, write_volume

from .commands import succeed
from .drawn_images import Maker, write_lines

if TYPE_CHECKING:
    from .materials import Materials

_SPACINGS_MM = ((3.0, 2.0, 2.5), (2.0, 2.5, 3.0))  # depth, height, width


def _write_scenes(folder: Path, materials: "Materials") -> None:
    """Rooms as files with an intensity and normals, one far from its origin, prepared as a store."""
    raw = folder.with_name(f"{folder.name}_raw")
    for split, count in (("train", 9), ("val", 3)):
        rooms = SyntheticRooms(None, split, None, count, count, 0.1)
        for index in range(count):
            room, generator = rooms.read(index), np.random.default_rng(index)
            normals = generator.normal(size=room.xyz.shape)
            place = raw / split / f"{split}_room{9 - index}.npz"
            place.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                place,
                points=room.xyz + np.array([500_000.0, 0.0, -3.0]) * (index % 2),
                colors=room.rgb,
                normals=normals / np.linalg.norm(normals, axis=1, keepdims=True),
                intensity=generator.integers(0, 256, len(room.xyz)).astype(np.float32),
                label=room.semantic,
                instance=room.instance,
            )
    write_lines(raw / "names.txt", SyntheticRooms.class_names)
    succeed("prepare", "scenes", raw, folder, f"-classes={raw / 'names.txt'}", "-workers=1")


def _write_shapes(folder: Path, materials: "Materials") -> None:
    """ModelNet's resampled layout: points with normals, names in a list that is not sorted."""
    names = SyntheticSolids.class_names
    for split, count in (("train", 33), ("test", 10)):
        solids, rows = SyntheticSolids(count, "train" if split == "train" else "val"), []
        for index in range(count):
            shape = solids.read(index)
            name = f"{names[shape.label]}_{index:04d}"
            rows.append(name)
            lines = [",".join(f"{value:.6f}" for value in row) for row in np.c_[shape.xyz, shape.normals]]
            write_lines(folder / names[shape.label] / f"{name}.txt", lines[:600])
        write_lines(folder / f"modelnet40_{split}.txt", rows[::-1])
    write_lines(folder / "modelnet40_shape_names.txt", names[::-1])


def _make_affine(number: int) -> np.ndarray:
    """An affine in RAS, x, y, z, with another spacing for every other volume."""
    affine = np.diag([*_SPACINGS_MM[number % 2][::-1], 1.0])
    affine[:3, 3] = -20.0 - number, 5.0, 11.0
    return affine


def _write_description(folder: Path, labels: dict) -> None:
    description = {**labels, "file_ending": ".nii.gz", "numTraining": 11}
    write_lines(folder / "dataset.json", [json.dumps(description)])


def _write_volumes(folder: Path, materials: "Materials") -> None:
    """nnU-Net's layout with two channels, uneven spacing, an ignored label and numbers that are not in order."""
    for number in range(11):
        generator = np.random.default_rng(number)
        shape = (20 + number % 3, 26 - number % 2, 24)
        labels = np.zeros(shape, np.uint8)
        labels[4:14, 6:18, 5 + number % 4 : 17] = 5
        labels[9:16, 2:9, 3:11] = 2
        labels[0, 0, :] = 9
        for channel, scale in enumerate((200.0, 3.0)):
            voxels = generator.normal(scale * labels, scale / 3, shape).astype(np.float32)
            write_volume(folder / "imagesTr" / f"v{9 - number}_{channel:04d}.nii.gz", voxels, _make_affine(number))
        write_volume(folder / "labelsTr" / f"v{9 - number}.nii.gz", labels, _make_affine(number))
    _write_description(folder, nnunet_folders.SECOND)


def _write_regions(folder: Path, materials: "Materials") -> None:
    shutil.copytree(materials.get("volumes"), folder)
    _write_description(folder, nnunet_folders.REGIONS)


def _write_landmark_folders(folder: Path, materials: "Materials") -> None:
    for split, count in (("train", 9), ("val", 4)):
        for number in range(count):
            generator = np.random.default_rng([number, split == "val"])
            shape, affine = (20 + number % 3, 26 - number % 2, 24), _make_affine(number)
            voxels = generator.normal(0, 40, shape)
            positions: dict[str, list[float] | None] = {}
            for name, base in {"nose": (6, 9, 12), "ear_right": (13, 17, 6), "ear_left": (13, 17, 18)}.items():
                z, y, x = np.array(base) + generator.integers(-2, 3, 3)
                voxels[z - 1 : z + 2, y - 1 : y + 2, x - 1 : x + 2] += 500 + 200 * len(positions)
                positions[name] = (affine @ [x, y, z, 1.0])[:3].tolist()
            if number == 2:
                positions["nose"] = None
            write_volume(folder / split / f"h{9 - number}.nii.gz", voxels.astype(np.int16), affine)
            write_landmarks(folder / split / f"h{9 - number}.csv", positions)


MAKERS: dict[str, Maker] = {
    "scenes": _write_scenes,
    "shapes": _write_shapes,
    "volumes": _write_volumes,
    "regions": _write_regions,
    "heads": _write_landmark_folders,
}
