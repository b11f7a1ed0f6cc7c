"""Predictions are written as nuScenes's benchmarks expect them."""

import json

import numpy as np
import pytest
from support.samples.small_scenes import make_scene

from paddlevit_dist.points.data.samples import SceneSamples
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.writer import InstanceWriter
from paddlevit_dist.points.nuscenes_submission import is_submittable, write_submission_labels, write_submission_meta
from paddlevit_dist.points.prepare.nuscenes import CLASS_NAMES
from paddlevit_dist.points.segmentation.prediction import SceneClassWriter


def test_the_benchmark_takes_scans_and_classes_of_its_own_only():
    name = "scene-0061_" + 32 * "a"
    assert is_submittable(name, list(CLASS_NAMES)) and not is_submittable(name, ["car"])
    assert not is_submittable("08_000001", list(CLASS_NAMES))


def test_segments_are_numbered_in_their_class(tmp_path):
    name, classes = "scene-0061_" + 32 * "a", np.array([3, 3, -100, 10, 3, 6, 10])
    write_submission_labels(tmp_path, "test", name, classes, np.array([7, 2, -100, -100, 7, 0, -100]))
    with np.load(tmp_path / "panoptic" / "test" / f"{32 * 'a'}_panoptic.npz") as file:
        assert file["data"].dtype == np.uint16
        assert file["data"].tolist() == [4002, 4001, 0, 11000, 4002, 7001, 11000]
    write_submission_labels(tmp_path, "test", name, np.full(1001, 3), np.arange(1001))
    with np.load(tmp_path / "panoptic" / "test" / f"{32 * 'a'}_panoptic.npz") as file:
        assert file["data"].tolist() == [*range(4001, 5000), 0, 0]
    assert write_submission_meta(tmp_path, "test", has_instances=True) == "panoptic"
    assert json.loads((tmp_path / "test" / "submission.json").read_text())["meta"]["task"] == "segmentation"


class Scans(PreparedScenes):
    """Two scans of a split, each with a row that was skipped."""

    class_names = CLASS_NAMES

    def __init__(self, names) -> None:
        self.split, self.scans = "test", [make_scene(30, seed=seed, name=name) for seed, name in enumerate(names)]

    def __len__(self) -> int:
        return len(self.scans)

    def describe(self, index):
        return f"store/scenes/{self.scans[index].name}.scene"

    def read(self, index):
        return self.scans[index]._replace(skipped_rows=[4])


NAMES = [f"scene-0061_{32 * letter}" for letter in "ab"]


@pytest.mark.parametrize("has_instances", [False, True])
def test_scans_of_the_benchmark_are_also_written_for_it(tmp_path, has_instances):
    samples, classes = SceneSamples(Scans(NAMES), (), "first"), np.random.default_rng(0).integers(0, 16, 30)
    if has_instances:
        writer = InstanceWriter(tmp_path, samples, CLASS_NAMES, list(range(10)))
        predictions = [InstancePrediction(3, 0.9, np.arange(8)), InstancePrediction(3, 0.7, np.arange(20, 25))]
        row = writer.write(1, (classes, predictions))
        labels, instances = writer.segment_labels((classes, predictions))
        assert set(labels[:8]) == set(labels[20:25]) == {3} and set(instances[:8]) == {0}
        expected = 1000 * (np.where(classes < 10, -1, classes) + 1)  # things in no instance have no class
        expected[:8] = expected[20:25] = 4000
        expected[:8] += 1
        expected[20:25] += 2
        with np.load(tmp_path / "panoptic" / "test" / f"{32 * 'b'}_panoptic.npz") as file:
            written = file["data"]
        assert row["ply"] == f"{NAMES[1]}_prediction.ply"
    else:
        writer = SceneClassWriter(tmp_path, samples, CLASS_NAMES)
        row, expected = writer.write(1, classes), classes + 1
        written = np.fromfile(tmp_path / "lidarseg" / "test" / f"{32 * 'b'}_lidarseg.bin", np.uint8)
        assert row["ply"] == f"{NAMES[1]}.ply"
    assert row["picture"] == f"{NAMES[1]}.png" and row["text"] == f"{NAMES[1]}.txt" and len(row) == 3
    assert np.delete(written, 4).tolist() == expected.tolist() and written[4] == (0 if has_instances else 1)
    kind = "panoptic" if has_instances else "lidarseg"
    assert writer.finish([])[1:] == [f"for nuScenes's benchmark, in {tmp_path}: zip -r submission.zip {kind} test"]
    meta = json.loads((tmp_path / "test" / "submission.json").read_text())["meta"]
    uses = {f"use_{name}": name == "lidar" for name in ("camera", "lidar", "radar", "map", "external")}
    assert meta == {**uses, **({"task": "segmentation"} if has_instances else {})}
    for names in (["room", "hall"], []):
        other = SceneClassWriter(tmp_path, SceneSamples(Scans(names), (), "first"), CLASS_NAMES)
        assert other.nuscenes_split is None and len(other.finish([])) == bool(names)
