"""Volume and landmark files: what is read, and what is said about damaged ones."""

import numpy as np
import pytest
from support.files.volume_files import AFFINE, SHAPE, voxels, write_landmarks, write_volume
from support.refusals import refusal_of

from paddlevit_dist.volumes import landmark_files
from paddlevit_dist.volumes.reading import case_name, format_remarks, list_volumes, read_header, read_volume


def test_an_npy_has_voxels_of_a_millimeter(tmp_path):
    array, header = read_volume(write_volume(tmp_path / "case.npy"))
    assert np.array_equal(array, voxels()) and np.array_equal(header.geometry.affine, np.eye(4))


def test_an_npz_may_give_spacing_in_array_order(tmp_path):
    np.savez(tmp_path / "case.npz", volume=voxels(), spacing=[3.0, 2.0, 1.0])
    assert read_header(tmp_path / "case.npz").geometry.spacing.tolist() == [3.0, 2.0, 1.0]


@pytest.mark.parametrize("name", ["case.nii.gz", "case.npz", "case.mha", "case.nrrd"])
def test_a_truncated_file_is_named(tmp_path, name):
    path = write_volume(tmp_path / name)
    path.write_bytes(path.read_bytes()[:300])
    message = refusal_of(read_volume, path)
    assert str(path) in message and "Copy it again" in message


@pytest.mark.parametrize("name", ["case.nii", "case.npz", "case.npy", "case.mha", "case.nrrd"])
def test_a_fourth_dimension_is_refused_before_the_voxels_are_read(tmp_path, name):
    path = tmp_path / name
    series = np.zeros((3, 4, 5, 6), dtype=np.float32)
    if name.endswith((".mha", ".nrrd")):
        import SimpleITK

        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(series, isVector=False), str(path))
    else:
        write_volume(path, series)
    assert "4 dimensions (3, 4, 5, 6), expected 3" in refusal_of(read_header, path)


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
def test_slices_and_voxels_of_several_components_are_refused(tmp_path, suffix):
    import SimpleITK

    path = tmp_path / f"case{suffix}"
    SimpleITK.WriteImage(SimpleITK.Image(5, 4, SimpleITK.sitkUInt8), str(path))
    assert "2 dimensions (4, 5), expected 3" in refusal_of(read_header, path)
    for sizes in ([5, 4], [5, 4, 1], [5, 4, 7]):  # with its colors, the first would have three axes, too
        SimpleITK.WriteImage(SimpleITK.Image(sizes, SimpleITK.sitkVectorUInt8, 3), str(path))
        assert refusal_of(read_header, path) == (
            f"{path}: each voxel has 3 components, expected one intensity; convert colors to intensities, or store "
            "each channel in a separate file"
        )


def test_voxels_that_are_no_numbers_are_counted(tmp_path):
    array = voxels().astype(np.float32)
    array[1, 2, 3] = np.nan
    array[4, 5, 6] = np.inf
    path = write_volume(tmp_path / "case.nii.gz", array)
    message = refusal_of(read_volume, path)
    assert f"{path}: 2 of 1,680 voxels are not finite" in message


def test_a_singular_affine_is_told(tmp_path):
    flat = AFFINE.copy()
    flat[:3, 1] = flat[:3, 0]
    np.savez(tmp_path / "case.npz", volume=voxels(), affine=flat)
    assert "case.npz: the affine is singular" in refusal_of(read_header, tmp_path / "case.npz")


def test_colors_unknown_suffixes_and_missing_files_are_told(tmp_path):
    np.savez(tmp_path / "color.npz", volume=np.zeros((3, 3, 3), dtype=np.complex64))
    assert "voxels are complex64" in refusal_of(read_volume, tmp_path / "color.npz")
    np.savez(tmp_path / "other.npz", scan=np.zeros((3, 3, 3)))
    assert "no array named 'volume'" in refusal_of(read_volume, tmp_path / "other.npz")
    assert "unknown volume format; expected one of .nii.gz" in refusal_of(read_volume, tmp_path / "case.dcm")
    assert "cannot be read: No such file" in refusal_of(read_volume, tmp_path / "none.nii")


