"""Figures of a classifier against sums by hand, and attention rollout against its definition."""

from typing import Any

import numpy as np
import paddle
import pytest
from support.filled_cells import to_dense
from support.trainings.small_runs import DIGITS, build

from paddlevit_dist import create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.metrics.classification import RECORD, join_records, record_later
from paddlevit_dist.core.metrics.classifier_figures import EvaluatedPredictions, calibration, tables
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Predictable
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.images.classification.figures import (
    attention_rollout,
    format_labels,
    overlay_shares,
    report_figures,
)
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.models.attention import attention


class Images:
    """Samples whose images tell their index; those of odd indices can no longer be read."""

    def __init__(self, number: int) -> None:
        self.number = number

    def sample(self, index: int, generator: Any) -> Any:
        if index % 2:
            raise OSError("gone")
        return np.full((1, 8, 8), index, np.uint8), 0

    def describe(self, index: int) -> str:
        return f"file {index}"


def random_rows(number: int = 400, classes: int = 7) -> Any:
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 2, (number, classes)).astype(np.float32)
    labels = generator.integers(0, classes, number)
    return logits, labels


def make_evaluated(logits: np.ndarray, labels: np.ndarray, names: Any = None) -> EvaluatedPredictions:
    kept = record_later(paddle.to_tensor(logits), paddle.to_tensor(labels))()
    return EvaluatedPredictions(*join_records(list(enumerate(kept))), logits.shape[1], names)


def test_records_hold_the_best_scores_and_the_true_one():
    logits, labels = random_rows()
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    indices, rows = join_records(list(enumerate(record_later(paddle.to_tensor(logits), paddle.to_tensor(labels))())))
    np.testing.assert_array_equal(indices, np.arange(400), strict=True)
    np.testing.assert_array_equal(rows["classes"], np.argsort(-logits, axis=1)[:, :5])
    np.testing.assert_allclose(rows["scores"], -np.sort(-shares, axis=1)[:, :5], rtol=1e-5)
    np.testing.assert_allclose(rows["true"], shares[np.arange(400), labels], rtol=1e-5)


def test_two_classes_leave_the_other_places_empty():
    rows = join_records([(0, record_later(paddle.to_tensor([[0.0, float(np.log(3))]]), paddle.to_tensor([0]))()[0])])[1]
    assert rows["classes"].tolist() == [[1, 0, -1, -1, -1]] and rows["true"][0] == pytest.approx(0.25)
    np.testing.assert_allclose(rows["scores"], [[0.75, 0.25, 0, 0, 0]], rtol=1e-6)


def test_confusion_and_scores_of_classes_are_those_counted_one_by_one():
    logits, labels = random_rows()
    matrix, pairs, classes, *_ = tables(make_evaluated(logits, labels, list("abcdefg")))
    expected = np.zeros((7, 7), int)
    for label, predicted in zip(labels, logits.argmax(axis=1)):
        expected[label, predicted] += 1
    np.testing.assert_array_equal(to_dense(matrix.values, 7), expected, strict=True)
    for label, (name, recall, precision, f1, other, images, predicted) in enumerate(classes.rows):
        right = expected[label, label]
        assert (name, images, predicted) == ("abcdefg"[label], expected[label].sum(), expected[:, label].sum())
        assert recall == pytest.approx(100 * right / images, abs=0.006)
        assert precision == pytest.approx(100 * right / predicted, abs=0.006)
        assert f1 == pytest.approx(200 * right / (images + predicted), abs=0.006)
        assert expected[label, "abcdefg".index(other)] == max(n for c, n in enumerate(expected[label]) if c != label)
    mean = np.mean([100 * expected[n, n] / expected[n].sum() for n in range(7)])
    assert f"the average over classes is {mean:.2f}% (macro accuracy)" in matrix.note
    assert f"{np.trace(expected)} of 400" in matrix.note
    true, taken, number, share, back = pairs.rows[0]
    assert number == max(expected[a, b] for a in range(7) for b in range(7) if a != b)
    assert (number, back) == tuple(
        expected["abcdefg".index(a), "abcdefg".index(b)] for a, b in ((true, taken), (taken, true))
    )


