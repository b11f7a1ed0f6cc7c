"""Volumes of one place, remarks on many files, the files of a volume, and headers that announce too much."""

import gzip
import zipfile

import nibabel
import numpy as np
import pytest
from support.files.volume_files import AFFINE, SHAPE, voxels, write_landmarks, write_volume
from support.refusals import refusal_of

from paddlevit_dist.volumes import reading
from paddlevit_dist.volumes.geometry import VolumeGeometry, farthest_apart
from paddlevit_dist.volumes.reading import VolumeHeader
from paddlevit_dist.volumes.store import read_stored


def moved(*millimeters: float) -> np.ndarray:
    other = AFFINE.copy()
    other[:3, 3] += millimeters
    return other


def write(folder, name, affine=AFFINE, array=None):
    return str(write_volume(folder / name, array, affine))


def test_an_image_and_its_labels_may_differ_by_rounding_only(tmp_path):
    first, near = write(tmp_path, "first.npz"), write(tmp_path, "near.npz", moved(0.049, 0, -0.049))
    headers = reading.read_aligned_headers([first, near])
    assert list(headers) == [first, near]
    np.testing.assert_array_equal(headers[near].geometry.affine, moved(0.049, 0, -0.049), strict=True)
    far = write(tmp_path, "far.npz", moved(0.0, 0.06, 0.0))  # of 1 mm, the shortest step, a twentieth is allowed
    assert refusal_of(reading.read_aligned_headers, [first, near, far]) == (
        f"{far} and {first} have different geometries: origin -30.00, 12.06, 40.00 and -30.00, 12.00, 40.00 mm, or "
        "another direction; corners are 0.06 mm apart; resample one to the other, or correct its header"
    )
    wide = write(tmp_path, "wide.npz", AFFINE @ np.diag([2.0, 1.0, 1.0, 1.0]))
    assert (
        f"{wide} and {first} have different geometries: spacing 2 x 1.5 x 2 and 1 x 1.5 x 2 mm (x, y, z); "
        in refusal_of(reading.read_aligned_headers, [first, wide])
    )
    small = write(tmp_path, "small.npz", AFFINE, voxels()[:, :-1])
    assert (
        f"{small} and {first} have different geometries: 14 x 11 x 10 voxels (x, y, z) and 14 x 12 x 10; "
        in refusal_of(reading.read_aligned_headers, [first, small])
    )


def test_the_farthest_corner_counts():
    first = VolumeGeometry((3, 4, 5), np.eye(4))
    for axis, length in enumerate((5, 4, 3)):  # x, y, z
        longer = np.eye(4)
        longer[axis, axis] = 1.5
        assert farthest_apart(first, VolumeGeometry((3, 4, 5), longer)) == 0.5 * (length - 1)


def test_a_remark_is_told_once_with_its_first_file_and_the_number_of_others():
    geometry = VolumeGeometry((1, 1, 1), np.eye(4))
    remarks = {"a": ("one", "two"), "b": (), "c": ("two",)} | {f"d{n}": ("two",) for n in range(1200)}
    headers = {name: VolumeHeader(geometry, "ras", found) for name, found in remarks.items()}
    assert reading.format_remarks(headers) == ["note: a: one", "note: a and 1,201 more: two"]


