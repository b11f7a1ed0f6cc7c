"""Probes of frozen classifiers: neighbors by brute force, linear layers by the rule of SGD, features computed once."""

import shutil

import numpy as np
import paddle
import pytest
from support.trainings import small_runs
from support.trainings.runs import last_line, read_events, refusal, run_main, well

from paddlevit_dist import create_model, load_weights
from paddlevit_dist.core.data.sampler import TrainingSampler
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.extensions.debug.selftest import build_silent_trainer
from paddlevit_dist.images.classification.probes import LinearProbe
from paddlevit_dist.images.data.small_sets import Digits
from paddlevit_dist.images.transforms.crops import GlyphTransform

MODEL = "MODEL.NAME vit MODEL.PATCH_SIZE 8 MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2".split()
DATA = "-dataset=digits -image_size=16 -num_workers=0 DATA.IMAGE_CHANNELS 1 DATA.CROP_PCT 1.0 REPORT False".split()
NETWORK = {"image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "in_channels": 1}
RATES, EPOCHS, BATCH = [0.01, 0.3], 2, 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights of nobody's training: their features tell digits apart well enough to be counted."""
    folder = tmp_path_factory.mktemp("probes")
    paddle.seed(1)
    state = create_model("vit", 10, **NETWORK).state_dict()
    wider = {name: value * 10 if value.ndim > 1 else value for name, value in state.items()}  # features that differ
    paddle.save(wider, str(folder / "weights.pdparams"))
    return folder


@pytest.fixture(scope="module")
def features(folder):
    """By split: float64 (samples, 16) and labels, of all images at once."""
    model = create_model("vit", 0, **NETWORK)
    load_weights(model, folder / "weights.pdparams")
    model.eval()
    found = {}
    for split in ("train", "val"):
        digits = Digits(None, split, None)
        shown = GlyphTransform(16, train=False, channels=1)
        pixels = np.stack([shown(image, np.random.default_rng(0)) for image, _ in map(digits.read, range(len(digits)))])
        with paddle.no_grad():
            rows = model(paddle.to_tensor(((pixels / 255 - 0.5) / 0.5).astype(np.float32))).numpy()
        found[split] = rows.astype(np.float64), digits.labels.astype(np.int64)
    return found


def probe(folder, name, output, processes, *words):
    return run_main(
        f"-cfg=probe_{name}",
        *DATA,
        *MODEL,
        f"-pretrained={folder}/weights.pdparams",
        f"-output={folder / output}",
        f"-ngpus={processes}",
        "DATA.CACHE_FOLDER",
        str(folder / f"cache_{output}"),
        *words,
    )


@pytest.fixture(scope="module")
def knn(folder):
    """The evaluation by neighbors on one process; its features are in ``cache_knn_1``."""
    return well(probe(folder, "knn", "knn_1", 1))


@pytest.fixture(scope="module")
def linear(folder):
    """The training of linear layers on one process, in ``linear_1``."""
    return well(probe(folder, "linear", "linear_1", 1, *LINEAR))


def make_values(output):
    (event,) = [event for event in read_events(output) if event["kind"] == "evaluation"][-1:]
    return {name: value for name, value in event.items() if name.startswith(("top", "loss", "balanced", "interval"))}


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.glob("features-*.npy")}


def test_neighbors_are_those_of_brute_force_on_any_number_of_processes(folder, features, knn):
    ended = [knn, well(probe(folder, "knn", "knn_3", 3))]
    one, three = (folder / f"knn_{number}" for number in (1, 3))

    (bank, known), (rows, labels) = features["train"], features["val"]
    bank, rows = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (bank, rows))
    order = np.argsort(-(rows @ bank.T), axis=1)
    found = make_values(one)
    for number in (10, 20):
        near = order[:, :number]
        weights = np.exp(np.take_along_axis(rows @ bank.T, near, 1) / 0.07)
        votes = np.stack([(weights * (known[near] == label)).sum(axis=1) for label in range(10)], axis=1)
        expected = 100 * np.mean(votes.argmax(axis=1) == labels)
        assert found[f"top-1 of neighbors {number}"] == pytest.approx(expected, abs=1e-9)
        assert 20 < expected < 99
    assert found["top-1"] == found["top-1 of neighbors 20"]
    assert found == make_values(three)
    low, high = found["interval"]["top-1"]
    assert f"top-1 {found['top-1']:.2f} [{low:.1f}, {high:.1f}]" in last_line(ended[0]) == last_line(ended[1])
    assert kept(folder / "cache_knn_1") == kept(folder / "cache_knn_3") != {}


def trained(features, rate):
    """A layer after SGD with momentum and a cosine of rates, in float64: weights and bias."""
    rows, labels = features["train"]
    sampler = TrainingSampler(range(len(rows)), BATCH, rank=0, world_size=1)
    batches = [[int(key) for key in keys] for epoch in range(1, EPOCHS + 1) for keys in sampler.batches(epoch, 0)]
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    layer, speed = np.zeros((17, 10)), np.zeros((17, 10))
    for number, batch in enumerate(batches):
        logits = inputs[batch] @ layer
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        speed = 0.9 * speed + inputs[batch].T @ (shares - np.eye(10)[labels[batch]]) / BATCH
        layer -= rate * BATCH / 256 * (1 + np.cos(np.pi * number / len(batches))) / 2 * speed
    return layer


LINEAR = [f"-epochs={EPOCHS}", "VALIDATE_FREQ", "1", "PROBE.LEARNING_RATES", str(RATES)]


