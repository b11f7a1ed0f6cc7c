"""DICOM series folders, against SimpleITK's own reader, and what is said about folders without exactly one series."""

import sys

import numpy as np
import pytest
from support.files.dicom_elements import element, item, meta
from support.files.volume_files import (
    AFFINE,
    LPS,
    SHAPE,
    voxels,
    world,
    write_landmarks,
    write_series,
    write_volume,
)
from support.refusals import refusal_of

from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset, VolumeOptions
from paddlevit_dist.volumes.reading import case_name, list_volumes, read_header, read_volume

SLICES = SHAPE[0]


def test_a_series_is_what_simpleitk_reads(tmp_path):
    import SimpleITK

    folder = write_series(tmp_path / "anna", voxels())
    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    image = reader.Execute()
    array, header = read_volume(folder)
    assert np.array_equal(array, SimpleITK.GetArrayFromImage(image)) and array.dtype == np.int16
    for voxel in [(0, 0, 0), (13, 0, 9), (5, 11, 2)]:  # x, y, z
        place = np.array(image.TransformIndexToPhysicalPoint(voxel)) * [-1, -1, 1]
        np.testing.assert_allclose(header.geometry.world(np.array(voxel[::-1], dtype=float)), place, atol=1e-3)


def test_places_order_the_slices_not_names_and_other_files_are_passed_over(tmp_path):
    names = [f"IM{number}" for number in np.random.default_rng(0).permutation(SLICES)]  # no suffix
    folder = write_series(tmp_path / "anna", voxels(), names=names)
    (folder / "notes.txt").write_text("looked at by Ben\n" * 20)
    (folder / ".DS_Store").write_bytes(b"\0" * 200)
    (folder / "DICOMDIR").write_bytes(b"\0" * 128 + b"DICM" + b"\0" * 40)
    array, header = read_volume(folder)
    np.testing.assert_array_equal(array, voxels(), strict=True)
    np.testing.assert_allclose(header.geometry.affine, AFFINE, atol=1e-5)


def write_object(path, modality, *elements) -> None:
    """A DICOM object of this modality, with a sequence that has nested elements, as a set of contours has."""
    contours = element(0x3006, 0x0050, b"DS", b"1\\2\\3 ")
    nested = element(0x3006, 0x0039, b"SQ", item(contours))
    content = element(8, 0x60, b"CS", modality) + nested + b"".join(elements)
    path.write_bytes(meta(b"1.2.840.10008.1.2.1\0") + content)


