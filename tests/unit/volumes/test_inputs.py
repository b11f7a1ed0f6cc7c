"""Volumes to be predicted: which are found; one head in any format has its landmarks in one place."""

import json
import os

import numpy as np
import paddle
import pytest
from PIL import Image
from support.files.volume_files import AFFINE, voxels, write_series, write_volume

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.volumes.inputs import find_volumes
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection
from paddlevit_dist.volumes.reading import read_volume

TINY = ["TASK", "landmarks", "MODEL.NAME", "unet3d", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "1"]
TINY += ["VOLUMES.CROP_SIZE", "[8,12,10]", "-dataset=landmarks", "-eval", "-pretrained=x"]
NAMES = ("nose", "chin")


def recalled(*arguments, spacing=(2.0, 1.5, 1.0)):
    task = LandmarkDetection(settings.load([*TINY, *arguments]).values)
    task.load_meta(CheckpointMeta(2, NAMES, {"spacing_mm": list(spacing), "landmarks": list(NAMES)}))
    return task


def predicted(task, inputs):
    model = task.build_model()
    model.eval()
    results = []
    for index in range(len(inputs)):
        sample = inputs.sample(index, np.random.default_rng(0))
        task.check_sample(sample)
        batch = {name: paddle.to_tensor(values) for name, values in task.collate([sample]).items()}
        results += get_aspect(task, Predictable).predict_step(model, batch)
    return results


def test_volumes_are_found_in_folders_of_any_depth(tmp_path):
    write_volume(tmp_path / "b.nii.gz")
    write_series(tmp_path / "patient" / "study" / "series", voxels())
    write_volume(tmp_path / "patient" / "a.mha")
    (tmp_path / "patient" / "a.csv").write_text("name,x,y,z\n")
    (tmp_path / "patient" / "._a.mha").write_bytes(b"")  # as macOS writes next to each file
    (tmp_path / "empty").mkdir()
    files, unreadable, notices = find_volumes(
        [str(tmp_path), str(tmp_path / "empty"), str(tmp_path / "patient" / "a.csv"), "none"]
    )
    assert files == [str(tmp_path / name) for name in ("b.nii.gz", "patient/a.mha", "patient/study/series")]
    assert [reason.split(":")[0] for _, reason in unreadable] == [
        "the folder contains no volumes",
        "not a volume by its name",
        "no such file or folder",
    ]
    assert notices == []


def test_a_folder_with_volumes_a_series_and_others_loses_none_untold(tmp_path):
    write_series(tmp_path, voxels())
    series = read_volume(str(tmp_path))[0]
    write_volume(tmp_path / "a.nii.gz")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.mhd").write_text("ObjectType = Image\nElementDataFile = c.raw\n")
    for name in ("c.raw", "d.img", "e.gipl", "readme.txt"):
        (tmp_path / "b" / name).write_bytes(b"")
    files, unreadable, notices = find_volumes([str(tmp_path)])
    assert files == [str(tmp_path / "a.nii.gz"), str(tmp_path), str(tmp_path / "b" / "c.mhd")] and unreadable == []
    np.testing.assert_array_equal(read_volume(str(tmp_path))[0], series)
    assert [notice.partition(", such as")[0] for notice in notices] == [
        f"note: 2 files below {tmp_path} skipped (1 .img, 1 .gipl)"
    ]


