"""Small files that announce, or become, far more than they are: refused before the memory or the disk is taken."""

import gzip
import io
import json
import os
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from PIL import Image
from support.files.bombs import bomb_png
from support.files.cifar_writer import write_archive
from support.files.raw_scenes import write_scannet
from support.files.volume_files import write_landmarks, write_series, write_volume
from support.refusals import refusal_of

from paddlevit_dist.images.data.cifar import Cifar10
from paddlevit_dist.images.data.imagenet import read_kit_labels
from paddlevit_dist.images.data.prepared import read_preparation
from paddlevit_dist.images.data.reading import ReadConfig, UnreadableImage, decode_image
from paddlevit_dist.images.data.small_sets import Mnist
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.volumes import landmark_files
from paddlevit_dist.volumes.dataset import VolumeOptions
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset
from paddlevit_dist.volumes.reading import read_header, read_volume

SMALL = np.arange(60, dtype=np.int16).reshape(3, 4, 5)


@pytest.fixture
def little_memory():
    """What Python and numpy take in the test; SimpleITK's own memory is seen in the tests with damaged files."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20, f"{peak:,} bytes"


def test_an_image_of_13000_pixels_a_side_is_listed_and_names_the_key(tmp_path, little_memory):
    encoded = bomb_png(13_000)
    assert len(encoded) < 30_000
    with pytest.raises(UnreadableImage, match=r"13000 x 13000 pixels .* 89478485 pixels; raise DATA.MAX_PIXELS"):
        decode_image(encoded, "x.png", "RGB")
    assert Image.open(io.BytesIO(encoded)).size == (13_000, 13_000)
    with pytest.raises(UnreadableImage, match="above the limit of 168999999 pixels"):
        decode_image(encoded, "x.png", "RGB", ReadConfig(max_pixels=13_000**2 - 1))


HALF_A_GIGABYTE = gzip.compress(bytes(1 << 24), 9) * 32  # 0.5 MB


def idx_header(*shape):
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((2, 28, 28), "is too long: its header announces 1584 bytes, found at least"),
        ((1 << 19, 32, 32), "announces 536,870,928 bytes, but has "),
        ((2**32 - 1, 2**32 - 1, 2**32 - 1), "images do not compress so well"),
    ],
)
def test_idx_writes_no_more_than_its_header_announces(tmp_path, shape, message):
    (tmp_path / "cache").mkdir()
    packed = gzip.compress(idx_header(*shape)) + HALF_A_GIGABYTE
    assert len(packed) < 600_000
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(packed)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_header(2) + bytes(2))
    assert message in refusal_of(Mnist, str(tmp_path), "val", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_archives_are_unpacked_no_further_than_the_published_ones(tmp_path, little_memory):
    (tmp_path / "cache").mkdir()
    huge = tarfile.TarInfo("cifar-10-batches-py/huge")
    huge.size = 1 << 29
    packed = gzip.compress(huge.tobuf(tarfile.GNU_FORMAT)) + HALF_A_GIGABYTE
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(packed)
    message = refusal_of(Cifar10, str(tmp_path), "val", tmp_path / "cache")
    assert "unpacks to more than 268,435,456 bytes, which the published one does not" in message
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_development_kit_is_unpacked_no_further_than_published(tmp_path):
    (tmp_path / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(HALF_A_GIGABYTE)
    assert "unpacks to more than 67,108,864 bytes" in refusal_of(read_kit_labels, str(tmp_path))


def test_the_published_kind_of_archive_is_still_found(tmp_path):
    (tmp_path / "cache").mkdir()
    write_archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", {"readme.html": b"x"})
    assert "has no test_batch" in refusal_of(Cifar10, str(tmp_path), "val", tmp_path / "cache")


def nifti(path, shape):
    """A header of this shape over few voxels."""
    content = bytearray(write_volume(path.with_name("small.nii"), SMALL).read_bytes())
    content[40:48] = struct.pack("<4h", 3, *shape)
    path.write_bytes(gzip.compress(bytes(content)) if path.suffix == ".gz" else bytes(content))
    return path


@pytest.mark.parametrize("name", ["case.nii", "case.nii.gz"])
def test_nifti_announces_no_more_than_it_can_hold(tmp_path, little_memory, name):
    message = refusal_of(read_volume, nifti(tmp_path / name, (20_000, 20_000, 20_000)))
    assert "fewer voxels than its header announces (16,000,000,000,000 bytes, more than " in message


def test_numpys_archive_announces_no_more_than_it_can_hold(tmp_path, little_memory):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (40000, 40000, 40000), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
    stream = io.BytesIO()
    np.save(stream, SMALL)
    small = stream.getvalue()
    for name, entries in (
        ("shape", {"volume.npy": array}),
        ("affine", {"volume.npy": small, "affine.npy": bytes(1 << 24)}),
        ("names", {"volume": b"a", "affine": b"b"}),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, content in entries.items():
                archive.writestr(entry, content)
    assert "affine.npy has 16,777,216 bytes" in refusal_of(read_volume, tmp_path / "affine.npz")
    assert "more than 64 bytes can contain" in refusal_of(read_volume, tmp_path / "shape.npz")
    assert "was not written by numpy.savez" in refusal_of(read_volume, tmp_path / "names.npz")


def test_too_many_voxels_name_the_key(tmp_path):
    path = write_volume(tmp_path / "train" / "case.npy", SMALL)
    write_landmarks(tmp_path / "train" / "case.json", {"nose": [1, 1, 1]})
    assert f"{path} has 3 x 4 x 5 voxels, above the limit of 59 in total; raise VOLUMES.MAX_VOXELS" in refusal_of(
        LandmarkDataset, str(tmp_path), "train", tmp_path / "cache", VolumeOptions(max_voxels=59)
    )
    assert len(LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions(max_voxels=60))) == 1
    fine = LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions(spacing_mm=[1e-9, 1.0, 1.0]))
    assert "at the spacing of 1e-09 x 1 x 1 mm (VOLUMES.SPACING_MM), above the limit" in refusal_of(fine.read, 0)


def test_an_element_of_dicom_is_no_longer_than_its_file(tmp_path):
    folder = write_series(tmp_path / "case", SMALL, np.eye(4))
    content = (folder / "001.dcm").read_bytes()
    at = content.index(b"\x08\0\x18\0") + 4  # the length of (0008,0018), in a file of implicit kinds
    (folder / "001.dcm").write_bytes(content[:at] + b"\xf0\xff\xff\xff" + content[at + 4 :])
    assert "announces 4,294,967,280 bytes, " in refusal_of(read_header, folder)


def test_a_pipe_in_place_of_voxels_is_not_waited_for(tmp_path):
    header = write_volume(tmp_path / "case.mhd", SMALL)
    (tmp_path / "case.raw").unlink()
    os.mkfifo(tmp_path / "case.raw")
    assert f"the header names the voxel file {tmp_path / 'case.raw'}, which does not exist" in refusal_of(
        read_header, header
    )
    os.mkfifo(write_series(tmp_path / "series", SMALL, np.eye(4)) / "999.dcm")
    assert read_volume(tmp_path / "series")[0].shape == SMALL.shape


def ply(count, kind="ascii", more=""):
    properties = "".join(f"property float {axis}\n" for axis in "xyz")
    return f"ply\nformat {kind} 1.0\nelement vertex {count}\n{properties}{more}end_header\n1 2 3\n".encode()


@pytest.mark.parametrize("kind", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("more", ["", "property list uchar float more\n"])
def test_point_clouds_announce_no_more_than_they_hold(tmp_path, little_memory, kind, more):
    for count in (10**9, 10**18, "9" * 5000):
        (tmp_path / "a.ply").write_bytes(ply(count, kind, more))
        assert "is not a complete PLY file" in refusal_of(read_vertices, tmp_path / "a.ply")


DEEP, LONG = '{"a":' * 100_000, '{"nose": [1, 2, ' + "9" * 5000 + "]}"


@pytest.mark.parametrize("text, reason", [(DEEP, "nested too deeply"), (LONG, "a number of 5,000 digits")])
def test_json_of_strangers_is_one_line_whatever_is_in_it(tmp_path, text, reason):
    for name in ("case.json", "case.mrk.json"):
        (tmp_path / name).write_text(text)
        assert reason in refusal_of(landmark_files.read, str(tmp_path / name))
    (tmp_path / "prepared.json").write_text(text)
    assert reason in refusal_of(read_preparation, str(tmp_path))
    write_scannet(tmp_path / "scans", "scene0000_00")
    (tmp_path / "scannetv2_train.txt").write_text("scene0000_00\n")
    reader = ScanNetReader()
    (source,) = reader.sources(str(tmp_path), {})["train"]
    for ending in (".aggregation.json", "_vh_clean_2.0.010000.segs.json"):
        file = tmp_path / "scans" / f"scene0000_00{ending}"
        before = file.read_text()
        assert json.loads(before)
        file.write_text(text)
        assert reason in refusal_of(reader.read, source)
        file.write_text(before)


def test_honest_headers_of_every_form_are_still_read(tmp_path):
    import SimpleITK

    blank = np.zeros((64, 128, 128), np.int16)  # nothing compresses better
    for name in ("a.mha", "a.nrrd", "a.mhd", "a.nhdr"):
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(blank), str(tmp_path / name), True)
        np.testing.assert_array_equal(read_volume(tmp_path / name)[0], blank, strict=True)
    np.savez_compressed(tmp_path / "a.npz", volume=blank)
    np.testing.assert_array_equal(read_volume(tmp_path / "a.npz")[0], blank, strict=True)
    np.testing.assert_array_equal(read_volume(write_volume(tmp_path / "a.nii.gz", blank))[0], blank, strict=True)

    planes = [f"plane{number:02d}.raw" for number in range(3)]
    for name, plane in zip(planes, SMALL):
        (tmp_path / name).write_bytes(plane.tobytes())
    meta = write_volume(tmp_path / "b.mhd", SMALL)
    nrrd = write_volume(tmp_path / "b.nhdr", SMALL)
    (tmp_path / "b.raw").unlink()
    for header, before, forms in (
        (meta, "ElementDataFile = b.raw", ("ElementDataFile = plane%02d.raw 0 2 1", "ElementDataFile = LIST\n{}")),
        (nrrd, "data file: b.raw", ("data file: plane%02d.raw 0 2 1", "data file: LIST\n{}")),
    ):
        text = header.read_text()
        for form in forms:
            header.write_text(text.replace(before, form.format("\n".join(planes))))
            assert np.array_equal(read_volume(header)[0], SMALL), form
    numbers = " ".join(map(str, SMALL.reshape(-1)))
    head = "NRRD0004\ntype: short\ndimension: 3\nsizes: 5 4 3\nencoding: ascii\nspacings: 1 1 1\n\n"
    (tmp_path / "c.nrrd").write_text(f"{head}{numbers}\n")
    np.testing.assert_array_equal(read_volume(tmp_path / "c.nrrd")[0], SMALL, strict=True)
