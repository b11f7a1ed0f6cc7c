"""Volumes and landmarks, for the table."""

import json

import numpy as np

from paddlevit_dist import UserError
from paddlevit_dist.volumes import landmark_files
from paddlevit_dist.volumes.dataset import VolumeOptions
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset
from paddlevit_dist.volumes.reading import list_parts, list_volumes, read_volume
from paddlevit_dist.volumes.segmentation.nnunet import read_description
from support.files import nnunet_folders
from support.files.volume_files import write_landmarks, write_series, write_volume

_SMALL = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
_AFFINE = np.diag([1.0, 1.5, 2.0, 1.0])


def make(suffix):
    return lambda folder: [write_volume(folder / f"case{suffix}", _SMALL, _AFFINE)]


def make_series(folder):
    write_series(folder / "case", _SMALL, _AFFINE)
    return sorted((folder / "case").iterdir())


def read(folder):
    found = list_volumes(str(folder))
    if not found:
        raise UserError("no volume is left")
    for path in found:
        list_parts(path)
        array, header = read_volume(path)
        assert array.shape == header.geometry.shape and np.isfinite(array).all()


def make_data(folder):
    for suffix in (".nii", ".nii.gz"):  # of others SimpleITK is the guard
        write_volume(folder / "train" / f"case{suffix[1:]}{suffix}", _SMALL, _AFFINE)
        write_landmarks(folder / "train" / f"case{suffix[1:]}.json", {"nose": [0, 0, 0], "chin": None})
    return sorted((folder / "train").iterdir())


def read_data(folder):
    """As a training does, resampled."""
    options = VolumeOptions(spacing_mm=[1.0, 2.0, 1.5], landmark_units="voxel", max_voxels=1_000_000)
    dataset = LandmarkDataset(str(folder), "train", folder / "cache", options)
    for index in range(len(dataset)):
        decoded, points = dataset.read(index)
        assert decoded.array.shape == decoded.geometry.shape and points.shape == (len(dataset.names), 3)
        assert np.isfinite(decoded.array).all() and decoded.window[0] < decoded.window[1]


_TEXTS = {
    "a.csv": "name,x,y,z\nnose,1.5,2,3\nchin,,,\n",
    "b.json": '{"nose": [1.5, 2, 3], "chin": null}',
    "c.json": '{"landmarks": [{"name": "nose", "x": 1, "y": 2, "z": 3}]}',
    "d.fcsv": "# Markups fiducial file version = 4.13\n# CoordinateSystem = LPS\n# columns = id,x,y,z,ow,ox,oy,oz,"
    "vis,sel,lock,label,desc,associatedNodeID\n1,1.5,2,3,0,0,0,1,1,1,0,nose,,\n",
    "e.mrk.json": '{"markups": [{"type": "Fiducial", "coordinateSystem": "LPS", "coordinateUnits": "mm", '
    '"controlPoints": [{"label": "nose", "position": [1.5, 2, 3], "positionStatus": "defined"}]}]}',
}


def make_landmarks(folder):
    for name, text in _TEXTS.items():
        (folder / name).write_text(text)
    return [folder / name for name in _TEXTS]


def read_landmarks(folder):
    for name in _TEXTS:
        found = landmark_files.read(str(folder / name))
        assert any(position is not None for position in found.positions.values())


def make_descriptions(folder):
    for name, description in (("labels", nnunet_folders.SECOND), ("regions", nnunet_folders.REGIONS)):
        (folder / f"{name}.json").write_text(json.dumps({**description, "file_ending": ".nii.gz", "numTraining": 3}))
    return sorted(folder.iterdir())


def read_descriptions(folder):
    for file in sorted(folder.iterdir()):
        found = read_description(str(file))
        outputs = len(found.regions) or len(found.numbers)
        assert found.numbers[0] == 0 and len(found.class_names) == outputs and found.ignored not in found.numbers
        assert all(0 < label < len(found.numbers) for region in found.regions for label in region.labels)
