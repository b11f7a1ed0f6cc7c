"""Runs whose networks no name tells, such as of keypoints and volumes, are converted by what the run has stored."""

import numpy as np
import paddle
import pytest
import yaml
from support.trainings.untrained import write_untrained_run

from paddlevit_dist.core.checkpoint.array_files import read_safetensors
from paddlevit_dist.core.commands.convert import convert
from paddlevit_dist.core.inference.trained import build_trained, open_source
from paddlevit_dist.core.tasks.protocols import load_meta
from paddlevit_dist.core.tasks.task_factory import make_task

PTV3 = (  # whose authors' names only a part of this network has
    "{repeats: 1, backbone: ptv3, backbone_options: {encoder_depths: [1, 1], encoder_channels: [8, 16], "
    "encoder_heads: [1, 2], strides: [2], decoder_depths: [1], decoder_channels: [8], decoder_heads: [1], "
    "patch_size: 32}}"
)
RUNS = {
    "keypoints": ["-cfg=heatmap_figures", "DATA.SHAPES.TRAIN", "1", "DATA.SHAPES.VAL", "1"],
    "keypoints by a transformer": ["-cfg=vitpose_figures", "DATA.SHAPES.TRAIN", "1", "DATA.SHAPES.VAL", "1"],
    "keypoints and boxes": ["-cfg=detrpose_figures", "DATA.SHAPES.TRAIN", "1", "DATA.SHAPES.VAL", "1"],
    "landmarks": ["-cfg=landmark_unet3d", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "2"],
    "instances by a transformer": [
        "-cfg=pointgroup_synthetic_rooms",
        *("POINTS.ROOMS.TRAIN", "1", "POINTS.ROOMS.VAL", "1", "POINTS.ROOMS.SPACING_M", "0.12"),
        *("DATA.VOXEL_SIZE_M", "0.3", "MODEL.OPTIONS", PTV3),
    ],
    "label volumes": ["-cfg=volume_unet3d_phantoms", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "2"],
}


def read_network(source) -> dict[str, np.ndarray]:
    """The parameters of the network that the record of weights describes, with these weights."""
    opened = open_source(str(source), "predict")
    task = make_task(opened.config)
    load_meta(task, opened.learned)
    model, _ = build_trained(task, opened)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_there_and_back_is_bit_equal_with_pytorchs_layout_between(kind, tmp_path):
    source = write_untrained_run(tmp_path / "run", RUNS[kind])
    convert(str(tmp_path / "run"), str(tmp_path / "out.safetensors"))
    converted = convert(str(tmp_path / "out.safetensors"), str(tmp_path / "again.pdparams"))
    assert converted.unknown == []
    before, after = paddle.load(str(source)), paddle.load(str(tmp_path / "again.pdparams"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        np.testing.assert_array_equal(np.asarray(after[name]), tensor.numpy(), name)
    between, _ = read_safetensors(tmp_path / "out.safetensors")
    for name, matrix in ((name, value.numpy()) for name, value in before.items() if name in converted.linear):
        np.testing.assert_array_equal(between[name], matrix.T)
    found = read_network(tmp_path / "out.safetensors")
    for name, tensor in read_network(source).items():
        np.testing.assert_array_equal(found[name], tensor, name)
    abouts = [
        yaml.safe_load((tmp_path / name).read_text()) for name in ("run/about.yaml", "out.safetensors.about.yaml")
    ]
    assert abouts[0]["data"] == abouts[1]["data"] and abouts[0]["input"] == abouts[1]["input"]
