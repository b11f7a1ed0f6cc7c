"""A disk that takes no more: each library that writes our files, one line, and nothing half-written."""

import errno
import io
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.runtime import limits
from paddlevit_dist.core.runtime.files import atomic_file, library_errors_as_os_errors, os_errors_as_user_errors
from paddlevit_dist.extensions.compare.per_sample import _encode_parquet
from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.prepare.las import write_classified
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.segmentation.dataset import LabelSource
from paddlevit_dist.volumes.segmentation.prediction import write_labels

LIMIT = 20_000  # bytes, less than each of the files
NOISE = np.random.default_rng(0).integers(0, 200, 200_000).astype(np.uint8)


@pytest.fixture
def full_disk():
    """Let no file of this process become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_image(path: Path) -> None:
    with atomic_file(path) as file:
        Image.fromarray(NOISE.reshape(400, 500)).save(file, "JPEG" if path.suffix == ".jpg" else "PNG", quality=95)


def write_npz(path: Path) -> None:
    with atomic_file(path) as file:
        np.savez_compressed(file, noise=NOISE)


def write_parquet(path: Path) -> None:
    pytest.importorskip("pyarrow")
    content = _encode_parquet({"noise": NOISE.astype(float).tolist()})
    with atomic_file(path) as file:
        file.write(content)


def write_nifti(path: Path) -> None:
    pytest.importorskip("nibabel")
    write_labels(path, NOISE.reshape(50, 50, 80), LabelSource(None, VolumeGeometry((50, 50, 80), np.eye(4))))


WRITERS = {
    "weights.safetensors": lambda path: write_safetensors(path, {"a": NOISE, "b": NOISE}),
    "image.png": write_image,
    "image.jpg": write_image,
    "table.npz": write_npz,
    "rows.parquet": write_parquet,
    "labels.nii.gz": write_nifti,
    "points.ply": lambda path: write_points(path, {"x": NOISE.astype(np.float32)}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_does_not_fit_is_one_line_and_leaves_nothing(tmp_path, full_disk, name):
    with pytest.raises(UserError, match=rf"^cannot write {tmp_path / name}: File too large; raise the limit .*"):
        WRITERS[name](tmp_path / name)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("suffix", ["las", "laz"])
def test_a_scan_that_does_not_fit_is_one_line_and_leaves_nothing(tmp_path, suffix, request):
    laspy = pytest.importorskip("laspy")
    source, target = tmp_path / "scan.las", tmp_path / "out" / f"scan.{suffix}"
    target.parent.mkdir()
    scan = laspy.create(point_format=3)
    scan.x = scan.y = scan.z = NOISE * 0.1
    scan.write(str(source))
    request.getfixturevalue("full_disk")
    with pytest.raises(UserError, match=rf"^cannot write {target}: File too large"):
        write_classified(str(source), target, NOISE.astype(np.int64) % 20)
    assert not os.listdir(target.parent)


class LibraryError(Exception):
    """As a library in Rust or C raises it."""


def test_a_library_that_hides_the_reason_is_asked_by_writing_more(tmp_path, full_disk):
    for error in (LibraryError("the encoder failed"), OSError("encoder error -2")):
        with pytest.raises(UserError, match="File too large"), atomic_file(tmp_path / "a") as file:
            os.write(file.fileno(), bytes(LIMIT))
            raise error
    with pytest.raises(OSError, match="File too large"), library_errors_as_os_errors(tmp_path):
        (tmp_path / "cut_off").write_bytes(bytes(LIMIT))
        raise LibraryError("the program cannot be read")
    assert (tmp_path / "cut_off").stat().st_size == LIMIT


def test_another_error_stays_as_it_is(tmp_path):
    with pytest.raises(LibraryError, match="^no such type$"), atomic_file(tmp_path / "a"):
        raise LibraryError("no such type")
    with pytest.raises(UserError, match="^not a number$"), os_errors_as_user_errors("a"), atomic_file(tmp_path / "a"):
        raise UserError("not a number")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "error, number",
    [
        (LibraryError("I/O error: No space left on device (os error 28)"), errno.ENOSPC),
        (LibraryError("serializing (os error 27): File too large"), errno.EFBIG),
        (OSError(errno.EDQUOT, "quota"), errno.EDQUOT),
        (LibraryError("no such file (os error 2)"), None),
        (FileNotFoundError(errno.ENOENT, "none"), None),
        (io.UnsupportedOperation("seek"), None),
    ],
)
def test_the_reason_is_found_in_the_error_its_text_or_what_it_follows(error, number):
    def wrap() -> BaseException:
        try:
            raise LibraryError("cannot save") from error
        except LibraryError as outer:
            return outer

    for each in (error, wrap()):
        found = limits.find_os_error(each)
        assert (None if found is None else found.errno) == number
        assert ("free space" in (limits.explain(each) or "")) == (number is not None)
