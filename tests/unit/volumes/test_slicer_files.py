"""3D Slicer point lists: spellings of the world, unplaced points, and how bad lists are reported."""

import json
from typing import Any

import numpy as np
import pytest
from support.files.volume_files import world, write_volume
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.volumes import landmark_files
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset, VolumeOptions
from paddlevit_dist.volumes.slicer_files import LandmarkPoint, format_fcsv, format_markups

HEADER = "# Markups fiducial file version = 4.11\n# CoordinateSystem = {}\n# columns = {}\n"
COLUMNS = "id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID"
NOSE = (3.0, 4.0, 5.0)  # voxel x, y, z


def fcsv(*rows: str, space: str = "LPS", columns: str = COLUMNS) -> str:
    return HEADER.format(space, columns) + "".join(row + "\n" for row in rows)


def row(label: str, position: Any, more: str = "") -> str:
    return f"vtkMRMLMarkupsFiducialNode_0,{','.join(map(str, position))},0,0,0,1,1,1,0,{label},,vtkMRMLNode1{more}"


def markups(*points: Any, **more: Any) -> str:
    return json.dumps({"@schema": "x", "markups": [{"type": "Fiducial", "controlPoints": list(points), **more}]})


def in_space(space: str) -> list:
    x, y, z = world(NOSE)
    return {"RAS": [x, y, z], "LPS": [-x, -y, z], "IJK": list(NOSE)}[space]


def read(tmp_path, name: str, text: str) -> landmark_files.FileLandmarks:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return landmark_files.read(str(tmp_path / name))


def told(tmp_path, name: str, text: str) -> str:
    message = refusal_of(read, tmp_path, name, text)
    assert str(tmp_path / name) in message
    return message


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha", ""])
@pytest.mark.parametrize(
    "spelling, space",
    [("0", "RAS"), ("1", "LPS"), ("2", "IJK"), ("RAS", "RAS"), ("LPS", "LPS"), ("IJK", "IJK"), ("lps", "LPS")],
)
def test_the_file_says_its_world_whatever_the_volume_or_the_settings_say(tmp_path, suffix, spelling, space):
    write_volume(tmp_path / "train" / f"case{suffix}")
    (tmp_path / "train" / "case.fcsv").write_text(fcsv(row("nose", in_space(space)), space=spelling))
    for options in (
        VolumeOptions(),
        VolumeOptions(coordinate_system="ras"),
        VolumeOptions(coordinate_system="lps"),
        VolumeOptions(landmark_units="voxel"),
    ):
        dataset = LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", options)
        points = dataset.read(0)[1]
        np.testing.assert_allclose(points, [NOSE[::-1]], atol=1e-4)


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha"])
@pytest.mark.parametrize("name", ["case.mrk.json", "case.json"])
@pytest.mark.parametrize(
    "stated", [{"coordinateSystem": "RAS", "coordinateUnits": ["mm"]}, {"coordinateSystem": "LPS"}, {}]
)
def test_markups_say_their_world_too_and_lps_is_their_default(tmp_path, suffix, name, stated):
    write_volume(tmp_path / "train" / f"case{suffix}")
    point = {"label": "nose", "position": in_space(stated.get("coordinateSystem", "LPS"))}
    (tmp_path / "train" / name).write_text(markups(point, **stated))
    dataset = LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions())
    np.testing.assert_allclose(dataset.read(0)[1], [NOSE[::-1]], atol=1e-4)


def test_an_fcsv_that_says_no_world_needs_to_be_told(tmp_path):
    write_volume(tmp_path / "train" / "case.mha")
    text = f"# Markups fiducial file version = 4.3\n# columns = {COLUMNS}\n{row('nose', in_space('RAS'))}\n"
    (tmp_path / "train" / "case.fcsv").write_text(text)
    with pytest.raises(UserError, match="case.fcsv has no coordinate system; .* or set VOLUMES.COORDINATE_SYSTEM"):
        LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions())
    dataset = LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions(coordinate_system="ras"))
    np.testing.assert_allclose(dataset.read(0)[1], [NOSE[::-1]], atol=1e-4)