def test_objects_without_slices_next_to_a_series_are_told_and_not_used(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    write_object(folder / "RS.dcm", b"RTSTRUCT")
    write_object(folder / "report", b"SR")
    frames = element(0x28, 0x10, b"US", b"\2\0"), element(0x7FE0, 0x10, b"OW", b"\0" * 16)
    write_object(folder / "RD.dcm", b"RTDOSE", *frames)
    for name in ("._000.dcm", "Thumbs.db", "plan.pdf", "LOCKFILE", "head.json", "000.png"):
        (folder / name).write_bytes(b"\x89PNG not a slice" * 20)
    array, header = read_volume(folder)
    np.testing.assert_array_equal(array, voxels())
    assert header.remarks == ("DICOM files without slices, not used: RD.dcm (RTDOSE), RS.dcm (RTSTRUCT), report (SR)",)


def test_a_modality_table_that_is_not_applied_is_told(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    content = (folder / "004.dcm").read_bytes()
    place = content.index(b"\xe0\x7f\x10\0")
    table = element(0x0028, 0x3000, None, item(element(0x0028, 0x3004, None, b"HU")))
    (folder / "004.dcm").write_bytes(content[:place] + table + content[place:])
    (remark,) = read_header(folder).remarks
    assert remark.startswith("the modality LUT in the headers is not applied")


def test_a_slice_without_its_voxels_is_damaged(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    content = (folder / "004.dcm").read_bytes()
    (folder / "004.dcm").write_bytes(content[: content.index(b"\xe0\x7f\x10\0")])
    assert "004.dcm cannot be read as a DICOM slice" in refusal_of(read_volume, folder)


def test_a_folder_of_contours_alone_is_told(tmp_path):
    (tmp_path / "anna").mkdir()
    write_object(tmp_path / "anna" / "RS.dcm", b"RTSTRUCT")
    assert "anna contains no DICOM slices, only RS.dcm (RTSTRUCT)" in refusal_of(read_header, tmp_path / "anna")


def test_a_tilted_gantry_keeps_every_voxel_in_place(tmp_path):
    sheared = np.diag([1.0, 1.5, 2.0, 1.0])
    sheared[1, 2] = 0.5  # each slice begins half a millimeter further in front
    _, header = read_volume(write_series(tmp_path / "anna", voxels(), sheared))
    np.testing.assert_allclose(header.geometry.affine, sheared, atol=1e-6)


def test_each_slice_has_its_own_slope(tmp_path):
    tags = [{"0028|1052": "-100", "0028|1053": f"{1 + number}"} for number in range(SLICES)]
    folder = write_series(tmp_path / "anna", voxels().clip(-30, 30), tags=tags)
    stored = voxels().clip(-30, 30)
    # The writer divides by slope and intercept, rounding; reading multiplies again.
    np.testing.assert_allclose(read_volume(folder)[0], stored, atol=SLICES)
    first = read_volume(folder)[0]
    assert len(np.unique((first[-1] + 100) % SLICES)) == 1  # whole multiples of the last slice's slope


def test_voxels_are_not_turned_over_for_display(tmp_path):
    """Stored value times slope plus intercept, as with the same bytes and another word in the header."""
    array = (100 * np.arange(24).reshape(2, 3, 4)).astype(np.int16)
    folder = write_series(tmp_path / "anna", array, tags=[{"0028|1052": "-700", "0028|1053": "25"}] * 2)
    path = folder / "001.dcm"
    path.write_bytes(path.read_bytes().replace(b"MONOCHROME2", b"MONOCHROME1"))
    assert b"MONOCHROME1" in path.read_bytes()
    np.testing.assert_array_equal(read_volume(folder)[0], array)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"-1\\0\\0\\0\\-1\\0", b"-1\\0\\0\\0\\-x\\0", r"Image Orientation (-1\0\0\0\-x\0) cannot be used"),
        (b"-1\\0\\0\\0\\-1\\0", b"-1\\0\\.1\\0\\-1\\", "Image Orientation"),
        (b"\x28\0\x53\x10\2\0\0\x0025", b"\x28\0\x53\x10\2\0\0\x000 ", "Rescale Slope (0) cannot be used"),
        (b"\x28\0\2\1\2\0\0\0\x0f", b"\x28\0\2\1\2\0\0\0\x0e", "High Bit (14) cannot be used"),
    ],
)
def test_what_itk_would_replace_in_a_header_is_told(tmp_path, old, new, said):
    tags = [{"0028|1052": "0", "0028|1053": "25"}] * 2
    folder = write_series(tmp_path / "anna", np.zeros((2, 3, 4), np.int16), np.eye(4), tags=tags)
    content = (folder / "000.dcm").read_bytes()
    assert content.count(old) == 1
    (folder / "000.dcm").write_bytes(content.replace(old, new))
    assert said in refusal_of(read_header, folder)


@pytest.mark.parametrize(
    ("tag", "name"),
    [(b"\x20\0\x32\0", "Image Position"), (b"\x20\0\x37\0", "Image Orientation"), (b"\x28\0\x30\0", "Pixel Spacing")],
)
def test_each_place_that_is_not_numbers_is_told(tmp_path, tag, name):
    folder = write_series(tmp_path / "anna", np.zeros((2, 3, 4), np.int16), np.eye(4))
    content = (folder / "000.dcm").read_bytes()
    start = content.index(tag) + 8  # after the number of bytes
    assert content.count(tag) == 1
    (folder / "000.dcm").write_bytes(content[:start] + b"x" + content[start + 1 :])
    assert f"{name} (x" in refusal_of(read_header, folder)


def test_positions_that_were_rounded_are_evenly_spaced(tmp_path):
    tags = [{"0020|0032": f"0\\0\\{round(0.625 * number, 1)}"} for number in range(SLICES)]
    header = read_header(write_series(tmp_path / "anna", voxels(), np.eye(4), tags=tags))
    assert header.geometry.spacing[0] == pytest.approx(0.625, abs=0.01)


def with_slices(folder, numbers, **more):
    """The slices of these numbers, in this order, where they lie in the whole head."""
    names = [f"{place:03d}.dcm" for place in range(len(numbers))]
    tags = [{"0020|0032": "\\".join(f"{v:.6f}" for v in (LPS @ AFFINE @ [0, 0, n, 1.0])[:3])} for n in numbers]
    array = np.stack([voxels()[int(number)] for number in numbers])
    return write_series(folder, array, tags=tags, names=names, **more)


def test_several_series_are_listed(tmp_path):
    write_series(tmp_path / "anna", voxels(), uid="1.2.3.4")
    other = [f"b{number}" for number in range(3)]
    write_series(tmp_path / "anna", voxels()[:3], uid="1.2.3.5", names=other, tags=[{"0008|103e": "scout"}] * 3)
    message = refusal_of(read_header, tmp_path / "anna")
    assert message.startswith(f"{tmp_path / 'anna'} contains 2 DICOM series")
    assert "1.2.3.4 'head', 10 files from 000.dcm" in message and "1.2.3.5 'scout', 3 files from b0" in message


