"""Loss, center, head and six updates of self-distillation against the authors' own code, in float64 and float32."""

import contextlib
import functools
import math
import re
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks import golden

from paddlevit_dist import create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.engine.schedule import RateSchedule, ScaledRates
from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import StateKeeping
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.pretraining.self_distillation.losses import (
    distillation_losses,
    sharpen,
    teacher_temperature,
)
from paddlevit_dist.images.pretraining.self_distillation.network import HEAD, DistillationNetwork, ProjectionHead
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation
from paddlevit_dist.images.pretraining.self_distillation.teacher import DistillationState, TeacherKeeping

STORED, ARRAYS = golden.description("dino"), golden.arrays("dino")
SEED, LOSS, UPDATES = STORED["seed"], STORED["loss"], STORED["training"]
RANKS = [int(name.split("_")[1]) for name in STORED if re.fullmatch(r"loss_\d+_ranks", name)]
BETAS = (0.9, 0.999)
TEMPERATURES = (0.04, 0.05, 0.06, 0.07, 0.03, 0.02, 0.1)


class Method(NamedTuple):
    """What the description of the updates does not name; found among usual values by the numbers of each update."""

    heads: int
    batch: int
    views: int
    first: float  # temperature of the teacher
    last: float = 0.06
    warmup_epochs: int = 2
    clip: float | None = 0.3
    frozen_epochs: int = 1
    # The rate rises for one epoch.
    updates_per_epoch: int = 1 + int(np.argmax([update["rate"] for update in UPDATES]))


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def draw(key: str, shape: tuple[int, ...]) -> np.ndarray:
    return golden.recipe()._rng(SEED, key).standard_normal(shape)


def fill(layer: nn.Layer, shapes: dict, rename=lambda name: name) -> None:
    """Give a layer the weights of the recipe, whose linear ones are (out, in)."""
    state = layer.state_dict()
    for name, value in golden.weights(SEED, {key: tuple(shape) for key, shape in shapes.items()}).items():
        target = state[rename(name)]
        value = np.ones_like(value) if name.endswith("weight_g") else value
        is_linear = value.ndim == 2 and name.endswith(".weight")
        target.set_value((value.T if is_linear else value).astype(str(target.dtype).rpartition(".")[2]))


@pytest.fixture
def in_float64():
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


class Plain(nn.Layer):
    """A backbone without weights that match anything."""

    layer_names, key_maps, image_size, in_channels, embed_dim = None, {}, None, 3, 4

    def forward(self, x):
        return x


@pytest.mark.parametrize("ranks", RANKS)
def test_golden_losses_gradients_and_centers(ranks, in_float64):
    shapes = re.search(r"student \((\d+) \* (\d+), (\d+)\).*teacher \((\d+) \*", LOSS["shape"])
    student_rows, images, outputs, teacher_rows = map(int, shapes.groups())
    student_temperature, first, last, warmup, *_ = numbers(LOSS["temperatures"])
    keys = settings.load(["TASK", "self_distillation", "-dataset=digits"]).values.SELF_DISTILLATION
    keys = keys.clone()
    keys.defrost()
    keys.CENTER_MOMENTUM = numbers(LOSS["center"])[0]
    student, teacher = (DistillationNetwork(Plain(), ProjectionHead(4, 4, 4, outputs)) for _ in range(2))
    state = DistillationState(keys, student, teacher)
    for epoch, rows in enumerate(STORED[f"loss_{ranks}_ranks"]):
        for rank, (expected, expected_norm) in enumerate(rows):
            found = paddle.to_tensor(
                draw(f"student:{epoch}:{rank}", (student_rows * images, outputs)), stop_gradient=False
            )
            taught = paddle.to_tensor(draw(f"teacher:{epoch}:{rank}", (teacher_rows * images, outputs)))
            shares = sharpen(taught, state.center, teacher_temperature(first, last, int(warmup), epoch))
            state.collect(StepPosition(epoch, 0, 1, rank), taught, taught, shares)  # as micro-batches of one step
            loss = distillation_losses(found, shares, student_rows, student_temperature).mean()
            loss.backward()
            assert float(loss) == pytest.approx(expected, rel=1e-9)
            assert float(found.grad.norm()) == pytest.approx(expected_norm, rel=1e-9)
        state.update()
        center = ARRAYS[f"loss/{ranks}_ranks/center/{epoch}"].ravel()
        np.testing.assert_allclose(state.center.numpy(), center, rtol=1e-9, atol=1e-14)


def test_golden_head(in_float64):
    shapes = STORED["head_state"]
    width, in_features = shapes["mlp.0.weight"]
    outputs, bottleneck = shapes["last_layer.weight_v"]
    head = ProjectionHead(in_features, width, bottleneck, outputs)
    fill(head, shapes)
    rows = len(ARRAYS["head/output"])
    found = head(paddle.to_tensor(draw("head:input", (rows, in_features)))).numpy()
    np.testing.assert_allclose(found, ARRAYS["head/output"], rtol=1e-9, atol=1e-12)