def test_a_landmark_outside_is_told_and_where_it_would_lie_inside(tmp_path):
    write_volume(tmp_path / "train" / "case.nii.gz")
    (tmp_path / "train" / "case.fcsv").write_text(fcsv(row("nose", in_space("RAS")), space="LPS"))
    expected = "'nose' is outside case.nii.gz: .* with x and y negated it would be inside; the file specifies its coord"
    with pytest.raises(UserError, match=expected):
        LandmarkDataset(str(tmp_path), "train", tmp_path / "cache", VolumeOptions())


def test_points_that_are_not_placed_are_missing(tmp_path):
    rows = [row("nose", (1, 2, 3), ",2,0"), row("chin", (0, 0, 0), ",0,0"), row("ear", (0, 0, 0), ",1,0")]
    positions, space = read(tmp_path, "a.fcsv", fcsv(*rows, row("eye", ("nan", "nan", "nan"), ",2,0")))
    assert space == "ras" and positions["nose"].tolist() == [-1.0, -2.0, 3.0]
    assert [name for name, position in positions.items() if position is None] == ["chin", "ear", "eye"]
    points = [
        {"label": "nose", "position": [1, 2, 3], "positionStatus": "defined"},
        {"label": "chin", "position": [0, 0, 0], "positionStatus": "undefined"},
        {"label": "ear", "position": [9, 9, 9], "positionStatus": "preview"},
        {"label": "eye", "position": "", "positionStatus": "undefined"},
        {"label": "brow"},
    ]
    positions, space = read(tmp_path, "a.mrk.json", markups(*points))
    assert space == "ras" and positions["nose"].tolist() == [-1.0, -2.0, 3.0]
    assert [name for name, position in positions.items() if position is None] == ["chin", "ear", "eye", "brow"]


def test_labels_may_hold_commas_and_quotes_and_come_back(tmp_path):
    points = [
        LandmarkPoint('sella, "mid"', ("1.5000", "-2.0000", "3.0000"), "confidence 0.9"),
        LandmarkPoint("ü", ("0", "0", "1"), ""),
    ]
    for convention, sign in (("ras", 1), ("lps", -1)):
        for name, text in (
            ("a.fcsv", format_fcsv(points, convention)),
            ("a.mrk.json", format_markups(points, convention)),
        ):
            positions, space = read(tmp_path, name, text)
            assert space == "ras" and list(positions) == ['sella, "mid"', "ü"]
            assert positions['sella, "mid"'].tolist() == [sign * 1.5, sign * -2.0, 3.0]


def test_written_lists_have_all_that_slicer_reads():
    """By the columns of an .fcsv file and the fields of version 1.0.3 of Markups JSON."""
    points = [LandmarkPoint("sella", ("1.50", "-2.25", "3.00"), "likely"), LandmarkPoint("ü", ("0", "0", "1"), "")]
    assert format_fcsv(points, "lps") == (
        "# Markups fiducial file version = 4.13\n"
        "# CoordinateSystem = LPS\n"
        "# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID\n"
        "1,1.50,-2.25,3.00,0,0,0,1,1,1,0,sella,likely,\n"
        "2,0,0,1,0,0,0,1,1,1,0,ü,,\n"
    )
    text = format_markups(points, "ras")
    shown = {"selected": True, "locked": False, "visibility": True, "positionStatus": "defined"}
    controls = [
        {"id": "1", "label": "sella", "description": "likely", "position": [1.5, -2.25, 3.0], **shown},
        {"id": "2", "label": "ü", "description": "", "position": [0.0, 0.0, 1.0], **shown},
    ]
    stored = json.loads(text)
    assert stored.pop("@schema").endswith("/Markups/Resources/Schema/markups-schema-v1.0.3.json#")
    markup = {"type": "Fiducial", "coordinateSystem": "RAS", "coordinateUnits": "mm", "controlPoints": controls}
    assert stored == {"markups": [markup]} and '\n "markups"' in text and "ü" in text and text.endswith("}\n")


