"""Units that headers declare: points are read in meters, whatever the format, or a line says what is not applied."""

import struct

import laspy
import numpy as np
import pytest
from laspy.vlrs.known import WktCoordinateSystemVlr
from support.files.other_scenes import las
from support.refusals import refusal_of

from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.inputs import InputScenes, SceneFile
from paddlevit_dist.points.prepare.formats import get_format
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices

FT_US = 1200 / 3937
WKT = (
    'COMPD_CS["c",PROJCS["p",GEOGCS["g",UNIT["degree",0.01745]],UNIT["US survey foot",0.304800609601219]],'
    'VERT_CS["v",VERT_DATUM["d",2005],UNIT["{}",{}]]]'
)


def read(path, kind: str, **choices):
    """Return the scene of a file, and the remarks on it."""
    reader = get_format(kind)(SceneChoices(gray=True, label="none", **choices), kind)
    return reader.read(RawScene("a", reader.files(str(path), False), False)), reader.remarks


def declare(path, wkt: str, extended: bool = False) -> None:
    """Add well-known text to a LAS file."""
    content = laspy.read(path)
    content.header.global_encoding.wkt = True
    if extended:
        content.evlrs = laspy.vlrs.vlrlist.VLRList([laspy.VLR("LASF_Projection", 2112, "", wkt.encode() + b"\0")])
    else:
        content.vlrs.append(WktCoordinateSystemVlr(wkt))
    content.write(path)


@pytest.mark.parametrize(("suffix", "extended"), [(".las", False), (".laz", False), (".las", True)])
def test_a_laser_scan_in_feet_is_read_in_meters(tmp_path, suffix, extended):
    path = tmp_path / f"a{suffix}"
    xyz = las(path, origin=(3_140_000.0, 1_690_000.0, 5280.0))["xyz"] * [FT_US, FT_US, 0.3048]
    declare(path, WKT.format("foot", 0.3048), extended)
    scene, remarks = read(path, "las")
    np.testing.assert_allclose(scene.xyz + scene.offset, xyz, atol=2e-4)
    assert remarks == [
        f"{path}: converted from US survey foot, heights in foot to meters (x and y times 0.30480061, z times 0.3048)"
    ]


def test_scans_without_a_unit_or_in_meters_are_read_as_they_are(tmp_path):
    told = []
    for wkt in (None, WKT.format("metre", 1).replace('US survey foot",0.304800609601219', 'metre",1'), "unknown"):
        xyz = las(tmp_path / "a.las")["xyz"]
        if wkt is not None:
            declare(tmp_path / "a.las", wkt)
        scene, remarks = read(tmp_path / "a.las", "las")
        np.testing.assert_allclose(scene.xyz + scene.offset, xyz, atol=2e-4)
        told.append(remarks)
    assert told[:2] == [[], []] and "names no unit that is understood: read as meters" in told[2][0]
    las(tmp_path / "b.las")
    declare(tmp_path / "b.las", 'GEOGCS["WGS 84",UNIT["degree",0.01745]]')
    assert "x and y are longitudes and latitudes" in refusal_of(read, tmp_path / "b.las", "las")


def test_predicted_scenes_have_the_unit_of_the_training_data(tmp_path):
    """A network of scenes in feet (DATA.UNIT_M 0.3048) gets a scan in feet as it is, and one in meters in feet."""
    for feet in (True, False):
        xyz = las(tmp_path / "a.las", origin=(500.0, 700.0, 30.0))["xyz"]
        declare(tmp_path / "a.las", f'LOCAL_CS["l",UNIT["u",{0.3048 if feet else 1}]]')
        scenes = InputScenes([SceneFile(str(tmp_path / "a.las"), "las", "a")], None, True, ["a"], (), 0.3048)
        scene = scenes.read(0)
        np.testing.assert_allclose(scene.xyz + scene.offset, xyz / (1 if feet else 0.3048), atol=1e-3)
        assert len(scenes.remarks()) == (not feet)


def write_ply(path, xyz, comments):
    write_points(path, dict(zip("xyz", xyz.T)), comments)


def write_pcd(path, xyz, comments, viewpoint="0 0 0 1 0 0 0"):
    header = f"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nVIEWPOINT {viewpoint}\nPOINTS {len(xyz)}\nDATA ascii\n"
    rows = "".join(f"{x} {y} {z}\n" for x, y, z in xyz.tolist())
    path.write_text("".join(f"# {line}\n" for line in comments) + header + rows)