class GivenViews(SelfDistillation):
    """Takes views that are normalized already."""

    def normalize(self, images):
        return images


def describe_network() -> dict[str, int]:
    shapes = STORED["training_state"]
    width, channels, patch, _ = shapes["backbone.patch_embed.proj.weight"]
    hidden, _ = shapes["head.mlp.0.weight"]
    outputs, bottleneck = shapes["head.last_layer.weight_v"]
    depth = 1 + max(int(name.split(".")[2]) for name in shapes if name.startswith("backbone.blocks."))
    side = patch * math.isqrt(shapes["backbone.pos_embed"][1] - 1)
    return {
        "EMBED_DIM": width, "PATCH_SIZE": patch, "DEPTH": depth, "size": side, "channels": channels,
        "HEAD_WIDTH": hidden, "BOTTLENECK": bottleneck, "OUTPUTS": outputs,
        "MLP_RATIO": shapes["backbone.blocks.0.mlp.fc1.weight"][0] // width,
    }  # fmt: skip


def find_start() -> Method:
    """Find heads, images of a batch, views and temperature by the first center and the first loss."""
    sizes = describe_network()
    width, first = sizes["EMBED_DIM"], UPDATES[0]
    for heads in sorted((n for n in range(1, width + 1) if width % n == 0), key=lambda n: abs(width / n - 16)):
        network = build_network(heads)
        for batch in (4, 2, 3, 5, 6, 8, 1, 7, *range(9, 17)):
            taught = network(paddle.to_tensor(np.concatenate([view(0, n, batch) for n in range(2)])), is_projected=True)
            if not math.isclose(0.1 * float(taught.mean(axis=0).norm()), first["center_norm"], rel_tol=1e-7):
                continue
            for views in range(2, 13):
                every = paddle.to_tensor(np.concatenate([view(0, n, batch) for n in range(views)]))
                outputs = network(every, is_projected=True)
                for temperature in TEMPERATURES:
                    shares = sharpen(taught, paddle.zeros([sizes["OUTPUTS"]]), temperature)
                    loss = distillation_losses(outputs, shares, views, 0.1).mean()
                    if math.isclose(float(loss), first["loss"], rel_tol=1e-7):
                        return Method(heads, batch, views, temperature)
    raise AssertionError("no number of heads, images and views has the first loss")


def find_method() -> Method:
    """Find the rest, first what changes the second update, by the number of updates that are right."""
    start = find_start()
    kept = [start]
    for names, choices in (
        (("clip", "frozen_epochs"), product((0.3, 0.1, 0.5, 1.0, 2.0, 3.0, None), (1, 0, 2, 3))),
        (("last", "warmup_epochs"), product(TEMPERATURES, (0, 1, 2, 3, 4))),
    ):
        tried = [*kept, *(kept[0]._replace(**dict(zip(names, values))) for values in choices)]
        kept = [kept[0]] if count_right(kept[0]) == len(UPDATES) else [max(tried, key=count_right)]
    return kept[0]


@functools.cache
def count_right(method: Method) -> int:
    """Return how many updates have the stored numbers."""
    right: list[int] = []
    with contextlib.suppress(AssertionError):
        train("float64", method, right.append)
    return len(right)


def view(update: int, number: int, batch: int) -> np.ndarray:
    sizes = describe_network()
    return draw(f"views:{update}:{number}", (batch, sizes["channels"], sizes["size"], sizes["size"]))


def build_network(heads: int) -> DistillationNetwork:
    sizes = describe_network()
    options = {name.lower(): sizes[name] for name in ("EMBED_DIM", "PATCH_SIZE", "DEPTH", "MLP_RATIO")}
    backbone = create_model(
        "vit", num_classes=0, image_size=sizes["size"], num_heads=heads, in_channels=sizes["channels"], **options
    )
    head = ProjectionHead(backbone.embed_dim, *(sizes[name] for name in ("HEAD_WIDTH", "BOTTLENECK", "OUTPUTS")))
    network = DistillationNetwork(backbone, head)
    fill(network, STORED["training_state"], own_name)
    return network


def own_name(name: str) -> str:
    return name.removeprefix("backbone.") if name.startswith("backbone.") else f"{HEAD}.{name.removeprefix('head.')}"


