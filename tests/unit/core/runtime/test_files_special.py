"""Pipes, sockets, devices, folders and looping links in place of data files: refused by name, and never opened."""

import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from support.files.cached_files import write_folder, write_mnist, write_scenes, write_tar, write_volumes
from support.files.cifar_writer import write_cifar10
from support.files.raw_scenes import write_labeled_ply

from paddlevit_dist import UserError
from paddlevit_dist.core.runtime.files import open_regular, read_regular, require_regular
from paddlevit_dist.images.data.cifar import Cifar10
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.images.data.imagenet import ImageNet2012
from paddlevit_dist.images.data.small_sets import Mnist
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.prepare.pointgroup import load_arrays
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset

SECONDS = 60


@pytest.fixture(autouse=True)
def limited():
    """A pipe that is opened after all would be waited for without end."""

    def stop(number, frame):
        raise AssertionError(f"still waiting after {SECONDS} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    folder = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)
    os.chdir(folder)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


SPECIAL = {
    "pipe": (pipe, "a named pipe"),
    "socket": (socket_file, "a socket"),
    "zeros": (zeros, "a device"),
    "loop": (loop, "(?i)too many levels|no such|has no"),
    "folder": (folder, "(?i)is a directory|not a folder|no DICOM slices|has no|holds no"),
}


def write_lists(root: Path) -> None:
    write_folder(root)
    (root / "train_list.txt").write_text("train/ant/0.png 0\n")


def write_ply(root: Path) -> None:
    write_labeled_ply(root / "a.ply")


def served(dataset):
    return [dataset.read(index) for index in range(len(dataset))]


READERS = {
    "picture": (write_folder, "train/bee/1.png", lambda root, cache: served(ClassFolders(str(root), "train", cache))),
    "list": (write_lists, "train_list.txt", lambda root, cache: ImageNet2012(str(root), "train", cache)),
    "class names": (write_folder, "classes.txt", lambda root, cache: ClassFolders(str(root), "train", cache)),
    "tar": (write_tar, "train-0.tar", lambda root, cache: TarImages(str(root), "train", cache)),
    "idx": (write_mnist, "train-labels-idx1-ubyte", lambda root, cache: Mnist(str(root), "train", cache)),
    "idx.gz": (write_mnist, "train-labels-idx1-ubyte.gz", lambda root, cache: Mnist(str(root), "train", cache)),
    "cifar": (write_cifar10, "cifar-10-python.tar.gz", lambda root, cache: Cifar10(str(root), "train", cache)),
    "scene": (write_scenes, "scenes/b.scene", lambda root, cache: PreparedScenes(str(root), "train", cache)),
    "scene list": (write_scenes, "train.txt", lambda root, cache: PreparedScenes(str(root), "train", cache)),
    "volume": (write_volumes, "train/case1.npy", lambda root, cache: LandmarkDataset(str(root), "train", cache)),
    "landmarks": (write_volumes, "train/case1.csv", lambda root, cache: LandmarkDataset(str(root), "train", cache)),
    "ply": (write_ply, "a.ply", lambda root, cache: read_vertices(root / "a.ply")),
    "pth": (write_ply, "a.pth", lambda root, cache: load_arrays(str(root / "a.pth"))),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_by_name(reader, kind, tmp_path):
    write, name, read = READERS[reader]
    root, cache = tmp_path / "data", tmp_path / "cache"
    root.mkdir()
    cache.mkdir()
    write(root)
    path = root / name
    if path.exists():
        path.unlink()
    make, said = SPECIAL[kind]
    make(path)
    if (reader, kind) in HARMLESS:
        read(root, cache)
        return
    with pytest.raises(UserError, match=said if reader != "cifar" else "has no") as caught:
        read(root, cache)
    assert Path(name).stem in str(caught.value)


# A folder is left out, whatever its name.
HARMLESS = {("picture", "folder"), ("volume", "folder")}


def test_a_folder_with_special_files_can_be_guessed(tmp_path):
    write_folder(tmp_path)
    for name, (make, _) in SPECIAL.items():
        make(tmp_path / f"{name}_list.txt")
        make(tmp_path / "train" / "ant" / f"{name}.jpg")
        make(tmp_path / f"train-{name}-labels-idx1-ubyte")
    assert guess(str(tmp_path)).dataset == "folder"


def test_files_and_links_to_them_are_opened(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"abc")
    link.symlink_to(path)
    require_regular(link)
    assert read_regular(link) == b"abc"
    with open_regular(path, encoding="ascii") as stream:
        assert stream.read() == "abc"
    np.testing.assert_raises(FileNotFoundError, require_regular, tmp_path / "missing")
