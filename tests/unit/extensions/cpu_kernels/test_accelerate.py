"""When layers are fast: on which tensors and parameters, in which mode, and unless they are disabled."""

import paddle
import pytest

from paddlevit_dist.extensions.cpu_kernels import accelerate as accelerate_module
from paddlevit_dist.extensions.cpu_kernels import memory
from paddlevit_dist.extensions.cpu_kernels.accelerate import PLAIN_LAYERS, accelerate, can_use_fast_path
from paddlevit_dist.images.models import layers
from paddlevit_dist.images.models.layers import Linear, Mlp


@pytest.fixture
def available(monkeypatch):
    monkeypatch.setattr(accelerate_module, "is_available", lambda: True)


def with_hook(name):
    layer = Linear(3, 2)
    getattr(layer, f"register_forward_{name}_hook")(lambda *arguments: None)
    return layer


def turned():
    layer = Linear(3, 2)
    layer.weight = paddle.create_parameter([3, 2], "float32")
    layer._parameters["weight"] = paddle.ones([2, 3]).t()
    return layer


def test_plain_tensors_and_layers_are_fast(available):
    assert can_use_fast_path(paddle.ones([2, 3])) and can_use_fast_path(paddle.ones([2, 3]).t())
    assert can_use_fast_path(paddle.ones([2, 3]), Linear(3, 2), Linear(3, 2, bias_attr=False))


@pytest.mark.parametrize(
    "make", [lambda: with_hook("pre"), lambda: with_hook("post"), turned, lambda: Linear(3, 2).to(dtype="float64")]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_layers_with_hooks_views_or_other_numbers_are_not(available, make, is_first):
    both = [make(), Linear(3, 2)]
    assert not can_use_fast_path(paddle.ones([2, 3]), *(both if is_first else both[::-1]))


def test_other_numbers_modes_and_processes_are_not(available, monkeypatch):
    x = paddle.ones([2, 3])
    assert not can_use_fast_path(x.astype("float64")) and not can_use_fast_path(x.astype("int32"))
    for owner, name, value in (
        (accelerate_module, "product_dtype", "bfloat16"),
        (paddle, "in_dynamic_mode", False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda value=value: value)
            assert not can_use_fast_path(x)
    monkeypatch.setattr(accelerate_module, "is_available", lambda: False)
    assert not can_use_fast_path(x)


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="Paddle 2.6 has no tensors with zero rows")
def test_nothing_is_computed_fast_of_nothing(available):
    assert not can_use_fast_path(paddle.zeros([0, 3])) and not can_use_fast_path(paddle.zeros([3, 0]))


@pytest.mark.parametrize("value, has_product, expected", [
    ("0", True, True), ("", True, True), (None, True, True), ("1", True, False), ("true", True, False),
    ("0", False, False),
])  # fmt: skip
def test_a_variable_and_a_library_decide(monkeypatch, value, has_product, expected):
    if value is None:
        monkeypatch.delenv(PLAIN_LAYERS, raising=False)
    else:
        monkeypatch.setenv(PLAIN_LAYERS, value)
    monkeypatch.setattr(memory, "product", lambda: "product" if has_product else None)
    assert accelerate_module.is_available.__wrapped__() is expected


class Derived(Linear):
    pass


def test_layers_of_exactly_a_known_class_get_a_fast_one_at_any_depth(available):
    model = paddle.nn.Sequential(Mlp(8, 16), Derived(8, 8), paddle.nn.Sequential(Linear(8, 2), paddle.nn.ReLU()))
    accelerate(model)
    kinds = [type(layer).__module__.rpartition(".")[2] for layer in (model[0], model[0].fc1, *model[1:2], *model[2])]
    assert kinds == ["layers"] * 2 + [Derived.__module__.rpartition(".")[2], "layers", "activation"]
    assert type(model[2][0]) is not Linear and type(model[1]) is Derived and type(model[0].fc1) is not Linear
    single = Linear(2, 2)
    accelerate(single)
    assert type(single) is type(model[2][0]) and type(single).__name__ == "Linear"
    accelerate("no layer")


@pytest.mark.parametrize("name", ["is_on_gpu", "is_available"])
def test_nothing_is_replaced_where_nothing_would_be_fast(available, monkeypatch, name):
    monkeypatch.setattr(accelerate_module, name, lambda: name == "is_on_gpu")
    layer = layers.GELU()
    accelerate(layer)
    assert type(layer) is layers.GELU
