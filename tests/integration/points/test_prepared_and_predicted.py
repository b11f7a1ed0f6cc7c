"""A scene that is predicted is the scene that a preparation makes of the same file."""

import numpy as np
from support.files.raw_scenes import make_points, write_scannet
from support.files.scene_inputs import SEMANTIC, make_inputs, recalled

from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.data.scenes import ScanNet
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.store import prepare_store
from paddlevit_dist.points.prepare.tables import PlyReader
from paddlevit_dist.points.segmentation.task import SemanticSegmentation


def test_a_scene_is_the_same_before_and_after_its_preparation(tmp_path):
    raw = tmp_path / "scans_test"
    for number, name in enumerate(("scene0707_00", "scene0708_00")):
        write_scannet(raw / name, name, points=60, seed=number, labeled=False)
    reader = ScanNetReader()
    prepare_store(reader, reader.sources(str(raw), {}), str(raw), tmp_path / "store", 1)
    prepared = ScanNet(str(tmp_path / "store"), "test", tmp_path)
    assert not prepared.labeled
    for source in (raw, tmp_path / "store"):
        scenes, _ = make_inputs(source)
        for index in range(2):
            expected, found = prepared.read(index), scenes.read(index)
            assert (found.name, found.offset) == (expected.name, expected.offset)
            assert all(np.array_equal(a, b) for a, b in zip(found[:4], expected[:4]))


def test_what_a_preparation_says_of_scenes_a_prediction_says_too(tmp_path):
    columns = make_points(300)
    raw = tmp_path / "raw"
    raw.mkdir()
    write_points(raw / "fine.ply", columns)
    write_points(raw / "millimeters.ply", {**columns, **{axis: 1000 * columns[axis] for axis in "xyz"}})
    write_points(raw / "georeferenced.ply", {**columns, "y": columns["y"] + np.float32(5.4e6)})
    reader = PlyReader(SceneChoices(CLASS_NAMES, label="none"))
    prepared = prepare_store(reader, reader.sources(str(raw), {}), str(raw), tmp_path / "store", 1).remarks
    inputs = get_aspect(recalled(SemanticSegmentation, SEMANTIC), Predictable).open_inputs([str(raw)], tmp_path)
    said = [line.removeprefix("note: ") for line in inputs.notices]
    assert sorted(line.replace(f"({raw}/millimeters.ply", "(millimeters") for line in said) == sorted(prepared)
    assert "1 of 3 scenes seem to be in millimeters" in "".join(said)
    assert f"{raw}/georeferenced.ply stores x, y and z up to 5,400,00" in "".join(said)