def write_text(path, xyz, comments):
    rows = "".join(f"{x} {y} {z}\n" for x, y, z in xyz.tolist())
    path.write_text("".join(f"// {line}\n" for line in comments) + "x y z\n" + rows)


@pytest.mark.parametrize(("kind", "write"), [("ply", write_ply), ("pcd", write_pcd), ("text", write_text)])
@pytest.mark.parametrize(
    ("comments", "factor", "told"),
    [
        (["made by hand", "unit feet"], 0.3048, "converted from feet to meters (x, y and z times 0.3048)"),
        (["Units: mm"], 0.001, "converted from mm to meters"),
        (["coordinate units = US_survey_feet"], FT_US, "converted from US_survey_feet to meters"),
        (["unit m", "scale 1.0", "offset 0 0 0", "z up", "united"], 1, None),
        (["unit cubits"], 1, "'unit cubits' names no known unit: read as meters"),
        (["scale: 0.01"], 1, "'scale: 0.01' is not applied to the coordinates"),
        (["offset 500000 5400000 0"], 1, "is not applied to the coordinates"),
        (["up axis y"], 1, "is not applied to the coordinates"),
    ],
)
def test_comments_that_declare_a_unit_are_applied_and_others_told(tmp_path, kind, write, comments, factor, told):
    xyz = np.random.default_rng(0).uniform(1, 9, (40, 3)).astype(np.float32)
    path = tmp_path / ("a.xyz" if kind == "text" else f"a.{kind}")
    write(path, xyz, comments)
    scene, remarks = read(path, kind, coordinates="as given")
    np.testing.assert_allclose(scene.xyz, xyz.astype(np.float64) * factor, rtol=1e-6)
    assert (len(remarks), told in remarks[0] if remarks else None) == ((0, None) if told is None else (1, True))


def test_comments_in_degrees_are_refused_and_viewpoints_told(tmp_path):
    xyz = np.random.default_rng(0).uniform(1, 9, (40, 3)).astype(np.float32)
    write_ply(tmp_path / "a.ply", xyz, ["units: degrees"])
    assert "x and y are longitudes and latitudes" in refusal_of(read, tmp_path / "a.ply", "ply")
    write_pcd(tmp_path / "a.pcd", xyz, [], "0 0 1.8 0.7071 0.7071 0 0")
    scene, remarks = read(tmp_path / "a.pcd", "pcd", coordinates="as given")
    np.testing.assert_array_equal(scene.xyz, xyz)
    for nowhere in ("0 0 0 1 0 0 0", "0 0 0 -1 0 0 0", "0.0 0 0"):
        write_pcd(tmp_path / "b.pcd", xyz, [], nowhere)
        assert not read(tmp_path / "b.pcd", "pcd")[1]
    assert remarks == [
        f"{tmp_path / 'a.pcd'}: its VIEWPOINT 0 0 1.8 0.7071 0.7071 0 0 is not applied to the coordinates"
    ]


@pytest.mark.parametrize("is_wkt", [False, True])
def test_keys_of_an_older_scan_count_unless_its_header_prefers_text(tmp_path, is_wkt):
    """EPSG 2263 in US survey feet with heights in meters; the text says feet."""
    path = tmp_path / "a.las"
    xyz = las(path, point_format=3, version="1.2", origin=(500.0, 700.0, 30.0))["xyz"]
    content = laspy.read(path)
    entries = [1, 1, 0, 3, 1024, 0, 1, 1, 3072, 0, 1, 2263, 4099, 0, 1, 9001]
    content.vlrs.append(laspy.VLR("LASF_Projection", 34735, "", struct.pack("<16H", *entries)))
    content.vlrs.append(WktCoordinateSystemVlr('LOCAL_CS["l",UNIT["foot",0.3048]]'))
    content.header.global_encoding.wkt = is_wkt
    content.write(path)
    scene, remarks = read(path, "las")
    np.testing.assert_allclose(scene.xyz + scene.offset, xyz * (0.3048 if is_wkt else [FT_US, FT_US, 1]), atol=2e-4)
    assert len(remarks) == 1
