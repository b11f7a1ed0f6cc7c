"""States that paddle.save has written are read as the same arrays and containers."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.checkpoint.unpickling import restricted_load


def tensors():
    paddle.seed(5)
    return {
        "matrix": paddle.randn([7, 300]),
        "transposed": paddle.randn([4, 6]).t(),
        "number": paddle.to_tensor(3.5),
        "empty": paddle.zeros([0, 4]),
        "half": paddle.randn([5]).astype("float16"),
        "double": paddle.randn([5]).astype("float64"),
        "count": paddle.to_tensor([1, -2], dtype="int64"),
        "mask": paddle.to_tensor([True, False]),
        "parameter": paddle.nn.Linear(2, 3).weight,
    }


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_saved_state_reads_as_the_same_arrays(tmp_path, protocol):
    state = tensors()
    path = tmp_path / "state.pdparams"
    paddle.save(state, str(path), protocol=protocol)
    read = restricted_load(path)
    assert list(read) == list(state)
    for name, tensor in state.items():
        assert isinstance(read[name], np.ndarray) and read[name].dtype == tensor.numpy().dtype, name
        np.testing.assert_array_equal(read[name], tensor.numpy())


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_saved_run_reads_with_its_containers_numbers_and_optimizer_state(tmp_path, protocol):
    layer = paddle.nn.Linear(3, 2)
    rate = paddle.optimizer.lr.CosineAnnealingDecay(0.1, 10)
    optimizer = paddle.optimizer.AdamW(rate, parameters=layer.parameters())
    layer(paddle.ones([1, 3])).sum().backward()
    optimizer.step()
    numbers = [1, 255, 256, 70_000, -1, 2**40, -(2**70), True, None, 0.25, "text", "schräg", (1, (2, 3, 4, 5)), ()]
    scalars = {"single": np.float32(1.5), "double": np.float64(0.1), "count": np.int64(-7)}
    run = {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "numbers": numbers, "scalars": scalars}
    path = tmp_path / "run.pdparams"
    paddle.save(run, str(path), protocol=protocol)
    read = restricted_load(path)
    assert read["numbers"] == numbers
    assert read["scalars"] == scalars and type(read["scalars"]["single"]) is np.float32
    np.testing.assert_array_equal(read["model"]["weight"], layer.weight.numpy())
    moments = [name for name in read["optimizer"] if "moment1" in name]
    assert len(moments) == 2
    for name in moments:
        np.testing.assert_array_equal(read["optimizer"][name], optimizer.state_dict()[name].numpy())
    assert read["optimizer"]["LR_Scheduler"] == optimizer.state_dict()["LR_Scheduler"]


def test_bfloat16_comes_as_its_bits(tmp_path):
    path = tmp_path / "half.pdparams"
    paddle.save({"w": paddle.to_tensor([1.0, -2.0]).astype("bfloat16")}, str(path))
    np.testing.assert_array_equal(restricted_load(path)["w"], np.array([0x3F80, 0xC000], np.uint16))
