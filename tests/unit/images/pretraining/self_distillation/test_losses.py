"""Loss by its definition, pair by pair, and signs of a collapse."""

import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.thread_ranks import acting_as

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import StateKeeping
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.pretraining.self_distillation.losses import (
    deviation,
    distillation_losses,
    entropies,
    sharpen,
    teacher_momentum,
    teacher_temperature,
)
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation
from paddlevit_dist.images.pretraining.self_distillation.teacher import DistillationState, TeacherAverage

WORDS = "TASK self_distillation -image_size=16 MODEL.NAME vit MODEL.PATCH_SIZE 8 MODEL.EMBED_DIM 8 MODEL.DEPTH 1"
WORDS += " MODEL.NUM_HEADS 2 SELF_DISTILLATION.OUTPUTS 6 SELF_DISTILLATION.HEAD_WIDTH 4 SELF_DISTILLATION.BOTTLENECK 4"
WORDS += " SELF_DISTILLATION.SMALL_VIEWS 2 SELF_DISTILLATION.TEACHER_TEMPERATURES [0.1,0.1]"


def softmax(rows: np.ndarray) -> np.ndarray:
    powers = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("views", "spread"), [(2, 1), (5, 1), (5, 9)])  # 9: logarithms go down to some -400
def test_the_loss_of_an_image_is_the_mean_over_pairs_of_other_views(views, spread):
    generator = np.random.default_rng(0)
    student, taught = spread * generator.standard_normal((views, 3, 7)), generator.standard_normal((2, 3, 7))
    center = generator.standard_normal(7)
    targets, logs = softmax((taught - center) / 0.05), np.log(softmax(student / 0.1))
    pairs = [(q, v) for q in range(2) for v in range(views) if q != v]
    expected = [np.mean([-(targets[q, i] * logs[v, i]).sum() for q, v in pairs]) for i in range(3)]
    shares = sharpen(paddle.to_tensor(taught.reshape(6, 7)), paddle.to_tensor(center), 0.05)
    found = distillation_losses(paddle.to_tensor(student.reshape(views * 3, 7)), shares, views, 0.1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
    rows = -(targets * np.log(targets)).sum(axis=-1).ravel()
    np.testing.assert_allclose(entropies(shares).numpy(), rows, rtol=1e-9)


def test_temperature_and_momentum_follow_their_course():
    assert [teacher_temperature(0.04, 0.07, 4, epoch) for epoch in range(6)] == pytest.approx(
        [0.04, 0.05, 0.06, 0.07, 0.07, 0.07]
    )
    assert teacher_temperature(0.04, 0.07, 0, 0) == 0.07 and teacher_temperature(0.04, 0.07, 1, 0) == 0.04
    found = [teacher_momentum(0.9, update, 4) for update in range(6)]
    assert found == pytest.approx([1 - 0.05 * (1 + math.cos(math.pi * min(u, 4) / 4)) for u in range(6)])


@pytest.mark.parametrize(("momentum", "updates", "share"), [(0.996, 100, "82%"), (0.9, 40, "14%"), (1.0, 9, "100%")])
def test_a_teacher_that_hardly_leaves_its_first_weights_is_reported(momentum, updates, share):
    kept = math.prod(teacher_momentum(momentum, update, updates) for update in range(updates))
    assert f"{kept:.0%}" in (share, f"{float(share[:-1]) / 100 - 0.02:.0%}")  # the estimate is a little higher
    network = paddle.nn.Linear(1, 1)

    def describe(value: float) -> str:
        return TeacherAverage(network, paddle.nn.Linear(1, 1), None, value).describe_first_weights(updates)

    line = describe(momentum)
    assert "SELF_DISTILLATION.TEACHER_MOMENTUM" in line and f"{updates} update(s): {share}" in line
    assert describe(float(line.split()[-2])) == ""  # what it says fits


def test_the_deviation_is_one_for_random_directions_and_zero_for_equal_ones():
    generator = np.random.default_rng(0)
    rows = paddle.to_tensor(generator.standard_normal((4000, 16)))
    assert float(deviation(rows)) == pytest.approx(1.0, abs=0.02)
    assert float(deviation(paddle.ones([5, 16]))) == pytest.approx(0.0, abs=1e-6)
    lengths = paddle.to_tensor(generator.uniform(1, 9, (4000, 1)))
    assert float(deviation(rows * lengths)) == pytest.approx(float(deviation(rows)), rel=1e-9)


@pytest.mark.parametrize(
    "entropy, information, word",
    [
        (3.0, 0.2, ""),
        (math.log(64), 0.0005, "uniform"),
        (0.0, 0.0, "the same for all images"),
        (1.0, 0.001, "the same for all images"),
        (math.nan, 0.0, ""),
    ],
)
def test_a_collapse_is_described(entropy, information, word):
    state = SimpleNamespace(center=np.zeros(64))
    text = DistillationState.describe_collapse(state, (entropy, information))
    assert word in text and bool(text) == bool(word)


def make_state(*more: str) -> DistillationState:
    words = "TASK self_distillation -image_size=16 MODEL.NAME vit MODEL.PATCH_SIZE 8 MODEL.EMBED_DIM 8 MODEL.DEPTH 1 "
    words += (
        "MODEL.NUM_HEADS 2 SELF_DISTILLATION.OUTPUTS 6 SELF_DISTILLATION.HEAD_WIDTH 4 SELF_DISTILLATION.BOTTLENECK 4"
    )
    task = SelfDistillation(settings.load([*words.split(), *more]).values)
    return DistillationState(task.config.SELF_DISTILLATION, task.create_network(0), task.create_teacher())


def test_signs_are_the_mutual_information_of_images_and_outputs_in_good_steps():
    generator, state, expected = np.random.default_rng(0), make_state(), []
    state.before_update(StepPosition(1, 44, 99))
    for is_bad in (False, True, False):
        shares = softmax(2 * generator.standard_normal((12, 6)))
        for micro, rows in enumerate(np.split(paddle.to_tensor(shares.astype("float32")).numpy(), 3)):
            rows = paddle.to_tensor(rows)
            state.collect(StepPosition(1, 0, 1, micro), rows, rows, rows)
        state.update(paddle.to_tensor([is_bad]))
        if not is_bad:
            joint = shares / 12  # of an image and an output
            independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
            expected.append((-(joint * np.log(shares)).sum(), (joint * np.log(joint / independent)).sum()))
    assert state.take_signs() == pytest.approx(np.mean(expected, axis=0), rel=1e-5)
    rows = paddle.to_tensor(shares[:4].astype("float32"))  # of two images
    state.collect(StepPosition(1, 0, 1), rows, rows, rows)
    state.update(None)
    assert state.take_signs() is None


@pytest.mark.parametrize(("momentum", "first"), [(0.9, 44), (0.999, 500), (0.0, 0)])
def test_signs_count_once_the_center_is_that_of_the_outputs(momentum, first):
    state = make_state("SELF_DISTILLATION.CENTER_MOMENTUM", str(momentum))
    for update in range(max(0, first - 1), first + 1):
        state.before_update(StepPosition(1, update, 999))
        state.collect(StepPosition(1, 0, 1), *[paddle.ones([8, 6]) / 6] * 3)
        state.update(None)
        assert (state.take_signs() is None) == (update < first)


def test_student_and_teacher_exchange_weights_and_statistics():
    words = [*WORDS.split()[:3], *"MODEL.NAME resnet18 MODEL.DEPTHS [1,1] MODEL.DIMS [4,8]".split()]
    task = SelfDistillation(settings.load([*words, *WORDS[WORDS.index("SELF") :].split()]).values)
    average = DistillationState(task.config.SELF_DISTILLATION, task.create_network(0), task.create_teacher()).average
    networks = average.student, average.teacher
    for number, network in enumerate(networks):
        for name, tensor in network.state_dict().items():
            tensor.set_value(np.full(tensor.shape, number + len(name) / 100, tensor.numpy().dtype))
    for swapped in (1, 0):
        average.exchange()
        for number, network in enumerate(networks):
            state = network.state_dict()
            expected = {name: (number != swapped) + len(name) / 100 for name in state}
            assert {name: float(tensor.numpy().flat[0]) for name, tensor in state.items()} == pytest.approx(expected)
            assert "bn1._mean" in state


def test_a_rank_saves_the_weights_that_it_owns_of_the_teacher():
    task = SelfDistillation(settings.load(WORDS.split()).values)
    owned = {"norm.weight", "pretraining_head.last_layer.weight_v"}
    keys = task.config.SELF_DISTILLATION
    states = [
        DistillationState(keys, task.create_network(0), task.create_teacher(), *more).average.state_dict()
        for more in ((owned,), ())
    ]
    assert states[0].keys() == owned < states[1].keys()


@pytest.fixture
def taught():
    """A task with a warm-up of the temperature, its student, and its state with another teacher and center."""
    paddle.seed(0)
    words = [*WORDS.split()[:-1], "[0.05,0.2]", "SELF_DISTILLATION.TEMPERATURE_WARMUP_EPOCHS", "3"]
    task = SelfDistillation(settings.load([*words, "SELF_DISTILLATION.SMALL_SIZE", "8"]).values)
    model = task.create_network(0)
    state = get_aspect(task, StateKeeping).build_state(model, None)
    generator = np.random.default_rng(0)
    for parameter in state.teacher.parameters():
        parameter.set_value(parameter + paddle.to_tensor(generator.normal(0, 0.2, parameter.shape), parameter.dtype))
    state.center.set_value(generator.normal(0, 0.1, 6).astype("float32"))
    batch = {
        name: generator.integers(0, 255, (6, 3, side, side), np.uint8) for name, side in (("images", 16), ("small", 8))
    }
    return task, model, state, {name: paddle.to_tensor(value) for name, value in batch.items()}


def test_terms_of_a_step_are_the_definitions_of_both_networks_outputs(taught):
    task, model, state, batch = taught
    large, small = task.normalize(batch["images"]), task.normalize(batch["small"])
    student = model(large, small, is_projected=True).numpy().reshape(4, 3, 6)
    features, outputs = (each.numpy() for each in state.teach(large))
    shares = softmax((outputs - state.center.numpy()) / 0.125).reshape(2, 3, 6)  # the second of three steps
    logs = np.log(softmax(student / 0.1))
    expected = [-(shares[q] * logs[v]).sum() for q in range(2) for v in range(4) if q != v]
    terms = task.train_step(model, batch, StepPosition(2, 7, 9))
    assert {name: (float(term.count), term.weight) for name, term in terms.items()} == {
        "loss": (3, 1.0), "entropy": (6, 0.0), "deviation": (3, 0.0)
    }  # fmt: skip
    assert float(terms["loss"].sum) == pytest.approx(np.sum(expected) / 6, rel=1e-4)
    assert float(terms["entropy"].sum) == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-4)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert float(terms["deviation"].sum) == pytest.approx(3 * unit.std(axis=0).mean() * math.sqrt(8), rel=1e-4)


