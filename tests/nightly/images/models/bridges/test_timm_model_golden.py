"""Every model of the golden files, built by timm on Paddle, gives PyTorch's logits."""

import paddle
import pytest
from support.networks import golden, timm_zoo

from paddlevit_dist.core.tasks.model_factory import create_model

FILES = ("timm_zoo", "timm_zoo_more")


@timm_zoo.needs_compat
@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in FILES for name in golden.description(file)["models"]]
)
def test_logits_are_those_of_pytorch(file, name):
    """PyTorch's own float32 error, 20 times, is the limit: the one of the golden file."""
    error, allowed = timm_zoo.make_error(name, file)
    assert error <= allowed


@timm_zoo.needs_compat
@pytest.mark.parametrize("name", golden.description("timm_features")["models"])
def test_maps_of_images_of_any_size_are_those_of_pytorch(name):
    assert all(error <= allowed for error, allowed in timm_zoo.make_feature_errors(name))


@timm_zoo.needs_compat
@pytest.mark.parametrize("head", ["upernet_swin_tiny", "mask_rcnn_swin_tiny_fpn"])
def test_heads_read_maps_of_a_swin_of_timm(head):
    body = create_model(head, 3, backbone="timm:swin_tiny_patch4_window7_224").pretrained_part
    maps = body.feature_maps(paddle.randn([1, 3, 66, 90]))
    assert [tuple(one.shape[1:]) for one in maps] == [
        (channels, -(-66 // stride), -(-90 // stride))
        for channels, stride in zip(body.feature_channels, body.feature_strides)
    ]
    sum(one.mean() for one in maps).backward()
    assert [name for name, one in body.named_parameters() if not one.stop_gradient and one.grad is None] == []
