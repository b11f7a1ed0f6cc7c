"""The semantic segmentation task: what a batch contains, its loss over points, views, empty scenes, predictions."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.networks.varied import vary
from support.samples.remembered_rooms import remembered_rooms  # noqa: F401
from support.samples.small_scenes import make_samples, scene, tensors
from support.thread_ranks import acting_as

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core import settings
from paddlevit_dist.core.inference.evaluation import SavedPredictions
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Checkable, Predictable, describe_samples
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import build_metrics
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.samples import collate_samples
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, NYU40_NUMBERS
from paddlevit_dist.points.data.scene import AS_GIVEN, CENTERED
from paddlevit_dist.points.scene_task import compute_outputs
from paddlevit_dist.points.segmentation.task import PointSamples, SemanticSegmentation, loss_terms
from paddlevit_dist.points.sparse import Plan, SparseTensor

SMALL = ["TASK", "semantic_segmentation", "-dataset=remembered_rooms", "MODEL.NAME", "minkunet_tutorial"]
NETWORKS = {
    "MinkUNet": [],
    "ptv3": [
        *("MODEL.NAME", "ptv3", "MODEL.OPTIONS"),
        "{encoder_depths: [1, 1], encoder_channels: [4, 8], encoder_heads: [1, 1], strides: [2], decoder_depths: [1], "
        "decoder_channels: [4], decoder_heads: [1], patch_size: 8}",
    ],
}
ROOMS = "POINTS.ROOMS.TRAIN 4 POINTS.ROOMS.VAL 3 POINTS.ROOMS.SPACING_M 0.15 DATA.VOXEL_SIZE_M 0.2".split()


def make_task(*arguments: str) -> SemanticSegmentation:
    return SemanticSegmentation(settings.load([*SMALL, *ROOMS, *arguments]).values)


def read_all(samples: PointSamples) -> list:
    return [samples.sample(index, np.random.default_rng(index)) for index in range(len(samples))]


def test_every_point_finds_its_voxel_in_the_batch():
    samples = read_all(make_samples(scene(300, 0), scene(50, 1), rotations=3))
    batch = collate_samples(samples)
    xyz = np.concatenate([sample.scene.xyz for sample in samples])
    of_points = batch["coordinates"][batch["inverse"]].reshape(3, 350, 4)
    assert np.array_equal(of_points[0, :, 1:], np.floor(xyz / np.float32(0.2)).astype(int))
    # views are numbered: all scenes from the first direction, then from the second ...
    assert np.array_equal(np.unique(of_points[:, :300, 0]), [0, 2, 4])
    assert np.array_equal(np.unique(of_points[:, 300:, 0]), [1, 3, 5])
    # a third of a turn keeps height and distance from the axis, to a voxel's size
    np.testing.assert_array_equal(of_points[0, :, 3], of_points[1, :, 3], strict=True)


def test_features_are_what_the_key_says():
    one = scene(40)
    names = ("rgb", "height", "ones", "centered_xyz")
    samples = make_samples(one, voxel_size_m=1e-4, features=names)  # each point a voxel of its own
    view = samples.sample(0, np.random.default_rng(0)).views[0]
    height, (low, high) = one.xyz[:, 2] - one.xyz[:, 2].min(), (one.xyz.min(axis=0), one.xyz.max(axis=0))
    middle = (low[:2] + high[:2]) / 2
    expected = np.c_[one.rgb / 127.5 - 1, height, np.ones(40), one.xyz[:, :2] - middle, height]
    np.testing.assert_allclose(view.features[view.inverse], expected, atol=1e-6)


def test_training_changes_scenes_by_their_own_generator_and_keeps_to_the_budget():
    task = make_task("POINTS.MAX_POINTS", "100", "POINTS.MIX_PROB", "0.5")
    samples = task.build_dataset("train", None)
    first, again, other = (samples.sample(0, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(first.scene.xyz, again.scene.xyz) and not np.array_equal(first.scene.xyz, other.scene.xyz)
    names = [samples.sample(0, np.random.default_rng(seed)).scene.name for seed in range(20)]
    assert 3 < sum("+" in name for name in names) < 17
    assert all(len(samples.sample(i, np.random.default_rng(i)).scene.xyz) == 100 for i in range(4))


def forward(task: SemanticSegmentation, samples: list, model=None):
    paddle.seed(0)
    model = task.build_model() if model is None else model
    batch = task.collate(samples)
    counts = task.loss_normalizers(batch)
    return model, counts, task.train_step(model, tensors(batch), StepPosition(1, 0, 10))


class Seeds(paddle.nn.Layer):
    """Keeps the seed with which a network may shuffle, and gives zeros."""

    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def forward(self, inputs):
        self.seed = inputs.plan.seed
        return paddle.zeros([len(inputs.features), self.num_classes])


def test_networks_of_all_ranks_and_micro_batches_shuffle_by_the_same_seed_in_an_update():
    task = make_task()
    task.build_dataset("val", None)
    task.build_model()  # says what a batch's plan is made for
    model, batch = Seeds(task.num_classes), task.collate(read_all(make_samples(scene(50, 1))))

    def seed(rank, micro, update=4):
        with acting_as(rank, 2):
            task.train_step(model, tensors(batch), StepPosition(1, update, 10, micro))
        return model.seed

    assert seed(0, 0) == seed(1, 0) == seed(1, 1) != seed(0, 0, update=5)


@pytest.mark.parametrize("probability", ["0", "1"])
def test_rotations_dropout_and_colors_have_probabilities(probability):
    keys = "FLIP 0 TILT_DEGREES 30 SCALE [1,1] DROPOUT 0.5 COLOR_SHIFT 40".split()
    keys += f"DROPOUT_PROB {probability} ROTATION_PROB {probability} COLOR_PROB {probability}".split()
    task = make_task(*(f"POINTS.AUGMENT.{word}" if number % 2 == 0 else word for number, word in enumerate(keys)))
    train, plain = (task.build_dataset(split, None) for split in ("train", "train"))
    one = plain.dataset.read(0)
    changed = train.sample(0, np.random.default_rng(3)).scene
    if probability == "0":
        np.testing.assert_allclose(changed.xyz, one.xyz, atol=1e-5)
        assert np.array_equal(changed.rgb, one.rgb)
    else:
        assert len(changed.xyz) < 0.7 * len(one.xyz)
        assert not np.isin(changed.xyz[:, 2].round(4), one.xyz[:, 2].round(4)).all()
        assert abs(changed.rgb.mean(axis=0) - one.rgb.mean(axis=0)).max() > 5


def test_the_loss_is_summed_over_the_labeled_points():
    task = make_task()
    task.build_dataset("val", None)
    samples = read_all(make_samples(scene(300, 0), scene(50, 1)))
    model, counts, terms = forward(task, samples)
    batch = tensors(task.collate(samples))
    logits = task.point_logits(model, batch).numpy().astype(np.float64)
    labels = np.concatenate([sample.scene.semantic for sample in samples])
    known = labels != -100
    log_shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert counts == {"loss": known.sum()} and terms["loss"].count.item() == known.sum()
    assert terms["loss"].sum.item() == pytest.approx(-log_shares[known, labels[known]].sum(), rel=1e-5)
    correct = (logits.argmax(axis=1) == labels).sum()
    assert terms["accuracy"].sum.item() == correct and terms["accuracy"].weight == 0


def test_losses_are_divided_by_weights_of_points_and_classes_of_scenes():
    weights = [0.5, 1.5] * 10
    task = make_task("POINTS.CLASS_WEIGHTS", str(weights), "TRAIN.DICE_WEIGHT", "0.5", "POINTS.FOCAL_GAMMA", "2")
    task.build_dataset("val", None)
    scenes = scene(300, 0), scene(0), scene(50, 1)
    samples = read_all(make_samples(*scenes))
    model, counts, terms = forward(task, samples)
    logits = task.point_logits(model, tensors(task.collate(samples))).numpy().astype(np.float64)
    known = [one.semantic[one.semantic != -100] for one in scenes]
    assert counts["loss"] == pytest.approx(sum(weights[label] for labels in known for label in labels))
    assert counts["dice"] == sum(len(set(labels.tolist())) for labels in known)
    assert terms["loss"].count.item() == pytest.approx(counts["loss"]) and terms["loss"].weight == 1
    labels = np.concatenate([one.semantic for one in scenes])
    rows = np.flatnonzero(labels != -100)
    shares = np.exp(logits[rows, labels[rows]]) / np.exp(logits[rows]).sum(axis=1)
    losses = np.take(weights, labels[rows]) * (1 - shares) ** 2 * -np.log(shares)
    assert terms["loss"].sum.item() == pytest.approx(losses.sum(), rel=1e-5)
    assert terms["dice"].count.item() == counts["dice"] and terms["dice"].weight == 0.5


class PointErrors(SemanticSegmentation):
    """The share that a network does not give to the class of each point."""

    def losses(self, outputs, batch):
        labels = paddle.clip(batch["labels"], min=0)
        return 1 - paddle.take_along_axis(F.softmax(outputs), labels.unsqueeze(1), axis=1)[:, 0]


class SceneErrors(PointErrors):
    """The largest of them in each scene."""

    def losses(self, outputs, batch):
        errors, ends = super().losses(outputs, batch), batch["offsets"].tolist()
        return paddle.stack([errors[first:end].max() for first, end in zip(ends[:-1], ends[1:])])


@pytest.mark.parametrize("owner", [PointErrors, SceneErrors])
@pytest.mark.parametrize(
    "words", [[], ["POINTS.TEST_ROTATIONS", "2"], ["POINTS.FRAGMENT_SIZE_M", "4"], ["POINTS.TEST_VOTES", "3"]]
)
def test_a_users_losses_are_of_labeled_points_or_of_scenes_and_evaluated_alike(owner, words):
    settled = make_task(*words, "POINTS.CLASS_WEIGHTS", str([0.5, 1.5] * 10))
    task = owner(settled.config)
    samples = task.build_dataset("val", None)
    model = vary(task.build_model())
    model.eval()
    chosen = [samples.sample(index, np.random.default_rng(0)) for index in range(2)]
    labels = np.concatenate([sample.scene.semantic for sample in chosen])
    known = labels != -100
    assert known.any() and not known.all()

    def compute(logits):
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        errors = 1 - shares[np.arange(len(labels)), np.maximum(labels, 0)]
        largest = [part.max() for part in np.split(errors, [len(chosen[0].scene.xyz)])]
        return (errors[known].sum(), known.sum()) if owner is PointErrors else (sum(largest), 2)

    batch = task.collate(chosen)
    metrics = build_metrics(task)
    task.eval_step(model, tensors(batch), EvaluationStep(metrics))
    values = metrics.compute(metrics.state)
    logits = task.score(model, tensors(batch), keeps_logits=True)[2].numpy().astype(np.float64)
    np.testing.assert_array_equal(task.score(model, tensors(batch))[0].numpy(), logits.argmax(axis=1))
    total, count = compute(logits)
    assert values["loss"] == pytest.approx(total / count, rel=1e-5)
    assert values["cross_entropy"] == pytest.approx(settled_loss(settled, model, batch), rel=1e-6)
    if not words:
        assert task.loss_normalizers(batch)["loss"] == known.sum()
        term = task.train_step(model, tensors(batch), StepPosition(1, 0, 10))["loss"]
        assert (term.sum.item(), int(term.count)) == pytest.approx((total, count), rel=1e-5)


def settled_loss(task, model, batch):
    task.build_dataset("val", None)
    task.build_model()
    metrics = build_metrics(task)
    task.eval_step(model, tensors(batch), EvaluationStep(metrics))
    return metrics.compute(metrics.state)["loss"]


@pytest.mark.parametrize("key", ["TRAIN.SMOOTHING", "POINTS.FOCAL_GAMMA"])
def test_labels_are_smoothed_and_hard_points_preferred_each_by_its_own_key(key):
    config = make_task(key, "0.25").config
    logits, labels = np.random.default_rng(0).normal(0, 2, (6, 4)), np.array([0, 3, -100, 1, 1, -100])
    batch = {"labels": paddle.to_tensor(labels), "offsets": paddle.to_tensor(np.array([0, 6], np.int32))}
    terms = loss_terms(config, paddle.to_tensor(logits, "float32"), batch)
    logs = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))[labels >= 0]
    own = logs[np.arange(4), labels[labels >= 0]]
    smooth = 0.75 * own + 0.25 * logs.mean(axis=1)
    expected = smooth if key == "TRAIN.SMOOTHING" else (1 - np.exp(own)) ** 0.25 * own
    assert terms["loss"].sum.item() == pytest.approx(-expected.sum(), rel=1e-5) and terms["loss"].count.item() == 4
    assert set(terms) == {"loss", "accuracy"}


def test_a_network_for_other_classes_has_their_number():
    task = make_task()
    task.build_dataset("val", None)
    assert [task.build_model(number).num_classes for number in (7, None)] == [7, 20]


def test_as_many_weights_as_classes():
    with pytest.raises(UserError, match=r"POINTS.CLASS_WEIGHTS has 2 numbers: expected one for each of the 20 classes"):
        make_task("POINTS.CLASS_WEIGHTS", "[1.0, 2.0]").build_dataset("train", None)
    assert len(make_task("POINTS.CLASS_WEIGHTS", "[1.0, 2.0]").build_dataset("val", None)) == 3  # is not trained on
    with pytest.raises(UserError, match=r"POINTS.CLASS_WEIGHTS.*expected at least one weight above 0"):
        make_task("POINTS.CLASS_WEIGHTS", "[0.0, 0.0]")
    assert make_task("POINTS.CLASS_WEIGHTS", "[0.0, 1.0]").config.POINTS.CLASS_WEIGHTS == [0, 1]


@pytest.mark.parametrize(
    "scenes",
    [(scene(0),), (scene(0), scene(30)), (scene(1),), (scene(2), scene(1))],
    ids=["nothing", "an empty scene", "one point", "two points and one"],
)
@pytest.mark.parametrize("network", NETWORKS)
def test_scenes_without_points_go_on(scenes, network):
    losses = ["TRAIN.LOVASZ_WEIGHT", "1.0", "TRAIN.DICE_WEIGHT", "1.0", "TRAIN.SMOOTHING", "0.1"]
    task = make_task(*losses, *NETWORKS[network])
    task.build_dataset("val", None)
    model, counts, terms = forward(task, read_all(make_samples(*scenes)))
    assert counts["loss"] == sum(int((one.semantic != -100).sum()) for one in scenes)
    (terms["loss"].sum + terms["lovasz"].sum + terms["dice"].sum).backward()
    gradients = [parameter.grad for parameter in model.parameters() if not parameter.stop_gradient]
    assert all(gradient is not None and np.isfinite(gradient.numpy()).all() for gradient in gradients)
    metrics = task.build_metrics()
    model.eval()
    task.eval_step(model, tensors(task.collate(read_all(make_samples(*scenes)))), EvaluationStep(metrics))
    assert metrics.compute(metrics.state)["points"] == counts["loss"]


def test_each_scale_has_all_views():
    task = make_task("POINTS.TEST_SCALES", "[0.5, 1.0]", "POINTS.TEST_ROTATIONS", "2", "POINTS.TEST_FLIPS", "true")
    samples = task.build_dataset("val", None)
    sample = samples.sample(0, None)
    assert samples.eval_protocol == "2 directions, mirrored views, 2 scales"
    spans = [np.ptp(view.voxels, axis=0) for view in sample.views]
    assert len(spans) == 2 * 2 * 2
    for half, whole in zip(spans[:4], spans[4:]):
        assert abs(2 * half - whole).max() <= 2
    model = vary(task.build_model())
    alone, probabilities = [], 0
    for number in range(8):
        views = [sample._replace(views=[sample.views[number]])]
        one = make_task()
        one.build_dataset("val", None)
        one.plan_spec = task.plan_spec
        alone.append(one.point_logits(model, tensors(one.collate(views))).numpy().astype(np.float64))
        probabilities = probabilities + np.exp(alone[-1]) / np.exp(alone[-1]).sum(-1, keepdims=True) / 8
    classes, _ = task.score(model, tensors(task.collate([sample])))
    certain = np.sort(probabilities)[:, -1] - np.sort(probabilities)[:, -2] > 1e-4
    assert certain.mean() > 0.9
    np.testing.assert_array_equal(classes.numpy()[certain], probabilities.argmax(-1)[certain])
    with pytest.raises(UserError, match="TEST_SCALES.*expected at least one factor"):
        make_task("POINTS.TEST_SCALES", "[]")


def test_several_directions_average_their_shares():
    task = make_task("POINTS.TEST_ROTATIONS", "4")
    dataset = task.build_dataset("val", None)
    samples = [dataset.sample(index, np.random.default_rng(0)) for index in range(2)]
    model = vary(task.build_model())
    batch = tensors(task.collate(samples))
    metrics = task.build_metrics()
    records = task.eval_step(model, batch, EvaluationStep(metrics, keeps_records=True))()
    sizes = [len(sample.scene.xyz) for sample in samples]
    logits = task.point_logits(model, batch).numpy().reshape(4, sum(sizes), 20).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    shares, labels = shares.mean(axis=0), np.concatenate([sample.scene.semantic for sample in samples])
    known = np.flatnonzero(labels != -100)
    values = metrics.compute(metrics.state)
    assert values["accuracy"] == pytest.approx((shares.argmax(-1) == labels)[known].mean(), abs=1e-6)
    assert values["loss"] == pytest.approx(-np.log(shares[known, labels[known]]).mean(), rel=1e-5)
    for record, rows in zip(records, np.split(np.arange(sum(sizes)), sizes[:1]), strict=True):
        confusion, rows = np.zeros((20, 20), int), rows[labels[rows] != -100]
        np.add.at(confusion, (labels[rows], shares[rows].argmax(-1)), 1)
        np.testing.assert_array_equal(record, confusion)


def test_predictions_are_written_as_text_and_colored_points(tmp_path):
    task = make_task("-eval", "-pretrained=x", "SAVE_PREDICTIONS", "true")
    dataset = task.build_dataset("val", None)
    writer = SavedPredictions(get_aspect(task, Predictable).prediction_writer(tmp_path, dataset), tmp_path, range(2))
    samples = [dataset.sample(index, np.random.default_rng(0)) for index in range(2)]
    model = vary(task.build_model())
    batch = tensors(task.collate(samples))
    task.eval_step(model, batch, EvaluationStep(task.build_metrics(), writer))
    expected = task.point_logits(model, batch).argmax(axis=-1).numpy()
    start = 0
    for sample in samples:
        end = start + len(sample.scene.xyz)
        numbers = [int(line) for line in (tmp_path / f"{sample.scene.name}.txt").read_text().splitlines()]
        assert numbers == [NYU40_NUMBERS[one] for one in expected[start:end]]
        header, _, content = (tmp_path / f"{sample.scene.name}.ply").read_bytes().partition(b"end_header\n")
        assert f"element vertex {end - start}\n".encode() in header
        points = np.frombuffer(content, np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3), ("label", "<i2")]))
        assert np.array_equal(points["xyz"], sample.scene.xyz) and np.array_equal(points["label"], expected[start:end])
        colors = {int(label): tuple(rgb) for label, rgb in zip(points["label"], points["rgb"].tolist())}
        assert len(set(colors.values())) == len(colors)
        assert all(tuple(rgb) == colors[int(label)] for label, rgb in zip(points["label"], points["rgb"].tolist()))
        start = end
    assert "ScanNet" in writer.finish()[0]


@pytest.mark.parametrize("scenes", [(scene(80), scene(0), scene(30, 1)), (scene(0),)], ids=["some", "none"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_prediction_is_of_each_scene_and_looks_at_no_label(scenes, network):
    task = make_task("POINTS.TEST_ROTATIONS", "2", *NETWORKS[network])
    task.build_dataset("val", None)
    model = vary(task.build_model())
    unlabeled = [one._replace(semantic=np.full_like(one.semantic, -100)) for one in scenes]
    known, unknown = (
        get_aspect(task, Predictable).predict_step(
            model, tensors(task.collate(read_all(make_samples(*given, rotations=2))))
        )
        for given in (scenes, unlabeled)
    )
    assert [len(classes) for classes in known] == [len(one.xyz) for one in scenes]
    assert all(np.array_equal(one, other) and one.dtype == np.int64 for one, other in zip(known, unknown))
    alone = get_aspect(task, Predictable).predict_step(
        model, tensors(task.collate(read_all(make_samples(scenes[-1], rotations=2))))
    )
    np.testing.assert_array_equal(known[-1], alone[0], strict=True)


def test_a_prediction_of_outputs_that_are_not_finite_is_refused():
    task = make_task()
    task.build_dataset("val", None)
    model, prediction = task.build_model(), get_aspect(task, Predictable)
    batch = tensors(task.collate(read_all(make_samples(scene(80), scene(30, 1)))))
    broken = paddle.zeros_like(model(SparseTensor(batch["features"], plan=Plan.of_batch(batch))))
    broken[-1, 3] = float("nan")  # a voxel of the second scene
    first, second = prediction.predict_step(lambda inputs: broken, batch)
    assert prediction.prediction_rows(first)[0]["points"] == 80
    with pytest.raises(BadSample, match="the model's outputs for it are not finite"):
        prediction.prediction_rows(second)


def test_a_scene_with_a_wrong_label_or_feature_is_told():
    task = make_task("POINTS.TEST_ROTATIONS", "2")
    sample = task.build_dataset("val", None).sample(0, np.random.default_rng(0))
    classes, (first, second) = sample.scene.semantic, sample.views
    features = second.features.copy()
    features[3, 1] = np.nan
    labels = [np.where(np.arange(len(classes)) == 5, number, classes) for number in (-100, 19, 20, -1)]
    for semantic in labels[:2]:
        task.check_sample(sample._replace(scene=sample.scene._replace(semantic=semantic)))
    for wrong, message in (
        ({"scene": sample.scene._replace(semantic=labels[2])}, "point 5 has class 20"),
        ({"scene": sample.scene._replace(semantic=labels[3])}, "point 5 has class -1"),
        ({"views": [first, second._replace(features=features)]}, r"features\[3, 1\] is nan"),
    ):
        with pytest.raises(BadSample, match=message):
            task.check_sample(sample._replace(**wrong))


def test_weights_record_how_scenes_become_voxels():
    words = ["POINTS.FEATURES", "[height, rgb]", "POINTS.COLOR_RANGE", "[0, 2]", "POINTS.VOXEL_FEATURES", "mean"]
    task = make_task(*words)
    dataset = task.build_dataset("val", None)
    recorded = task.signature()
    assert recorded.pop("heights above the lowest point of a block (POINTS.CROP)") is False
    assert recorded == {
        "DATA.VOXEL_SIZE_M": 0.2,
        "POINTS.COLOR_RANGE": [0, 2],
        "POINTS.VOXEL_FEATURES": "mean",
        "POINTS.FEATURES": ["height", "rgb"],
        "coordinates": AS_GIVEN,
    }
    assert dataset.class_names == list(CLASS_NAMES)
    assert task.signature(dataset) == {"samples": len(dataset), "classes": list(CLASS_NAMES)}
    block = make_task(*words, "POINTS.CROP", "block", "POINTS.FRAGMENT_SIZE_M", "6")
    assert block.signature()["heights above the lowest point of a block (POINTS.CROP)"] is True
    assert len(make_task().signature()) == len(recorded)  # without heights
    other = make_task()
    other.load_meta(CheckpointMeta(3, ("a", "b", "c"), {"coordinates": CENTERED}))
    assert (other.num_classes, other.class_names, other.coordinates) == (3, ["a", "b", "c"], CENTERED)
    with pytest.raises(
        UserError, match=r"^about.yaml: Expected `str` matching .* - at `\$.coordinates`; remove the file"
    ):
        other.load_meta(CheckpointMeta(3, ("a", "b", "c"), {"coordinates": "GIVEN"}))
    other.load_meta(CheckpointMeta(None, None, {"coordinates": AS_GIVEN}))  # the dataset's own classes
    assert (other.class_names, other.coordinates) == ([*CLASS_NAMES], AS_GIVEN)


@pytest.mark.parametrize("splits", [("train", "train"), ("val", "val"), ("train", "val"), ("val", "train"), ("val",)])
def test_scenes_are_centered_if_all_splits_are(splits):
    class Placed(SyntheticRooms):
        def __init__(self, data_path, split, cache_folder):
            super().__init__(data_path, split, cache_folder)
            self.coordinates = CENTERED if split == "val" else AS_GIVEN

        @classmethod
        def open(cls, config, split, cache_folder):
            return cls(None, split, cache_folder)

    register_dataset("placed", Placed)
    task = make_task("-dataset=placed")
    for split in splits:
        task.build_dataset(split, None)
    assert task.signature()["coordinates"] == (AS_GIVEN if "train" in splits else CENTERED)


def test_the_log_and_doctor_see_classes():
    task = make_task()
    task.class_names = ["wall", "chair"]
    assert describe_samples(task, range(1200)) == "1,200 scenes of 2 classes: wall, chair"
    sample = make_samples(scene(60)).sample(0, None)
    expected = [label for label in sample.scene.semantic.tolist() if label != -100]
    assert get_aspect(task, Checkable).labels_in(sample).tolist() == expected and 0 < len(expected) < 60


def test_fewer_classes_than_the_data_have_are_refused():
    with pytest.raises(UserError, match=r"has 20 classes but MODEL.NUM_CLASSES .* is 7; set it to 20"):
        make_task("-num_classes=7").build_dataset("val", None)


def test_outputs_in_another_precision_are_float32():
    task = make_task()
    task.build_dataset("val", None)
    task.build_model()
    batch = tensors(task.collate(read_all(make_samples(scene(40)))))
    rows = batch["features"].shape[0]
    outputs = compute_outputs(lambda x: paddle.full([rows, 20], 0.5, "float64"), batch, (rows, 20), "voxel")
    assert outputs.dtype == paddle.float32 and outputs.shape == [rows, 20]


def test_a_network_of_another_task_is_refused():
    task = make_task("MODEL.NAME", "mink_classifier14")
    task.build_dataset("val", None)
    with pytest.raises(
        UserError,
        match=r"MinkClassifier returns Tensor float32 \(1, 20\) in training mode, expected logits \(voxels, cl",
    ):
        forward(task, read_all(make_samples(scene(300, 0))))