def test_an_evaluation_predicts_outputs_for_whole_images_from_a_view(taught):
    task, model, _, batch = taught
    features = model(task.normalize(batch["images"]))
    outputs = model.pretraining_head(features).numpy()
    shares, logs = softmax(outputs[:3] / 0.2), np.log(softmax(outputs[3:] / 0.1))
    seen = []
    metrics = SimpleNamespace(update=lambda *given: seen.append(given))
    labels = paddle.to_tensor([2, 0, 1])
    for task.has_classes in (True, False):
        step = SimpleNamespace(metrics=metrics, keeps_records=task.has_classes)
        records = task.eval_step(model, {**batch, "labels": labels}, step)
        numbers, of_whole, given = seen.pop()
        losses = -(shares * logs).sum(axis=1)
        np.testing.assert_allclose(numbers["loss"].numpy(), losses, rtol=1e-4)
        np.testing.assert_allclose(numbers["entropy"].numpy(), -(shares * np.log(shares)).sum(axis=1), rtol=1e-4)
        assert given is labels and (of_whole is None) != task.has_classes
        if task.has_classes:
            np.testing.assert_allclose(of_whole.numpy(), features.numpy()[:3], rtol=1e-5)
            assert records() == pytest.approx(losses.tolist(), rel=1e-4)
        else:
            assert records is None


