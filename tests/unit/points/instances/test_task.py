"""PointGroup as a whole: published weights, grouping of perfect predictions, training steps, evaluation, files."""

import numpy as np
import paddle
import pytest
from PIL import Image
from support.networks.varied import vary
from support.samples.remembered_rooms import read_room, remembered_rooms  # noqa: F401
from support.samples.small_scenes import tensors

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.freezing import freeze
from paddlevit_dist.core.inference.evaluation import SavedPredictions
from paddlevit_dist.core.intervals import nanmean
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Predictable
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.points.data.images import draw_classes, fit_in_cell
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, NYU40_NUMBERS
from paddlevit_dist.points.instances import task as task_module
from paddlevit_dist.points.instances.grouping import PointClusters, proposal_ious
from paddlevit_dist.points.instances.matching import flatten_tables
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.instances.panoptic import combine_segments, count_segments
from paddlevit_dist.points.instances.pointgroup import GroupingInput, PointGroupOutput, group_points
from paddlevit_dist.points.instances.proposals import select_predictions
from paddlevit_dist.points.instances.score_kind import class_precisions
from paddlevit_dist.points.instances.stuff_classes import find_instance_classes
from paddlevit_dist.points.instances.task import InstanceSegmentation
from paddlevit_dist.points.instances.writer import draw_instances
from paddlevit_dist.points.prepare import nuscenes, semantic_kitti
from paddlevit_dist.points.scene_task import SceneTask
from paddlevit_dist.points.sparse import Plan, PlanSpec, SparseTensor

SMALL = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "-dataset=remembered_rooms", "DATA.VOXEL_SIZE_M", "0.15"]
SMALL += ["POINTS.ROOMS.TRAIN", "3", "POINTS.ROOMS.VAL", "2", "POINTS.ROOMS.SPACING_M", "0.12"]
SMALL += ["MODEL.OPTIONS.width", "4", "MODEL.OPTIONS.repeats", "1", "POINTS.INSTANCES.RADIUS_M", "0.24"]
DENSE = ["DATA.VOXEL_SIZE_M", "0.1", "POINTS.ROOMS.SPACING_M", "0.08", "POINTS.INSTANCES.RADIUS_M", "0.16"]
THINGS = np.array([name not in ("wall", "floor") for name in CLASS_NAMES])


def make_task(*arguments: str) -> InstanceSegmentation:
    return InstanceSegmentation(settings.load([*SMALL, *arguments]).values)


def model_and_batch(task: InstanceSegmentation, split: str, indices=(0, 1)) -> tuple:
    samples = task.build_dataset(split, None)
    paddle.seed(0)
    model = task.build_model()
    return model, tensors(task.collate([samples.sample(i, np.random.default_rng(i)) for i in indices]))


def batch_alone(task: InstanceSegmentation, indices=(0, 1)) -> dict:
    """Of the validation split, without what a network's convolutions need."""
    samples = task.build_dataset("val", None)
    task.plan_spec = PlanSpec(())
    return tensors(task.collate([samples.sample(i, np.random.default_rng(i)) for i in indices]))


def true_output(scene, noise_m: float):
    """What a network that knows a scene says of its points: logits and offsets, these with some noise."""
    semantic = scene.semantic.astype(int)
    logits = np.eye(20, dtype=np.float32)[np.where(semantic >= 0, semantic, 0)]
    offsets = np.random.default_rng(0).normal(0.0, noise_m, scene.xyz.shape).astype(np.float32)
    for number in range(int(scene.instance.max()) + 1):
        members = scene.instance == number
        offsets[members] += scene.xyz[members].mean(axis=0) - scene.xyz[members]
    return paddle.to_tensor(logits), paddle.to_tensor(offsets)