def build_task(method: Method) -> GivenViews:
    sizes = describe_network()
    words = ["TASK", "self_distillation", "-dataset=digits", "DATA.IMAGE_SIZE", str(sizes["size"])]
    words += ["DATA.IMAGE_CHANNELS", str(sizes["channels"]), "MODEL.NUM_HEADS", str(method.heads)]
    for name in ("EMBED_DIM", "PATCH_SIZE", "DEPTH", "MLP_RATIO"):
        words += [f"MODEL.{name}", str(sizes[name])]
    own = {name: sizes[name] for name in ("HEAD_WIDTH", "BOTTLENECK", "OUTPUTS")}
    own |= {"SMALL_VIEWS": method.views - 2, "SMALL_SIZE": sizes["size"], "FROZEN_EPOCHS": method.frozen_epochs}
    own |= {"TEACHER_TEMPERATURES": f"({method.first},{method.last})"}
    own |= {"TEMPERATURE_WARMUP_EPOCHS": method.warmup_epochs, "TEACHER_MOMENTUM": UPDATES[0]["momentum"]}
    for name, value in own.items():
        words += [f"SELF_DISTILLATION.{name}", str(value)]
    return GivenViews(settings.load(words).values)


def train(dtype: str, method: Method, count: Callable[[int], None] = lambda update: None) -> DistillationState:
    """Make the updates by the engine's own step; compare what is stored of each, and count it if it is right."""
    batch, views = method.batch, method.views
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    paddle.set_default_dtype(dtype)
    task = build_task(method)
    model = task.build_model()
    fill(model, STORED["training_state"], own_name)
    keeping = get_aspect(task, StateKeeping)
    assert isinstance(keeping, TeacherKeeping)
    state, total = keeping.build_state(model, None), len(UPDATES)
    start, cosine = UPDATES[0]["decay"], (1 + math.cos(math.pi / total)) / 2
    end = (UPDATES[1]["decay"] - start * cosine) / (1 - cosine)
    schedule = RateSchedule("constant", ScaledRates(1.0, 0.0, 0.0), total)
    chosen = settings.load([]).values.TRAIN.OPTIMIZER
    assert tuple(chosen.BETAS) == BETAS
    optimizer = build_optimizer(
        chosen, model, None, start, decay_factor=lambda: schedule.weight_decay(start, end) / start
    )
    step = TrainStep(
        task, model, optimizer, TrainingPrecision(False), seed=0, samples_per_update=batch, accumulation_steps=1,
        gradient_clip=method.clip, clips_each=True, average=state.average, own=state,
    )  # fmt: skip
    norms: list[float] = []
    trained = [p for p in model.parameters() if not p.stop_gradient]
    step.before_clipping = lambda: norms.append(max(float(p.grad.norm()) for p in with_gradient(trained)))
    for update, expected in enumerate(UPDATES):
        arrays = [view(update, number, batch).astype(dtype) for number in range(views)]
        tensors = {"images": paddle.to_tensor(np.concatenate(arrays[:2]))}
        if views > 2:
            tensors["small"] = paddle.to_tensor(np.concatenate(arrays[2:]))
        position = StepPosition(1 + update // method.updates_per_epoch, update, total)
        assert schedule.weight_decay(start, end) == pytest.approx(expected["decay"], rel=1e-9)
        (terms,) = step([tensors], position, expected["rate"])
        schedule.count_update()
        assert float(terms["loss"].sum) / batch == pytest.approx(expected["loss"], rel=tolerance)
        assert state.average.kept == pytest.approx(expected["momentum"], rel=1e-9)
        found = float(state.center.norm()), norm_of(model), norm_of(state.teacher)
        stored = expected["center_norm"], expected["student_norm"], expected["teacher_norm"]
        assert found == pytest.approx(stored, rel=tolerance)
        if (
            method.clip is not None and update >= method.updates_per_epoch * method.frozen_epochs
        ):  # before, the last layer's gradients are gone by now
            assert norms[-1] == pytest.approx(expected["largest_gradient_norm"], rel=max(tolerance, 1e-9))
        count(update)
    return state


def with_gradient(parameters):
    return [parameter for parameter in parameters if parameter._grad_ivar() is not None]


def norm_of(network) -> float:
    return math.sqrt(sum(float((tensor.astype("float64") ** 2).sum()) for tensor in network.parameters()))


@pytest.fixture(scope="module")
def method() -> Method:
    paddle.set_default_dtype("float64")
    found = find_method()
    paddle.set_default_dtype("float32")
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_golden_six_updates(dtype, method, in_float64):
    state = train(dtype, method)
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    networks = {"student": state.average.student, "teacher": state.teacher}
    scale = max(1.0, float(np.abs(ARRAYS["training/center"]).max()))
    np.testing.assert_allclose(
        state.center.numpy(), ARRAYS["training/center"].ravel(), rtol=tolerance, atol=tolerance * scale
    )
    compared = 0
    for key, expected in ARRAYS.items():
        _, kind, name = [*key.split("/"), ""][:3]
        if kind not in networks:
            continue
        found = networks[kind].state_dict()[own_name(name)].numpy()
        is_linear = expected.ndim == 2 and name.endswith(".weight")
        found = found.T if is_linear else found
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * float(np.abs(expected).max()))
        compared += 1
    assert compared == sum(key.startswith(("training/student/", "training/teacher/")) for key in ARRAYS)
