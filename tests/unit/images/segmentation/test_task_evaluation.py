"""The task's evaluation, prediction and export, with a network of one layer: what is counted, written and told."""

import json

import numpy as np
import paddle
import pytest
from PIL import Image
from support.waits import counted_waits

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.inference.evaluation import SavedPredictions
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.core.metrics.counts import count_confusion, pack_counts, reduce_confusions
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, PredictionRecord
from paddlevit_dist.core.tasks.protocols import Exportable, Predictable, Reportable
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.core.tasks.task_factory import build_metrics
from paddlevit_dist.images.drawing import fit_in_cell, get_palette, overlay_labels
from paddlevit_dist.images.segmentation import evaluate_command as evaluate_masks
from paddlevit_dist.images.segmentation.protocols import read_protocol, slide_windows, upsample
from paddlevit_dist.images.segmentation.samples import split_batch
from paddlevit_dist.images.segmentation.task import ImageSegmentation

SHAPES = ["-cfg=segformer_b0_shapes", "DATA.SHAPES.VAL", "7", "DATA.SHAPES.SIDES", "[40, 90]"]
SIZED = ["DATA.EVAL_SHORTEST_SIDE", "48", "DATA.EVAL_LONGEST_SIDE", "80", "DATA.EVAL_DIVISOR", "16"]


class OneLayer(paddle.nn.Layer):
    """Logits at a quarter of the resolution that depend on the colors around."""

    def __init__(self):
        super().__init__()
        self.layer = paddle.nn.Conv2D(3, 4, 7, stride=4, padding=3)
        kernel = np.random.default_rng(0).standard_normal(self.layer.weight.shape)
        self.layer.weight.set_value(kernel.astype("float32"))

    def forward(self, images):
        return self.layer(images)


def opened(*words):
    task = ImageSegmentation(settings.load([*SHAPES, *words]).values)
    samples = task.build_dataset("val", None)
    model = OneLayer()
    model.eval()
    return task, samples, model


class Chosen:
    """One of the samples."""

    def __init__(self, samples, index):
        self.sample = lambda _, generator: samples.sample(index, generator)

    def __len__(self):
        return 1


def batches(task, samples, size):
    read = [samples.sample(index, np.random.default_rng(0)) for index in range(len(samples))]
    for first in range(0, len(read), size):
        batch = task.collate(read[first : first + size])
        yield {name: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one for name, one in batch.items()}


@paddle.no_grad()
def evaluated(task, samples, model, size=3, **step):
    metrics, records = task.build_metrics(), []
    for batch in batches(task, samples, size):
        found = task.eval_step(model, batch, EvaluationStep(metrics, **step))
        records += found() if found else []
    return metrics, records


@pytest.mark.parametrize("words", [[], SIZED, ["SEGMENTATION.PROTOCOL", "slide", "SEGMENTATION.CROP", "[32, 24]"]])
def test_each_pixel_counts_once_at_its_stored_size_whatever_the_batches(words):
    task, samples, model = opened(*words)
    metrics = {size: evaluated(task, samples, model, size)[0] for size in (1, 3, 7)}
    for other in (3, 7):
        for one, two in zip(metrics[1].per_sample(), metrics[other].per_sample()):
            np.testing.assert_array_equal(one, two, strict=True)
    with paddle.no_grad():
        maps = [
            found
            for batch in batches(task, samples, 7)
            for found in get_aspect(task, Predictable).predict_step(model, batch)
        ]
    labels = [samples.dataset.read_labels(index) for index in range(7)]
    assert [one.shape for one in maps] == [one.shape for one in labels] and len({one.shape for one in maps}) > 1
    expected = sum(count_confusion(*pair, 4, 255) for pair in zip(labels, maps))
    np.testing.assert_array_equal(metrics[1].per_sample()[0].sum(axis=0), reduce_confusions(expected), strict=True)
    assert metrics[1].compute({})["pixels"] == sum(one.size for one in labels)


class PixelErrors(ImageSegmentation):
    """The squared share that a network does not give to the class of each pixel."""

    def losses(self, outputs, batch):
        labels, shares = batch["labels"], paddle.nn.functional.softmax(outputs, axis=1)
        known = paddle.where(labels == 255, paddle.zeros_like(labels), labels)
        return (1 - paddle.take_along_axis(shares, known.unsqueeze(1), axis=1)[:, 0]) ** 2


class ImageErrors(PixelErrors):
    def losses(self, outputs, batch):
        return super().losses(outputs, batch).max(axis=[1, 2])


def unlabeled(task, samples, size):
    """Batches without the labels of class 1."""
    for batch in batches(task, samples, size):
        labels = batch["labels"].numpy()
        yield {**batch, "labels": paddle.to_tensor(np.where(labels == 1, np.uint8(255), labels))}


