"""The task of segments: batches, losses, evaluation, prediction, drawings, and what is refused."""

import json

import numpy as np
import paddle
import pytest
from support.files import segment_layouts as layouts
from support.networks.golden import description
from support.refusals import refusal_of
from support.trainings import small_panoptic

from paddlevit_dist.core import settings
from paddlevit_dist.core.settings.table import get_value
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, PredictionRecord
from paddlevit_dist.core.tasks.protocols import Checkable, Drawable, Exportable, Predictable, Reportable
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.class_lists import published_classes
from paddlevit_dist.images.drawing import get_palette
from paddlevit_dist.images.panoptic import evaluate_command
from paddlevit_dist.images.panoptic.data import ade20k
from paddlevit_dist.images.panoptic.data.segments import Segments
from paddlevit_dist.images.panoptic.drawing import draw_segments, number_colors
from paddlevit_dist.images.panoptic.quality import count_image
from paddlevit_dist.images.panoptic.samples import HOST, EvaluatedSegments


class ColorQueries(paddle.nn.Layer):
    """A query for each of four colors; its mask are the pixels that are nearest to it."""

    def forward(self, images, update=None, total_updates=None):
        colors = paddle.to_tensor(np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]], np.float32))
        masks = paddle.einsum("qc,nchw->nqhw", colors, images) * 20
        number = images.shape[0]
        classes = paddle.to_tensor(9 * np.eye(4, 5, dtype=np.float32)[[0, 3, 1, 3]])
        return {"classes": classes.unsqueeze(0).expand([number, -1, -1]), "masks": masks}


def opened(*words, split="val"):
    task = make_task(settings.load([*small_panoptic.SHAPES, *words]).values)
    return task, task.build_dataset(split, None)


def batch_of(task, samples, indices):
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in indices])
    return {name: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one for name, one in batch.items()}


@paddle.no_grad()
def evaluated(task, samples, model, size):
    metrics = task.build_metrics()
    for first in range(0, len(samples), size):
        batch = batch_of(task, samples, range(first, min(first + size, len(samples))))
        task.eval_step(model, batch, EvaluationStep(metrics))
    return metrics.compute({})


def test_a_training_batch_has_the_objects_of_each_image():
    task, samples = opened(split="train")
    assert task.class_names == ["circle", "square", "triangle", "background"] and task.is_thing == [True] * 3 + [False]
    read = [samples.sample(index, np.random.default_rng(index)) for index in (0, 1, 2)]
    empty = read[1]._replace(segments=read[1].segments.choose(np.zeros(0, np.int64)))
    batch = task.collate([read[0], empty, read[2]])
    counts = [len(read[0].segments.labels), 0, len(read[2].segments.labels)]
    assert batch[HOST] == counts and batch["places"].dtype == np.int16 and batch["images"].dtype == np.uint8
    assert (batch["labels"] >= 0).sum(axis=1).tolist() == counts and batch["labels"].shape == (3, max(counts))
    for row, number in enumerate(counts):
        assert sorted(set(np.unique(batch["places"][row]).tolist()) - {-1}) == [*range(number)]
    assert task.collate([empty])["labels"].tolist() == [[-1]]


def test_a_training_step_reaches_every_parameter_without_an_object_too():
    task, samples = opened(split="train")
    model = task.build_model()
    for keep in (True, False):
        read = [samples.sample(index, np.random.default_rng(index)) for index in (0, 1)]
        if not keep:
            read = [one._replace(segments=one.segments.choose(np.zeros(0, np.int64))) for one in read]
        batch = task.collate(read)
        normalizers = task.loss_normalizers(batch)
        batch = {name: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one for name, one in batch.items()}
        terms = task.train_step(model, batch, StepPosition(1, 0, 10))
        total = sum(term.sum * term.weight / max(normalizers.get(name, 1), 1) for name, term in terms.items())
        total.backward()
        assert np.isfinite(float(total)) and all(p.grad is not None for p in model.parameters())
        assert normalizers["mask"] == sum(len(one.segments.labels) for one in read)
        model.clear_gradients()


def test_results_do_not_depend_on_batches():
    task, samples = opened()
    model = ColorQueries()
    one, all_ = (evaluated(task, samples, model, size) for size in (1, 9))
    assert one == all_ and one["segments"] == sum(len(samples.dataset.read_segments(k).labels) for k in range(9))


