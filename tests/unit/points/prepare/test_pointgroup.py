"""PointGroup's files of torch: what is read from them without torch, and what is rejected."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from support.files.raw_scenes import UNIT_COLORS, legacy, no_lists, pointgroup_arrays, zipped

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.listing import RawScene
from paddlevit_dist.points.prepare.pointgroup import PthReader, load_arrays


@pytest.mark.parametrize("write", (legacy, zipped))
def test_pointgroups_files_are_read_without_torch(tmp_path, write):
    arrays, rgb = pointgroup_arrays()
    path = tmp_path / "scene0000_00_inst_nostuff.pth"
    write(path, arrays)
    sources = PthReader().sources(str(_two(tmp_path)), no_lists())
    scene = PthReader().read(sources["train"][0])
    assert scene.name == "scene0000_00"
    assert np.array_equal(scene.xyz, arrays[0]) and np.array_equal(scene.rgb, rgb)
    assert np.array_equal(scene.semantic, arrays[2]) and np.array_equal(scene.instance, arrays[3])
    write(path, arrays[:2])
    test = PthReader().read(RawScene("scene0000_00", (str(path),), False))
    assert np.array_equal(test.xyz, arrays[0]) and set(test.semantic) == {-100}


TORCH_COLORS = [  # floats in a file, as bytes, and what is remarked; None: refused
    (UNIT_COLORS * 2 - 1, UNIT_COLORS * 255, ""),
    ((UNIT_COLORS * 2 - 1) * 1.0001, UNIT_COLORS * 255, ""),
    (UNIT_COLORS * 0, UNIT_COLORS * 0 + 127.5, ""),
    (UNIT_COLORS * 0.01 - 1, UNIT_COLORS * 1.275, ""),  # dark
    (UNIT_COLORS * 2 - 3, None, "has colors from -3 to 0; expected -1 to 1 as float, or 0 to 255"),
    (UNIT_COLORS / 2 + 0.5, UNIT_COLORS * 63.75 + 191.25, "from 0 to 1, taken as parts of -1 to 1"),
    (UNIT_COLORS, UNIT_COLORS * 127.5 + 127.5, "from 0 to 1, taken as parts of -1 to 1"),
    (UNIT_COLORS * 255, None, "has colors from 0 to 255; expected -1 to 1 as float, or 0 to 255"),
]


@pytest.mark.parametrize("values, expected, remark", TORCH_COLORS)
def test_colors_of_a_torch_file_are_of_minus_1_to_1_or_told(tmp_path, values, expected, remark):
    legacy(tmp_path / "a.pth", (np.eye(3), values))
    reader, source = PthReader(), RawScene("a", (str(tmp_path / "a.pth"),), False)
    if expected is None:
        with pytest.raises(UserError, match=remark):
            reader.read(source)
        return
    assert abs(reader.read(source).rgb - expected).max() <= 0.5
    assert [remark in line for line in reader.remarks] == [True] * bool(remark)


def test_other_files_of_torch_beside_pointgroups_are_no_scenes(tmp_path):
    for name in ("a.pth", "b.pth"):
        legacy(tmp_path / name, (np.eye(3), np.eye(3)))
    assert list(PthReader().find(str(tmp_path))) == ["a", "b"]
    (tmp_path / "b.pth").rename(tmp_path / "b_inst_nostuff.pth")
    reader = PthReader()
    assert reader.find(str(tmp_path)) == {"b": f"{tmp_path}/b_inst_nostuff.pth"}
    assert reader.identify("in/b_inst_nostuff.pth") == ("b", "in/b_inst_nostuff.pth")


def _two(folder):
    legacy(folder / "scene0001_00_inst_nostuff.pth", pointgroup_arrays()[0])
    return folder


class ExecutedObject:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    "value, message",
    (
        ((np.zeros((3, 3)),) * 3, "contains 3 arrays, expected 4"),
        ((np.zeros((3, 3)),) * 2, "contains 2 arrays, expected 4"),
        ((np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(2), np.zeros(3)), r"its class is float64 \(2,\), expected"),
        ({"a": 1}, "is not a tuple of numpy arrays"),
        ((1, 2), "is not a tuple of numpy arrays"),
        ((ExecutedObject(),), "is rejected: .* no code was executed"),
        ((np.zeros((3, 3)), np.zeros((3, 3)), np.full(3, 20.0), np.zeros(3)), "point 0 has label 20, which is out"),
        (
            (np.full((3, 3), np.nan), np.zeros((3, 3)), np.zeros(3), np.zeros(3)),
            "has no points with finite coordinates",
        ),
        ((np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros(0)), "has no points"),
    ),
)
@pytest.mark.parametrize("write", (legacy, zipped))
def test_what_is_wrong_with_a_torch_file_is_told_in_one_line(tmp_path, monkeypatch, write, value, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pth"
    write(path, value)
    with pytest.raises(UserError, match=message) as error:
        PthReader().read(RawScene("a", (str(path),), True))
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "executed").exists()


def test_files_that_torch_did_not_write_are_told(tmp_path):
    path = tmp_path / "a.pth"
    with pytest.raises(UserError, match="cannot be read"):
        load_arrays(str(path))
    for content in (b"", b"nothing", pickle.dumps((1, 2), protocol=2) * 3):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is damaged|is not a torch.save file"):
            load_arrays(str(path))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps((np.zeros(10**6),), protocol=2))
    with pytest.raises(UserError, match="is rejected: its entries are compressed"):
        load_arrays(str(path))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(pointgroup_arrays()[0], protocol=2))
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    with pytest.raises(UserError, match="is damaged|is not a torch.save file"):
        load_arrays(str(path))