def test_the_median_spacing_is_suggested_where_spacings_differ():
    def header(*spacing):
        return VolumeHeader(VolumeGeometry((4, 4, 4), np.diag([*spacing[::-1], 1.0])), "ras")

    headers = {"f/a.nii": header(3.0, 1.0, 2.0), "f/b.nii": header(3.001, 1.0, 2.0), "f/c.nii": header(5.0, 1.0, 2.5)}
    assert refusal_of(reading.common_spacing, headers, None) == (
        "f/c.nii: the voxel spacing is 5 x 1 x 2.5 mm, but a.nii has 3 x 1 x 2 mm (depth, height, width); resample all "
        "to the same, such as the median: add VOLUMES.SPACING_MM [3,1,2]"
    )
    assert reading.common_spacing(headers, [0.1, 2, 3]).tolist() == [0.1, 2.0, 3.0]
    headers.pop("f/c.nii")
    assert reading.common_spacing(headers, None).tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NDims = 3\nElementDataFile = a b.raw \nrest", "a b.raw"),
        ("elementdatafile=x.raw", "x.raw"),
        ("NRRD0004\r\ndata file: y.raw.gz\r\n\r\n", "y.raw.gz"),
        ("NRRD0004\ndatafile: z.raw", "z.raw"),
        ("ElementDataFile = LOCAL\n", None),
        ("ElementDataFile = LIST\na.raw", None),
        ("data file: LIST 2", None),
        ("data file: part%03d.raw 1 9 1", None),
        ("ElementDataFile = \n", None),
        ("Comment = ElementDataFile = x\n", None),
        ("#" * 65_600 + "\nElementDataFile = far.raw", None),
    ],
)
def test_the_file_of_voxels_is_the_one_that_the_header_names(tmp_path, text, name):
    header = tmp_path / "case.MHD"
    header.write_bytes(text.encode())
    found = [] if name is None else [str(tmp_path / name)]
    assert reading.detached_voxel_files(str(header)) == found
    assert reading.list_parts(str(header)) == [str(header)]
    if found:
        (tmp_path / name).touch()
        assert reading.list_parts(str(header)) == [str(header), *found]
    (tmp_path / "case.nii").write_bytes(text.encode())
    assert reading.detached_voxel_files(str(tmp_path / "case.nii")) == []


def test_the_parts_of_a_folder_are_its_visible_files(tmp_path):
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "inner").mkdir()
    assert reading.list_parts(str(tmp_path)) == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_folder_with_landmarks_is_a_volume_unless_a_file_has_its_name(tmp_path):
    for name in ("anna", "ben", "carl"):
        (tmp_path / name).mkdir()
        if name != "carl":
            write_landmarks(tmp_path / f"{name}.csv", {"nose": (1, 2, 3)})
    write_volume(tmp_path / "ben.npy")
    assert reading.list_volumes(str(tmp_path)) == [str(tmp_path / "anna"), str(tmp_path / "ben.npy")]
    write_volume(tmp_path / "ben.npz")
    assert refusal_of(reading.list_volumes, str(tmp_path)) == (
        f"{tmp_path / 'ben.npz'} and ben.npy have the same name, so the same landmark file; rename one"
    )