def test_the_calibration_error_is_that_of_guo():
    """Nine of ten are right where the model is sure by 0.95, and all of five where it says 0.5."""
    confidence = np.array([0.95] * 10 + [0.5] * 5)
    is_right = np.array([True] * 9 + [False] + [True] * 5)
    reliability, histogram = calibration(confidence, is_right)
    expected = (10 * abs(0.9 - 0.95) + 5 * abs(1.0 - 0.5)) / 15
    assert f"{100 * expected:.2f} %" in reliability.note
    np.testing.assert_allclose(reliability.lines["this model"], [(0.5, 0.95), (1.0, 0.9)])
    assert sum(histogram.lines["images"][1]) == 15


def test_scores_that_are_no_numbers_count_as_wrong():
    logits, labels = random_rows(40)
    logits[labels == 0] = np.nan
    evaluated = make_evaluated(logits, labels)
    assert not evaluated.is_right[labels == 0].any()
    assert len(report_figures(evaluated, Images(40), lambda images: None)) > 4


def test_galleries_show_the_surest_mistakes_and_leave_out_what_is_gone():
    rows = np.zeros(40, RECORD)
    rows["label"], rows["classes"][:, 0] = 0, np.arange(40) < 30  # the first thirty are mistakes
    rows["scores"][:, 0], rows["true"] = np.linspace(0.5, 0.9, 40), np.linspace(0.5, 0.1, 40)
    figures = report_figures(
        EvaluatedPredictions(np.arange(40), rows, 2, ["cat", "dog"]), Images(40), lambda images: None
    )
    mistakes, hardest = figures[:2]
    assert "whose true class the model believes in least" in hardest.note and hardest.note != mistakes.note
    assert [int(pixels[0, 0]) for pixels, _ in mistakes.images] == [28, 26, 24, 22, 20, 18]
    assert [int(pixels[0, 0]) for pixels, _ in hardest.images] == [38, 36, 34, 32, 30, 16]
    assert mistakes.images[0][1].splitlines() == ["true: cat (21.3%)", "predicted: dog (78.7%)", "file 28"]


@pytest.mark.parametrize(
    ("mistakes", "expected"), [(30, [28, 26, 30, 36]), (3, [2, 0, 12, 30]), (0, [0, 16, 22]), (40, [38, 36])]
)
def test_attention_is_shown_for_the_surest_mistakes_and_evenly_spaced_right_images(mistakes, expected):
    rows = np.zeros(40, RECORD)
    rows["classes"][:, 0] = np.arange(40) < mistakes
    rows["scores"][:, 0], rows["true"] = np.linspace(0.5, 0.9, 40), np.linspace(0.5, 0.1, 40)
    evaluated = EvaluatedPredictions(np.arange(40), rows, 2, ["cat", "dog"])
    shares = np.random.default_rng(0).random((len(expected), 2, 3))

    def compute_shares(images):
        assert images.dtype == paddle.uint8 and images.shape[1:] == [1, 8, 8]
        assert images.numpy()[:, 0, 0, 0].tolist() == expected  # without those that can no longer be read
        return shares

    gallery = report_figures(evaluated, Images(40), compute_shares)[-1]
    assert gallery.title == "What the model looks at"
    assert [caption for _, caption in gallery.images] == [evaluated.caption(k, f"file {k}") for k in expected]
    for (pixels, _), index, share in zip(gallery.images, expected, shares, strict=True):
        np.testing.assert_array_equal(pixels, overlay_shares(np.full((8, 8), index, np.uint8), share))


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "cait_xxs24_224"])
def test_even_attention_reaches_all_patches_evenly(name):
    """With all weights zero each token reads all tokens alike."""
    options = {"embed_dim": 32, "depth": 3, "num_heads": 2}
    model = create_model(name, num_classes=3, image_size=64, **options)
    for parameter in model.parameters():
        parameter.set_value(paddle.zeros_like(parameter))
    if name.startswith("cait"):  # its heads are mixed after the softmax, where zeros leave nothing
        for block in model.blocks:
            block.attn.proj_w.weight.set_value(paddle.eye(2))
    model.eval()
    shares = attention_rollout(model, paddle.randn([2, 3, 64, 64]))
    np.testing.assert_allclose(shares, np.full((2, 4, 4), 1 / 16), rtol=1e-5)


