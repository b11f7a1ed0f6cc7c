"""Every recipe's model can be built, with the parameter count its dimensions imply."""

import paddle
import pytest
from support.networks.every_classifier import PUBLISHED
from support.trainings.recipe_steps import make_recipes

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.model_cost import count_parameters
from paddlevit_dist.images.models.deit import DistilledDeiT
from paddlevit_dist.images.models.vit import VisionTransformer

CONFIGS, LABELING = make_recipes("classification"), make_recipes("image_segmentation")
LABELING = [path for path in LABELING if not path.stem.startswith("eomt")]  # whose shapes are in its golden file
# Millions of parameters with 150 classes: arXiv 2105.15203, table 1a, and the READMEs of the
# authors of Swin and of ConvNeXt, where UPerNet's include an auxiliary head.
PIXEL_CLASSIFIERS = {
    **dict(zip((f"segformer_b{size}" for size in range(6)), (3.8, 13.7, 27.5, 47.3, 64.1, 84.7))),
    "upernet_swin_tiny": 60,
    "upernet_convnext_tiny": 60,
    "linear_dinov3_small": 21.6,  # the golden file's 21,586,944, two for each channel and one for channel and class
}


def vit_parameters(width, depth, mlp_ratio, patch, channels, image, classes) -> int:
    """Counted by hand: patch embedding, class token and positions, blocks, last norm, head."""
    tokens = (image // patch) ** 2 + 1
    hidden = int(width * mlp_ratio)
    attention = width * 3 * width + 3 * width + width * width + width
    mlp = width * hidden + hidden + hidden * width + width
    block = 4 * width + attention + mlp
    return (
        patch * patch * channels * width
        + width
        + (1 + tokens) * width
        + depth * block
        + 2 * width
        + (width * classes + classes)
    )


def basic_resnet_parameters(widths, depths, channels, classes) -> int:
    """Counted by hand: first convolution, two 3 x 3 convolutions a block, projections, norms, head."""
    count, inputs = 49 * channels * widths[0] + 2 * widths[0], widths[0]
    for width, depth in zip(widths, depths):
        for _ in range(depth):
            count += 9 * (inputs + width) * width + 4 * width
            count += inputs * width + 2 * width if inputs != width else 0
            inputs = width
    return count + inputs * classes + classes


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_recipes_model_has_the_parameters_of_its_dimensions(path):
    # A teacher is no part of the model, and its weights are not here.
    values = settings.load([f"-cfg={path}", "-num_classes=1000", "TRAIN.DISTILLATION_TYPE", "none"]).values
    task = resolve("task", values.TASK)(values)
    with paddle.LazyGuard():  # the huge one would take gigabytes
        model = task.build_model()
    count = count_parameters(model)
    name, data = values.MODEL.NAME, values.DATA
    if not isinstance(model, VisionTransformer) or isinstance(model, DistilledDeiT):
        published = PUBLISHED[name]
        if name == "resnet18" and values.MODEL.DIMS is not None:  # no published network
            published = basic_resnet_parameters(values.MODEL.DIMS, values.MODEL.DEPTHS, data.IMAGE_CHANNELS, 1000)
        assert count == published if isinstance(published, int) else round(count / 1e6, 2) == published
        return
    width = model.embed_dim
    mlp_ratio = model.blocks[0].mlp.fc1.weight.shape[1] / width
    dimensions = (width, len(model.blocks), mlp_ratio, model.patch_embed.patch_size)
    scales = 2 * width * len(model.blocks) if hasattr(model.blocks[0], "ls1") else 0  # DINOv2's
    assert count == scales + vit_parameters(*dimensions, data.IMAGE_CHANNELS, data.IMAGE_SIZE, 1000)
    published = {"vit_huge_patch14_224": 632_045_800, "vit_large_patch16_224": 304_326_632}
    assert published.get(path.stem, count) == count


@pytest.mark.parametrize("path", LABELING, ids=lambda path: path.stem)
def test_a_network_that_labels_pixels_is_as_large_as_published(path):
    values = settings.load([f"-cfg={path}", "MODEL.BACKBONE_PRETRAINED", "None"]).values
    task = resolve("task", values.TASK)(values)
    with paddle.LazyGuard():
        model = task.build_model(150)
    published = PIXEL_CLASSIFIERS[values.MODEL.NAME]
    assert count_parameters(model) / 1e6 == pytest.approx(published, abs=0.05 if published % 1 else 0.5)
