"""A probe has the abilities that it can carry out, and no others."""

import numpy as np
import paddle
import pytest
from paddle import nn
from support.registrations import forgotten
from support.trainings.trained import write_weights

from paddlevit_dist import register_task
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.metrics.classification import ClassificationMetrics
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Model
from paddlevit_dist.core.tasks.aspects import get_aspect, has_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Ensembling, Exportable, Predictable, Recomputable
from paddlevit_dist.extensions.export.descriptions import require_exportable
from paddlevit_dist.images import Classification
from paddlevit_dist.images.classification import probes
from paddlevit_dist.images.classification.probes import KnnProbe, LinearProbe, ProbeMetrics, ProbeModel

WORDS = ["-dataset=digits", "DATA.IMAGE_SIZE", "28", "DATA.IMAGE_CHANNELS", "1", "-pretrained=weights.npz"]


@pytest.fixture
def probe():
    return LinearProbe(load(["TASK", "linear_probe", *WORDS]).values)


@pytest.mark.parametrize("task", [LinearProbe, KnnProbe])
def test_a_probe_is_no_classifier(task):
    probe = task.__new__(task)
    assert not any(has_aspect(probe, protocol) for protocol in (Predictable, Ensembling, Exportable, Recomputable))


def test_its_export_is_refused_in_one_line(probe, refuse):
    assert refuse(require_exportable, probe) == (
        "export: task linear_probe does not support it: its class is not Exportable"
    )


def test_training_images_are_drawn_as_an_evaluation_sees_them(probe, tmp_path):
    samples = probe.build_dataset("train", tmp_path)
    batch = probe.collate([samples.sample(index, np.random.default_rng(index)) for index in range(4)])
    drawn, seen = (
        get_aspect(probe, Drawable).visualize_batch(samples, batch, 1),
        get_aspect(probe, Drawable).visualize_eval_samples(samples, range(4)),
    )
    assert [caption for _, caption in drawn] == [caption for _, caption in seen]
    for (one, _), (other, _) in zip(drawn, seen):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("chosen", [None, 0, 1, 2])
def test_scores_are_those_of_the_chosen_classifier_else_of_the_best(chosen):
    labels = np.arange(30) % 5
    right = np.array([6, 21, 13])  # of each classifier
    logits = np.zeros((3, 30, 5), np.float32)
    for head, number in enumerate(right):
        logits[head, np.arange(30), (labels + (np.arange(30) >= number)) % 5] = 1.0 + head
    metrics = ProbeMetrics(5, list("abcde"), "rate", ["0.1", "1", "10"], chosen)
    for part in (slice(0, 11), slice(11, 30)):
        metrics.update(paddle.to_tensor(logits[:, part]), paddle.to_tensor(labels[part]))
    place = 1 if chosen is None else chosen
    values = metrics.compute(metrics.state)
    assert metrics.best == place and values["top-1"] == pytest.approx(100 * right[place] / 30)
    assert [values[f"top-1 of rate {name}"] for name in metrics.names] == pytest.approx(100 * right / 30)
    alone = ClassificationMetrics(5, list("abcde"))
    alone.update(paddle.to_tensor(logits[place]), paddle.to_tensor(labels))
    for one, other in zip(metrics.per_sample(), alone.per_sample(), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_a_sample_that_two_ranks_have_counts_once_for_each_classifier():
    metrics = ProbeMetrics(2, None, "rate", ["0.1", "1"], None)
    of_first, of_second = np.array([[1.0, 0], [1, 0]]), np.array([[0.0, 1], [0, 1]])  # each knows one of the samples
    for row in (0, 1, 0):
        logits = np.stack([of_first[row], of_second[row]])[:, None].astype(np.float32)
        metrics.update(paddle.to_tensor(logits), paddle.to_tensor([row]))
    assert metrics.per_sample()[1].tolist() == [0, 1, 0]  # places of the first classifier, until one is the best
    metrics.indices = [7, 2, 7]
    values = metrics.compute(metrics.state)
    assert [values[f"top-1 of rate {name}"] for name in metrics.names] == [50.0, 50.0] and values["samples"] == 2


@pytest.mark.parametrize("rows", [40, (1 << 16) + 7, 1 << 17])  # in one, two and two full parts
def test_nearest_features_are_the_same_however_many_are_compared(rows):
    generator = np.random.default_rng(0)
    queries, bank = (generator.normal(size=(number, 5)).astype(np.float32) for number in (6, rows))
    found, places = probes.find_nearest(paddle.to_tensor(queries), paddle.to_tensor(bank), 9)
    products = queries @ bank.T
    expected = np.argsort(-products, axis=1)[:, :9]
    assert places.numpy().tolist() == expected.tolist()
    np.testing.assert_allclose(found.numpy(), np.take_along_axis(products, expected, axis=1), rtol=1e-5)


def test_votes_are_relative_to_the_nearest_neighbor_s_and_do_not_overflow():
    similarity, labels = np.float32([[0.9, 0.875, 0.5], [-0.25, -0.25, -0.75]]), np.array([[2, 0, 2], [1, 1, 0]])
    found = probes.weigh_votes(paddle.to_tensor(similarity), paddle.to_tensor(labels), 4, 1 / 256).numpy()
    expected = np.zeros((2, 3, 4))
    for row, neighbor in np.ndindex(2, 3):
        distance = float(similarity[row, 0] - similarity[row, neighbor])
        expected[row, neighbor, labels[row, neighbor]] = np.exp(-256 * distance)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("LEARNING_RATES", "[]", "[] (command line): expected at least one value, each only once"),
        ("LEARNING_RATES", "[1, 2, 1]", "[1.0, 2.0, 1.0] (command line): expected at least one value, each only once"),
        ("KNN_K", "[]", "[] (command line): expected at least one value, each only once"),
        ("KNN_K", "[5, 5]", "[5, 5] (command line): expected at least one value, each only once"),
        ("LEARNING_RATE", "3", "3.0 (command line): expected one of PROBE.LEARNING_RATES [0.5, 2.0] (command line)"),
    ],
)
def test_rates_and_numbers_of_neighbors_are_checked(refuse, name, text, told):
    words = ["PROBE.LEARNING_RATES", "[0.5, 2]", f"PROBE.{name}", text]
    assert refuse(load, ["TASK", "linear_probe", *WORDS, *words]) == f"PROBE.{name} {told}"


