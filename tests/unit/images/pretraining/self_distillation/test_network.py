"""Positions of small views by brute force, families of networks, and what another task takes of the weights."""

import math

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import StateKeeping
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation

SWIN = "swin_tiny_patch4_window7_224"
HEAD = "SELF_DISTILLATION.OUTPUTS 8 SELF_DISTILLATION.HEAD_WIDTH 8 SELF_DISTILLATION.BOTTLENECK 4".split()
VIT = "MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 8 MODEL.DEPTH 1 MODEL.NUM_HEADS 2".split()


def build(*words: str, size: int = 20, small: int = 12) -> SelfDistillation:
    common = ["TASK", "self_distillation", "-dataset=digits", f"-image_size={size}", "DATA.IMAGE_CHANNELS", "1"]
    return SelfDistillation(settings.load([*common, *HEAD, "SELF_DISTILLATION.SMALL_SIZE", str(small), *words]).values)


def cubic(distance: float, a: float = -0.75) -> float:
    """The kernel of R. Keys, 1981, equation 4."""
    distance = abs(distance)
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * (distance**3 - 5 * distance**2 + 8 * distance - 4) if distance < 2 else 0.0


def resize_by_loops(table: np.ndarray, side: int) -> np.ndarray:
    """Resize (rows, columns, width) to a square as DINO does: a scale of (side + 0.1) / rows, borders repeated."""
    rows, columns, width = table.shape
    scale = (side + 0.1) / rows
    resized = np.zeros((side, side, width))
    for row in range(side):
        for column in range(side):
            y, x = (row + 0.5) / scale - 0.5, (column + 0.5) / scale - 0.5
            for i in range(math.floor(y) - 1, math.floor(y) + 3):
                for j in range(math.floor(x) - 1, math.floor(x) + 3):
                    weight = cubic(y - i) * cubic(x - j)
                    resized[row, column] += weight * table[min(max(i, 0), rows - 1), min(max(j, 0), columns - 1)]
    return resized


def test_positions_of_small_views_are_resized_as_by_the_authors():
    model = build(*VIT).build_model()
    table = model.backbone.pos_embed
    table.set_value(np.random.default_rng(0).standard_normal(table.shape).astype(np.float32))
    expected = resize_by_loops(table.numpy()[0, 1:].reshape(5, 5, 8), 3).reshape(9, 8)
    found = model.backbone.resample_positions((3, 3))
    np.testing.assert_allclose(found.numpy()[0, 1:], expected, atol=1e-5)
    np.testing.assert_array_equal(found.numpy()[0, 0], table.numpy()[0, 0])
    assert model.backbone.resample_positions((5, 5)) is table
    model(paddle.zeros([1, 1, 20, 20]), paddle.randn([2, 1, 12, 12]), is_projected=True).sum().backward()
    assert float(table.grad.abs().sum()) > 0


@pytest.mark.parametrize(
    "words",
    [
        VIT,
        f"MODEL.NAME {SWIN} MODEL.EMBED_DIM 8 MODEL.STAGE_DEPTHS [1,2] MODEL.NUM_HEADS [1,2]".split(),
        "MODEL.NAME convnext_tiny MODEL.DIMS [4,8,8,8] MODEL.DEPTHS [1,1,1,1]".split(),
        "MODEL.NAME resnet18 MODEL.DEPTHS [1,1] MODEL.DIMS [4,8]".split(),
        "MODEL.NAME hgnetv2_b0 MODEL.DIMS [16,24,32,40]".split(),
    ],
    ids=lambda words: words[1],
)
def test_each_family_takes_both_sizes_and_its_weights_fit_a_classifier(words):
    task = build(*words, size=64, small=32)
    model = task.build_model()
    assert model.training
    outputs = model(paddle.randn([2, 1, 64, 64]), paddle.randn([3, 1, 32, 32]), is_projected=True)
    assert outputs.shape == [5, 8]
    outputs.square().sum().backward()
    unused = [name for name, p in model.named_parameters() if not p.stop_gradient and p._grad_ivar() is None]
    assert unused == []
    model.eval()
    assert not model.backbone.training and not any(layer.training for layer in model.sublayers())
    images = paddle.randn([2, 1, 64, 64])
    features = model(images)
    assert features.shape == [2, model.embed_dim]
    model.train()
    assert model.backbone.training and all(layer.training for layer in model.sublayers())


def test_a_network_of_one_size_is_refused_unless_there_are_no_small_views():
    mixer = "MODEL.NAME mixer_b16_224 MODEL.EMBED_DIM 8 MODEL.DEPTH 1".split()
    with pytest.raises(UserError, match=r"mixer_b16_224 does not take views of 16 pixels .*SMALL_VIEWS 0"):
        build(*mixer, size=32, small=16).build_model()
    model = build(*mixer, "SELF_DISTILLATION.SMALL_VIEWS", "0", size=32).build_model()
    assert model(paddle.zeros([2, 1, 32, 32]), is_projected=True).shape == [2, 8]