@pytest.mark.usefixtures("linear")
def test_each_rate_trains_its_layer_and_the_best_counts_on_any_number_of_processes(folder, features):
    ended = well(probe(folder, "linear", "linear_3", 3, *LINEAR))
    found = [make_values(folder / f"linear_{number}") for number in (1, 3)]

    state = paddle.load(str(folder / "linear_3" / "checkpoints" / "last" / "model.pdparams"))
    rows, labels = features["val"]
    scores = []
    for head, rate in enumerate(RATES):
        layer = trained(features, rate)
        own = np.concatenate([state[f"heads.{head}.weight"].numpy(), state[f"heads.{head}.bias"].numpy()[None]])
        assert np.abs(own - layer).max() < 1e-4 * np.abs(layer).max()
        scores.append(100 * np.mean((rows @ layer[:-1] + layer[-1]).argmax(axis=1) == labels))
        assert found[0][f"top-1 of rate {rate:g}"] == pytest.approx(scores[-1], abs=1e-9)
    assert found[0]["top-1"] == pytest.approx(max(scores))
    one, three = found
    assert three["interval"]["top-1"] == one["interval"]["top-1"]
    assert three.pop("loss") == pytest.approx(one["loss"], rel=1e-5)
    assert all(one[name] == three[name] for name in three if name != "interval")
    assert "(rate 0.3; 0.01 " in last_line(ended) and scores[1] > scores[0]


@pytest.mark.usefixtures("linear")
def test_one_rate_is_evaluated_again_and_the_backbone_is_as_it_was(folder, tmp_path):
    again = shutil.copytree(folder / "linear_1", tmp_path / "again", symlinks=True)
    before, after = (
        paddle.load(str(path))
        for path in (folder / "weights.pdparams", again / "checkpoints" / "best" / "model.pdparams")
    )
    for name in before:
        if not name.startswith("head."):
            assert np.array_equal(before[name].numpy(), after[f"backbone.{name}"].numpy()), name
    words = ["-eval", f"-pretrained={again}/checkpoints/last", f"-output={again}", "PROBE.LEARNING_RATE", "0.01"]

    ended = well(run_main(f"-cfg={again}/config.yaml", *words))

    score = make_values(again)["top-1 of rate 0.01"]
    assert f"top-1 {score:.2f} [" in last_line(ended) and "(rate 0.01; 0.3 " in last_line(ended)
    assert "of val: " in ended.out and "computed before" in ended.out


@pytest.mark.usefixtures("knn")
def test_features_of_other_weights_are_others(folder):
    other = paddle.load(str(folder / "weights.pdparams"))
    other["norm.bias"] = other["norm.bias"] + 1e-3
    paddle.save(other, str(folder / "other.pdparams"))
    shutil.copytree(folder / "cache_knn_1", folder / "cache_other")
    well(probe(folder, "knn", "other", 1, f"-pretrained={folder}/other.pdparams"))
    assert len(list((folder / "cache_other").glob("features-train-*.npy"))) == 2


def test_a_look_at_a_training_computes_no_features(folder, tmp_path):
    """That of doctor and -selftest, which takes a few batches: features of all images may take hours."""
    words = [*DATA, *MODEL, f"-pretrained={folder}/weights.pdparams", f"-output={tmp_path}"]
    config = load(["-cfg=probe_linear", *words, "DATA.CACHE_FOLDER", str(tmp_path)]).values
    task = LinearProbe(config)
    run = build_silent_trainer(config, task, task.build_dataset("train", tmp_path), tmp_path)
    batch = next(run.loader.epochs(1, 1))
    loss = task.train_step(run.model, batch, StepPosition(1, 0, 1))["loss"]
    assert float(loss.sum) == pytest.approx(loss.count * np.log(10), rel=1e-5)
    assert not list(tmp_path.rglob("features-*"))


def test_a_probe_without_trained_weights_or_neighbors_is_refused(folder):
    words = ["MODEL.PRETRAINED", "None", "MODEL.PRETRAINED_REQUIRED", "False"]
    assert "a probe of random weights is meaningless" in refusal(probe(folder, "linear", "random", 1, *words))
    said = refusal(probe(folder, "knn", "few", 1, "PROBE.KNN_K", "[5, 2000]"))
    assert said == "PROBE.KNN_K 2000: there are only 1,437 training images; lower it"
    assert "its own nearest neighbor" in refusal(probe(folder, "knn", "same", 1, "-split=train"))
    assert "trains nothing: add -eval" in refusal(probe(folder, "knn", "trains", 1, "EVAL", "False"))


def test_weights_by_name_bring_their_network_and_a_run_its_input(tmp_path):
    small_runs.train(str(tmp_path), ["-epochs=1", "-batch_size=32"], train_size=32)
    for recipe in ("-cfg=probe_linear", "-cfg=probe_knn"):
        assert load([recipe]).values.MODEL.PRETRAINED == "vit_small_patch14_dinov2.lvd142m"
        weights = "eva02_small_patch14_336.mim_in22k_ft_in1k"
        model = load([recipe, f"-pretrained={weights}"]).values.MODEL
        assert (model.NAME, model.PRETRAINED) == ("eva02_small_patch14_336", weights)
        loaded = load([recipe, "-dataset=digits", f"-pretrained={tmp_path}", "MODEL.DEPTH", "3"])
        model, data = loaded.values.MODEL, loaded.values.DATA
        assert (model.NAME, model.EMBED_DIM, model.DEPTH, data.IMAGE_SIZE, data.IMAGE_CHANNELS) == ("vit", 32, 3, 16, 1)
        assert any("network and input of the run" in line for line in loaded.notices)