def test_names_and_lists_of_volumes(tmp_path):
    for name in ("b.nii.gz", "a.NRRD", "note.txt", "._b.nii.gz"):
        (tmp_path / name).write_bytes(b"")
    assert [case_name(path) for path in list_volumes(tmp_path)] == ["a", "b"]
    (tmp_path / "b.mha").write_bytes(b"")
    assert "b.nii.gz and b.mha have the same name" in refusal_of(list_volumes, tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_landmarks_with_missing_ones(tmp_path, suffix):
    file = write_landmarks(tmp_path / f"case{suffix}", {"nose": (1.5, -2.0, 3e1), "chin": None})
    positions, space = landmark_files.read(str(file))
    assert space is None and positions["nose"].tolist() == [1.5, -2.0, 30.0] and positions["chin"] is None


def test_other_forms_of_the_same(tmp_path):
    (tmp_path / "case.json").write_text('{"landmarks": [{"name": "nose", "x": 1, "y": 2, "z": 3}, {"name": "chin"}]}')
    assert landmark_files.read(str(tmp_path / "case.json")).positions["nose"].tolist() == [1, 2, 3]
    (tmp_path / "case.csv").write_text("\ufeffZ, Name ,x,y,confidence\n3,nose,1,2,0.5\nnan,chin,1,2,0.5\n", "utf-8")
    positions = landmark_files.read(str(tmp_path / "case.csv")).positions
    assert positions["nose"].tolist() == [1, 2, 3] and positions["chin"] is None
    (tmp_path / "case.csv").write_text('x, y, z, name\n1, 2, 3, "eye, left"\n')
    positions = landmark_files.read(str(tmp_path / "case.csv")).positions
    assert {name: position.tolist() for name, position in positions.items()} == {"eye, left": [1, 2, 3]}
    (tmp_path / "case.csv").write_bytes(b"name,x,y,z\rnose,1,2,3\r")  # lines as of old Macs
    assert landmark_files.read(str(tmp_path / "case.csv")).positions["nose"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("case.csv", "name,x,y\nnose,1,2\n", "line 1: no column z"),
        ("case.csv", "name,x,X,y,z\nnose,1,2,3,4\n", "line 1: no column x, or two; expected the header"),
        ("case.csv", "", "line 1: no column name, x, y, z"),
        ("case.csv", "name,x,y,z\nnose,1,2,three\n", "line 2: z of landmark 'nose' is 'three', expected a number"),
        ("case.csv", "name,x,y,z\nnose,1,2,3\nnose,1,2,3\n", "line 3: landmark 'nose' appears twice"),
        ("case.csv", "name,x,y,z\nnose,1,5,2,0,3,0\n", "line 2: more values than the header has columns"),
        ("case.csv", "name,x,y,z\n,1,2,3\n", "line 2: the landmark has no name"),
        ("case.csv", "x,y,z,name\n1,2,3\n", "line 2: the landmark has no name"),
        ("case.csv", "name,x,y,z\nnose,1,2,inf\n", "z of landmark 'nose' is infinite"),
        ("case.csv", "name,x,y,z\nnose,,,\n", "no landmark has a position"),
        ("case.csv", "name,x,y,z\n", "no landmark has a position"),
        ("case.json", '{"nose": [1, 2', "line 1: not valid JSON"),
        ("case.json", '{"nose": [1, 2]}', "landmark 'nose' is [1, 2], expected three numbers"),
        ("case.json", "[1, 2]", "expected {"),
        ("case.json", '["name"]', "expected {"),
        ("case.json", '[{"name": "nose", "x": 1, "y": 2, "z": 3}, {"x": 1}]', "expected {"),
        ("case.json", '[{"x": 1, "y": 2, "z": 3}]', "expected {"),
        ("case.json", "[" * 100_000, "nested too deeply; expected {"),
        ("case.json", '{"nose": [true, 2, 3]}', "x of landmark 'nose' is True, expected a number"),
        ("case.csv", "name;x;y;z\nnose;1;2;3\n", "columns are separated by ';': save it with commas"),
        ("case.csv", "name\tx\ty\tz\nnose\t1\t2\t3\n", "columns are separated by tabs: save it with commas"),
        ("case.json", '{"nose": [1, 2, 3], "nose": [4, 5, 6]}', "'nose' appears twice"),
        ("case.json", r'{"a\nb": [1, 2, 3], "a\nb": [4, 5, 6]}', r"'a\nb' appears twice"),
        ("case.csv", 'name,x,y,z\n"a\nb",1,2,3\n"a\nb",1,2,3\n', r"line 5: landmark 'a\nb' appears twice"),
        ("case.csv", 'name,x,y,z\n"a\nb",1,2,?\n', r"z of landmark 'a\nb' is '?', expected a number"),
        ("case.csv", 'name,x,y,z\n"a\nb",1,2,inf\n', r"z of landmark 'a\nb' is infinite"),
        ("case.json", r'{"a\nb": [1, 2]}', r"landmark 'a\nb' is [1, 2], expected three numbers"),
    ],
)
def test_bad_landmark_files_are_told_with_the_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    told_message = refusal_of(landmark_files.read, str(tmp_path / name))
    assert str(tmp_path / name) in told_message and message in told_message


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])
def test_text_in_another_encoding_is_told(tmp_path, encoding):
    file = tmp_path / "case.csv"
    file.write_text("name,x,y,z\nn\u00e4se,1,2,3\n", encoding)
    assert refusal_of(landmark_files.read, str(file)) == f"{file} is not UTF-8 text; save it as UTF-8"