def test_columns_stand_where_the_file_says(tmp_path):
    rows = (" nose ,1,2,3,1,1", "", " ,,,,,", "ear,4,5,6")  # empty ones, and one that ends after the position
    positions, _ = read(tmp_path, "a.fcsv", fcsv(*rows, space="RAS", columns="label, x,y,z,sel,vis"))
    assert {name: position.tolist() for name, position in positions.items()} == {"nose": [1, 2, 3], "ear": [4, 5, 6]}
    text = " #COLUMNS=z,label,y,x\n# coordinatesystem=LPS \n# another = 2\n3,nose,2,1\n"
    assert read(tmp_path, "a.fcsv", text).positions["nose"].tolist() == [-1, -2, 3]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.fcsv", fcsv(row("nose", (1, 2, 3)), space="3"), "line 2: the coordinate system is '3', expected RAS (0)"),
        ("a.fcsv", fcsv(row("nose", (1, 2, 3)), row("nose", (1, 2, 4))), "line 5: landmark 'nose' appears twice"),
        ("a.fcsv", fcsv(row("nose", (1, "two", 3))), "line 4: y of landmark 'nose' is 'two', expected a number"),
        ("a.fcsv", fcsv(row("nose", (1, 2, "inf"))), "z of landmark 'nose' is infinite"),
        ("a.fcsv", fcsv(row("", (1, 2, 3))), "line 4: the landmark has no name"),
        ("a.fcsv", fcsv("0,1,2,3"), "line 4: no label; expected the columns id,x,y,z"),
        ("a.fcsv", fcsv("nose,1,2", columns="label,x,y,z"), "line 4: no z; expected the columns id,x,y,z"),
        ("a.fcsv", fcsv(), "no landmark has a position"),
        ("a.mrk.json", '{"nose": [1, 2, 3]}', 'it has no list "markups"'),
        ("a.mrk.json", "[1, 2]", 'it has no list "markups"'),
        ("a.mrk.json", '{"markups": [{"type": "Fiducial"}, 1]}', 'it has no list "markups"'),
        ("a.mrk.json", markups({"label": "nose", "position": [1, 2, 3]}, 1), "controlPoints is not a list of points"),
        ("a.mrk.json", markups(type="Line"), "contains a Line, expected point lists"),
        ("a.mrk.json", markups(coordinateSystem="HFS"), "the coordinate system is 'HFS', expected RAS"),
        ("a.mrk.json", markups(coordinateUnits="um"), "coordinateUnits is 'um', expected mm"),
        (
            "a.mrk.json",
            markups(coordinateUnits=["um", "mm", "mm"]),
            "coordinateUnits is ['um', 'mm', 'mm'], expected mm",
        ),
        ("a.mrk.json", markups(controlPoints={"label": "nose"}), "controlPoints is not a list of points"),
        ("a.mrk.json", markups([1, 2, 3]), "controlPoints is not a list of points"),
        ("a.mrk.json", markups({"label": "nose", "positionStatus": "odd"}), "positionStatus of 'nose' is 'odd'"),
        ("a.mrk.json", markups({"label": "a\nb", "positionStatus": "odd"}), r"positionStatus of 'a\nb' is 'odd'"),
        ("a.mrk.json", markups({"label": "nose", "position": [1, 2]}), "expected three numbers"),
        ("a.mrk.json", markups({"position": [1, 2, 3]}), "the landmark has no name"),
        ("a.mrk.json", markups(), "no landmark has a position"),
    ],
)
def test_bad_point_lists_are_told(tmp_path, name, text, message):
    assert message in told(tmp_path, name, text)


def test_voxels_and_millimeters_in_one_file_are_told(tmp_path):
    lists = [
        {"type": "Fiducial", "coordinateSystem": space, "controlPoints": [{"label": space, "position": [1, 2, 3]}]}
        for space in ("LPS", "IJK")
    ]
    assert "some landmarks are in voxels" in told(tmp_path, "a.mrk.json", json.dumps({"markups": lists}))
    lists[1]["coordinateSystem"] = "RAS"
    positions = read(tmp_path, "a.mrk.json", json.dumps({"markups": lists})).positions
    assert positions["LPS"].tolist() == [-1, -2, 3] and positions["IJK"].tolist() == [1, 2, 3]
