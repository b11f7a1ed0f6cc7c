"""The task of keypoints by heatmaps: its samples, its loss, boxes of all kinds, and what is refused."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image
from scipy.ndimage import map_coordinates
from support.files.keypoint_writer import posed, write_keypoints
from support.processes import ROOT
from support.trainings import small_detections
from support.trainings.updates import changes_of_an_update, waits_of_an_update

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import (
    CheckpointMatching,
    Exportable,
    LogContributor,
    Predictable,
    Reportable,
    count_samples,
)
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.described_points import SIGMA
from paddlevit_dist.images.keypoints.heatmaps.samples import HOST, split_detection
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON, KeypointSet
from paddlevit_dist.images.keypoints.records import KeypointRecord

FIGURES = [f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", "DATA.SHAPES.TRAIN", "6", "DATA.SHAPES.VAL", "4"]
FIGURES += ["HEATMAPS.CROP_SIZE", "[32, 32]", "MODEL.DIMS", "[8, 8, 8]"]


def build_task(folder, *words):
    task = make_task(settings.load([*FIGURES, *words]).values)
    return task, {split: task.build_dataset(split, folder) for split in ("train", "val")}


def as_tensors(batch):
    return {name: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def take(task, samples, indices):
    return as_tensors(task.collate([samples.sample(index, np.random.default_rng(index)) for index in indices]))


def test_training_has_a_sample_for_each_object(tmp_path):
    task, samples = build_task(tmp_path)
    figures = DrawnFigures(None, "train", None, num_train=6)
    objects = [(index, k) for index in range(6) for k in range(len(figures.annotations(index).labels))]
    assert count_samples(task, samples["train"]) == f"{len(objects)} objects" and len(objects) > 6
    assert count_samples(task, samples["val"]) == "4 images"
    assert [samples["train"].dataset.identity(k) for k in range(len(objects))] == [
        figures.identity(index) for index, _ in objects
    ]
    assert task.class_names == ["person", "hand"] and task.num_classes == 13 == len(set(task.point_names))
    assert task.best_metric == ("AP", True) and task.category_ids == [1, 2]
    assert samples["train"].notices[-1] == f"{len(objects)} objects with keypoints are a sample each"
    log = get_aspect(task, LogContributor)
    assert (
        log.describe_samples(samples["train"])
        == figures.summary()
        == "6 drawn images of 1 to 3 figures each: person, hand"
    )
    assert log.describe_samples(samples["val"]) == "4 drawn images of 1 to 3 figures each: person, hand"
    assert log.describe_samples(TransformedDataset()) is None
    batch = take(task, samples["train"], range(len(objects)))
    number = [int(figures.annotations(index).labels[k]) for index, k in objects]
    has_person = batch["weights"].numpy()[:, :7].any(axis=1)
    assert has_person.tolist() == [label == 0 for label in number]


def test_micro_batches_change_the_weights_as_one_batch_does(tmp_path):
    words = ["MODEL.NAME", "vitpose_tiny", "MODEL.DIMS", "None", "MODEL.EMBED_DIM", "16", "MODEL.DEPTH", "1"]
    task, samples = build_task(tmp_path, *words, "MODEL.OPTIONS.decoder", "simple")  # no batch norm

    def change(*parts):
        paddle.seed(0)
        model = task.build_model()
        return changes_of_an_update(task, model, [take(task, samples["train"], part) for part in parts], 6)

    whole, parted = change(range(6)), change(range(3), range(3, 6))
    for name, value in whole.items():
        np.testing.assert_allclose(parted[name], value, atol=2e-5 * np.abs(value).max() + 1e-8, err_msg=name)


def test_an_update_waits_for_the_norm_of_its_gradients_alone(tmp_path):
    task, samples = build_task(tmp_path)
    batch = task.collate([samples["train"].sample(k, np.random.default_rng(k)) for k in range(4)])
    waits = waits_of_an_update(task, task.build_model(), batch, 4)
    assert len(waits) == 1, str(waits)


def evaluate(task, samples, batches=((0, 1), (2, 3)), model=None):
    """The values of an evaluation, and its predictions by index."""
    metrics, found = task.build_metrics(), {}
    model = model or PerfectModel(task, samples["val"].dataset)
    for indices in batches:
        batch = take(task, samples["val"], indices)
        if isinstance(model, PerfectModel):
            model.expect(batch)
        with paddle.no_grad():
            predictions = task.finder(model, batch)
        found.update(zip(batch[HOST]["indices"], predictions))
        if isinstance(model, PerfectModel):
            model.expect(batch)
        written = []
        with paddle.no_grad():
            records = task.eval_step(
                model, batch, EvaluationStep(metrics, SimpleNamespace(add=written.append), None, True)
            )
        for detected, shown, record in zip(predictions, written[0], records(), strict=True):
            np.testing.assert_array_equal(shown.points, detected.points)
            if isinstance(record, KeypointRecord):  # ordered by category and score
                assert sorted(record.labels.tolist()) == sorted(detected.labels.tolist())
    return metrics.compute(metrics.state), found


class PerfectModel:
    """Returns exact heatmaps of the objects whose crops it is given, in their order."""

    def __init__(self, task, dataset):
        self.task, self.dataset, self.queue = task, dataset, []

    def expect(self, batch):
        """Prepare the heatmaps of a batch: of true boxes, or of the boxes that most resemble them."""
        from paddlevit_dist.images.keypoints.heatmaps.crops import build_matrix, fit_regions, transform_points
        from paddlevit_dist.images.keypoints.heatmaps.samples import list_objects
        from paddlevit_dist.images.keypoints.heatmaps.targets import draw_targets, find_cells

        self.queue, crops = [], self.task.crops
        for index, objects in zip(batch[HOST]["indices"], list_objects(batch)):
            truth = self.dataset.annotations(index)
            for box, label in zip(objects.boxes, objects.labels):
                distance = np.abs(truth.boxes - box).sum(axis=1) + 1e6 * (truth.labels != label)
                points = truth.points[int(distance.argmin())][None]
                region = fit_regions(box, crops.crop_size, crops.box_scale)[0]
                places = transform_points(build_matrix(region, crops.crop_size), points[..., :2])
                cells = find_cells(places, crops.crop_size, crops.heatmap_size)
                maps = draw_targets(paddle.to_tensor(cells), crops.heatmap_size, 1.5).numpy()
                self.queue.append(self.task.channels.spread(maps, np.array([label])))
        self.turns = [False, True] * 10

    def __call__(self, images):
        maps = np.concatenate(self.queue)
        if self.turns.pop(0):
            maps = maps[:, self.task.channels.mirror, :, ::-1]
        return paddle.to_tensor(np.ascontiguousarray(maps))


def test_exact_heatmaps_have_an_ap_of_1(tmp_path):
    task, samples = build_task(tmp_path, "HEATMAPS.CROP_SIZE", "[64, 64]", "HEATMAPS.BOX_SCALE", "1.5")
    assert samples["val"].eval_protocol == "in the boxes of the annotations"
    assert not any("HEATMAPS.FLIP" in line for line in samples["val"].notices) and samples["train"].config.flip == 0.5
    values, found = evaluate(task, samples)
    assert values["AP"] > 0.99
    assert all((detected.points[..., 2] <= 1).all() for detected in found.values())
    limits = ["DETECTION.MAX_DETECTIONS", "11", "DETECTION.SCORE_THRESHOLD", "0.25"]
    task, samples = build_task(tmp_path, "HEATMAPS.FLIP", "false", *limits)
    batch, metrics = take(task, samples["val"], [0]), task.build_metrics()
    assert (metrics.class_names, metrics.images, metrics.limit) == (["person", "hand"], 4, 11)
    assert metrics.table.numbers.tolist() == [7, 6]
    model = task.build_model()
    assert task.eval_step(model, batch, EvaluationStep(metrics)) is None and not task.finder.mirrors
    with paddle.no_grad():
        (record,) = task.eval_step(model, batch, EvaluationStep(metrics, keeps_records=True))()
        figures = get_aspect(task, Reportable).figures(samples["val"], [(0, record)], model)
    categories = next(figure for figure in figures if figure.title == "Categories")
    assert categories.note.endswith("with a score of at least 0.25.")


def test_boxes_of_a_file_have_scores_and_are_found_once(tmp_path):
    figures, results = DrawnFigures(None, "val", None, num_val=4), []
    for index in range(4):
        truth = figures.annotations(index)
        for box, label in zip(truth.boxes.tolist(), truth.labels.tolist()):
            entry = {"image_id": figures.image_id(index), "category_id": label + 1, "bbox": box}
            results += [{**entry, "score": 0.9}, {**entry, "score": 0.4}, {**entry, "score": 0.01}]
    file = tmp_path / "boxes.json"
    file.write_text(json.dumps(results[::-1]))
    words = ["HEATMAPS.BOX_FILE", str(file), "HEATMAPS.CROP_SIZE", "[64, 64]", "HEATMAPS.BOX_SCALE", "1.5"]
    task, samples = build_task(tmp_path, *words)
    values, found = evaluate(task, samples)
    assert values["AP"] > 0.99
    for index, detected in found.items():
        truth = figures.annotations(index)
        assert sorted(detected.labels.tolist()) == sorted(truth.labels.tolist())  # each once
        assert (detected.scores > 0.6).all() and (detected.scores <= 0.9).all()
        np.testing.assert_allclose(
            np.sort(detected.boxes[:, 0]), np.sort(truth.boxes[:, 0]).astype(np.float32), atol=1e-4
        )


def test_objects_of_a_detector_have_scores_and_are_found_once(tmp_path):
    weights = small_detections.write_weights(tmp_path / "detector", class_names=["hand", "person", "car"])
    words = ["HEATMAPS.DETECTOR", str(weights), "HEATMAPS.BOX_SCORE", "0", "HEATMAPS.NMS_OKS", "0"]
    task, samples = build_task(tmp_path, *words)
    batch, model = take(task, samples["val"], [0, 1]), task.build_model()
    with paddle.no_grad():
        boxes, found = task.detector.detect(split_detection(batch)[0]), task.finder(model, batch)
    for given, detected in zip(boxes, found, strict=True):  # any two of a category are a little similar
        assert len(given.labels) > len(detected.labels) == len(set(given.labels.tolist()))


def test_an_export_tells_how_a_crop_is_cut_and_has_one(tmp_path):
    task, _ = build_task(
        tmp_path, "HEATMAPS.CROP_SIZE", "[64, 32]", "HEATMAPS.KERNEL", "7", "HEATMAPS.BOX_SCALE", "1.5"
    )
    parts = get_aspect(task, Exportable).export_parts()
    assert (parts.channels, parts.size, parts.output_names) == (3, (64, 32), ("heatmaps",))
    assert parts.output_shape == (13, 32, 16) and parts.about["points"] == task.point_names
    assert parts.about["output"] == "float32 (batch, 13, 32, 16), a heatmap for each point"
    assert "enlarged to the proportions of the crop and by 1.5" in parts.about["crop"]
    assert "becomes 32 x 64 pixels" in parts.about["crop"] and parts.about["decoding"]["kernel"] == 7
    assert parts.about["heatmaps_of_classes"] == {"person": [*range(7)], "hand": [*range(7, 13)]}
    # The box (20, 10, 60, 70) has its center at (50, 45); 60 x 120 has the crop's proportions, enlarged it is 90 x 180.
    picture = parts.example["picture"].astype(float)
    y, x = np.meshgrid(45 + 180 * (np.arange(64) / 63 - 0.5), 50 + 90 * (np.arange(32) / 31 - 0.5), indexing="ij")
    planes = [map_coordinates(picture[..., k], [y, x], order=1, mode="grid-constant") for k in range(3)]
    data = task.config.DATA
    pixels = [
        plane * deviation + mean
        for plane, mean, deviation in zip(parts.example["input"][0], data.IMAGENET_MEAN, data.IMAGENET_STD)
    ]
    assert parts.example["input"].shape == (1, 3, 64, 32)
    np.testing.assert_allclose(255 * np.stack(pixels), planes, atol=0.51)


def test_whole_images_are_one_object_each(tmp_path):
    task, samples = build_task(tmp_path, "HEATMAPS.BOXES", "image")
    assert samples["val"].eval_protocol == "in whole images"
    _, found = evaluate(task, samples, model=task.build_model())
    for index, detected in found.items():
        height, width = samples["val"].dataset.size(index)
        np.testing.assert_array_equal(detected.boxes, [[0, 0, width, height]] * 2)
        assert detected.labels.tolist() == [0, 1]


def test_an_input_is_one_object_of_the_best_category_with_any_score(tmp_path):
    task, samples = build_task(tmp_path, "HEATMAPS.BOXES", "image")
    predicting = get_aspect(task, Predictable)
    model, batch = task.build_model(), take(task, samples["val"], [0])
    model.eval()
    (both,) = predicting.predict_step(model, batch)
    assert both.labels.tolist() == [0, 1] and predicting.least_score == 0.5
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    samples = predicting.open_inputs([str(tmp_path / "a.png")], tmp_path)
    assert any("one object, with any score" in line for line in samples.notices)
    opened = samples.sample(0, np.random.default_rng(0))
    assert opened.size == (30, 40) and opened.objects.boxes.tolist() == [[0, 0, 40, 30]] * 2
    assert opened.crops.shape == (2, 3, 32, 32)
    (best,) = predicting.predict_step(model, batch)
    assert best.labels.tolist() == [int(np.argmax(both.scores))] and best.scores[0] == both.scores.max() < 0.5
    assert [row["category"] for row in predicting.prediction_rows(best)] == [task.class_names[best.labels[0]]]


def test_weights_depend_on_the_crops_and_positions_are_resized_to_them():
    words = "MODEL.NAME vitpose_tiny MODEL.DIMS None MODEL.EMBED_DIM 16 MODEL.DEPTH 1".split()
    tasks = [make_task(settings.load([*FIGURES, *words, "HEATMAPS.CROP_SIZE", side]).values)
             for side in ("[32, 32]", "[64, 32]")]  # fmt: skip
    data = tasks[1].config.DATA
    assert tasks[1].signature() == {
        "DATA.IMAGENET_MEAN": data.IMAGENET_MEAN,
        "DATA.IMAGENET_STD": data.IMAGENET_STD,
        "DATA.EXIF_ROTATE": data.EXIF_ROTATE,
        "HEATMAPS.CROP_SIZE": [64, 32],
        "HEATMAPS.BOX_SCALE": tasks[1].config.HEATMAPS.BOX_SCALE,
    }
    square, tall = (task.build_model(3) for task in tasks)
    expected = tall.backbone.resample_parameter("pos_embed", square.backbone.pos_embed.numpy(), None)
    report = load_weights(tall, square.state_dict())
    assert (report.resized, report.missing, report.unexpected) == (["backbone.pos_embed"], [], [])
    np.testing.assert_array_equal(tall.backbone.pos_embed.numpy(), expected)
    matching = get_aspect(tasks[1], CheckpointMatching)
    assert matching.mismatch_hint("HEATMAPS.CROP_SIZE", [32, 32]) == "set HEATMAPS.CROP_SIZE [32, 32]"
    assert matching.mismatch_hint("DATA.EXIF_ROTATE", False) == "use the same settings"


def test_wrong_facts_of_a_checkpoint_are_refused(tmp_path):
    task, samples = build_task(tmp_path)
    facts = json.loads(json.dumps(task.signature(samples["val"])))
    first, *others = facts["points"]
    for wrong, told in (
        (
            {"points": [{**first, "pairs": [[0, 99]]}, *others]},
            r"pairs and skeleton of points 0 to .* `\$\.points\[0\]`",
        ),
        ({"points": [{**first, "sigmas": first["sigmas"][1:]}, *others]}, r"Expected \d+ sigmas, a name each"),
        ({"points": [first, first]}, "points of 7 heatmaps, and 13 classes"),
        ({"category ids": [1, 1]}, "Expected 2 different category ids"),
        ({"category ids": [1, "two"]}, r"Expected `int`, got `str` - at `\$\.category ids\[1\]`"),
    ):
        meta = CheckpointMeta(13, None, {}, {**facts, **wrong}, "x/about.yaml")
        with pytest.raises(UserError, match=rf"^x/about\.yaml: .*{told}.*; remove the file to continue without it$"):
            make_task(task.config).load_meta(meta)


def test_points_and_categories_return_from_a_checkpoint(tmp_path):
    task, samples = build_task(tmp_path)
    facts = json.loads(json.dumps(task.signature(samples["val"])))
    expected = {
        "number of classes": 13,
        "classes": task.point_names,
        "categories": ["person", "hand"],
        "category ids": [1, 2],
        "points": [points.to_plain() for points in samples["val"].dataset.keypoint_sets],
    }
    assert {name: facts[name] for name in expected} == json.loads(json.dumps(expected))
    other = make_task(task.config)
    other.load_meta(CheckpointMeta(13, tuple(facts["classes"]), {}, facts))
    assert other.keypoint_sets == task.keypoint_sets and other.class_names == task.class_names
    assert other.point_names == task.point_names and other.category_ids == task.category_ids
    del facts["category ids"]
    other.load_meta(CheckpointMeta(13, tuple(facts["classes"]), {}, facts))
    assert other.category_ids == [1, 2]
    for number, names, category, points in (
        (17, None, "person", COCO_PERSON.names),
        (3, None, "object", ("point 1", "point 2", "point 3")),
        (2, ("tip", "end"), "object", ("tip", "end")),
    ):
        published = make_task(task.config)
        published.load_meta(CheckpointMeta(number, names))
        assert published.class_names == [category] and published.category_ids == [1]
        assert published.point_names == list(points) == published.channels.names
        (found,) = published.keypoint_sets
        assert found == COCO_PERSON if number == 17 else found == KeypointSet(points, (), (SIGMA,) * number, ())


def test_a_step_is_a_mean_over_objects(tmp_path):
    task, samples = build_task(tmp_path)
    batch = take(task, samples["train"], range(5))
    terms = task.train_step(task.build_model(), batch, StepPosition(1, 0, 1))
    assert terms["loss"].count == 5 and float(terms["loss"].sum) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL.NAME", "resnet18", "MODEL.DIMS", "None"], "MODEL.NAME resnet18 returns no heatmaps"),
        (["HEATMAPS.KERNEL", "4"], "HEATMAPS.KERNEL.*odd number, such as 5"),
        (["KEYPOINTS.FIGURES", "[hand, hand]"], r"KEYPOINTS.FIGURES .*: expected at least one kind, each only once"),
        (["KEYPOINTS.FIGURES", "[]"], r"KEYPOINTS.FIGURES .*: expected at least one kind, each only once"),
        (["HEATMAPS.BOX_FILE", "/nowhere.json"], "HEATMAPS.BOX_FILE /nowhere.json: there is no such file"),
        (["HEATMAPS.DETECTOR", "/nowhere"], "/nowhere"),
        (["DATA.DATASET", "synthetic_shapes"], "holds images with boxes"),
    ],
)
def test_what_does_not_fit_is_one_line(words, message, tmp_path):
    with pytest.raises(UserError, match=message) as caught:
        build_task(tmp_path, *words)
    assert "\n" not in str(caught.value)


def test_tables_of_points_are_scored_by_their_errors(tmp_path):
    lines = ["image,tip_x,tip_y,end_x,end_y,spacing_mm"]
    for number in range(4):
        name = f"{number}.png"
        Image.new("RGB", (50, 40 + number), (9 * number, 80, 120)).save(tmp_path / name)
        lines.append(f"{name},{10 + number},12,{30 - number},{20 + number},0.5")
    (tmp_path / "points.csv").write_text("\n".join(lines))
    words = ["-dataset=keypoint_table", f"-data_path={tmp_path}", "DATA.VAL_FRACTION", "0.5"]
    task, samples = build_task(tmp_path, *words, "HEATMAPS.CROP_SIZE", "[64, 64]", "DATA.HORIZONTAL_FLIP", "1.0")
    assert task.best_metric == ("PCK", True) and task.point_names == ["tip", "end"]
    assert samples["train"].config.flip == 0 and not task.finder.mirrors  # no point is another's mirror
    assert "HEATMAPS.FLIP: no effect: no points are mirrored" in samples["val"].notices
    values, found = evaluate(task, samples, [(0, 1)])
    assert len(found) == 2 and values["PCK"] == 100
    batch, metrics = take(task, samples["val"], (0, 1)), task.build_metrics()
    step = EvaluationStep(metrics, keeps_records=True)
    with paddle.no_grad():
        records = task.eval_step(task.build_model(), batch, step)()
    for record in records:
        np.testing.assert_allclose(record.errors_mm, record.errors / 2, rtol=1e-5)
        assert 8 < record.side < 21
    reporting = get_aspect(task, Reportable)
    _, table, chart = reporting.figures(samples["val"], list(enumerate(records)), task.build_model())
    assert [row[-1] for row in table.rows] == [2, 2, 4] and chart.x_label == "error, mm"
    assert reporting.figures(samples["val"], [], None) == []
    # samples of a user's task have no points to draw
    assert reporting.figures(TransformedDataset(), list(enumerate(records)), None) == []


def test_a_user_s_augmentation_of_images_moves_the_points_of_objects(tmp_path):
    pytest.importorskip("albumentations")
    flip = {"__class_fullname__": "HorizontalFlip", "p": 1.0}
    file = tmp_path / "steps.json"
    file.write_text(json.dumps({"transform": {"__class_fullname__": "Compose", "transforms": [flip]}}))
    words = ["TRAIN.COLOR_JITTER", "0", "HEATMAPS.SHIFT", "0", "HEATMAPS.SCALE", "0", "HEATMAPS.ROTATION", "0"]
    ours, theirs = (
        build_task(tmp_path, *words, *more)[1]["train"].sample(0, np.random.default_rng(0))
        for more in (["DATA.HORIZONTAL_FLIP", "1"], ["DATA.HORIZONTAL_FLIP", "0", "DATA.ALBUMENTATIONS", str(file)])
    )
    np.testing.assert_array_equal(theirs.weights, ours.weights)
    is_labeled = ours.weights > 0
    # A mirrored image has a point at width - 1 - x, but the middle of its box at width - x.
    np.testing.assert_allclose(theirs.cells[is_labeled], ours.cells[is_labeled], atol=0.2)


def test_splits_and_evaluated_data_are_those_of_the_configuration_and_have_objects(tmp_path):
    with pytest.raises(UserError, match="^keypoints can only be evaluated on the data of their configuration$"):
        make_task(settings.load(FIGURES).values).eval_step(None, {}, EvaluationStep(None))
    task, _ = build_task(tmp_path)
    task.class_names = ["person", "foot"]
    with pytest.raises(
        UserError, match="categories of training and validation data differ: person, foot and person, ha"
    ):
        task.build_dataset("val", tmp_path)
    write_keypoints(tmp_path / "bugs", [posed(1, 11, iscrowd=1)])
    words = [*FIGURES, "-dataset=coco_keypoints", f"-data_path={tmp_path / 'bugs'}"]
    with pytest.raises(
        UserError, match="has no object to learn in its 3 train images: its 1 object is 1 crowd, not learned"
    ):
        make_task(settings.load(words).values).build_dataset("train", tmp_path)


def test_missing_and_damaged_images_are_replaced_in_training_alone_where_the_key_says_so(tmp_path):
    for split in ("train2017", "val2017"):
        write_keypoints(tmp_path, [posed(1, 11), posed(2, 12), posed(3, 13)], split)
        (tmp_path / split / "2.png").unlink()
        (tmp_path / split / "3.png").write_bytes(b"no image")
    words, skip = ["-dataset=coco_keypoints", f"-data_path={tmp_path}"], ["DATA.ON_INVALID_SAMPLE", "skip"]
    task = make_task(settings.load([*FIGURES, *words, *skip]).values)
    samples = task.build_dataset("train", tmp_path)
    gone = f"1 of 3 images of train are missing, such as {tmp_path}/train2017/2.png: "
    opened = "opened all 3 images of train; 2 of them cannot be read and are replaced by the next readable ones ("
    *_, missing, damaged, change, last = samples.notices
    assert " color -> an object in " in change or " gray -> an object in " in change
    assert missing == f"{gone}the next images replace them (DATA.ON_INVALID_SAMPLE skip)"
    assert damaged.startswith(opened) and last == "3 objects with keypoints are a sample each"
    copied = pickle.loads(pickle.dumps(task)).build_dataset("train", tmp_path)  # which the main process has checked
    assert copied.notices == [*samples.notices[:-4], last]
    for split, more in (("train", []), ("val", skip)):
        with pytest.raises(UserError, match=f"^1 of 3 images of {split} are missing, such as .*/2.png: restore them, "):
            make_task(settings.load([*FIGURES, *words, *more]).values).build_dataset(split, tmp_path)
