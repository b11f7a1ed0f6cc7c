"""What a device computes is compared with NumPy: right ones pass with one wait, each wrong one is named."""

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device
from support.waits import counted_waits

from paddlevit_dist.core.engine.device_check import CheckedOperation, check_operations, check_precision, list_operations
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.runtime.errors import DeviceFailure

FLOAT32 = TrainingPrecision(False)
BFLOAT16 = TrainingPrecision(True, "bfloat16", on_gpu=True)  # a CPU ignores autocast, but not the dtype of inputs


def draw_after(function) -> tuple[np.ndarray, str]:
    paddle.seed(3)
    function()
    return paddle.rand([4]).numpy(), paddle.utils.unique_name.generate("a_parameter")


def test_a_right_device_passes_with_one_wait_and_leaves_random_numbers_as_they_were():
    expected, name = draw_after(lambda: None)
    with counted_waits() as waits:
        drawn, later = draw_after(lambda: check_operations(FLOAT32, seed=7) == [] or pytest.fail("it says something"))
    assert len(waits) == 1 + 1, waits  # of the check, and of the drawn numbers
    np.testing.assert_array_equal(drawn, expected)
    numbers = [int(each.rpartition("_")[2]) for each in (name, later)]
    assert numbers[1] == numbers[0] + 1


def test_an_operation_that_was_compared_is_not_compared_again_in_a_process():
    check_precision(FLOAT32)
    with counted_waits() as waits:
        assert check_precision(FLOAT32) == []
    assert len(waits) == 0


# What a broken kernel leaves in its result: something a little off, nothing, no number, values of another place.
WRONG = {
    "off": lambda values: values + 1e-3 * np.abs(values).max() * (np.arange(values.size) == 3).reshape(values.shape),
    "nothing": np.zeros_like,
    "no number": lambda values: values * np.nan,
    "another place": lambda values: np.roll(values, 1),
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_wrong_operation_is_named_with_the_device_and_both_values(kind):
    for name, operation in list_operations().items():
        for wrong in range(len(operation.reference(*(np.ones(shape) for shape in operation.shapes)))):

            def compute(*tensors, operation=operation, wrong=wrong):
                results = list(operation.compute(*tensors))
                results[wrong] = paddle.to_tensor(WRONG[kind](results[wrong].detach().numpy()).astype("float32"))
                return results

            with pytest.raises(DeviceFailure) as caught:
                check_operations(FLOAT32, {name: operation._replace(compute=compute)})
            text = str(caught.value)
            assert text.startswith("cpu (") and f") computes a wrong {name} in float32: expected " in text, text
            assert ", got " in text and " values are wrong; run with CPU_TUNING False" in text and "\n" not in text


def test_the_message_has_the_worst_place_and_how_many_there_are():
    def compute(x):
        values = x.detach().numpy()
        values[1, 2] = 9.0
        values[2, 0] = np.inf
        return [paddle.to_tensor(values)]

    with pytest.raises(DeviceFailure, match=r"expected \S+, got inf at \[2, 0\], and 2 of 12 values are wrong;"):
        check_operations(FLOAT32, {"copy": CheckedOperation([(3, 4)], compute, lambda x: [x])})
    transposed = CheckedOperation([(3, 4)], lambda x: [x], lambda x: [x.T])
    with pytest.raises(DeviceFailure, match=r"a wrong turn in float32: expected the shape \(4, 3\), got \(3, 4\);"):
        check_operations(FLOAT32, {"turn": transposed})


def test_half_precision_is_compared_to_its_rounding_and_with_exact_inputs():
    seen = []

    def compute(x):
        seen.append((str(x.dtype).rpartition(".")[2], x.detach().astype("float32").numpy()))
        return [x.astype("float32") * (1 + excess * (seen[-1][0] == "bfloat16"))]

    operations = {"product": CheckedOperation([(20, 30)], compute, lambda x: [seen.append(x) or x])}
    excess = 2.0**-7  # a rounding
    assert check_operations(BFLOAT16, operations) == []
    (first, single), wide, (second, half), narrow = seen
    assert (first, second) == ("float32", "bfloat16")
    np.testing.assert_array_equal(single, wide)
    np.testing.assert_array_equal(half, narrow)
    np.testing.assert_array_equal(narrow.astype("float16"), narrow)
    excess = 2.0**-3
    with pytest.raises(DeviceFailure, match="computes a wrong product in bfloat16: "):
        check_operations(BFLOAT16, operations)
    excess = 0.0
    assert check_operations(BFLOAT16, {"step": operations["product"]._replace(is_float32=True)}) == []
    assert len(seen) == 8 + 2  # optimizer steps are computed in float32 only


def test_what_a_device_cannot_compute_is_told_and_the_rest_is_compared():
    def fails(x):
        raise RuntimeError("no kernel\nfor this place")

    operations = {"split": CheckedOperation([(3,)], fails, lambda x: [x]), **list_operations()}
    line = "note: cpu computes no split in float32 (RuntimeError): it was not compared with NumPy"
    assert check_operations(FLOAT32, operations) == [line]
    with pytest.raises(
        DeviceFailure, match=r"cpu computes none of 1 operations; note: cpu computes no split in float32"
    ):
        check_operations(FLOAT32, {"split": operations["split"]})


def test_accelerators_of_other_makers_may_compute_float32_by_float16():
    def round_to_float16(x):
        return [paddle.to_tensor((x.numpy() * 1.001).astype("float16").astype("float32"))]

    operations = {"product": CheckedOperation([(20, 30)], round_to_float16, lambda x: [x])}
    with pytest.raises(DeviceFailure, match="computes a wrong product in float32"):
        check_operations(FLOAT32, operations)
    with forced_device("npu"):
        assert check_operations(FLOAT32, operations) == []