@pytest.mark.parametrize("is_bad", [None, False, True])
def test_a_step_moves_teacher_and_center_by_their_momentum_unless_it_is_bad(taught, is_bad):
    task, model, state, batch = taught
    before = {name: value.numpy() for name, value in state.teacher.named_parameters()}
    center, means = state.center.numpy(), []
    for micro in range(2):
        task.train_step(model, batch, StepPosition(1, 2, 8, micro))
        means.append(state.teach(task.normalize(batch["images"]))[1].numpy().mean(axis=0))
        batch = {name: value[::-1] + 5 for name, value in batch.items()}
    position = StepPosition(1, 2, 8)
    state.before_update(position)
    bad = None if is_bad is None else paddle.to_tensor([is_bad])
    state.update(bad)
    state.average.update(bad)
    keys = task.config.SELF_DISTILLATION
    kept = 1 - (1 - keys.TEACHER_MOMENTUM) * (math.cos(math.pi * 2 / 8) + 1) / 2
    moved = 0.0 if is_bad else 1 - kept
    for (name, found), (_, student) in zip(state.teacher.named_parameters(), model.named_parameters()):
        share = 0.0 if student.stop_gradient else moved  # the norms of the last layer are fixed
        expected = before[name] + share * (student.numpy() - before[name])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6, err_msg=name)
    share = 0.0 if is_bad else 1 - keys.CENTER_MOMENTUM
    np.testing.assert_allclose(state.center.numpy(), center + share * (np.mean(means, axis=0) - center), atol=1e-6)