def test_segments_have_the_stored_size_and_the_colors_masks():
    task, samples = opened()
    batch = batch_of(task, samples, range(4))
    found = task.predict_batch(ColorQueries(), batch)
    for index, segments in enumerate(found):
        truth = samples.dataset.read_segments(index)
        facts = EvaluatedSegments(*batch[HOST][index])
        own = facts.segments()
        for name in ("places", "labels", "is_crowd", "areas", "ids"):
            np.testing.assert_array_equal(getattr(own, name), getattr(truth, name), strict=True)
        assert segments.places.shape == truth.places.shape
        assert (np.bincount(segments.labels, minlength=4)[3:] <= 1).all()  # stuff is joined
        assert segments.areas.tolist() == [int((segments.places == row).sum()) for row in range(len(segments.labels))]


def test_outputs_that_are_not_finite_are_not_scored():
    task, samples = opened()

    class Wrong(ColorQueries):
        def forward(self, images, *more):
            outputs = super().forward(images)
            return {**outputs, "masks": outputs["masks"] * np.nan}

    assert "not finite" in refusal_of(evaluated, task, samples, Wrong(), 2)
    aspect = get_aspect(task, Predictable)
    assert aspect.predict_step(Wrong(), batch_of(task, samples, [0])) == [None]
    with pytest.raises(BadSample, match="not finite"):
        aspect.prediction_rows(None)


def test_saved_predictions_have_the_score_of_the_evaluation(tmp_path, capsys):
    layouts.own_coco(tmp_path / "data")
    words = ["-dataset=panoptic", f"-data_path={tmp_path / 'data'}"]
    task = make_task(settings.load([*small_panoptic.SHAPES, *words]).values)
    samples = task.build_dataset("val", tmp_path)
    folder = tmp_path / "found"
    folder.mkdir()
    metrics, aspect = task.build_metrics(), get_aspect(task, Predictable)
    writer, records = aspect.prediction_writer(folder, samples), []

    class Colors(ColorQueries):
        def forward(self, images, *more):
            outputs = super().forward(images)
            return {**outputs, "classes": outputs["classes"][:, :, [0, 1, 3, 4]]}

    with paddle.no_grad():
        found = task.predict_batch(Colors(), batch_of(task, samples, range(len(samples))))
        for index, segments in enumerate(found):
            metrics.update(samples.dataset.read_segments(index), segments)
            row = writer.write(index, segments)
            assert (folder / row["map"]).is_file()
            records.append(PredictionRecord(index, [row], summary=writer.summarize(index, segments)))
    assert "in COCO's panoptic format" in writer.finish(records)[0]
    values = metrics.compute({})
    evaluate_command.run([str(tmp_path / "data" / "panoptic" / "val.json"), str(folder), "-json", "-interval=off"])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores == pytest.approx({name: value for name, value in values.items() if isinstance(value, float)})
    content = json.loads((folder / "panoptic.json").read_text())
    assert [each["id"] for each in content["categories"]] == [3, 7, 90]
    for entry in content["annotations"]:
        for segment in entry["segments_info"]:
            x, y, width, height = segment["bbox"]
            assert 0 < segment["area"] <= width * height and 0 <= segment["score"] <= 1 and x >= 0 <= y


def test_rows_of_a_table_name_category_score_and_box():
    task, _ = opened()
    places = np.full((4, 6), -1, np.int32)
    places[1:3, 2:5] = 0
    segments = Segments(places, np.array([1]), np.zeros(1, bool), np.array([6]), np.array([1]), np.array([0.87654]))
    aspect = get_aspect(task, Predictable)
    (row,) = aspect.prediction_rows(segments)
    assert row == {
        "segment": 1, "category": "square", "score": 0.8765, "area": 6, "x": 2, "y": 1, "width": 3, "height": 2
    }  # fmt: skip
    (row,) = aspect.prediction_rows(segments.choose(np.zeros(0, np.int64)))
    assert set(row.values()) == {None}


def test_numbers_of_segments_are_the_colors_of_their_classes():
    palette = np.array([[10, 20, 30], [0, 0, 0], [255, 255, 255]], np.uint8)
    labels = np.array([0, 0, 1, 1, 2, 0] + [1] * 300)
    numbers = number_colors(labels, palette)
    assert len(set(numbers.tolist())) == len(labels) and 0 < numbers.min() and numbers.max() < 1 << 24
    assert numbers[0] == 10 + 256 * 20 + 65_536 * 30 and numbers[1] % 256 == 10 and numbers[4] == (1 << 24) - 1


