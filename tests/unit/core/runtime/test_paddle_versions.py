"""What differs between versions of Paddle, as seen in each of them."""

import contextlib
import importlib

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.runtime import paddle_versions


@contextlib.contextmanager
def of_version(version: str, other_paddle, monkeypatch):
    """Paddle has this version inside the block; the module reads it once."""
    try:
        other_paddle({"__version__": version})
        importlib.reload(paddle_versions)
        yield
    finally:
        monkeypatch.undo()
        importlib.reload(paddle_versions)


@pytest.mark.parametrize(
    "paddle_version, numpy_version, is_older, notes",
    [
        ("2.6.2", "1.26.4", False, []),
        (
            "2.6.2",
            "2.0.1",
            True,
            ["Paddle 2.6.2 was built for NumPy 1, and this is 2.0.1: python -m pip install 'numpy<2'"],
        ),
        ("3.3.1", "2.0.1", False, []),
        ("3.4.0", "2.0.1", False, ["Paddle 3.4.0 is untested; the last version tested with paddlevit_dist is 3.3"]),
        ("4.0.0", "1.26.4", False, ["Paddle 4.0.0 is untested; the last version tested with paddlevit_dist is 3.3"]),
        ("3.x.dev", "2.0.1", False, []),
        (
            "0.0.0",
            "2.0.1",
            False,
            ["Paddle 0.0.0 was built from source; the last version tested with paddlevit_dist is 3.3"],
        ),
    ],
)
def test_versions_that_do_not_fit_are_told(monkeypatch, other_paddle, paddle_version, numpy_version, is_older, notes):
    with of_version(paddle_version, other_paddle, monkeypatch):
        monkeypatch.setattr(np, "__version__", numpy_version)
        assert paddle_versions.has_lists_in_functions() is not paddle_version.startswith("2")
        assert paddle_versions.needs_older_numpy() is is_older and paddle_versions.notes() == notes


@pytest.mark.parametrize("is_3", [True, False])
def test_half_precision_is_compiled_by_version(monkeypatch, other_paddle, is_3):
    kinds = [(dtype, level) for dtype in ("float16", "bfloat16") for level in ("O1", "O2")]
    with of_version("3.0" if is_3 else "2.6.2", other_paddle, monkeypatch):
        assert [paddle_versions.compiles_half(*kind) for kind in kinds] == [True, is_3, is_3, is_3]


@pytest.mark.parametrize("version, lowest", [("3.3.1", (6, 0)), ("2.6.2", (6, 1))])
def test_a_build_has_code_for_the_cards_of_its_cuda(version, lowest):
    known = {"11.8": (lowest, (8, 9)), "12.0": ((7, 0), (9, 0)), "12.7": ((7, 0), (9, 0))}
    for cuda in ("11.8", "12.0", "12.7", "12.8", "12.10", "13.0", "False"):
        assert paddle_versions.supported_capabilities(version, cuda) == known.get(cuda)
    assert paddle_versions.supported_capabilities("0.0.0", "12.0") is None  # built from source


def test_a_tensors_own_memory_is_given_where_it_can_be(monkeypatch):
    tensor = paddle.arange(6, dtype="float32").reshape([2, 3])
    values = paddle_versions.values_in_place(tensor)
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
    tensor.set_value(tensor + 1)
    assert np.shares_memory(values, paddle_versions.values_in_place(tensor))
    assert paddle_versions.values_in_place(tensor.astype("bfloat16")) is None
    transposed = tensor.t()
    assert (paddle_versions.values_in_place(transposed) is not None) is transposed.is_contiguous()
    tensor.stop_gradient = False
    assert paddle_versions.values_in_place(tensor).tolist() == tensor.tolist()
    flags = paddle_versions.values_in_place(paddle.to_tensor([True, False]))
    assert flags is None or (flags.dtype == np.bool_ and flags.tolist() == [True, False])
    assert paddle_versions.values_in_place(paddle.to_tensor([1, 2], "int16")).dtype == np.int16
    assert paddle_versions._DlpackView(tensor).__dlpack_device__() == (1, 0)
    monkeypatch.delattr(np, "from_dlpack")
    assert paddle_versions.values_in_place(tensor) is None


def test_models_are_not_compiled_inside_the_block():
    translator = paddle.jit.dy2static.program_translator.ProgramTranslator()
    with pytest.raises(ZeroDivisionError), paddle_versions.as_written():
        assert not translator.enable_to_static
        raise ZeroDivisionError
    assert translator.enable_to_static


def test_operations_are_checked_inside_the_block_only():
    names = ["FLAGS_check_nan_inf", "FLAGS_check_nan_inf_level"]
    paddle.set_flags({names[1]: 3})
    try:
        with pytest.raises(RuntimeError), paddle_versions.check_operations():
            assert list(paddle.get_flags(names).values()) == [True, 0]
            paddle.log(paddle.to_tensor([-1.0]))
        assert list(paddle.get_flags(names).values()) == [False, 3]
        assert paddle.log(paddle.to_tensor([-1.0])).isnan().item()
    finally:
        paddle.set_flags({names[1]: 0})


def test_moments_are_created_before_the_first_step_also_for_what_is_frozen_then():
    layers = [paddle.nn.Linear(2, 3), paddle.nn.Linear(3, 2)]
    layers[1].bias.stop_gradient = True
    groups = [{"params": layer.parameters()} for layer in layers]
    optimizer = paddle.optimizer.AdamW(0.1, parameters=groups)
    paddle_versions.create_accumulators(optimizer)
    trained = {parameter.name for layer in layers for parameter in layer.parameters()}
    assert set(optimizer._accumulators["moment1"]) == trained

    class Several:
        optimizers = [paddle.optimizer.Momentum(0.1, parameters=[group]) for group in groups]

    paddle_versions.create_accumulators(Several())
    names = [set(each._accumulators["velocity"]) for each in Several.optimizers]
    assert names == [{layers[0].weight.name, layers[0].bias.name}, {layers[1].weight.name, layers[1].bias.name}]
