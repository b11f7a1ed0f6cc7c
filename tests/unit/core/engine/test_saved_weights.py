"""The check that an evaluation of a checkpoint loads what was scored."""

from pathlib import Path

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.engine.low_rank_layers import add_term
from paddlevit_dist.core.engine.saved_weights import digest_state, find_unmerged, require_saved

NAMES = {"own": "model.pdparams", "averaged": "model_ema.pdparams"}


def build(seed: int = 0) -> paddle.nn.Layer:
    paddle.seed(seed)
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4))
    model.state_dict()["1._variance"].set_value(np.arange(4, dtype=np.float32) + seed)
    return model


def save(folder: Path, **models: paddle.nn.Layer) -> None:
    for name, model in models.items():
        paddle.save(model.state_dict(), str(folder / NAMES[name]))


def fail() -> paddle.nn.Layer:
    raise AssertionError("there is nothing to merge")


@pytest.mark.parametrize("has_average", [False, True])
def test_a_checkpoint_with_what_was_scored_passes_and_leaves_the_model(tmp_path, has_average):
    own, scored = build(), build(int(has_average))
    save(tmp_path, own=own, **({"averaged": scored} if has_average else {}))
    lines: list[str] = []
    require_saved(own, tmp_path, digest_state(scored), fail, lines.append)
    assert digest_state(own) == digest_state(build())
    assert lines == []


@pytest.mark.parametrize("changed", ["own", "averaged"])
@pytest.mark.parametrize("name", ["1._variance", "0.weight"])
def test_a_tensor_that_is_not_what_was_scored_is_an_error_that_names_it(tmp_path, changed, name):
    models = {"own": build(0), "averaged": build(1)}
    digests = digest_state(models["averaged"])
    tensor = models[changed].state_dict()[name]
    before = tensor.numpy().copy()
    tensor.set_value(np.nextafter(before, np.float32(9)))
    save(tmp_path, **models)
    tensor.set_value(before)
    with pytest.raises(RuntimeError, match=f"1 tensors of .* such as '{name}'.*error in paddlevit_dist"):
        require_saved(models["own"], tmp_path, digests, fail, print)


def test_a_checkpoint_that_cannot_be_loaded_gets_a_line(tmp_path):
    own = build()
    save(tmp_path, own=paddle.nn.Sequential(paddle.nn.Linear(3, 5)))
    lines: list[str] = []
    require_saved(own, tmp_path, digest_state(own), fail, lines.append)
    assert len(lines) == 1 and f"{tmp_path} cannot be loaded as an evaluation would" in lines[0]
    assert digest_state(own) == digest_state(build())


@pytest.mark.parametrize(
    "scale, offset, differing",
    [(0.5, 0.8, []), (0.5, -0.8, []), (0.5, 1.2, ["0.weight"]), (0.5, -1.2, ["0.weight"]), (0.25, 0, ["0.weight"])],
)
def test_merged_matrices_are_what_the_scored_layers_compute(tmp_path, scale, offset, differing):
    """To a hundred thousandth of the largest value."""
    model, merged = build(), build()
    add_term(model[0], 2, 0.5)
    model[0].lora_b.set_value(np.ones([2, 4], np.float32))
    product = model[0].lora_a.numpy() @ model[0].lora_b.numpy()
    merged[0].weight.set_value(merged[0].weight.numpy() + np.float32(scale) * product)
    found = merged[0].weight.numpy()
    found.flat[np.abs(found).argmin()] += offset * 1e-5 * np.abs(found).max()
    merged[0].weight.set_value(found)
    save(tmp_path, own=merged)
    assert find_unmerged(model, str(tmp_path / NAMES["own"]), lambda: build(7)) == differing