def test_drawings_separate_segments_of_one_class():
    places = np.repeat([[0, 1]], [4, 4], axis=1).repeat(4, axis=0).astype(np.int32)
    segments = Segments(places, np.array([0, 0]), np.zeros(2, bool), np.array([16, 16]), np.array([1, 2]))
    drawn = draw_segments(np.zeros((4, 8, 3), np.uint8), segments, np.array([[100, 0, 0]], np.uint8))
    assert (drawn[:, 3] == 255).all() and (drawn[:, [0, 1, 2, 4, 5, 6, 7]] == [60, 0, 0]).all()


def test_training_images_and_figures_are_drawn():
    task, samples = opened(split="train")
    task.build_dataset("val", None)
    aspect = get_aspect(task, Drawable)
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in (0, 1)])
    drawn = aspect.visualize_batch(samples, batch, 1)
    assert len(drawn) == 2 and drawn[0][0].shape == (320, 320, 3) and "32 x 32, " in drawn[0][1]
    validation = task.build_dataset("val", None)
    assert "things, 1 stuff" in aspect.visualize_eval_samples(validation, [0])[0][1]
    assert [name for name, _ in aspect.image_legend()] == task.class_names
    labels = get_aspect(task, Checkable).labels_in(validation.sample(0, np.random.default_rng(0)))
    assert labels.tolist() == validation.dataset.read_segments(0).labels.tolist()


def test_figures_have_classes_and_images():
    task, samples = opened()
    model, records = ColorQueries(), []
    with paddle.no_grad():
        found = task.predict_batch(model, batch_of(task, samples, range(9)))
        for index, segments in enumerate(found):
            records.append((index, count_image(samples.dataset.read_segments(index), segments, 4)))
        gallery, classes, images = get_aspect(task, Reportable).figures(samples, records, model)
    assert len(gallery.images) <= 12 and classes.columns[:3] == ("class", "kind", "PQ")
    totals = np.sum([counts[:3] for _, (counts, _) in records], axis=0)
    for row in classes.rows:
        assert row[-3:] == tuple(totals[:, task.class_names.index(row[0])].tolist())
    assert len(images.rows) == 9 and [row[1] for row in images.rows] == sorted(row[1] for row in images.rows)


def test_classes_things_and_ids_come_from_the_weights():
    task, samples = opened()
    facts = task.signature(samples)
    assert facts["things"] == [True, True, True, False] and facts["category ids"] == [1, 2, 3, 4]
    other = make_task(settings.load(small_panoptic.SHAPES).values)
    other.load_meta(CheckpointMeta(4, ("a", "b", "c", "d"), {}, {**facts, "palette": "010203" * 4}))
    assert (other.is_thing, other.category_ids) == (task.is_thing, task.category_ids)
    assert other.palette.tolist() == [[1, 2, 3]] * 4 and get_palette(other, 4).tolist() == [[1, 2, 3]] * 4


def test_golden_eomt_weights_of_133_classes_without_a_list_are_cocos():
    task = make_task(settings.load(small_panoptic.SHAPES).values)
    task.load_meta(CheckpointMeta(133))
    assert task.category_ids == description("eomt")["panoptic"]["coco_ids"] and sum(task.is_thing[:80]) == 80
    assert not any(task.is_thing[80:]) and task.class_names[-1] == "rug-merged" and task.class_names[79] == "toothbrush"
    task.load_meta(CheckpointMeta(133, tuple(map(str, range(133)))))  # of somebody's own data
    assert all(task.is_thing) and task.category_ids == list(range(1, 134))


def names_of(section, changes=()):
    names = published_classes(section, None, 0).names
    return tuple({**dict(enumerate(names)), **dict(changes)}[place] for place in range(len(names)))


@pytest.mark.parametrize(
    ("names", "number", "stuff"),
    [
        ((), 150, ade20k.STUFF),
        (
            names_of("ade20k", {6: "road, route", 7: " Bed", 8: "window "}),
            150,
            ade20k.STUFF,
        ),  # as in transformers' file
        (names_of("cityscapes"), 19, {*range(7, 24)} - {9, 10, 14, 15, 16, 18}),
        (tuple(map(str, range(150))), 150, None),  # of somebody's own data
        ((), 19, None),
        ((), 3, None),
    ],
)
def test_weights_that_do_not_say_which_classes_are_things(names, number, stuff):
    task = make_task(settings.load(small_panoptic.SHAPES).values)
    task.load_meta(CheckpointMeta(number, names or None))
    notices = [line for line in task.notices if f"things and stuff of {number} classes are not known" in line]
    assert len(notices) == (stuff is None)
    assert names == () or tuple(task.class_names) == names
    if stuff is None:
        assert all(task.is_thing) and task.category_ids == list(range(1, number + 1))
    else:
        found = {id_ for id_, is_thing in zip(task.category_ids, task.is_thing) if not is_thing}
        assert found == stuff and len(task.palette) == number


