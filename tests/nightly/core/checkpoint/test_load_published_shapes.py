"""Every published detector, segmenter and their backbones at its real size: each parameter has the shape that the
authors' program, torchvision, transformers or timm gives it, under their names through our maps of names.

No weights: ``golden/detector_shapes.json`` has the names and shapes of what each of them builds from its own settings.
"""

import json
import math

import numpy as np
import paddle
import pytest
from support.processes import ROOT

from paddlevit_dist import create_model
from paddlevit_dist.core.checkpoint.load import count_classes, rename_for
from paddlevit_dist.core.checkpoint.weights import weights_from_mapping

FACTS = json.loads((ROOT / "tests" / "golden" / "detector_shapes.json").read_text(encoding="utf-8"))
# As many outputs as theirs: ours have a class for each of COCO's 80 categories, not for each of its ids.
CLASSES = {"detr": 91, "mask": 90, "faster": 90}
# Constants that they keep beside their weights: anchors and places of a size of 640 pixels, scales of D-FINE's
# distances, and tables of windows.
CONSTANTS = ("anchors", "valid_mask", "num_points_scale", ".up", ".reg_scale", "relative_position_index")


@pytest.mark.parametrize("name", FACTS)
def test_parameters_have_their_published_shapes(name):
    shapes = {theirs: tuple(shape) for theirs, shape in FACTS[name]["shapes"].items()}
    arrays = {theirs: np.broadcast_to(np.float32(0), shape) for theirs, shape in shapes.items()}  # no memory is taken
    of_no_size = weights_from_mapping(arrays, None)
    with paddle.LazyGuard():  # names and shapes only
        outline = create_model(name, num_classes=1)
        classes = CLASSES.get(name.partition("_")[0]) or count_classes(outline, of_no_size)
        model = create_model(name, num_classes=classes)
    ours = {own: tuple(parameter.shape) for own, parameter in model.state_dict().items()}
    found = {own: value.shape for own, value in rename_for(model, of_no_size).items()}

    assert found == ours, FACTS[name]["source"]
    weights = sum(math.prod(shape) for theirs, shape in shapes.items() if not theirs.endswith(CONSTANTS))
    assert weights == sum(map(math.prod, ours.values())), "something of theirs has no place here"


def test_the_published_sizes_are_all_there():
    vd, b = ("r18vd", "r34vd", "r50vd", "r101vd"), [f"b{number}" for number in range(6)]
    sizes = {"rtdetr": vd, "rtdetrv2": vd, "dfine": "nsmlx", "detr": ("resnet50", "resnet101"), "segformer": b}
    sizes.update(hgnetv2=b, upernet_swin=("tiny", "small", "base"), upernet_convnext=("tiny", "small", "base"))
    named = {f"{family}_{size}" for family, own in sizes.items() for size in own}
    assert named | {"mask_rcnn_resnet50_fpn", "resnet18d", "resnet34d", "resnet50d", "resnet101d"} <= set(FACTS)