def test_hidden_landmark_files_are_not_listed(tmp_path):
    for name in (".case.csv", "._case.csv", "a.b.csv", "c.csv"):
        write_landmarks(tmp_path / name, {"nose": (1, 2, 3)})
    assert landmark_files.list_files(str(tmp_path)) == ["a.b.csv", "c.csv"]


@pytest.mark.parametrize("suffix", [".CSV", ".JSON", ".Csv"])
def test_landmark_files_in_capitals_are_found(tmp_path, suffix):
    written = write_landmarks(tmp_path / f"written{suffix.lower()}", {"nose": (1, 2, 3)})
    file = written.rename(tmp_path / f"case{suffix}")
    assert landmark_files.find(str(tmp_path), "case") == str(file)
    assert landmark_files.list_files(str(tmp_path)) == [file.name] and landmark_files.get_case(file.name) == "case"
    assert landmark_files.read(str(file)).positions["nose"].tolist() == [1, 2, 3]


def test_one_landmark_file_that_is_there_under_two_spellings_is_one(tmp_path):
    written = write_landmarks(tmp_path / "case.csv", {"nose": (1, 2, 3)})
    (tmp_path / "case.CSV").hardlink_to(written)  # as a file system that ignores case shows it
    assert landmark_files.find(str(tmp_path), "case") == str(written)


@pytest.mark.parametrize("name", ["case.NII", "case.NII.GZ", "case.MHA", "case.MHD", "case.NRRD", "case.NHDR"])
def test_volumes_in_capitals_are_read(tmp_path, name):
    path = write_volume(tmp_path / name.lower()).rename(tmp_path / name)
    array, header = read_volume(path)
    np.testing.assert_array_equal(array, voxels(), strict=True)
    np.testing.assert_allclose(header.geometry.affine, AFFINE, atol=1e-5)


@pytest.mark.parametrize("name", ["case.mhd", "case.nhdr"])
def test_missing_voxels_of_a_header_are_named_before_they_are_read(tmp_path, name):
    path = write_volume(tmp_path / name)
    (data,) = [file for file in tmp_path.iterdir() if file != path]
    data.unlink()
    assert f"{path}: the header names the voxel file {data}, which does not exist" in refusal_of(read_header, path)