@pytest.mark.parametrize("index", range(3))
def test_perfect_predictions_are_grouped_to_the_true_instances(index):
    scene = read_room("train", index, 0.05)
    logits, offsets = true_output(scene, noise_m=0.02)
    scenes = np.zeros(len(scene.xyz), int)
    grouping = GroupingInput(scene.xyz, scenes, THINGS, 0.1, 50, 14, 50.0, np.zeros(3))
    clusters = group_points(logits, offsets, grouping)
    sizes = np.bincount(scene.instance[scene.instance >= 0])
    ious = proposal_ious(clusters, scene.instance, sizes)
    assert (ious.max(axis=0)[sizes >= 100] > 0.95).all()
    classes = logits.numpy().argmax(axis=1)
    predictions = select_predictions(clusters, ious.max(axis=1), classes, 0.09, 100, 0.3)
    metrics = InstanceMetrics(list(CLASS_NAMES), np.flatnonzero(THINGS))
    metrics.update_instances(scene.semantic, scene.instance, predictions)
    precisions = class_precisions(flatten_tables(metrics.tables), np.ones((1, 1)))
    assert nanmean(precisions["AP"]) > 0.95 and nanmean(precisions["AP50"]) == 1.0


def test_a_training_step_reaches_every_parameter():
    task = make_task("POINTS.INSTANCES.PREPARE_EPOCHS", "0", "POINTS.INSTANCES.CLUSTER_POINTS", "2")
    model, batch = model_and_batch(task, "train")
    outputs, forward = [], task.forward
    task.forward = lambda *given: outputs.append(forward(*given)) or outputs[-1]
    terms = task.train_step(model, batch, StepPosition(1, 0, 10))
    (output,), instances = outputs, batch["instance_labels"].numpy()
    losses = []
    for number, score in enumerate(output.scores.numpy().ravel().astype(np.float64)):
        members = output.clusters.points[output.clusters.offsets[number] : output.clusters.offsets[number + 1]]
        shared = np.bincount(instances[members][instances[members] >= 0], minlength=instances.max() + 1)
        iou = (shared / (len(members) + np.bincount(instances[instances >= 0]) - shared)).max()
        target, share = np.clip(2 * iou - 0.5, 0, 1), 1 / (1 + np.exp(-score))  # 0 up to 0.25, 1 from 0.75 on
        losses.append(-target * np.log(share) - (1 - target) * np.log(1 - share))
    assert terms["score"].count.item() == len(losses) > 1
    assert terms["score"].sum.item() == pytest.approx(sum(losses), rel=1e-4)
    assert terms["offset"].count.item() == terms["direction"].count.item() == (instances >= 0).sum()
    centers = (batch["instance_centers"] - batch["xyz"]).numpy()[instances >= 0]
    distance = np.abs(output.offsets.numpy()[instances >= 0] - centers).sum()
    assert terms["offset"].sum.item() == pytest.approx(distance, rel=1e-4)
    assert {name: term.weight for name, term in terms.items()} == {
        "semantic": 1.0,
        "offset": 1.0,
        "direction": 1.0,
        "accuracy": 0.0,
        "score": 1.0,
    }
    paddle.add_n([term.sum * term.weight for term in terms.values() if term.weight]).backward()
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert parameter.grad is not None and np.isfinite(parameter.grad.numpy()).all(), name
    assert abs(model.score_linear.weight.grad.numpy()).max() > 0
    assert abs(model.score_unet.conv[2].weight.grad.numpy()).max() > 0
    depths = [max(name.split(".").count("u") for name in part.state_dict()) for part in (model.unet, model.score_unet)]
    assert depths == [6, 1]  # seven levels, and two


def test_frozen_parts_get_no_gradient_with_and_without_clusters():
    parts = ["unet.*", "score_unet.*", "score_outputlayer.*", "score_linear.*"]
    for prepare_epochs in ("0", "1"):
        task = make_task("POINTS.INSTANCES.PREPARE_EPOCHS", prepare_epochs)
        model, batch = model_and_batch(task, "train", (0,))
        freeze(model, parts)
        terms = task.train_step(model, batch, StepPosition(1, 0, 10))
        paddle.add_n([term.sum * term.weight for term in terms.values() if term.weight]).backward()
        for name, parameter in model.named_parameters():
            is_trained = name.startswith(("input_conv.", "output_layer.", "linear.", "offset")) and "_mean" not in name
            assert (parameter.grad is not None) == (is_trained and "_variance" not in name), name


