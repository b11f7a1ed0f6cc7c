"""Arrays of ``Predictor`` for each task: those in the files of ``predict``, also in the programs of the page."""

import json
import pickle
import re

import numpy as np
import pytest
from PIL import Image
from support.files.raw_scenes import make_points
from support.files.volume_files import write_volume
from support.processes import ROOT
from support.trainings.untrained import write_untrained_run

from paddlevit_dist import Predictor
from paddlevit_dist.core.inference.input_batches import PredictionDataset, predict_batch, read_batches
from paddlevit_dist.core.inference.trained import build_trained, open_source, prepare_task, require_predictable
from paddlevit_dist.core.runtime.transfers import batch_to_device
from paddlevit_dist.points.data.ply import read_vertices

PAGE = (ROOT / "docs" / "guides" / "predictor.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^## (.*?)\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
SCAN, NO_POINT, IMAGES = "scan.txt", 7, ["new/a.jpg", "new/b.jpg"]  # row of the scan without coordinates
CLUSTERS = {"SCORE_THRESHOLD": 0, "MIN_PREDICTION_POINTS": 0, "CLUSTER_POINTS": 2, "RADIUS_M": 0.3}
SMALL_CLUSTERS = [word for key, value in CLUSTERS.items() for word in (f"POINTS.INSTANCES.{key}", str(value))]
RUNS = {  # of the program's heading: its run, recipe and keys, inputs
    "Classes": ("mine", "vit_digits", [], IMAGES),
    "Several labels": ("labels", "multi_digits", [], IMAGES),
    "Label maps": ("fields", "segformer_b0_shapes", [], IMAGES),
    "Boxes": ("things", "rtdetr_shapes", [], IMAGES),
    "Masks": ("masks", "rfdetr_seg_shapes", ["DETECTION.SCORE_THRESHOLD", "0"], IMAGES),
    "Panoptic segments": (
        "desk",
        "eomt_panoptic_shapes",
        ["PANOPTIC.SCORE_THRESHOLD", "0", "PANOPTIC.OVERLAP_THRESHOLD", "0"],
        IMAGES,
    ),
    "Keypoints": ("people", "heatmap_figures", [], IMAGES),
    "Volumes": ("organs", "volume_unet3d_phantoms", [], ["scan.nii.gz"]),
    "Landmarks": ("heads", "landmark_unet3d", ["VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "1"], ["scan.nii.gz"]),
    "Points": ("rooms", "minkunet14_synthetic_rooms", ["MODEL.NAME", "minkunet_tutorial"], [SCAN]),
    "Instances of points": ("objects", "pointgroup_synthetic_rooms", SMALL_CLUSTERS, [SCAN]),
    "Shapes": ("solids", "mink_classifier_solids", [], ["shape.txt"]),
}


@pytest.fixture(params=RUNS)
def opened(request, tmp_path, monkeypatch):
    """Heading, weights and inputs of a task, in the folder in which its program runs."""
    run, recipe, keys, inputs = RUNS[request.param]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    words = [f"-cfg={ROOT / 'configs' / recipe}.yaml", *keys]
    write_untrained_run(tmp_path / "output" / run, words)
    generator = np.random.default_rng(0)
    (tmp_path / "new").mkdir()
    for path, size in zip(IMAGES, ((60, 48), (50, 70))):
        Image.fromarray(generator.integers(0, 256, (6, 5, 3), np.uint8)).resize(size).save(tmp_path / path)
    if inputs == ["scan.nii.gz"]:
        affine = np.array([[0, 2, 0, 5], [-1.5, 0, 0, 6], [0, 0, 3, 7], [0, 0, 0, 1.0]])  # not the world's axes
        write_volume(tmp_path / inputs[0], generator.integers(-900, 900, (24, 30, 28)).astype(np.int16), affine)
    points = np.column_stack(list(make_points(300).values()))
    np.savetxt(tmp_path / "shape.txt", points[:, :3])
    points[NO_POINT, :3] = np.nan
    np.savetxt(tmp_path / SCAN, points)
    return request.param, f"output/{run}", inputs


def test_a_program_of_the_page_runs_as_it_stands(opened, capsys):
    heading, *_ = opened
    exec(compile(PROGRAMS[heading], heading, "exec"), {})
    assert capsys.readouterr().out
    assert set(PROGRAMS) == set(RUNS)


def predict_files(source, inputs, folder):
    """Write what the command writes for each input; return the rows and an index of each input's rows."""
    folder.mkdir()
    opened = open_source(source, "predict")
    task = prepare_task(opened)
    aspect = require_predictable(task)
    samples = aspect.open_inputs(inputs, folder)
    model, _ = build_trained(task, opened)
    model.eval()
    writer = aspect.prediction_writer(folder, samples)
    dataset = PredictionDataset(task, samples, np.arange(len(inputs)))
    batches = read_batches(dataset, opened.config, len(inputs))
    entries = [entry for batch in batches for entry in predict_batch(aspect, model, batch_to_device(batch), writer)]
    writer.finish(entries)
    return [entry.rows for entry in entries]


def test_arrays_are_those_of_the_files_of_the_command(opened, tmp_path):
    heading, source, inputs = opened
    folder = tmp_path / "found"
    of_inputs, predictor = predict_files(source, inputs, folder), Predictor(source)
    found = predictor(inputs)
    files = {"masks", "picture", "labels", "map", "ply", "text", "mask", "fcsv", "mrk_json"}
    for number, path in enumerate(inputs):
        rows = [row for row in found if row["input"] == path]
        plain = [{name: value for name, value in row.items() if name not in files} for row in of_inputs[number]]
        if heading != "Several labels":
            assert [dict(row) for row in rows] == [{"input": path, **row} for row in plain]
        CHECKS.get(heading, require_nothing)(folder, predictor, rows, of_inputs[number], number)
        assert pickle.loads(pickle.dumps(rows)) == rows and json.loads(json.dumps(rows)) == rows


def require_nothing(folder, predictor, rows, written, number):
    assert rows[0].arrays == {} and not hasattr(rows[0], "label_map")


def check_probabilities(folder, predictor, rows, written, number):
    (shares,) = (row.probabilities for row in rows)
    assert shares.dtype == np.float64 and len(shares) == len(predictor.class_names)
    if "class" in rows[0]:
        assert predictor.class_names[shares.argmax()] == rows[0]["class"]
        assert rows[0]["score"] == pytest.approx(shares.max(), rel=1e-6)
    else:
        expected = [rows[0][name] for name in predictor.class_names]
        np.testing.assert_allclose(shares, expected, rtol=1e-6)


def check_label_map(folder, predictor, rows, written, number):
    expected = np.asarray(Image.open(folder / written[0]["mask"]))
    assert rows[0].label_map.dtype == np.uint8 and len(np.unique(expected)) > 1
    np.testing.assert_array_equal(rows[0].label_map, expected)
    np.testing.assert_array_equal(rows[0]["label_map"], expected)


def check_masks(folder, predictor, rows, written, number):
    from pycocotools import mask

    results = json.loads((folder / "results_masks.json").read_text())
    of_image = [each for each in results if each["file_name"] == rows[0]["input"]]
    assert len(of_image) == len(rows) == len(rows[0].masks) > 1 and rows[0].masks.dtype == np.uint8
    for row, own, each in zip(rows, rows[0].masks, of_image):
        assert row["score"] == pytest.approx(each["score"], abs=1e-4)
        np.testing.assert_array_equal(own, mask.decode(each["segmentation"]))


def check_segments(folder, predictor, rows, written, number):
    content = json.loads((folder / "panoptic.json").read_text())
    infos = content["annotations"][number]["segments_info"]
    red, green, blue = np.moveaxis(np.asarray(Image.open(folder / written[0]["map"])).astype(int), 2, 0)
    numbers = {0: 0, **{info["id"]: place for place, info in enumerate(infos, 1)}}
    expected = np.vectorize(numbers.get)(red + 256 * green + 65_536 * blue)
    segments, classes = rows[0].segments, rows[0].classes
    assert (segments.dtype, classes.dtype) == (np.uint8, np.uint8) and len(infos) == len(rows) > 1
    np.testing.assert_array_equal(segments, expected)
    names = {category["id"]: category["name"] for category in content["categories"]}
    assert [predictor.class_names[label] for label in classes] == [names[info["category_id"]] for info in infos]
    assert [row["category"] for row in rows] == [predictor.class_names[label] for label in classes]


def check_labels(folder, predictor, rows, written, number):
    import nibabel

    expected = np.asarray(nibabel.load(folder / written[0]["labels"]).dataobj)
    labels = rows[0].labels
    assert labels.dtype == np.uint8 and labels.shape == nibabel.load(rows[0]["input"]).shape
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(labels, expected)


def check_points(folder, predictor, rows, written, number):
    columns, none = read_vertices(folder / written[0]["ply"]), np.iinfo(np.uint8).max
    names = {"classes": "label"} if "instance" not in rows[0] else {"classes": "class", "instances": "label"}
    assert set(rows[0].arrays) == set(names)
    for name, array in rows[0].arrays.items():
        assert array.dtype == np.uint8 and array[NO_POINT] == none and len(np.unique(array)) > 2
        np.testing.assert_array_equal(array, np.where(columns[names[name]] < 0, none, columns[names[name]]))


CHECKS = {
    **dict.fromkeys(("Classes", "Several labels", "Shapes"), check_probabilities),
    "Label maps": check_label_map,
    "Masks": check_masks,
    "Panoptic segments": check_segments,
    "Volumes": check_labels,
    **dict.fromkeys(("Points", "Instances of points"), check_points),
}