@pytest.mark.parametrize("name", ["case.mha", "case.mhd", "case.nrrd"])
def test_too_few_voxels_are_one_line_with_the_files_name_and_the_librarys_reason(tmp_path, name):
    path = write_volume(tmp_path / name)
    longest = max(tmp_path.iterdir(), key=lambda file: file.stat().st_size)
    longest.write_bytes(longest.read_bytes()[:-500])
    message = refusal_of(read_volume, path)
    assert message.startswith(f"{path} cannot be read as a volume (") and "Copy it again" in message
    assert ".cxx" not in message  # the library's own source files


def write_nifti(path, affine=AFFINE, unit="mm", sform=1, qform=1):
    import nibabel

    image = nibabel.Nifti1Image(voxels().T, affine)
    image.header.set_xyzt_units(unit)
    image.set_sform(affine, sform)
    image.set_qform(affine, qform)
    image.to_filename(path)
    return path


def test_a_nifti_without_an_orientation_is_remarked(tmp_path):
    for codes in ({"sform": 0}, {"qform": 0}):
        header = read_header(write_nifti(tmp_path / "one.nii", **codes))
        assert header.remarks == read_header(write_nifti(tmp_path / "both.nii")).remarks
        np.testing.assert_allclose(header.geometry.affine, AFFINE, atol=1e-5)
    import nibabel

    other = AFFINE @ np.diag([1.0, 2.0, 1.0, 1.0])
    for forms in (((other, 0), (AFFINE, 1)), ((AFFINE, 1), (other, 0))):  # the place with the code 0 does not count
        image = nibabel.Nifti1Image(voxels().T, AFFINE)
        image.set_sform(*forms[0])
        image.set_qform(*forms[1])
        image.to_filename(tmp_path / "one.nii")
        header = read_header(tmp_path / "one.nii")
        assert header.remarks == ()
        np.testing.assert_allclose(header.geometry.affine, AFFINE, atol=1e-5)
    header = read_header(write_nifti(tmp_path / "case.nii", sform=0, qform=0))
    (remark,) = header.remarks
    assert remark.startswith("no orientation in the header (sform_code and qform_code are 0): assuming x to the left")
    assert np.array_equal(np.sign(np.diag(header.geometry.affine)), [-1, 1, 1, 1])
    np.testing.assert_allclose(header.geometry.world((np.array(SHAPE) - 1) / 2), 0.0, atol=1e-5)  # the middle


def test_two_places_of_a_nifti_are_remarked_where_they_differ(tmp_path):
    """By more than a twentieth of the qform's shortest step, which is 1 mm."""
    import nibabel

    headers = {}
    for millimeters in (0.0, 0.04, 0.06, 3.0):
        other, first = AFFINE.copy(), AFFINE @ np.diag([1.0 + 0.01 * (millimeters == 3.0), 1.0, 1.0, 1.0])
        other[1, 3] += millimeters
        image = nibabel.Nifti1Image(np.zeros(SHAPE[::-1], np.uint8), first)
        image.set_sform(first, 1)
        image.set_qform(other, 1)
        image.to_filename(tmp_path / "case.nii")
        headers[millimeters] = read_header(tmp_path / "case.nii")
    assert [len(header.remarks) for header in headers.values()] == [0, 0, 1, 1]
    np.testing.assert_allclose(headers[3.0].geometry.affine, first, atol=1e-5)
    for depths, number in (((1.0, 0.5), 1), ((0.5, 1.0), 0)):  # of a single slice, whose corners have no depth
        image = nibabel.Nifti1Image(np.zeros((4, 3, 1, 1), np.uint8), np.eye(4))
        image.set_sform(np.diag([1.0, 1.0, depths[0], 1.0]), 1)
        moved = np.diag([1.0, 1.0, depths[1], 1.0])
        moved[0, 3] = 0.04
        image.set_qform(moved, 1)
        image.to_filename(tmp_path / "case.nii")
        header = read_header(tmp_path / "case.nii")
        assert len(header.remarks) == number and header.geometry.shape == (1, 3, 4)
    (line,) = format_remarks({str(tmp_path / name): headers[3.0] for name in ("other.nii", "again.nii")})
    assert "other.nii and 1 more: sform and qform in the header disagree: the sform is" in line