def test_the_score_of_a_cluster_depends_on_its_own_points():
    task = make_task("POINTS.INSTANCES.CLUSTER_POINTS", "5")
    model, batch = model_and_batch(task, "val")
    vary(model)
    xyz, sizes = batch["xyz"].numpy(), np.diff(batch["offsets"].numpy())
    scenes = np.repeat(np.arange(2), sizes)
    found = []
    for smallest in (5, None):
        smallest = smallest or int(np.diff(found[0].clusters.offsets).max())  # only the largest is left
        grouping = GroupingInput(xyz, scenes, THINGS, 0.24, smallest, 14, 50.0, np.full(3, 0.5))
        voxels = SparseTensor(batch["features"], plan=Plan.of_batch(batch))
        found.append(model(voxels, batch["inverse"], lambda grouping=grouping: grouping))
    scores = []
    for output in found:
        clusters = output.clusters
        number = int(np.argmax(np.diff(clusters.offsets)))
        members = clusters.points[clusters.offsets[number] : clusters.offsets[number + 1]]
        scores.append((members.tolist(), output.scores.numpy()[number]))
    assert found[0].clusters.number > found[1].clusters.number and scores[0][0] == scores[1][0]
    np.testing.assert_allclose(scores[1][1], scores[0][1], rtol=1e-4, atol=1e-5)


def test_few_points_without_clusters_go_through_the_score_branch_for_nothing():
    model = create_model("pointgroup", in_channels=6, width=4, repeats=1)
    features, heads = paddle.randn([7, 4]), paddle.randn([7, 3])
    features.stop_gradient = heads.stop_gradient = False
    none = PointClusters(*(np.zeros(size, np.int32) for size in (0, 0, 1)))
    xyz = np.random.default_rng(0).random((7, 3), np.float32)
    grouping = GroupingInput(xyz, np.zeros(7, int), THINGS, 0.1, 50, 14, 50.0, np.full(3, 0.5))
    score = model.scores(features, none, grouping, (heads,))
    assert score.tolist() == [0.0]
    score.backward()
    for tensor in (features, heads, model.score_linear.weight, model.score_unet.conv[2].weight):
        assert tensor.grad is not None and not tensor.grad.numpy().any()
    model.eval()
    assert model.scores(features, none, grouping, (heads,)) is None


@pytest.mark.parametrize("what", ["instances", "labels"])
def test_training_goes_on_without_instances_or_labels(what):
    task = make_task("POINTS.INSTANCES.PREPARE_EPOCHS", "0")
    model, batch = model_and_batch(task, "train", (0,))
    batch["instance_labels"] = paddle.full_like(batch["instance_labels"], -100)
    batch["instance_centers"] = paddle.full_like(batch["instance_centers"], -100.0)
    if what == "labels":
        batch["labels"] = paddle.full_like(batch["labels"], -100)
    terms = task.train_step(model, batch, StepPosition(1, 0, 10))
    assert terms["offset"].sum.item() == terms["direction"].sum.item() == 0.0
    assert (terms["semantic"].sum.item() == 0.0) == (what == "labels")
    paddle.add_n([term.sum * term.weight for term in terms.values() if term.weight]).backward()
    gradient = model.input_conv[0].weight.grad.numpy()
    assert np.isfinite(gradient).all() and abs(gradient).max() > 0  # without labels only of the scores
    is_still = [not layer.weight.grad.numpy().any() for layer in (model.linear, model.offset_linear)]
    assert is_still == [what == "labels", True]  # the scores do not depend on them
    arrays = {name: batch[name].numpy() for name in ("labels", "instance_labels")}
    assert task.loss_normalizers(arrays)["offset"] == 0