@pytest.mark.parametrize("size", [20, 12])
def test_an_error_of_our_own_is_not_taken_for_a_wrong_size(size):
    class Mistaken(SelfDistillation):
        def create_network(self, num_classes):
            model = super().create_network(num_classes)
            forward = model.backbone.forward
            model.backbone.forward = lambda images: images.no_such_name if images.shape[-1] == size else forward(images)
            return model

    with pytest.raises(AttributeError, match="no_such_name"):
        Mistaken(build(*VIT).config).build_model()


def test_a_size_that_a_network_refuses_gives_its_reason():
    mixer = "MODEL.NAME mixer_b16_224 MODEL.EMBED_DIM 8 MODEL.DEPTH 1".split()
    with pytest.raises(UserError, match=r"SELF_DISTILLATION.SMALL_SIZE .*it says: .+\)$") as raised:
        build(*mixer, size=32, small=16).build_model()
    assert "\n" not in str(raised.value)


def test_without_classes_the_last_weights_are_the_best(tmp_path):
    classes = ["-dataset=unlabeled", f"-data_path={tmp_path}", "PRETRAINING.LABELED_PATH", "labeled"]
    assert build(*classes).traits.takes_last == build().traits.takes_last == ""
    none = ["-dataset=unlabeled", f"-data_path={tmp_path}", "DATA.VAL_FRACTION", "0.5"]
    assert "PRETRAINING.LABELED_PATH" in build(*none).traits.takes_last
    patience = ("TRAIN.PATIENCE", "2", "-epochs=8")
    assert build(*classes, *patience).traits.takes_last == ""
    with pytest.raises(UserError, match=r"TRAIN.PATIENCE 2: .*PRETRAINING.LABELED_PATH"):
        build(*none, *patience)
    build(*none, *patience, "-eval", "-pretrained=x")


@pytest.mark.parametrize(
    "words, key",
    [
        ("TRAIN.MODEL_EMA True", "TRAIN.MODEL_EMA"),
        ("TRAIN.LORA.RANK 2 -pretrained=x", "TRAIN.LORA.RANK"),
        ("SELF_DISTILLATION.SMALL_SCALE [0.5,0.2]", "SELF_DISTILLATION.SMALL_SCALE"),
        ("SELF_DISTILLATION.FROZEN_EPOCHS 3 -epochs=3", "SELF_DISTILLATION.FROZEN_EPOCHS"),
    ],
)
def test_settings_that_contradict_the_method_are_refused(words, key):
    with pytest.raises(UserError, match=key):
        build(*VIT, *words.split())


def find_momenta(network) -> set[float]:
    return {round(layer._momentum, 6) for layer in network.sublayers() if isinstance(layer, paddle.nn.BatchNorm2D)}


def test_statistics_that_the_student_keeps_are_the_teachers():
    sizes = ["MODEL.DEPTHS", "[1,1]", "MODEL.DIMS", "[4,8]", "TRAIN.BATCH_NORM_MOMENTUM", "0.4"]
    task = build("MODEL.NAME", "resnet18", *sizes, size=32, small=16)
    student = task.build_model()
    student.bn1._use_global_stats = True
    teacher = get_aspect(task, StateKeeping).build_state(student, None).teacher
    before = {name: value.numpy() for name, value in teacher.state_dict().items() if name.endswith("._mean")}
    teacher(paddle.randn([4, 1, 32, 32]))
    changed = {name for name, value in before.items() if (teacher.state_dict()[name].numpy() != value).any()}
    assert changed == before.keys() - {"bn1._mean"} and "bn1._mean" in before
    assert find_momenta(teacher) == {0.4}


def test_a_teacher_without_a_setting_keeps_the_momentum_of_its_norms():
    task = build("MODEL.NAME", "resnet18", "MODEL.DEPTHS", "[1,1]", "MODEL.DIMS", "[4,8]", size=32, small=16)
    assert find_momenta(task.create_network(0)) == find_momenta(task.create_teacher()) == {0.9}


def test_positions_of_weights_for_another_size_are_resized_like_the_backbones():
    models = [build(*VIT, "SELF_DISTILLATION.SMALL_VIEWS", "0", size=size).build_model() for size in (20, 28)]
    expected = models[1].backbone.resample_parameter("pos_embed", models[0].pos_embed.numpy(), None)
    report = load_weights(models[1], models[0].state_dict())
    assert report.resized == ["pos_embed"] and expected.shape == (1, 50, 8)
    np.testing.assert_array_equal(models[1].pos_embed.numpy(), expected)