@pytest.mark.parametrize("unit, factor", [("meter", 1000.0), ("micron", 0.001)])
def test_lengths_of_a_nifti_in_other_units_are_converted(tmp_path, unit, factor):
    header = read_header(write_nifti(tmp_path / "case.nii", np.diag([1 / factor] * 3 + [1.0]) @ AFFINE, unit))
    np.testing.assert_allclose(header.geometry.affine, AFFINE, rtol=1e-5)
    (remark,) = header.remarks
    assert unit[:5] in remark.replace("meter", "meter") and "converted to millimeters" in remark


def test_ordinary_niftis_stay_as_they_are(tmp_path):
    for unit in ("mm", "unknown"):
        header = read_header(write_nifti(tmp_path / "case.nii", unit=unit))
        assert header.remarks == () and np.array_equal(header.geometry.affine, AFFINE.astype(np.float32))


def test_an_unknown_unit_of_a_nifti_is_told(tmp_path):
    path = write_nifti(tmp_path / "case.nii")
    content = bytearray(path.read_bytes())
    content[123] = 5  # xyzt_units
    path.write_bytes(content)
    assert f"{path}: xyzt_units has the unknown unit of length 5; write 2 (mm)" in refusal_of(read_header, path)


def test_an_nrrd_without_a_space_is_remarked(tmp_path):
    path = write_volume(tmp_path / "case.nrrd")
    assert read_header(path).remarks == ()
    content = path.read_bytes().replace(b"space: left-posterior-superior", b"space dimension: 3")
    path.write_bytes(content)
    header = read_header(path)
    assert "(no line 'space:' with directions of the body): assuming LPS" in header.remarks[0]
    np.testing.assert_allclose(header.geometry.affine, AFFINE, atol=1e-5)


UNITS = [
    ("case.nrrd", 'space units: "um" "um" "um"', 0.001),
    ("case.nrrd", 'space units: "\u00b5m" "\u00b5m" "\u00b5m"', 0.001),
    ("case.nrrd", 'space units: "cm" "cm" "cm"', 10.0),
    ("case.nhdr", 'space units: "Micrometers" "micron" "microns"', 0.001),
    ("case.nrrd", 'space units: "m" "m" "m"', 1000.0),
    ("case.nrrd", 'space units: "mm" "" "millimeters"', 1.0),
    ("case.nrrd", "units:=HU", 1.0),  # what a program has to say of the values
    ("case.nrrd", "space units:=HU", 1.0),
    ("case.mha", "DistanceUnits = um", 0.001),
    ("case.mhd", "DistanceUnits = cm", 10.0),
    ("case.mha", "DistanceUnits = mm", 1.0),
    ("case.mha", "DistanceUnits = ?", 1.0),
    ("case.mha", "Comment = in cm", 1.0),
]


def write_with_line(path, line):
    """A volume with one more line in its header."""
    before = b"DimSize" if path.suffix.startswith(".mh") else b"sizes:"
    content = write_volume(path).read_bytes()
    path.write_bytes(content.replace(before, line.encode() + b"\n" + before, 1))
    return path


@pytest.mark.parametrize("name, line, factor", UNITS)
def test_lengths_of_a_header_in_other_units_are_converted(tmp_path, name, line, factor):
    header = read_header(write_with_line(tmp_path / name, line))
    np.testing.assert_allclose(header.geometry.affine, np.diag([factor] * 3 + [1.0]) @ AFFINE, rtol=1e-5, atol=1e-9)
    assert [remark.endswith("converted to millimeters") for remark in header.remarks] == [True] * (factor != 1)