@pytest.mark.parametrize("kind", ["Nifti1Image", "Nifti2Image"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_both_versions_of_nifti_in_both_orders_are_read(tmp_path, kind, order, suffix):
    cls = getattr(nibabel, kind)
    header = cls.header_class(endianness=order)
    header.set_data_dtype(np.int16)
    path = tmp_path / f"case{suffix}"
    cls(voxels().T, AFFINE, header).to_filename(path)
    array, found = reading.read_volume(str(path))
    np.testing.assert_array_equal(array, voxels())
    np.testing.assert_allclose(found.geometry.affine, AFFINE, atol=1e-5)
    content = gzip.decompress(path.read_bytes()) if suffix.endswith("gz") else path.read_bytes()
    length = 540 if kind == "Nifti2Image" else 348

    def put(changed: bytes) -> str:
        path.write_bytes(gzip.compress(changed) if suffix.endswith("gz") else changed)
        return refusal_of(reading.read_header, str(path))

    assert put(content[: length - 1]) == (
        f"{path} cannot be read as a volume: it ends within its header; copy it again"
    )
    if kind == "Nifti1Image":
        number = np.array(2.0**27, f"{order}f4").tobytes()
        assert put(content[:108] + number + content[112:]) == (
            f"{path}: voxels begin at byte {2**27} according to its header; write the file again"
        )
    dims = np.array([3, 30_000, 30_000, 30, 1, 1, 1, 1], f"{order}{'i8' if length == 540 else 'i2'}").tobytes()
    start = 16 if length == 540 else 40
    announced = 30_000 * 30_000 * 30 * 2
    line = put(content[:start] + dims + content[start + len(dims) :])
    assert f"it probably has fewer voxels than its header announces ({announced:,} bytes, more than " in line


def change_npz(path, name: str, content: bytes | None = None, kind: int = zipfile.ZIP_STORED, added: str = "") -> str:
    """Write an archive again with another member or compression; return the refusal."""
    np.savez(path, volume=voxels(), affine=AFFINE)
    with zipfile.ZipFile(path) as archive:
        members = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for entry, old in members.items():
            mine = entry == name
            archive.writestr(entry, content if mine and content is not None else old, kind if mine else None)
        if added:
            archive.writestr(added, b"x")
    return refusal_of(reading.read_header, str(path))


def test_archives_that_numpy_did_not_write_are_told(tmp_path):
    path = tmp_path / "case.npz"
    for added in ("volume", "affine", "spacing"):
        assert change_npz(path, "", added=added) == (
            f"{path} was not written by numpy.savez; write it again with numpy.savez"
        )
    assert change_npz(path, "volume.npy", kind=zipfile.ZIP_BZIP2) == (
        f"{path} has a compression that numpy does not use; write it again with numpy.savez_compressed"
    )
    assert change_npz(path, "affine.npy", b"\x93NUMPY" + bytes(4091)) == (
        f"{path}: affine.npy has 4,097 bytes, which is too large; write the file again"
    )
    np.savez(path, volume=voxels())
    content = path.read_bytes()
    start = content.index(b"PK\x01\x02") + 20  # the sizes in the directory at the end
    path.write_bytes(content[:start] + np.array([10**9] * 2, "<u4").tobytes() + content[start + 8 :])
    announced = (
        f"it probably has fewer voxels than its header announces (1,000,000,000 bytes, more than {len(content):,} b"
    )
    assert announced in refusal_of(reading.read_header, str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scan.npy", b"")
    assert refusal_of(reading.read_volume, str(path)) == (
        f"{path}: no array named 'volume', only scan; name the array 'volume'"
    )


def test_voxels_that_are_not_finite_are_counted_with_advice_for_what_they_are(tmp_path):
    array = np.zeros(SHAPE, np.float32)
    array[:3, 0, 0] = np.nan, np.inf, -np.inf
    path = write(tmp_path, "case.npz", AFFINE, array)
    assert refusal_of(reading.read_volume, path) == (
        f"{path}: 3 of 1,680 voxels are not finite; replace them, e.g. by the intensity of air (numpy.nan_to_num)"
    )
    labels = refusal_of(lambda file: reading.read_volume(file, are_labels=True), path)
    assert labels.endswith("NaN is not a label: give them one, e.g. 0 for the background (numpy.nan_to_num)")
    assert refusal_of(read_stored, path, 1680) == refusal_of(reading.read_volume, path)
    assert refusal_of(read_stored, path, 1680, lambda file, voxels: voxels) == labels
    for limit, is_read in ((1680, True), (1679, False)):
        if is_read:
            assert reading.read_header(path, limit).geometry.shape == SHAPE
        else:
            assert "above the limit of 1,679 in total" in refusal_of(reading.read_header, path, limit)
            assert "above the limit of 1,679 in total" in refusal_of(
                reading.read_volume, write(tmp_path, "case.npy"), limit
            )
            assert "above the limit of 1,679 in total" in refusal_of(reading.read_aligned_headers, [path], limit)


def test_a_librarys_reason_is_one_short_line():
    def fail():
        raise ValueError("itk.cxx:12: ERROR: no\n  luck " + "ä" * 300)

    line = refusal_of(reading._read_or_raise, "file", fail)
    reason = line.removeprefix("file cannot be read as a volume (").partition(")")[0]
    assert reason.startswith("no luck \\xe4\\xe4") and len(reason) == 200