def test_one_head_in_every_format_has_its_landmarks_in_one_place(tmp_path):
    names = ["a.nii.gz", "b.npz", "c.mha", "d.nrrd", "e"]
    for name in names:
        write_volume(tmp_path / name)
    (tmp_path / "f.nii.gz").write_bytes(b"no volume")
    task = recalled()
    paddle.seed(0)
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path)], tmp_path)
    assert list(inputs.names) == [str(tmp_path / name) for name in ("a.nii.gz", "b.npz", "c.mha", "d.nrrd", "e")]
    assert [path for path, _ in inputs.unreadable] == [str(tmp_path / "f.nii.gz")]
    content, slices = inputs.content(), sorted(map(str, (tmp_path / "e").iterdir()))
    assert {path for path, _, _ in content} == {*inputs.names, *slices}
    assert content[0] == (
        inputs.names[0],
        *(getattr(os.stat(inputs.names[0]), "st_" + n) for n in ("size", "mtime_ns")),
    )
    assert inputs.dataset.describe(2) == inputs.names[2]
    output = tmp_path / "output"
    output.mkdir()
    writer, places = get_aspect(task, Predictable).prediction_writer(output, inputs), []
    for index, found in enumerate(predicted(task, inputs)):
        rows = get_aspect(task, Predictable).prediction_rows(found)
        assert [row["landmark"] for row in rows] == list(NAMES)
        assert {row["world"] for row in rows} == {"RAS" if index < 2 else "LPS"}
        sign = 1 if index < 2 else -1
        places.append([(sign * row["x_mm"], sign * row["y_mm"], row["z_mm"]) for row in rows])
        files = writer.write(index, found)
        stored = json.loads((output / files["mrk_json"]).read_text())["markups"][0]
        assert stored["coordinateSystem"] == rows[0]["world"]
        assert [point["position"] for point in stored["controlPoints"]] == [
            [row["x_mm"], row["y_mm"], row["z_mm"]] for row in rows
        ]
        with Image.open(output / files["picture"]) as drawn:
            assert 200 < min(drawn.size)
        assert (output / files["fcsv"]).is_file()
    np.testing.assert_allclose(places, np.broadcast_to(places[0], np.shape(places)), atol=0.02)


def test_another_spacing_is_resampled_and_the_trained_one_is_not(tmp_path):
    write_volume(tmp_path / "a.npz")
    as_stored = (
        get_aspect(recalled(), Predictable).open_inputs([str(tmp_path)], tmp_path).sample(0, np.random.default_rng(0))
    )
    assert as_stored["volume"].shape == (1, 10, 12, 14)
    coarser = get_aspect(recalled(spacing=(4.0, 1.5, 1.0)), Predictable).open_inputs([str(tmp_path)], tmp_path)
    assert coarser.sample(0, np.random.default_rng(0))["volume"].shape == (1, 6, 12, 14)
    rounded = get_aspect(recalled(spacing=(2.006, 1.496, 1.003)), Predictable).open_inputs(
        [str(tmp_path)], tmp_path
    )  # as weights keep lengths
    np.testing.assert_array_equal(
        rounded.sample(0, np.random.default_rng(0))["volume"], as_stored["volume"], strict=True
    )
    assert AFFINE.shape == as_stored["affine"].shape


def test_weights_that_say_nothing_of_their_spacing_are_refused():
    task = LandmarkDetection(settings.load(TINY).values)
    for meta in (CheckpointMeta(2, NAMES), CheckpointMeta(2, None, {"spacing_mm": [1, 2, 3]})):
        with pytest.raises(UserError, match="do not record their landmarks and spacing"):
            task.load_meta(meta)
    task.load_meta(CheckpointMeta(2, None, {"spacing_mm": [1, 2, 3], "landmarks": ["ear", "eye"], "z_score": "box"}))
    assert (task.names, task.spacing.tolist(), task.within) == (["ear", "eye"], [1.0, 2.0, 3.0], "box")
    chosen = recalled("VOLUMES.SPACING_MM", "[3.0,2.5,2.0]")
    assert chosen.spacing.tolist() == [3.0, 2.5, 2.0] and chosen.names == list(NAMES) and chosen.within == "volume"


def test_endings_of_volumes_may_be_in_capitals(tmp_path):
    names = ["A.NII", "B.NII.GZ", "C.MHA", "D.MHD", "E.NRRD", "F.NHDR", "G.NPZ", "H.NPY"]
    for name in (*names, "I.TXT"):
        (tmp_path / name).write_bytes(b"")
    files = [str(tmp_path / name) for name in names]
    assert find_volumes([str(tmp_path)])[0] == files
    assert find_volumes([*files, str(tmp_path / "I.TXT")])[:2] == (
        files,
        [(str(tmp_path / "I.TXT"), find_volumes([str(tmp_path / "I.TXT")])[1][0][1])],
    )