def test_categories_say_which_classes_of_weights_are_things(tmp_path):
    rows = [("cup", 5, 1), ("sky", 9, 0), ("plate", 7, 1)]
    listed = [{"id": number, "name": name, "isthing": thing, "color": [number] * 3} for name, number, thing in rows]
    (tmp_path / "mine.json").write_text(json.dumps(listed))
    words = [*small_panoptic.SHAPES, "PANOPTIC.CATEGORIES", str(tmp_path / "mine.json")]
    configuration = settings.load(words)
    assert not any("PANOPTIC.CATEGORIES" in line for line in configuration.notices)
    for names in (None, ("plate", "cup", "sky")):
        task = make_task(configuration.values)
        task.load_meta(CheckpointMeta(3, names))
        found = dict(zip(task.class_names, zip(task.category_ids, task.is_thing, task.palette[:, 0])))
        assert found == {name: (number, bool(thing), number) for name, number, thing in rows}
        assert tuple(task.class_names) == (names or ("cup", "sky", "plate")) and not task.notices
    for meta in (CheckpointMeta(4), CheckpointMeta(3, ("plate", "cup", "roof")), CheckpointMeta(3, ("a", "b", "c"))):
        assert "mine.json lists 3 categories, cup, sky, plate, but" in refusal_of(task.load_meta, meta)
    facts = {"things": [False, True, True], "category ids": [1, 2, 3]}
    task.load_meta(CheckpointMeta(3, ("plate", "cup", "roof"), {}, facts))  # a run knows its own
    assert task.is_thing == facts["things"] and task.category_ids == [1, 2, 3]


@pytest.mark.parametrize(
    "words, part",
    [
        (["MODEL.NAME", "segformer_b0"], "is not a model for segments"),
        (["PANOPTIC.SCALE_RANGE", "[2, 0.5]"], "expected the smaller number first"),
        (["DATA.ALBUMENTATIONS", "a.yaml"], "it is not applied to segments"),
    ],
)
def test_settings_that_do_not_fit_are_refused(words, part):
    assert part in refusal_of(lambda: make_task(settings.load([*small_panoptic.SHAPES, *words]).values))


def test_keys_without_effect_are_told():
    words = ["DATA.VAL_IMAGES", "a", "DATA.EVAL_SHORTEST_SIDE", "9", "PANOPTIC.ID_DIVISOR", "9"]
    notices = "\n".join(settings.load([*small_panoptic.SHAPES, *words]).notices)
    for key in words[::2]:
        assert f"{key} " in notices, key


def test_splits_with_other_things_are_refused(tmp_path):
    layouts.own_coco(tmp_path)
    file = tmp_path / "panoptic" / "val.json"
    content = json.loads(file.read_text())
    content["categories"][0]["isthing"] = 0
    file.write_text(json.dumps(content))
    words = ["-dataset=panoptic", f"-data_path={tmp_path}"]
    task = make_task(settings.load([*small_panoptic.SHAPES, *words]).values)
    task.build_dataset("train", tmp_path)
    assert "things or ids of categories differ" in refusal_of(task.build_dataset, "val", tmp_path)


def test_an_exported_function_is_evaluated_as_the_network():
    task, samples = opened()
    aspect = get_aspect(task, Exportable)
    parts = aspect.export_parts()
    assert get_value(task.config, aspect.image_size_key) == [*parts.size]  # the key that sets another size
    assert parts.size == (32, 32) and parts.output_names == ("classes", "masks")
    assert parts.example["input"].shape == (1, 3, 32, 32) and parts.about["things"] == task.is_thing
    model = aspect.evaluated_model(aspect.exported_model(ColorQueries()))
    assert evaluated(task, samples, model, 3) == evaluated(task, samples, ColorQueries(), 3)
    expected = [
        np.random.default_rng(seed).standard_normal(shape) for seed, shape in enumerate([(1, 4, 5), (1, 4, 8, 8)])
    ]
    assert aspect.compare(expected, expected)[0] == 0
    difference, _ = aspect.compare(expected, [expected[0], expected[1] + np.eye(8)])
    assert difference == pytest.approx(np.abs(_sigmoid(expected[1] + np.eye(8)) - _sigmoid(expected[1])).max())
    assert "does not return classes and masks" in refusal_of(aspect.evaluated_model(lambda images: images), 1)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))