@pytest.mark.parametrize(
    "name, line, unit",
    [
        ("case.nrrd", 'space units: "mm" "mm" "um"', "mm and um"),
        ("case.nrrd", 'space units: "pixel" "pixel" "pixel"', "pixel"),
        ("case.mha", "DistanceUnits = inch", "inch"),
    ],
)
def test_units_that_differ_or_are_unknown_are_told(tmp_path, name, line, unit):
    path = write_with_line(tmp_path / name, line)
    assert f"{path}: the header has lengths in {unit} (" in refusal_of(read_header, path)


def test_lengths_of_an_nrrd_without_a_space_are_converted(tmp_path):
    path = tmp_path / "case.nrrd"
    lines = ["NRRD0004", "type: uchar", "dimension: 3", "sizes: 4 3 2", "spacings: 20 30 40", "encoding: raw"]
    path.write_bytes("\n".join([*lines, 'units: "um" "um" "um"', "", ""]).encode() + bytes(24))
    np.testing.assert_allclose(read_header(path).geometry.spacing, [0.04, 0.03, 0.02])
    lines[2:5] = ["dimension: 4", "space: left-posterior-superior-time", "sizes: 4 3 2 1", "space origin: (0,0,0,0)"]
    lines.append("space directions: (20,0,0,0) (0,30,0,0) (0,0,40,0) (0,0,0,1)")
    path.write_bytes("\n".join([*lines, 'space units: "um" "um" "um" "s"', "", ""]).encode() + bytes(24))
    np.testing.assert_allclose(read_header(path).geometry.spacing, [0.04, 0.03, 0.02])


def test_a_volume_has_exactly_one_landmark_file(tmp_path):
    message = refusal_of(landmark_files.find, str(tmp_path), "case")
    assert "volume case in" in message and "case.fcsv or case.mrk.json" in message
    for suffix in (".csv", ".mrk.json"):
        write_landmarks(tmp_path / f"case{suffix}", {"nose": (1, 2, 3)})
    assert "2 landmark files (case.csv, case.mrk.json)" in refusal_of(landmark_files.find, str(tmp_path), "case")


@pytest.mark.parametrize("name", ["case.mha", "case.nrrd"])
def test_a_single_time_point_is_a_volume(tmp_path, name):
    import SimpleITK

    series = SimpleITK.JoinSeries(SimpleITK.ReadImage(str(write_volume(tmp_path / "volume.mha"))))
    SimpleITK.WriteImage(series, str(tmp_path / name))
    array, header = read_volume(tmp_path / name)
    np.testing.assert_array_equal(array, voxels(), strict=True)
    np.testing.assert_allclose(header.geometry.affine, AFFINE, atol=1e-5)


def test_an_nrrd_that_counts_to_the_right_lies_where_it_says(tmp_path):
    """The format names its own axes; the library turns them into LPS."""
    path = write_volume(tmp_path / "case.nrrd")
    head, data = path.read_bytes().split(b"\n\n", 1)
    assert b"space: left-posterior-superior" in head
    path.write_bytes(head.replace(b"left-posterior", b"right-anterior") + b"\n\n" + data)
    turned = np.diag([-1.0, -1.0, 1.0, 1.0]) @ AFFINE
    np.testing.assert_allclose(read_header(path).geometry.affine, turned, atol=1e-5)


@pytest.mark.parametrize("spacing", [[1.0, 2.0], [1.0, -1.0, 2.0], [1.0, np.nan, 2.0]])
def test_spacing_that_is_none_is_told(tmp_path, spacing):
    np.savez(tmp_path / "case.npz", volume=voxels(), spacing=spacing)
    assert "expected 3 lengths (depth, height, width)" in refusal_of(read_header, tmp_path / "case.npz")