class Oracle(paddle.nn.Layer):
    """Stands in for a trained network: what it says of a batch is what it was told."""

    def __init__(self, logits, offsets):
        super().__init__()
        self.logits, self.offsets = logits, offsets

    def forward(self, voxels, inverse, grouping):
        clusters = group_points(self.logits, self.offsets, grouping())
        sizes = np.diff(clusters.offsets).astype(np.float32)
        return PointGroupOutput(self.logits, self.offsets, clusters, paddle.to_tensor(sizes / sizes.max()))


def test_an_evaluation_writes_what_is_predicted(tmp_path):
    task = make_task("-eval", "-pretrained=x", "SAVE_PREDICTIONS", "true", *DENSE)
    batch = batch_alone(task)
    dataset = SyntheticRooms(None, "val", None, num_val=2, spacing_m=0.08)
    rooms = [dataset.read(i) for i in range(2)]
    outputs = [true_output(room, 0.02) for room in rooms]
    oracle = Oracle(*(paddle.concat(part) for part in zip(*outputs)))
    metrics = task.build_metrics()
    writer = SavedPredictions(
        get_aspect(task, Predictable).prediction_writer(tmp_path, task.build_samples(dataset, False)),
        tmp_path,
        range(2),
    )
    task.eval_step(oracle, batch, EvaluationStep(metrics, writer))
    assert metrics.compute(metrics.state)["AP50"] > 0.9
    assert "predicted_masks" in writer.finish()[0]
    for room in rooms:
        lines = (tmp_path / f"{room.name}.txt").read_text().splitlines()
        assert len(lines) > 3
        for line in lines:
            file, number, confidence = line.split()
            mask = np.array((tmp_path / file).read_bytes().split()) == b"1"
            own = room.semantic[mask]
            assert len(mask) == len(room.xyz) and mask.sum() >= 100
            assert NYU40_NUMBERS[own[0]] == int(number) and 0.5 < float(confidence) <= 1.0
        truth, predicted = (read_vertices(tmp_path / f"{room.name}_{kind}.ply") for kind in ("truth", "prediction"))
        for vertices in (truth, predicted):
            np.testing.assert_array_equal(np.stack([vertices[axis] for axis in "xyz"], axis=1), room.xyz, strict=True)
        same = np.mean([truth["red"] == predicted["red"], truth["green"] == predicted["green"]])
        assert same > 0.95  # a prediction has the color of the instance that it found
        image = np.asarray(Image.open(tmp_path / f"{room.name}.png"))
        assert image.shape[2] == 3 and len(np.unique(image.reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1]))) > 5


def test_a_prediction_is_the_classes_and_instances_of_each_scene():
    task = make_task(*DENSE)
    batch = batch_alone(task)
    rooms = [read_room("val", i, 0.08) for i in range(2)]
    oracle = Oracle(*(paddle.concat(part) for part in zip(*(true_output(room, 0.02) for room in rooms))))
    batch.update({name: paddle.full_like(batch[name], -100) for name in ("labels", "instance_labels")})
    for room, (classes, predictions) in zip(rooms, get_aspect(task, Predictable).predict_step(oracle, batch)):
        known = room.semantic >= 0
        assert len(classes) == len(room.xyz) and np.array_equal(classes[known], room.semantic[known])
        confidences = [prediction.confidence for prediction in predictions]
        assert len(predictions) > 3 and confidences == sorted(confidences, reverse=True)
        for prediction in predictions:
            assert (room.semantic[prediction.points] == prediction.class_number).all()


