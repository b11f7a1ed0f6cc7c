"""What a probe does with features: heads and votes against closed forms, and what is handed to whom."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn
from PIL import Image
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.metrics.classification import RECORD, record_later
from paddlevit_dist.core.registry.register import register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.figures import Gallery
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.protocols import CheckpointMatching, FeatureCaching, ParameterGrouping, Reportable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.images.classification.probes import KnnProbe, LinearProbe, ProbeMetrics, ProbeModel
from paddlevit_dist.images.data.image_dataset import ImageDataset

WORDS = ["-dataset=digits", "DATA.IMAGE_SIZE", "28", "DATA.IMAGE_CHANNELS", "1"]
MODEL = "MODEL.NAME vit MODEL.PATCH_SIZE 14 MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2".split()


def make(cls, *words):
    name = "linear_probe" if cls is LinearProbe else "knn_probe"
    return cls(load(["TASK", name, *WORDS, *words]).values)


class Backbone(Model):
    """Features are the sums of the channels; notes what it is asked."""

    classifier_layers = ("head", "head_dist")
    key_maps = {"theirs": lambda state: {f"renamed.{name}": value for name, value in state.items()}}
    image_size, in_channels, embed_dim = (6, 5), 3, 3

    def __init__(self):
        super().__init__()
        self.scale = self.create_parameter([3])

    def forward(self, x):
        return x.sum(axis=[2, 3])

    def resize_parameter(self, name, value):
        return name, value

    def resample_parameter(self, name, value, trained_size):
        return name, value, trained_size

    def list_resize_notices(self, names):
        return ["of", *names]


def test_heads_begin_at_zero_and_read_images_or_features():
    model = ProbeModel(Backbone(), 4, 2)
    assert (model.image_size, model.in_channels, model.num_classes) == ((6, 5), 3, 4)
    trained = {name: parameter for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    assert list(trained) == ["heads.0.weight", "heads.0.bias", "heads.1.weight", "heads.1.bias"]
    assert not any(parameter.numpy().any() for parameter in trained.values())
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    trained["heads.1.weight"].set_value(weight)
    trained["heads.0.bias"].set_value(np.arange(4, dtype=np.float32))
    images = np.random.default_rng(0).normal(size=(5, 3, 6, 5)).astype(np.float32)
    features = images.sum((2, 3))
    for given in (images, features):
        found = model(paddle.to_tensor(given)).numpy()
        np.testing.assert_allclose(found, [np.tile(np.arange(4.0), (5, 1)), features @ weight], rtol=1e-4, atol=1e-4)


def test_weights_of_classifiers_lose_their_head_and_those_of_probes_stay():
    model = ProbeModel(Backbone(), 4, 1)
    state = {"norm.weight": 1, "head.weight": 2, "header.bias": 3, "head_dist.bias": 4}
    assert list(model.key_maps) == ["timm", "theirs"]
    expected = {"backbone.norm.weight": 1, "backbone.header.bias": 3}
    assert model.key_maps["timm"](state) == expected
    renamed = {f"backbone.renamed.{name}": value for name, value in state.items()}
    assert model.key_maps["theirs"](state) == renamed
    own = {"backbone.norm.weight": 1, "heads.0.bias": 2}
    assert model.key_maps["theirs"](own) == own
    assert model.resize_parameter("backbone.pos.backbone.x", 7) == ("pos.backbone.x", 7)
    assert model.resample_parameter("backbone.pos", 7, (3, 4)) == ("pos", 7, (3, 4))
    assert model.list_resize_notices(["backbone.pos", "heads.0"]) == ["of", "pos", "heads.0"]


@pytest.mark.parametrize("cls, words", [(LinearProbe, ["-pretrained=w"]), (KnnProbe, ["-eval", "-pretrained=w"])])
def test_samples_are_images_until_they_have_features(cls, words, tmp_path):
    task = make(cls, *words)
    samples = task.build_dataset("val", tmp_path)
    assert samples[3][0].shape == (1, 28, 28)
    batch = task.collate([(samples[1][0], np.int16(6)), (samples[0][0], np.int16(4))])  # as of a user's data set
    assert list(batch) == ["images", "labels"]
    np.testing.assert_array_equal(batch["images"], np.stack([samples[1][0], samples[0][0]]), strict=True)
    np.testing.assert_array_equal(batch["labels"], np.array([6, 4], np.int64), strict=True)
    samples.features = np.random.default_rng(0).normal(size=(len(samples), 3)).astype(np.float32)
    batch = task.collate([samples[7], samples[2]])
    assert list(batch) == ["features", "labels"] and batch["labels"].dtype == np.int64
    np.testing.assert_array_equal(batch["features"], samples.features[[7, 2]], strict=True)
    np.testing.assert_array_equal(batch["labels"], samples.dataset.labels[[7, 2]])
    assert task.collate([samples[5]])["features"].shape == (1, 3)  # the last batch of an epoch


def test_figures_show_images_also_of_samples_that_have_features(tmp_path):
    task, random = make(LinearProbe, *MODEL, "-pretrained=w"), np.random.default_rng(0)
    samples, found = task.build_dataset("val", tmp_path), []
    labels = samples.dataset.labels[:9].astype(np.int64)
    logits = paddle.to_tensor(random.normal(size=(9, 10)).astype(np.float32))
    records = list(enumerate(record_later(logits, paddle.to_tensor(labels))()))
    for features in (None, random.normal(size=(len(samples), 3)).astype(np.float32)):
        samples.features = features
        figures = get_aspect(task, Reportable).figures(samples, records, nn.Linear(1, 1))
        found.append([figure.images for figure in figures if isinstance(figure, Gallery)])
    assert len(found[0]) == len(found[1]) > 0
    for plain, featured in zip(*found):
        assert [caption for _, caption in plain] == [caption for _, caption in featured] and len(plain) > 2
        np.testing.assert_array_equal([pixels for pixels, _ in plain], [pixels for pixels, _ in featured])


def test_the_network_of_a_probe_has_a_head_for_each_rate():
    model = make(LinearProbe, *MODEL, "-pretrained=w", "PROBE.LEARNING_RATES", "[1, 2, 3]").build_model(10)
    assert len(model.heads) == 3 and model.heads[2].weight.shape == [16, 10]
    assert model(paddle.zeros([2, 1, 28, 28])).shape == [3, 2, 10]
    assert len(make(KnnProbe, *MODEL, "-eval", "-pretrained=w").build_model(10).heads) == 0


def test_each_head_learns_from_its_own_mean_loss():
    task = make(LinearProbe, "-pretrained=w", "PROBE.LEARNING_RATES", "[1, 0.25]", "TRAIN.WEIGHT_DECAY=0.5")
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(2, 3, 4)).astype(np.float32), np.array([3, 0, 2])
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    losses = -np.log(shares[:, np.arange(3), labels])  # (heads, batch)
    seen = []

    def model(inputs):
        seen.append(inputs)
        return paddle.to_tensor(logits)

    batch = {"features": "rows", "labels": paddle.to_tensor(labels)}
    (name, term), *others = task.train_step(model, batch, None).items()
    assert name == "loss" and not others and seen == ["rows"]
    assert float(term.sum) * term.weight == pytest.approx(losses.sum(), rel=1e-5)
    assert (term.count, term.weight) == (3, 2)
    images = np.full((1, 1, 28, 28), 255, np.uint8)
    assert task.logits(lambda given: given, {"images": paddle.to_tensor(images)}).numpy().max() == 1.0  # normalized
    assert get_aspect(task, ParameterGrouping).parameter_groups(None) == [
        {"names": ["heads.0.weight"], "weight_decay": 0.5, "learning_rate": 1},
        {"names": ["heads.0.bias"], "weight_decay": 0.0, "learning_rate": 1},
        {"names": ["heads.1.weight"], "weight_decay": 0.5, "learning_rate": 0.25},
        {"names": ["heads.1.bias"], "weight_decay": 0.0, "learning_rate": 0.25},
    ]
    assert get_aspect(task, CheckpointMatching).compatible_tasks == (
        "classification",
        "masked_autoencoder",
        "self_distillation",
    )


@pytest.mark.parametrize("rate, best", [(None, 1), (0.5, 2), (2.0, 0)])
def test_records_and_scores_are_those_of_the_best_head(rate, best):
    task = make(LinearProbe, "-pretrained=w", "PROBE.LEARNING_RATES", "[2, 3, 0.5]", *chosen(rate))
    task.num_classes = 3
    logits = np.zeros((3, 4, 3), np.float32)
    labels = np.array([2, 0, 1, 2])
    for head, scale in enumerate((1.0, 2.0, 3.0)):
        logits[head, np.arange(4), labels] = scale
    logits[2, :, 1] = 9.0  # only the third sample is right; the first two are equally often right
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    batch = {"features": paddle.zeros([4, 2]), "labels": paddle.to_tensor(labels)}
    records = task.eval_step(lambda features: paddle.to_tensor(logits), batch, step)
    other = EvaluationStep(task.build_metrics())
    assert task.eval_step(lambda features: paddle.to_tensor(logits), batch, other) is None
    values = step.metrics.compute(step.metrics.state)
    assert step.metrics.best == best
    own, right = np.frombuffer(b"".join(records()), RECORD), np.array([4, 4, 1])
    shares = np.exp(logits[best]) / np.exp(logits[best]).sum(1, keepdims=True)
    np.testing.assert_allclose(own["true"], shares[np.arange(4), labels], rtol=1e-5)
    assert own["label"].tolist() == labels.tolist() and len(own) == 4
    assert values["top-1"] == pytest.approx(25 * right[best])
    rates = ("2", "3", "0.5")
    others = ", ".join(f"{name} {25 * number:.2f}" for name, number in zip(rates, right) if name != rates[best])
    assert step.metrics.summary(values).endswith(f" (rate {rates[best]}; {others})")


def chosen(rate):
    return [] if rate is None else ["PROBE.LEARNING_RATE", str(rate)]


def test_one_classifier_has_no_scores_beside_its_own():
    metrics = ProbeMetrics(2, None, "neighbors", ["5"], None)
    metrics.update(paddle.to_tensor([[[1.0, 0.0], [3.0, 0.0]]]), paddle.to_tensor([0, 1]))
    values = metrics.compute(metrics.state)
    assert metrics.best == 0 and not any(name.startswith("top-1 of") for name in values) and values["top-1"] == 50
    assert metrics.summary(values).endswith(" (neighbors 5)")


def test_neighbors_vote_with_weights_that_fall_with_their_distance():
    task = make(KnnProbe, "-eval", "-pretrained=w", "PROBE.KNN_K", "[2, 5]")
    task.num_classes = 3
    generator = np.random.default_rng(1)
    bank, queries = generator.normal(size=(9, 4)), generator.normal(size=(6, 4))
    bank /= np.linalg.norm(bank, axis=1, keepdims=True)
    known = np.array([0, 1, 0, 1, 0, 1, 1, 0, 0])  # none of the third class
    task.bank = paddle.to_tensor(bank.astype(np.float32)), paddle.to_tensor(known)
    batch = {"features": paddle.to_tensor(queries.astype(np.float32))}
    found = task.logits(None, batch).numpy()
    products = queries / np.linalg.norm(queries, axis=1, keepdims=True) @ bank.T
    for number, logits in zip((2, 5), found, strict=True):
        for row, own in zip(products, logits, strict=True):
            near = np.argsort(-row)[:number]
            votes = np.bincount(known[near], np.exp(row[near] / 0.07), 3)
            np.testing.assert_allclose(own, np.log(np.maximum(votes / votes.sum(), 1e-7)), rtol=1e-4, atol=1e-4)
    metrics = task.build_metrics()
    assert (metrics.kind, metrics.names, metrics.best, metrics._chosen) == ("neighbors", ["2", "5"], 0, 0)


def test_features_of_training_images_are_the_bank(tmp_path):
    task = make(KnnProbe, *MODEL, "-eval", "-pretrained=w", "PROBE.KNN_K", "[5]")
    val = task.build_dataset("val", tmp_path)
    model, calls = SimpleNamespace(backbone=object(), compute_features=lambda images: images.max()), []

    def keep(split, samples, network, compute):
        pixels = paddle.to_tensor(np.full((1, 1, 28, 28), 255, np.uint8))
        calls.append((split, samples, network, float(compute({"images": pixels}))))
        return np.full((len(samples), 2), 3.0, np.float32) * [1, -1]

    plain = object()
    get_aspect(task, FeatureCaching).on_weights_loaded(model, {"val": val, "other": plain}, keep)
    assert calls == [("train", task.bank_samples, model.backbone, 1.0), ("val", val, model.backbone, 1.0)]
    features, labels = task.bank
    assert features.shape == [1437, 2] and val.features.shape == (360, 2)
    np.testing.assert_allclose(features.numpy()[[0, -1]], [[0.5**0.5, -(0.5**0.5)]] * 2, rtol=1e-6)
    np.testing.assert_array_equal(labels.numpy(), task.bank_samples.dataset.labels)
    signature = task.signature(val)
    assert "samples" in signature and not any("classes" in name for name in signature)


def test_probes_that_measure_nothing_are_refused(refuse, tmp_path):
    assert refuse(make, KnnProbe, "-pretrained=w") == "TASK knn_probe trains nothing: add -eval"
    few = make(KnnProbe, "-eval", "-pretrained=w", "PROBE.KNN_K", "[5, 1438]")
    told = "PROBE.KNN_K 1438: there are only 1,437 training images; lower it"
    assert refuse(few.build_dataset, "val", tmp_path) == told
    told = "-split=train: each image would be its own nearest neighbor; take another split"
    assert refuse(few.build_dataset, "train", tmp_path) == told
    every = make(KnnProbe, "-eval", "-pretrained=w", "PROBE.KNN_K", "[1437]")
    val = every.build_dataset("val", tmp_path)
    assert len(set(val.notices)) == len(val.notices)
    random = make(LinearProbe)
    with pytest.raises(UserError, match="^a probe of random weights is meaningless: set trained weights with -pretr"):
        get_aspect(random, FeatureCaching).on_weights_loaded(nn.Layer(), {}, None)


class UnlabeledImages(ImageDataset):
    """Ten images, whose labels are read with them."""

    num_classes, labels = 10, None

    def __init__(self, root, split, cache):
        pass

    def __len__(self):
        return 10

    def read(self, index):
        return Image.new("L", (8, 8)), index


def test_a_dataset_without_labels_is_no_probe_s(refuse, tmp_path):
    with forgotten():
        register_dataset("without_labels", UnlabeledImages)
        task = make(LinearProbe, "-pretrained=w", "-dataset=without_labels")
        told = refuse(task.build_dataset, "val", tmp_path)
    assert told == (
        "dataset without_labels does not expose its labels, which a probe needs: give it an attribute 'labels'"
    )
