"""An exported landmark network: the same heatmaps, and a description that suffices to find positions with numpy."""

import importlib.util

import numpy as np
import paddle
import pytest
from unit.volumes.test_export import trained

from paddlevit_dist.extensions.export.command import export
from paddlevit_dist.volumes import decode

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")
def test_positions_are_read_from_an_onnx_file_as_described(tmp_path):
    import onnxruntime

    export(trained(), str(tmp_path / "heads"), "onnx")
    example = np.load(tmp_path / "heads.example.npz")
    session = onnxruntime.InferenceSession(str(tmp_path / "heads.onnx"))
    (maps,) = session.run(None, {"volume": np.repeat(example["input"], 3, axis=0)})
    np.testing.assert_allclose(maps[2], example["output"][0], atol=1e-5)
    expected, _ = decode(paddle.to_tensor(example["output"][0]))
    for name, heatmap in enumerate(maps[1]):
        peak = np.array(np.unravel_index(heatmap.argmax(), heatmap.shape))
        position = peak.astype(float)
        for axis in range(3):  # "the vertex of the parabola through the logarithms ..., at most half a voxel away"
            step = np.eye(3, dtype=int)[axis]
            if 0 < peak[axis] < heatmap.shape[axis] - 1:
                before, at, after = (np.log(max(heatmap[tuple(peak + n * step)], 1e-6)) for n in (-1, 0, 1))
                position[axis] += np.clip(0.5 * (before - after) / (before - 2 * at + after), -0.5, 0.5)
        np.testing.assert_allclose(position, expected[name], atol=1e-2)
