"""Workers that compute with compiled models and with the models themselves."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.engine import precision
from paddlevit_dist.core.engine.precision import compile_passes
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
from paddlevit_dist.images.classification.figures import attention_rollout
from support.networks import small_classifiers
from support.networks.plain_layers import plain_layers
from support.networks.small_classifiers import IMAGES, SIZE, gradients
from support.trainings import small_runs

WITH_DROPOUT = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224")


FAMILIES = {**small_classifiers.FAMILIES, "deit_tiny_patch16_224": {"depth": 1, "embed_dim": 24}}


def build(name: str, **options: Any) -> paddle.nn.Layer:
    live = {"frozen_batch_norm": False} if name == "resnet18" else {}
    paddle.seed(1)
    chosen = {"num_classes": 5, "image_size": SIZE, "drop_path": 0.5, **FAMILIES[name], **live, **options}
    model = create_model(name, **chosen)
    accelerate(model)
    model.train()
    return model


def compiled(name: str, **options: Any) -> paddle.nn.Layer:
    model = build(name, **options)
    compile_passes(model)
    return model


def losses(model: paddle.nn.Layer) -> list[float]:
    """Of ten updates, each from a seed of its own."""
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    found = []
    for update in range(10):
        paddle.seed(update)
        loss = ((model(paddle.to_tensor(IMAGES)) - 1.0) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(False)
        found.append(loss.item())
    return found


def outputs(model: paddle.nn.Layer) -> dict[str, Any]:
    """Logits of two sizes of batch in evaluation, then gradients in training."""
    model.eval()
    with paddle.no_grad():
        logits = [model(paddle.to_tensor(IMAGES[:batch])).numpy() for batch in (4, 3)]
    attention = attention_rollout(model, paddle.to_tensor(IMAGES))
    model.train()
    result = {"logits": logits, "attention": attention, "gradients": gradients(model), "class": type(model).__name__}
    model.clear_gradients()
    return {**result, "losses": losses(model)}


def of_families(names: list[str]) -> dict[str, Any]:
    """By name, of the model and of the compiled one: their outputs, and losses without stochastic depth."""
    with plain_layers():  # a program is traced from Paddle's layers
        found = {name: (outputs(build(name)), outputs(compiled(name))) for name in names}
        for name in set(names) & set(WITH_DROPOUT):
            for way, result in zip((build, compiled), found[name]):
                result["losses"] = losses(way(name, drop_path=0.0))
        return found


def trainings(folder: str) -> dict[str, Any]:
    """Trainings that take the device for a GPU, as it is by default and at O2, and one that is compiled on the CPU."""
    words = ["-epochs=2", "-batch_size=16", "MODEL.DROPPATH=0.3", "TRAIN.MODEL_EMA=True", "-accum_iter=2"]
    ways = {"default": [], "O2": ["-amp", "AMP_LEVEL=O2"]}
    is_gpu = {"is_on_gpu": lambda: True, "_check_capability": lambda dtype: None}
    with plain_layers():
        with mock.patch.multiple(precision, **is_gpu):
            found = {name: small_runs.train(f"{folder}/{name}", [*words, *own], 160) for name, own in ways.items()}
        found["compiled"] = small_runs.train(f"{folder}/compiled", [*words, "TO_STATIC=True"], 160)
    return {name: {**result, "log": Path(folder, name, "log.txt").read_text()} for name, result in found.items()}


def repeated(name: str) -> dict[str, Any]:
    """Losses of ten steps with one seed, and the slope along a direction by the gradient and by two more losses."""
    model = compiled(name)

    def loss() -> paddle.Tensor:
        paddle.seed(2)
        return (model(paddle.to_tensor(IMAGES)) ** 2).sum()

    loss().backward()
    losses = [loss().item() for _ in range(10)]
    weight = model.blocks[0].mlp.fc1.weight
    direction = np.random.default_rng(0).standard_normal(weight.shape).astype("float32")
    start, step, ends = weight.numpy().copy(), 1e-3, []
    for sign in (1, -1):
        weight.set_value(start + sign * step * direction)
        ends.append(loss().item())
    slope = float((weight.grad.numpy() * direction).sum())
    return {"losses": losses, "slope": slope, "measured": (ends[0] - ends[1]) / (2 * step)}


def require_same(name: str, plain: dict[str, Any], traced: dict[str, Any]) -> None:
    """That a compiled model computes what the model does: logits, attention and gradients to the bit, ten losses."""
    for expected, result in zip(plain["logits"], traced["logits"]):
        np.testing.assert_array_equal(result, expected)
    assert traced["gradients"].keys() == plain["gradients"].keys()
    if name in WITH_DROPOUT:  # which draws its numbers in another order
        np.testing.assert_array_equal(traced["attention"], plain["attention"])
    else:
        for parameter, value in plain["gradients"].items():
            np.testing.assert_array_equal(traced["gradients"][parameter], value, err_msg=parameter)
    assert len(set(plain["losses"])) == 10
    np.testing.assert_allclose(traced["losses"], plain["losses"], rtol=1e-5)


def require_repeatable(found: dict[str, Any]) -> None:
    """That dropout and stochastic depth of a compiled model draw the same numbers again, also in the backward pass."""
    assert len(set(found["losses"])) == 1
    assert found["measured"] == pytest.approx(found["slope"], rel=0.02)
