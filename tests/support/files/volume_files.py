"""Writes small volumes with landmarks for tests, using the libraries that users write them with."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from paddlevit_dist.volumes.geometry import rotation

SHAPE = (10, 12, 14)
AFFINE = np.eye(4)  # RAS; x, y, z
AFFINE[:3, :3] = rotation(np.deg2rad([8.0, -5.0, 3.0])) @ np.diag([1.0, 1.5, 2.0])
AFFINE[:3, 3] = [-30.0, 12.0, 40.0]
LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


def voxels(seed: int = 0) -> np.ndarray:
    """int16 (depth, height, width)."""
    return np.random.default_rng(seed).integers(-1000, 1500, SHAPE).astype(np.int16)


def write_volume(path: Path, array: np.ndarray | None = None, affine: np.ndarray = AFFINE) -> Path:
    """Write ``array`` (z, y, x) with an affine in RAS, in the format of the path's suffix; DICOM if it has none."""
    array = voxels() if array is None else array
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith((".nii", ".nii.gz")):
        import nibabel

        nibabel.Nifti1Image(array.T, affine).to_filename(path)
    elif path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, volume=array, affine=affine)
    elif not path.suffix:
        write_series(path, array, affine)
    else:
        import SimpleITK

        image = SimpleITK.GetImageFromArray(array)
        place = LPS @ affine
        spacing = np.linalg.norm(place[:3, :3], axis=0)
        image.SetSpacing(spacing.tolist())
        image.SetOrigin(place[:3, 3].tolist())
        image.SetDirection((place[:3, :3] / spacing).reshape(-1).tolist())
        SimpleITK.WriteImage(image, str(path))
    return path


def write_series(folder: Path, array: np.ndarray, affine: np.ndarray = AFFINE, **more: Any) -> Path:
    """Write ``array`` (z, y, x) with an affine in RAS as a DICOM series.

    Args:
        more: ``names`` of the slices' files, one of ``tags`` (tag -> text) for each slice, ``uid`` of the series.
    """
    import SimpleITK

    folder.mkdir(parents=True, exist_ok=True)
    place = LPS @ affine
    writer = SimpleITK.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    writer.SetImageIO("GDCMImageIO")
    spacing = np.linalg.norm(place[:3, :3], axis=0)
    names = more.get("names") or [f"{number:03d}.dcm" for number in range(len(array))]
    for number, plane in enumerate(array):
        image = SimpleITK.GetImageFromArray(plane[None])
        image.SetSpacing([spacing[0], spacing[1], 1.0])
        tags = {
            "0008|0060": "CT",
            "0020|000d": "1.2.3",
            "0020|000e": more.get("uid", "1.2.3.4"),
            "0008|103e": "head",
            "0020|0032": _numbers((place @ [0, 0, number, 1.0])[:3]),
            "0020|0037": _numbers((place[:3, :2] / spacing[:2]).T.reshape(-1)),
            **more.get("tags", [{}] * len(array))[number],
        }
        for tag, text in tags.items():
            image.SetMetaData(tag, text)
        temporary = folder / "slice.dcm"  # the writer chooses its format by the suffix
        writer.SetFileName(str(temporary))
        writer.Execute(image)
        temporary.rename(folder / names[number])
    return folder


def _numbers(values: Any) -> str:
    return "\\".join(f"{value:.10g}" for value in values)


def write_landmarks(path: Path, positions: dict[str, Any]) -> Path:
    """Write name -> (x, y, z) or None, as CSV or JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps({n: None if p is None else list(map(float, p)) for n, p in positions.items()}))
    else:
        rows = [
            f"{name},{','.join('' if p is None else f'{v!r}' for v in (p or [0] * 3))}" for name, p in positions.items()
        ]
        path.write_text("\n".join(["name,x,y,z", *rows]) + "\n")
    return path


def world(voxel_xyz: Any, affine: np.ndarray = AFFINE) -> list:
    """Millimeters of a voxel x, y, z."""
    return (affine @ [*voxel_xyz, 1.0])[:3].tolist()