def test_a_prediction_of_outputs_that_are_not_finite_is_refused():
    task = make_task(*DENSE)
    batch = batch_alone(task)
    outputs = [true_output(read_room("val", i, 0.08), 0.02) for i in range(2)]
    outputs[1][0][5, 3] = float("nan")
    prediction = get_aspect(task, Predictable)
    oracle = Oracle(*(paddle.concat(part) for part in zip(*outputs)))
    first, second = prediction.predict_step(oracle, batch)
    assert prediction.prediction_rows(first)
    with pytest.raises(BadSample, match="the model's outputs for it are not finite"):
        prediction.prediction_rows(second)


@pytest.mark.parametrize("least", [None, 60])
def test_an_evaluation_counts_points_and_segments_of_each_scene(least):
    """Of a network that takes every seventh point for a class of stuff."""
    task = make_task("POINTS.INSTANCES.PANOPTIC_MIN_POINTS", str(least), *DENSE)
    batch = batch_alone(task)
    rooms = [read_room("val", i, 0.08) for i in range(2)]
    outputs = [true_output(room, 0.02) for room in rooms]
    for logits, _ in outputs:
        logits[::7] = paddle.to_tensor(np.eye(20, dtype=np.float32)[1])
    oracle = Oracle(*(paddle.concat(part) for part in zip(*outputs)))
    predicted, metrics = get_aspect(task, Predictable).predict_step(oracle, batch), task.build_metrics()
    records = task.eval_step(oracle, batch, EvaluationStep(metrics, keeps_records=True))()
    for number, (room, record, (classes, predictions)) in enumerate(zip(rooms, records, predicted, strict=True)):
        confusion = np.zeros((20, 20), np.int64)
        np.add.at(confusion, (room.semantic[room.semantic >= 0], classes[room.semantic >= 0]), 1)
        np.testing.assert_array_equal(record.confusion, confusion)
        assert record.matches is metrics.tables[number] and 0 < np.trace(confusion) < confusion.sum()
        if least is not None:
            combined = combine_segments(classes, predictions, THINGS)
            expected = count_segments(room.semantic, room.instance, *combined, THINGS, least)
            np.testing.assert_array_equal(metrics.segments[number][0], expected[0])
            np.testing.assert_allclose(metrics.segments[number][1], expected[1])
    values = metrics.compute(metrics.state)
    assert ("PQ" in values) == (least is not None) and values["points"] == sum(
        map(np.sum, (r.confusion for r in records))
    )


def test_images_show_the_instances_of_a_batch():
    task = make_task()
    samples = task.build_dataset("train", None)
    readings = [samples.sample(index, np.random.default_rng(index)) for index in (0, 2)]
    for reading in readings:  # a distortion moves voxels, but not the whole scene
        np.testing.assert_allclose(np.ptp(reading.voxels, axis=0) * 0.15, np.ptp(reading.scene.xyz, axis=0), rtol=0.5)
    drawing, rooms = get_aspect(task, Drawable), [samples.dataset.read(index) for index in (0, 2)]
    drawn = drawing.visualize_batch(samples, task.collate(readings), 1)
    drawn += drawing.visualize_eval_samples(samples, [0, 2])
    for (image, caption), scene in zip(drawn, [*(reading.scene for reading in readings), *rooms], strict=True):
        xyz = getattr(scene, "positions", scene.xyz)
        views = [draw_instances(xyz, scene.instance, 240), draw_classes(xyz, scene.semantic, task.class_names, 240)]
        np.testing.assert_array_equal(image, np.concatenate([fit_in_cell(view) for view in views], axis=1))
        assert caption == f"{len(xyz):,} points, {len(np.unique(scene.instance[scene.instance >= 0]))} instances"


def test_before_clusters_are_formed_an_evaluation_has_none():
    task = make_task("POINTS.INSTANCES.PREPARE_EPOCHS", "2")
    model, batch = model_and_batch(task, "val", (0,))
    model.eval()
    formed = []

    def watched(voxels, inverse, grouping):
        formed.append(grouping is not None)
        return model(voxels, inverse, grouping)

    for epoch in (2, 3, None):  # None: nothing is trained
        metrics = task.build_metrics()
        with paddle.no_grad():
            task.eval_step(watched, batch, EvaluationStep(metrics, epoch=epoch))
        assert metrics.compute(metrics.state)["points"] > 0
    assert formed == [False, True, True]