def test_attention_rollout_is_the_product_of_half_attention_and_half_identity():
    paddle.seed(3)
    model = create_model("vit_tiny_patch16_224", num_classes=3, image_size=32, embed_dim=16, depth=2, num_heads=2)
    model.eval()
    for block in model.blocks:  # far from even
        block.attn.qkv.weight.set_value(paddle.randn(block.attn.qkv.weight.shape))
    image = paddle.randn([1, 3, 32, 32])
    x, layers = model.embedded(image), []
    for block in model.blocks:
        q, k, _ = (
            part.transpose([0, 2, 1, 3]).numpy()[0].astype(np.float64)  # (heads, tokens, 8)
            for part in block.attn.qkv(block.norm1(x)).reshape([1, 5, 6, 8]).split(3, axis=2)
        )
        scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(8))
        layers.append(0.5 * (scores / scores.sum(axis=-1, keepdims=True)).mean(axis=0) + 0.5 * np.eye(5))
        x = block(x)
    expected = (layers[1] @ layers[0])[0, 1:]
    shares = attention_rollout(model, image)
    np.testing.assert_allclose(shares.ravel(), expected / expected.sum(), rtol=1e-3)
    before = model(image).numpy()
    np.testing.assert_array_equal(model(image).numpy(), before, strict=True)  # no hook is left


def mixed(weights):
    """One layer: shares of at least 0 that sum to 1, half and half with the identity, (images, tokens, tokens)."""
    weights = np.maximum(weights.astype(np.float64), 0)
    weights /= weights.sum(axis=-1, keepdims=True)
    layer = np.stack([np.eye(weights.shape[-1])] * len(weights))
    layer[:, : weights.shape[1]] = (layer[:, : weights.shape[1]] + weights) / 2
    return layer


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "cait_xxs24_224"])
def test_shares_of_patches_are_those_of_the_attention_of_all_layers(name):
    paddle.seed(4)
    model = create_model(name, num_classes=3, image_size=(32, 48), embed_dim=16, depth=2, num_heads=2)
    model.eval()
    layers = [*model.blocks, *getattr(model, "blocks_token_only", ())]
    images, seen = paddle.randn([2, 3, 32, 48]), []
    for block in layers:  # far from even
        for parameter in block.attn.parameters():
            if len(parameter.shape) == 2:
                parameter.set_value(paddle.randn(parameter.shape))
    hooks = [
        block.attn.attention_dropout.register_forward_pre_hook(lambda _, given: seen.append(given[0].numpy()))
        for block in layers
    ]
    with attention(fused=False):
        model(images)
    for hook in hooks:
        hook.remove()
    first, second, *tokens = [mixed(weights.mean(axis=1)) for weights in seen]
    shares = second @ first
    if tokens:  # CaiT's class token reads the patches in two more blocks
        expected = np.stack([(tokens[1][k] @ tokens[0][k])[0, 1:] @ shares[k] for k in range(2)])
    else:
        prefix = 2 if "distilled" in name else 1
        expected = shares[:, :prefix, prefix:].sum(axis=1)
    expected = (expected / expected.sum(axis=1, keepdims=True)).reshape(2, 2, 3)
    assert expected.max() > 2 * expected.min()
    np.testing.assert_allclose(attention_rollout(model, images), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("words", [[], ["TRAIN.MIXUP_ALPHA", "0.8"], ["TRAIN.CUTMIX_ALPHA", "1"]])
def test_drawn_training_images_are_those_of_the_step_with_their_labels(words, tmp_path):
    task = Classification(settings.load([*DIGITS, "TRAIN.RANDOM_ERASE_PROB", "0", *words]).values)
    samples = task.build_dataset("train", tmp_path)
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in (7, 1, 5, 2)])
    drawn = get_aspect(task, Drawable).visualize_batch(samples, batch, 3)
    tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
    images, mix = task.training_images(tensors, StepPosition(3, 3, 4))
    assert (mix is None) == (not words)
    shares, data = np.eye(10)[batch["labels"]], task.config.DATA
    shares = shares if mix is None else mix.targets(paddle.to_tensor(shares, "float32")).numpy()
    for row, (pixels, caption) in enumerate(drawn):
        levels = 255 * (images.numpy()[row, 0] * data.IMAGENET_STD[0] + data.IMAGENET_MEAN[0])
        np.testing.assert_allclose(pixels, np.clip(levels, 0, 255), atol=0.51)
        first, *second = np.argsort(-shares[row])[:2]
        if shares[row, first] > 0.995:
            assert caption == str(first)
        else:
            assert caption == f"{first} {shares[row, first]:.0%} {second[0]} {shares[row, second[0]]:.0%}"
    if not words:
        np.testing.assert_array_equal(np.stack([pixels for pixels, _ in drawn]), batch["images"][:, 0])


