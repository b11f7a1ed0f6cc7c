"""Exported functions have the names and numbers of the network they were made from."""

import numpy as np
import paddle

from paddlevit_dist.export import functions
from paddlevit_dist.export.files import ExportedModel


class ThreeOutputs(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.factor = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(2.0))

    def forward(self, x):
        return x + 1.0, x.sum(axis=1), self.factor * x


def test_outputs_have_their_names_shapes_and_numbers(tmp_path):
    specification = [paddle.static.InputSpec([None, 5], "float32", "values")]
    paddle.jit.save(ThreeOutputs(), str(tmp_path / "model"), input_spec=specification)
    names = ["more", "sums", "double"]
    (file,) = tmp_path.glob("*.pdiparams")
    for about, expected in (({"outputs": names}, names), ({"outputs": names[:2]}, None), ({}, None)):
        loaded = functions.load(ExportedModel(file, about))
        assert [slot.name for slot in loaded.inputs] == ["values"]
        assert expected is None or [slot.name for slot in loaded.outputs] == expected
        assert [slot.shape for slot in loaded.outputs] == [(None, 5), (None,), (None, 5)]
        x = np.arange(15, dtype=np.float32).reshape(3, 5)
        found = [tensor.numpy() for tensor in loaded.run([paddle.to_tensor(x)], [2, 1])]
        assert found[0].tolist() == (2 * x).tolist() and found[1].tolist() == x.sum(axis=1).tolist()