@pytest.mark.parametrize("with_scores", [True, False])
def test_outputs_in_half_precision_are_float32_from_then_on(with_scores):
    task = make_task()
    batch = batch_alone(task, (0,))
    halves = [paddle.to_tensor(values).astype("bfloat16") for values in ([[1.5, 2.0]], [[0.25, 1.0, 3.0]], [0.75])]
    output = PointGroupOutput(halves[0], halves[1], None, halves[2] if with_scores else None)
    found = task.forward(lambda *inputs: output, batch, task_module.HostPoints(batch), task_module.CENTERED)
    parts = [found.semantic_scores, found.offsets, *([found.scores] if with_scores else [])]
    assert [part.dtype for part in parts] == [paddle.float32] * (2 + with_scores)
    assert [part.tolist() for part in parts] == [[[1.5, 2.0]], [[0.25, 1.0, 3.0]], [0.75]][: 2 + with_scores]
    assert found.scores is None or with_scores


def test_what_cannot_be_trained_is_refused_in_one_line():
    with pytest.raises(UserError, match="STUFF_CLASSES"):
        make_task("POINTS.INSTANCES.STUFF_CLASSES", f"[{','.join(CLASS_NAMES)}]").build_dataset("train", None)
    with pytest.raises(UserError, match=r"STUFF_CLASSES names road, car; expected some of .* wall, floor, cabinet"):
        make_task("POINTS.INSTANCES.STUFF_CLASSES", "[road, floor, car]").build_dataset("train", None)


@pytest.mark.parametrize(
    "names, stuff, instances",
    [
        (CLASS_NAMES, None, range(2, 20)),
        (CLASS_NAMES, [], range(20)),
        (nuscenes.CLASS_NAMES, None, range(10)),  # as in nuscenes-devkit's panoptic evaluation
        (semantic_kitti.CLASS_NAMES, None, range(8)),  # as in semantic-kitti-api
        (["road", "car"], ["road"], [1]),
        (["road", "car"], [], [0, 1]),
    ],
)
def test_datasets_bring_their_classes_without_instances(names, stuff, instances):
    assert find_instance_classes(names, stuff) == list(instances)


@pytest.mark.parametrize(
    "stuff, said", [(None, "STUFF_CLASSES is not set, and the classes"), (["wall"], "names wall;")]
)
def test_unknown_classes_without_instances_are_refused(stuff, said):
    with pytest.raises(UserError, match=said):
        find_instance_classes(["road", "car"], stuff)


class Drawn(Exception):
    """Ends a step with the numbers that it has drawn."""


def test_each_batch_draws_its_own_numbers_also_on_another_rank_and_with_another_seed(monkeypatch):
    def forward(model, batch, points, shares, epoch, seed):
        raise Drawn(tuple(shares))

    def draw(seed=7, own_rank=0, **place):
        task = make_task(f"-seed={seed}")
        task.forward = forward
        monkeypatch.setattr(task_module, "rank", lambda: own_rank)
        with pytest.raises(Drawn) as caught:
            task.train_step(None, {}, StepPosition(1, **{"update": 3, "total_updates": 9, **place}))
        return caught.value.args[0]

    draws = [draw(), draw(seed=8), draw(own_rank=1), draw(update=4), draw(micro=1)]
    assert len(set(draws)) == 5 and draw() == draws[0]


def test_the_scale_of_scores_belongs_to_the_network_and_not_to_the_samples(monkeypatch):
    task = make_task("POINTS.INSTANCES.SCORE_SCALE", "40")
    assert task.signature()["POINTS.INSTANCES.SCORE_SCALE"] == 40
    monkeypatch.setattr(SceneTask, "signature", lambda self, samples=None: {})
    assert task.signature(object()) == {}