def test_drawn_evaluated_images_are_those_of_the_evaluation(tmp_path):
    task = Classification(settings.load(DIGITS).values)
    samples = task.build_dataset("val", tmp_path)
    drawn = get_aspect(task, Drawable).visualize_eval_samples(samples, [5, 0, 3])
    for (pixels, caption), index in zip(drawn, (5, 0, 3), strict=True):
        image, label = samples.sample(index, np.random.default_rng(0))[:2]
        np.testing.assert_array_equal(pixels, image[0])
        assert caption == str(label)


def test_models_without_global_attention_have_no_attention_rollout():
    model = create_model("mixer_b16_224", num_classes=2, image_size=32, patch_size=16, embed_dim=16, depth=1)
    assert attention_rollout(model, paddle.randn([1, 3, 32, 32])) is None


def test_a_layer_whose_attention_is_computed_elsewhere_leaves_no_rollout():
    model = create_model("vit", num_classes=2, image_size=32, patch_size=16, embed_dim=16, depth=2, num_heads=2)
    images = paddle.randn([1, 3, 32, 32])
    assert attention_rollout(model, images).shape == (1, 2, 2)
    model.blocks[1].attn.forward = lambda x: x  # of one's own
    assert attention_rollout(model, images) is None


@pytest.mark.parametrize("channels", [(), (3,)])
def test_what_is_looked_at_stays_bright_and_becomes_warm(channels):
    """At the left half of 4 x 6 patches; in the closed form far from the middle, where the mask is even."""
    image = np.full((24, 36, *channels), 200, np.uint8)
    shares = np.zeros((4, 6), np.float32)
    shares[:, :3] = 0.5
    shown = overlay_shares(image, shares)
    assert shown.shape == (24, 72, 3) and (shown[:, :36] == 200).all()
    looked_at = np.clip(200 * 0.8 + np.array([255, 150, 30]) * 0.85 * 0.3, 0, 255).astype(np.uint8)
    assert (shown[:, 36:42] == looked_at).all() and (np.abs(shown[:, -6:] - 200 * 0.15 * 0.8) <= 1).all()


def test_an_evaluation_keeps_records_of_what_it_predicts(tmp_path):
    trainer = build(str(tmp_path), "-batch_size=16", val_size=16)
    batch = next(iter(trainer.evaluator.loader))
    trainer.model.eval()
    step = EvaluationStep(trainer.task.build_metrics(), keeps_records=True)
    with paddle.no_grad():
        later = trainer.task.eval_step(trainer.model, batch, step)()
        predictions = get_aspect(trainer.task, Predictable).predict_step(trainer.model, batch)
    kept, shares, labels = np.frombuffer(b"".join(later), RECORD), np.stack(predictions), batch["labels"].numpy()
    np.testing.assert_array_equal(kept["label"], labels)
    np.testing.assert_array_equal(kept["classes"], np.argsort(-shares, axis=1)[:, :5])
    np.testing.assert_allclose(kept["scores"], -np.sort(-shares, axis=1)[:, :5], rtol=1e-5)
    np.testing.assert_allclose(kept["true"], shares[np.arange(16), labels], rtol=1e-5)


@pytest.mark.parametrize(
    "shares, named, unnamed",
    [
        ([0.0, 0.005, 0.995], "dog", "2"),
        ([0.0625, 0.25, 0.6875], "dog 69% bee 25%", "2 69% 1 25%"),
        ([0.994, 0.006, 0.0], "ant 99% bee 1%", "0 99% 1 1%"),
    ],
)
def test_a_caption_names_the_two_labels_that_have_a_share(shares, named, unnamed):
    assert format_labels(np.array(shares), ["ant", "bee", "dog"]) == named
    assert format_labels(np.array(shares), None) == unnamed