def test_the_center_moves_toward_the_mean_over_ranks_that_have_all_arrived(taught, other_paddle):
    task, model, state, batch = taught
    task.train_step(model, batch, StepPosition(1, 2, 8))
    center, mean = state.center.numpy(), state.teach(task.normalize(batch["images"]))[1].numpy().mean(axis=0)
    arrivals = []

    def add(tensor: paddle.Tensor) -> None:  # another rank has twice these outputs
        assert arrivals == ["all"]
        tensor.set_value(3 * tensor)

    other_paddle({"distributed.all_reduce": add})
    with acting_as(1, 2, SimpleNamespace(wait_for_all=lambda: arrivals.append("all"))):
        state.update(None)
    share = 1 - task.config.SELF_DISTILLATION.CENTER_MOMENTUM
    np.testing.assert_allclose(state.center.numpy(), center + share * (1.5 * mean - center), atol=1e-6)


def test_a_new_run_begins_with_the_students_weights_and_a_center_of_zero(taught):
    _, model, state, _ = taught
    assert state.center.numpy().all()
    state.restart()
    state.average.restart()
    assert not state.center.numpy().any()
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(state.teacher.state_dict()[name].numpy(), value.numpy(), err_msg=name)


def test_a_teacher_takes_saved_weights_of_its_names_and_shapes(taught):
    average, random = taught[2].average, np.random.default_rng(1)
    saved = {name: random.normal(size=tensor.shape).astype("float32") for name, tensor in average.state_dict().items()}
    average.load_state_dict(saved)
    for name, tensor in average.teacher.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), saved[name], err_msg=name)
    with pytest.raises(ValueError, match="^the teacher's weights do not fit: norm.weight is "):
        average.load_state_dict({**saved, "norm.weight": np.zeros((8, 2))})


@pytest.mark.parametrize("epoch", [1, 2])
def test_the_last_layer_learns_after_its_frozen_epochs(taught, epoch):
    task, model, state, batch = taught
    assert task.config.SELF_DISTILLATION.FROZEN_EPOCHS == 1
    task.train_step(model, batch, StepPosition(epoch, 2, 8))["loss"].sum.backward()
    state.before_update(StepPosition(epoch, 2, 8))
    without = {name for name, p in model.named_parameters() if not p.stop_gradient and p._grad_ivar() is None}
    assert without == ({"pretraining_head.last_layer.weight_v"} if epoch == 1 else set())


class HalfOutputs(SelfDistillation):
    """Has networks with features and outputs in half precision, as products have on a GPU."""

    def _create(self, options):
        network = super()._create(options)
        for layer in (network.backbone, network.pretraining_head):
            forward = layer.forward
            layer.forward = lambda x, forward=forward: forward(x.astype("float32")).astype("float16")
        return network


def test_loss_and_center_of_half_outputs_are_float32():
    found = []
    for kind in (SelfDistillation, HalfOutputs):
        paddle.seed(0)
        task = kind(settings.load(WORDS.split()).values)
        model = task.create_network(0)
        state = get_aspect(task, StateKeeping).build_state(model, None)
        generator = np.random.default_rng(0)
        views = [generator.integers(0, 255, (4, 3, 16, 16)).astype(np.uint8) for _ in range(2)]
        batch = {"images": paddle.to_tensor(np.concatenate(views))}
        terms = task.train_step(model, {**batch, "small": batch["images"]}, StepPosition(1, 0, 9))
        state.update(None)
        assert {term.sum.dtype for term in terms.values()} == {state.center.dtype} == {paddle.float32}
        found.append([float(terms["loss"].sum), *state.center.tolist()])
    assert found[0] != found[1] and found[0] == pytest.approx(found[1], rel=0.02, abs=1e-4)
