"""A user's classifier that takes few options can be used with each recipe of classifiers."""

import functools

import numpy as np
import paddle
import pytest
from paddle import nn

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.settings.recipes import recipe_names
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.task_factory import make_task

WORDS = ["MODEL.NAME", "of_a_user", "MODEL.PRETRAINED_REQUIRED", "False"]


class AllConv(Model):
    """Takes what CONTRIBUTING's example takes."""

    def forward(self): ...

    def __init__(self, num_classes: int = 1000, width: int = 8, in_channels: int = 3):
        super().__init__()
        self.in_channels = in_channels
        self.body = nn.Conv2D(in_channels, width, 3, 2)
        self.head = nn.Linear(width, num_classes)


class ColorMeans(Model):
    """Takes nothing else."""

    def forward(self): ...

    def __init__(self, num_classes: int = 1000):
        super().__init__()
        self.head = nn.Linear(3, num_classes)


@pytest.fixture(params=[AllConv, ColorMeans])
def own(request):
    register_model("of_a_user", request.param)
    yield request.param
    del REGISTRY.models["of_a_user"]


@functools.cache
def task_of(recipe):
    return settings.load([f"-cfg={recipe}"]).values.TASK


@pytest.mark.parametrize("start", range(6))
def test_it_is_built_under_every_recipe(own, start):
    channels = []
    for recipe in recipe_names()[start::6]:
        if task_of(recipe) != "classification":
            continue
        config = settings.load([f"-cfg={recipe}", *WORDS]).values
        task, size = make_task(config), config.DATA.IMAGE_SIZE
        channels.append(config.DATA.IMAGE_CHANNELS)
        if own is ColorMeans and channels[-1] != 3:
            with pytest.raises(UserError, match="no option 'in_channels'"):
                task.create_network(7)
            continue
        model = task.create_network(7)
        assert isinstance(model, own) and model.head.weight.shape[1] == 7
        assert model.in_channels == channels[-1] and model.image_size == (size, size)
    assert channels


@pytest.mark.parametrize("own", [AllConv], indirect=True)
def test_a_probe_of_it_needs_features(own):
    task = make_task(settings.load(["-cfg=probe_linear", *WORDS]).values)
    needed = "of_a_user: a probe needs an attribute embed_dim, and forward_features that returns"
    with pytest.raises(UserError, match=needed):
        task.create_network(7)


class Described(AllConv):
    """Keeps its linear layer without classes; of three images, a feature is missing."""

    embed_dim = 8

    def forward(self, images):
        return self.head(self.body(images).mean(axis=[2, 3]))

    def forward_features(self, images):
        return self.body(images).mean(axis=[2, 3])[:, : 8 - images.shape[0] // 3]


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="Paddle 2.6 has no linear layer without outputs")
@pytest.mark.parametrize("own", [Described], indirect=True)
def test_a_probe_takes_the_features_of_a_network_whose_head_stays_without_classes(own):
    probe = make_task(settings.load(["-cfg=probe_linear", *WORDS]).values).create_network(7)
    images = paddle.ones([2, 3, 8, 8])
    expected = probe.backbone.body(images).mean(axis=[2, 3]).numpy()
    np.testing.assert_array_equal(probe.compute_features(images).numpy(), expected)
    with pytest.raises(UserError, match=r"forward_features returned the shape \[3, 7\]: .* here \(batch, 8\)"):
        probe.compute_features(paddle.ones([3, 3, 8, 8]))
