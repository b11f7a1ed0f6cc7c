"""Data sets of all kinds that keep a cache, what they serve, and damage to their caches."""

import gzip
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from paddlevit_dist.images.data.cifar import Cifar10
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.small_sets import Mnist
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scene_store import scene_file, write_scene
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset
from support.files.cifar_writer import write_cifar10
from support.files.volume_files import voxels, write_landmarks, write_volume


def write_folder(root: Path) -> None:
    generator = np.random.default_rng(0)
    for name, images in (("cow", 3), ("ant", 4), ("bee", 2)):
        (root / "train" / name).mkdir(parents=True)
        for number in range(images):
            pixels = generator.integers(0, 256, (6, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "train" / name / f"{number}.png")


def write_tar(root: Path) -> None:
    write_folder(root)
    with tarfile.open(root / "train-0.tar", "w") as tar:
        tar.add(root / "train", "pictures")


def write_mnist(root: Path) -> None:
    generator = np.random.default_rng(0)
    for part, array in (
        ("images-idx3", generator.integers(0, 256, (9, 28, 28), dtype=np.uint8)),
        ("labels-idx1", np.arange(9, dtype=np.uint8)),
    ):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (root / f"train-{part}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


def write_scenes(root: Path) -> None:
    generator = np.random.default_rng(0)
    (root / "scenes").mkdir()
    for name, points in (("b", 20), ("a", 13)):
        labels = generator.integers(0, 3, points).astype(np.int16)
        xyz = generator.normal(0, (3, 2, 1), (points, 3)).astype(np.float32)
        rgb = generator.integers(0, 256, (points, 3), np.uint8)
        write_scene(Path(scene_file(root, name)), Scene(xyz, rgb, labels, labels, name))
    (root / "train.txt").write_text("b\na\n")
    (root / "classes.txt").write_text("y\nz\nx\n")


def write_volumes(root: Path) -> None:
    for number in range(2):
        write_volume(root / "train" / f"case{number}.npy", voxels(number))
        write_landmarks(root / "train" / f"case{number}.csv", {"nose": [3.0, 4.0, 5.0 + number]})


def served_images(dataset) -> list:
    labels = np.asarray(dataset.labels).tolist()
    return [labels, dataset.class_names] + [
        (np.asarray(image).tobytes(), label) for image, label in map(dataset.read, range(len(dataset)))
    ]


def served_scenes(dataset) -> list:
    scenes = [dataset.read(index) for index in range(len(dataset))]
    return [dataset.class_names] + [
        (scene.name, *(np.asarray(part).tobytes() for part in scene[:4])) for scene in scenes
    ]


def served_volumes(dataset) -> list:
    read = [dataset.read(index) for index in range(len(dataset))]
    return [
        (np.asarray(decoded.array).tobytes(), decoded.geometry.affine.tobytes(), decoded.window, points.tobytes())
        for decoded, points in read
    ]


KINDS = {
    "folder": (write_folder, ClassFolders, served_images),
    "tar": (write_tar, TarImages, served_images),
    "cifar10": (write_cifar10, Cifar10, served_images),
    "mnist": (write_mnist, Mnist, served_images),
    "scenes": (write_scenes, PreparedScenes, served_scenes),
    "volumes": (write_volumes, LandmarkDataset, served_volumes),
}


def damage(content: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """One of: a flipped bit anywhere, a label's worth of changed bytes, cut off, longer, something else."""
    kind = generator.integers(6)
    place = int(generator.integers(len(content)))
    changed = bytearray(content)
    if kind <= 1:
        changed[place] ^= 1 << int(generator.integers(8))
    elif kind == 2:
        changed[place : place + 4] = generator.bytes(4)
    elif kind == 3:
        del changed[place:]
    elif kind == 4:
        changed += generator.bytes(1 + place % 40)
    else:
        return [b"{}", b"", other, b"\x93NUMPY" + bytes(place), bytes(len(content))][int(generator.integers(5))]
    return bytes(changed)


def check(kind: str, tmp_path: Path, mutations: int) -> None:
    write, dataset, served = KINDS[kind]
    root, cache = tmp_path / "data", tmp_path / "cache"
    root.mkdir()
    cache.mkdir()
    write(root)

    def opened():
        return pickle.loads(pickle.dumps(dataset(str(root), "train", cache)))  # as a loader process has it

    expected = served(opened())
    files = sorted(path for path in cache.rglob("*") if path.is_file())
    contents = {path: path.read_bytes() for path in files}
    assert files
    generator = np.random.default_rng(7)
    for number in range(mutations):
        path = files[number % len(files)]
        other = contents[files[(number + 1) % len(files)]]
        path.write_bytes(damage(contents[path], other, generator))
        assert served(opened()) == expected, f"mutation {number} of {path}"
    for path in files:
        path.unlink()
        assert served(opened()) == expected
    now = sorted(path for path in cache.rglob("*") if path.is_file())
    assert [(path, path.read_bytes()) for path in now] == sorted(contents.items())