def test_a_rate_of_the_list_can_be_chosen():
    words = ["PROBE.LEARNING_RATES", "[1, 2]", "PROBE.LEARNING_RATE", "2", "PROBE.KNN_K", "[7]"]
    probe = load(["TASK", "linear_probe", *WORDS, *words]).values.PROBE
    assert (probe.LEARNING_RATES, probe.LEARNING_RATE, probe.KNN_K) == ([1, 2], 2, [7])


class OwnClassification(Classification):
    """A task of a user."""


@pytest.fixture
def own_task():
    with forgotten():
        register_task("own", OwnClassification)
        yield


@pytest.mark.parametrize("task", ["classification", "linear_probe", "own"])
def test_a_run_brings_its_network_and_input_to_a_probe_or_to_the_evaluation_of_its_own(task, tmp_path, own_task):
    weights = write_weights(tmp_path, ["bee", "ant", "wasp"], "DATA.CROP_PCT", "0.75", "TASK", task)
    (tmp_path / "state.json").write_text("{}")  # of a run
    values = load(["-cfg=probe_linear", "-dataset=folder", "-eval", f"-pretrained={weights}"]).values
    assert (values.MODEL.NAME, values.MODEL.PATCH_SIZE, values.MODEL.EMBED_DIM) == ("vit", 8, 16)
    assert (values.DATA.IMAGE_SIZE, values.DATA.CROP_PCT) == (16, 0.75)


class NormedHead(Model):
    """Has a norm in its head, as timm's LeViT, and loses both without classes."""

    classifier_layers = ("head.linear",)
    in_channels, image_size, embed_dim = 1, (2, 2), 3

    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Linear(4, 3)
        head = nn.Sequential(("norm", nn.BatchNorm1D(3)), ("linear", nn.Linear(3, num_classes or 1)))
        self.head = head if num_classes else nn.Identity()

    def forward(self, images):
        return self.head(self.body(images.flatten(1)))


@pytest.mark.parametrize("classes", [0, 5])
def test_weights_with_and_without_a_head_are_complete_for_a_probe(classes):
    source, model = NormedHead(classes), ProbeModel(NormedHead(0), 3, 0)
    report = load_weights(model, {name: value.numpy() for name, value in source.state_dict().items()}, strict=True)
    assert report.loaded == ["backbone.body.weight", "backbone.body.bias"] and report.unexpected == []
    np.testing.assert_array_equal(model.backbone.body.weight.numpy(), source.body.weight.numpy())