@pytest.mark.parametrize(
    "numbers, message",
    [
        ([0, 1, 2, 3, 5, 6, 7], "not evenly spaced: 4 mm from 003.dcm to 004.dcm, usually 2 mm; is one missing?"),
        ([0, 1, 2, 3, 4, 5, 8], "8 mm"),
        ([0, 1, 2, 2, 3, 4], "002.dcm and 003.dcm have the same position"),
        ([0], "only one DICOM slice"),
    ],
)
def test_slices_that_are_missing_or_there_twice_are_told(tmp_path, numbers, message):
    expected = "6 mm from 005.dcm to 006.dcm" if message == "8 mm" else message
    assert expected in refusal_of(read_header, with_slices(tmp_path / "anna", numbers))


def test_slices_of_other_size_or_direction_are_told(tmp_path):
    folder = write_series(tmp_path / "size", voxels())
    write_series(folder, voxels()[:1, :-2], names=["scout.dcm"])
    assert "000.dcm and scout.dcm have 14 x 12 and 14 x 10 voxels" in refusal_of(read_header, folder)
    folder = write_series(tmp_path / "direction", voxels(), np.eye(4))
    write_series(folder, voxels()[:1], names=["scout.dcm"], tags=[{"0020|0037": "1\\0\\0\\0\\0\\-1"}])
    assert "000.dcm and scout.dcm differ in direction" in refusal_of(read_header, folder)