SEVERAL = ["SEGMENTATION.SCALES", "[0.5, 1.0]", "SEGMENTATION.FLIP", "true"]


@pytest.mark.parametrize("owner", [PixelErrors, ImageErrors])
@pytest.mark.parametrize(
    "words", [[], SIZED, ["SEGMENTATION.PROTOCOL", "slide", "SEGMENTATION.CROP", "[32, 24]"], [*SIZED, *SEVERAL]]
)
@paddle.no_grad()
def test_the_loss_of_an_evaluation_is_a_users_at_the_stored_size(owner, words):
    task, samples, model = opened(*words)
    own = owner(task.config)
    own.build_dataset("val", None)
    found = {}
    for size in (1, 3):
        metrics = build_metrics(own)
        for batch in unlabeled(own, samples, size):
            own.eval_step(model, batch, EvaluationStep(metrics))
        found[size] = metrics.compute(metrics.state)
    assert found[1]["loss"] == pytest.approx(found[3]["loss"], rel=1e-6) and "cross_entropy" not in found[1]
    plain = task.build_metrics()
    errors = []
    protocol = read_protocol(task.config)
    for batch in unlabeled(task, samples, 1):
        task.eval_step(model, batch, EvaluationStep(plain))
        image = split_batch(batch)[0]
        size = tuple(image.labels.shape)

        def probabilities(turn, scale, image=image, size=size):
            pixels = image.image.astype("float32")
            if scale != 1:
                sides = [-(-round(side * scale) // 16) * 16 for side in pixels.shape[2:]]
                pixels = upsample(pixels, sides)
            pixels = pixels.flip(axis=[3]) if turn else pixels
            bands = [model(task.normalizer(pixels))]
            if protocol.crop:
                bands = list(slide_windows(lambda x: model(task.normalizer(x)), pixels, protocol.crop, protocol.stride))
            logits = paddle.concat(bands, axis=2)
            logits = upsample(logits.flip(axis=[3]) if turn else logits, pixels.shape[2:])
            return paddle.nn.functional.softmax(upsample(logits, size), axis=1).numpy()[0]

        views = [(0, 1)] if words != [*SIZED, *SEVERAL] else [(turn, scale) for scale in (0.5, 1) for turn in (0, 1)]
        shares = np.mean([probabilities(*view) for view in views], axis=0)
        labels = image.labels.numpy().astype(int)
        known = np.where(labels == 255, 0, labels)
        error = (1 - np.take_along_axis(shares, known[None], axis=0)[0]) ** 2
        errors.append(error[labels != 255] if owner is PixelErrors else error.max(keepdims=True).ravel())
    assert found[3]["loss"] == pytest.approx(np.concatenate(errors).mean(), rel=1e-4)
    assert found[3]["mIoU"] == plain.compute(plain.state)["mIoU"]
    assert f" loss {found[3]['loss']:.4f}" in metrics.summary(found[3])
    assert "loss" not in plain.compute(plain.state)


def test_what_a_score_depends_on_is_told_beside_it():
    assert opened()[1].eval_protocol == (
        "stored size; whole images; logits bilinear to the input's size, then the stored one"
    )
    words = [
        "SEGMENTATION.PROTOCOL",
        "slide",
        "SEGMENTATION.CROP",
        "[32, 48]",
        "SEGMENTATION.RESIZE_LOGITS_VIA",
        "stored",
    ]
    assert opened(*SIZED, *words)[1].eval_protocol == (
        "shorter side 48, longer at most 80, multiples of 16, bilinear of pillow; windows of 32x48, stride 21x32; "
        "logits bilinear directly to the stored size"
    )
    with pytest.raises(UserError, match=r"SEGMENTATION.STRIDE.* windows of \[32, 48\] pixels .* would leave gaps"):
        opened(*words, "SEGMENTATION.STRIDE", "[33, 20]")


def test_weights_of_classes_that_are_all_0_are_refused():
    with pytest.raises(UserError, match="SEGMENTATION.CLASS_WEIGHTS .*expected at least one above 0"):
        opened("SEGMENTATION.CLASS_WEIGHTS", "[0, 0, 0, 0]")


def test_an_image_waits_for_a_gpu_once():
    task, samples, model = opened("SEGMENTATION.FLIP", "true")
    (batch,) = batches(task, samples, 7)
    metrics = task.build_metrics()
    with paddle.no_grad(), counted_waits() as waits:
        task.eval_step(model, batch, EvaluationStep(metrics))
    assert len(waits) == 7, str(waits)


def test_saved_masks_score_as_the_evaluation_that_has_saved_them(tmp_path, capsys):
    task, samples, model = opened()
    writer = get_aspect(task, Predictable).prediction_writer(tmp_path, samples)
    row = writer.write(0, samples.dataset.read_labels(0))
    assert list(row) == ["mask"] and (tmp_path / row["mask"]).is_file()  # images that are scored are not drawn
    writer = SavedPredictions(writer, tmp_path, range(7))
    metrics, _ = evaluated(task, samples, model, writer=writer)
    (said,) = writer.finish()
    (tmp_path / "truth").mkdir()
    masks = sorted((tmp_path / "masks").iterdir())
    for index, file in enumerate(masks):
        Image.fromarray(samples.dataset.read_labels(index)).save(tmp_path / "truth" / file.name)
    names = f"-classes={tmp_path / 'classes.txt'}"
    evaluate_masks.run([str(tmp_path / "truth"), str(tmp_path / "masks"), "-json", names])
    values = metrics.compute({})
    assert values.pop("pixels") > 0 and len(masks) == 7 and "the number of a pixel is the line" in said
    assert json.loads(capsys.readouterr().out)["scores"] == pytest.approx(values, rel=1e-12)


def test_new_images_become_masks_with_colors_and_shares(tmp_path):
    task, samples, model = opened()
    colors = np.arange(12, dtype=np.uint8).reshape(4, 3) * 20
    used = ImageSegmentation(settings.load(SHAPES).values)
    with pytest.raises(UserError, match=r"^about.yaml: Expected `str` matching regex .* - at `\$.palette`"):
        used.load_meta(CheckpointMeta(4, tuple(task.class_names), {}, {"palette": "0102"}))
    used.load_meta(CheckpointMeta(4, tuple(task.class_names), {}, {"palette": colors.tobytes().hex()}))
    image = samples.dataset.read(2)[0]
    image.save(tmp_path / "new.png")
    inputs = get_aspect(used, Predictable).open_inputs([str(tmp_path / "new.png")], tmp_path)
    with paddle.no_grad():
        (found,) = get_aspect(used, Predictable).predict_step(model, next(batches(used, inputs, 1)))
    (row,) = get_aspect(used, Predictable).prediction_rows(found)
    assert row == {f"share {name}": round(float((found == k).mean()), 6) for k, name in enumerate(task.class_names)}
    assert evaluated(used, inputs, model)[0].compute({})["pixels"] == 0  # without labels
    writer = get_aspect(used, Predictable).prediction_writer(tmp_path, inputs)
    assert writer.finish([]) == []
    assert writer.write(0, found) == {"mask": "masks/new.png", "picture": "pictures/new.jpg"}
    assert "images overlaid with the colors" in writer.finish([PredictionRecord(0, [row])])[1]
    with Image.open(tmp_path / "masks" / "new.png") as mask:
        assert mask.mode == "P" and np.array_equal(np.asarray(mask), found)
        np.testing.assert_array_equal(np.asarray(mask.convert("RGB")), colors[found], strict=True)
    with Image.open(tmp_path / "pictures" / "new.jpg") as drawn:
        assert drawn.height >= image.height and drawn.width > image.width
        mixed = 0.4 * np.asarray(image)[5, 5] + 0.6 * colors[found[5, 5]]
        assert np.abs(np.asarray(drawn)[5, 5] - mixed).max() < 30  # JPEG
    assert (tmp_path / "classes.txt").read_text().split() == task.class_names


def test_predict_slides_windows_over_images_where_it_is_told_to(tmp_path):
    paddle.save({}, str(tmp_path / "some.pdparams"))
    asked = {"source": str(tmp_path / "some.pdparams"), "command": "predict"}
    plain = open_source(**asked, recipe="segformer_b0_shapes")
    sliding = open_source(**asked, recipe="segformer_b0_shapes", words=["-window=48x64"])
    found = read_protocol(sliding.config)
    assert (found.crop, found.stride) == ((48, 64), (32, 42)) and read_protocol(plain.config).crop is None
    stated = open_source(**asked, recipe="segformer_b0_shapes", words=["-window=48x64", "SEGMENTATION.STRIDE", "[9,7]"])
    assert read_protocol(stated.config).stride == (9, 7)
    assert plain.settings != sliding.settings  # what is predicted with one does not go on with the other
    with pytest.raises(UserError, match="-window: DETECTION.WINDOW is read by task.*, not by classification: remove"):
        open_source(**asked, recipe="vit_digits", words=["-window=48"])


@pytest.mark.parametrize(
    ("recipe", "number", "first", "color"),
    [
        ("segformer_b0_ade20k", 150, "wall", (120, 120, 120)),
        ("segformer_b0_cityscapes", 19, "road", (128, 64, 128)),
        ("segformer_b0_ade20k", 7, "0", None),
        ("segformer_b0_shapes", 150, "0", None),
    ],
)
def test_weights_that_say_nothing_know_the_published_classes_of_their_recipe(recipe, number, first, color):
    task = ImageSegmentation(settings.load([f"-cfg={recipe}"]).values)
    task.load_meta(CheckpointMeta(number))
    assert len(task.class_names) == number and task.class_names[0] == first
    assert task.palette is None if color is None else tuple(task.palette[0]) == color


def test_outputs_that_are_not_finite_are_no_prediction_and_no_score():
    task, samples, model = opened()
    model.layer.bias.set_value(np.full(4, np.nan, np.float32))
    with pytest.raises(UserError, match="not finite: nothing is scored"):
        evaluated(task, samples, model)
    with paddle.no_grad(), pytest.raises(BadSample, match="not finite"):
        get_aspect(task, Predictable).prediction_rows(
            get_aspect(task, Predictable).predict_step(model, next(batches(task, samples, 1)))[0]
        )


def test_figures_have_the_numbers_of_the_metrics():
    task, samples, model = opened()
    assert get_aspect(task, Reportable).figures(samples, [], model) == []
    metrics, records = evaluated(task, samples, model, keeps_records=True)
    with paddle.no_grad():
        gallery, classes, matrix, images = get_aspect(task, Reportable).figures(
            samples, list(enumerate(records)), model
        )
    values = metrics.compute({})
    shown = {row[0]: row for row in classes.rows}
    for name in task.class_names:
        assert shown[name][1] == pytest.approx(values[f"IoU {name}"], abs=0.000051)
    assert np.mean([row[5] for row in classes.rows]) == pytest.approx(values["boundary IoU"], abs=0.000051)
    np.testing.assert_array_equal(reduce_confusions(matrix.values), metrics.per_sample()[0].sum(axis=0), strict=True)
    alone = metrics.columns(metrics.per_sample())["mIoU"]
    assert [row[1] for row in images.rows] == pytest.approx(sorted(alone), abs=0.000051)
    captions = [caption for _, caption in gallery.images]
    assert [float(one.split()[1]) for one in captions] == pytest.approx(sorted(alone), abs=0.000051)
    assert gallery.images[0][0].shape == (320, 3 * 320 + 2 * 6, 3)
    labels = samples.dataset.read_labels(0)
    perfect = pack_counts(*task.build_metrics().update(labels, labels))
    figures = get_aspect(task, Reportable).figures
    with paddle.no_grad():
        assert len(figures(samples, [(0, perfect), (4, records[4]), (0, perfect)], model)[0].images) == 1
        assert len(figures(samples, [*enumerate(records)] * 2, model)[0].images) == 12
        assert [figure.title for figure in figures(samples, [(0, perfect)], model)] == [
            figure.title for figure in (classes, matrix, images)
        ]
    index = int(np.argmin(alone))  # the worst one: the truth, the prediction, and mistakes in red on gray
    pixels, labels = (np.asarray(one) for one in samples.dataset.read(index))
    batch = next(batches(task, Chosen(samples, index), 1))
    with paddle.no_grad():
        (predicted,) = get_aspect(task, Predictable).predict_step(model, batch)
    palette = get_palette(samples.dataset, 4)
    gray = pixels.mean(axis=2, keepdims=True).repeat(3, axis=2)
    mistakes = np.where(predicted != labels, 0, 255).astype(np.uint8)
    red = np.array([(230, 30, 30)], np.uint8)
    for place, (one, drawn, colors) in enumerate(
        ((pixels, labels, palette), (pixels, predicted, palette), (gray, mistakes, red))
    ):
        cell = gallery.images[0][0][:, 326 * place : 326 * place + 320]
        np.testing.assert_array_equal(cell, fit_in_cell(overlay_labels(one, drawn, colors)))


def test_an_exported_network_is_told_its_input():
    task, samples, model = opened("SEGMENTATION.CROP", "[32, 24]", "SEGMENTATION.PROTOCOL", "slide")
    parts = get_aspect(task, Exportable).export_parts()
    assert parts.size == (32, 24) and parts.about["evaluated"] == samples.eval_protocol
    assert (parts.output_names, parts.output_shape) == (("logits",), (4, None, None))
    assert parts.about["output"].startswith("(batch, classes, rows, columns), logits at the network's own resolution: ")
    pixels = paddle.to_tensor(parts.example["picture"].transpose(2, 0, 1)[None].copy())
    np.testing.assert_allclose(parts.example["input"], task.normalizer(pixels).numpy(), atol=1e-5)
    metrics, _ = evaluated(task, samples, get_aspect(task, Exportable).evaluated_model(model))
    np.testing.assert_array_equal(
        metrics.per_sample()[0], evaluated(task, samples, model)[0].per_sample()[0], strict=True
    )
    assert "DATA.EVAL_SHORTEST_SIDE" in task.signature()
    task.config.defrost()
    task.config.EXPORTED = "net.onnx"  # it takes the key that it advises
    assert "DATA.EVAL_SHORTEST_SIDE" not in task.signature()