def test_damaged_slices_and_folders_without_any_are_told(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    whole = (folder / "004.dcm").read_bytes()
    (folder / "004.dcm").write_bytes(whole[:-50])
    message = refusal_of(read_volume, folder)
    assert (
        "004.dcm cannot be read as a DICOM slice (element (7fe0,0010) announces 336 bytes, only 286 remain)" in message
    )
    for name in ("series2", "series1"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    (tmp_path / "empty" / "a.txt").write_text("note")
    assert "contains no DICOM slices, only folders (series1, ...); put" in refusal_of(read_header, tmp_path / "empty")
    (tmp_path / "notes" / "inner").mkdir(parents=True)
    (tmp_path / "notes" / "inner").rmdir()
    assert "notes contains no DICOM slices; put" in refusal_of(read_header, tmp_path / "notes")
    for name in ("slice.DCM", "slice.ima"):  # without the mark of the format
        (tmp_path / "notes" / name).write_bytes(b"text" * 50)
        message = refusal_of(read_header, tmp_path / "notes")
        assert message.startswith(f"{tmp_path / 'notes' / name} cannot be read as a DICOM slice (")
        (tmp_path / "notes" / name).unlink()


def test_a_compressed_slice_whose_voxels_are_damaged_is_told(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    path = folder / "004.dcm"
    import SimpleITK

    writer = SimpleITK.ImageFileWriter()
    writer.SetImageIO("GDCMImageIO")
    writer.SetFileName(str(path))
    writer.KeepOriginalImageUIDOn()
    writer.UseCompressionOn()
    writer.SetCompressor("JPEG2000")
    writer.Execute(SimpleITK.ReadImage(str(path), imageIO="GDCMImageIO"))
    whole = path.read_bytes()
    np.testing.assert_array_equal(read_volume(folder)[0], voxels())
    start = whole.index(b"\xff\x4f\xff\x51")  # of the compressed voxels
    path.write_bytes(whole[: start + 2] + bytes(20) + whole[start + 22 :])
    assert refusal_of(read_volume, folder) == f"{path} cannot be read as a DICOM slice; is it complete? Copy it again"


def test_colors_and_frames_are_told(tmp_path):
    import SimpleITK

    (tmp_path / "anna").mkdir()
    image = SimpleITK.GetImageFromArray(np.zeros((1, 4, 5, 3), dtype=np.uint8), isVector=True)
    SimpleITK.WriteImage(image, str(tmp_path / "anna" / "a.dcm"))
    assert "a.dcm: each voxel has 3 color components" in refusal_of(read_header, tmp_path / "anna")
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(np.zeros((2, 4, 5), np.uint8)), str(tmp_path / "anna" / "a.dcm"))
    assert "a.dcm contains 2 frames, expected one slice" in refusal_of(read_header, tmp_path / "anna")


def test_a_slice_that_announces_far_more_voxels_than_its_file_can_have_is_told(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    content = (folder / "003.dcm").read_bytes()
    for tag in (b"\x28\x00\x10\x00\x02\x00\x00\x00", b"\x28\x00\x11\x00\x02\x00\x00\x00"):
        place = content.index(tag) + len(tag)
        content = content[:place] + b"\x60\xea" + content[place + 2 :]  # 60,000
    (folder / "003.dcm").write_bytes(content)
    assert "003.dcm cannot be read as a volume: it probably has fewer voxels than its header announces" in refusal_of(
        read_header, folder
    )


def test_a_slice_without_a_place_is_told(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    content = (folder / "003.dcm").read_bytes()
    assert b"\x20\x00\x32\x00" in content  # its position becomes a tag that nobody knows
    (folder / "003.dcm").write_bytes(content.replace(b"\x20\x00\x32\x00", b"\x20\x00\x33\x00", 1))
    assert "003.dcm has no position of its slice (missing: Image Position)" in refusal_of(read_header, folder)


def test_folders_are_cases_if_they_hold_dicom_or_have_landmarks(tmp_path):
    write_series(tmp_path / "anna.01", voxels()[:2], names=["a", "b"])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text").write_text("nothing")
    (tmp_path / ".hidden").mkdir()
    assert [case_name(path) for path in list_volumes(tmp_path)] == ["anna.01"]
    write_landmarks(tmp_path / "notes.csv", {"nose": (1, 2, 3)})
    assert [case_name(path) for path in list_volumes(tmp_path)] == ["anna.01", "notes"]
    write_volume(tmp_path / "anna.01.nii")
    assert "have the same name" in refusal_of(list_volumes, tmp_path)


def test_loose_dicom_files_are_told(tmp_path):
    write_series(tmp_path / "train", voxels())
    message = refusal_of(LandmarkDataset, str(tmp_path), "train", tmp_path / "cache", VolumeOptions())
    assert "contains no volumes but loose DICOM files (move each series to a separate folder)" in message
    write_volume(tmp_path / "train" / "case.npz")
    write_landmarks(tmp_path / "train" / "case.csv", {"nose": world((3, 4, 5)), "chin": None})
    write_landmarks(tmp_path / "train" / "anna.csv", {"nose": (1, 2, 3)})
    notices = LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions()).notices
    assert [notice.replace(str(tmp_path), "") for notice in notices] == [
        "note: /train: no volume matches anna.csv; not used",
        "note: /train contains loose DICOM files (move each series to a separate folder); not used",
        "note: /train: no volume has a position of chin: the model cannot learn it",
    ]


@pytest.mark.parametrize("name, library", [("anna", "SimpleITK"), ("anna.mha", "SimpleITK"), ("anna.nii", "nibabel")])
def test_a_missing_library_is_told_with_how_to_install_it(tmp_path, monkeypatch, name, library):
    path = write_volume(tmp_path / name)
    monkeypatch.setitem(sys.modules, library, None)
    message = refusal_of(read_header, path)
    assert f"{name}: requires {library}; install it with pip install '.[volumes]'" in message


def test_a_link_to_a_slice_that_is_gone_is_told(tmp_path):
    folder = write_series(tmp_path / "anna", voxels())
    (folder / "004.dcm").unlink()
    (folder / "004.dcm").symlink_to(tmp_path / "nowhere")
    assert "004.dcm cannot be read" in refusal_of(read_header, folder)


def test_a_series_is_decoded_anew_when_a_slice_changes(tmp_path):
    def dataset() -> LandmarkDataset:
        return LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions())

    write_series(tmp_path / "train" / "anna", voxels())
    x, y, z = world((3, 4, 5))
    write_landmarks(tmp_path / "train" / "anna.csv", {"nose": (-x, -y, z)})
    np.testing.assert_array_equal(dataset().read(0)[0].array, voxels(), strict=True)
    write_series(tmp_path / "train" / "anna", voxels(1))
    np.testing.assert_array_equal(dataset().read(0)[0].array, voxels(1), strict=True)


@pytest.mark.parametrize("header, voxel_file", [("anna.mhd", "anna.raw"), ("anna.nhdr", "anna.raw")])
def test_voxels_beside_their_header_count_as_changed_too(tmp_path, header, voxel_file):
    path = write_volume(tmp_path / "train" / header)
    write_landmarks(tmp_path / "train" / "anna.json", {"nose": [0, 0, 0]})
    dataset = LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions(landmark_units="voxel"))
    np.testing.assert_array_equal(dataset.read(0)[0].array, voxels(), strict=True)
    kept = path.read_bytes(), path.stat().st_mtime_ns
    write_volume(tmp_path / "other" / header, voxels(1))
    (path.parent / voxel_file).write_bytes((tmp_path / "other" / voxel_file).read_bytes())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == kept
    np.testing.assert_array_equal(dataset.read(0)[0].array, voxels(1), strict=True)
