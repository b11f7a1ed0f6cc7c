"""RF-DETR and RF-DETR Seg of their authors, reproduced from their weights."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden import recipe
from support.networks.golden_rfdetr import GOLDEN, batches, require_detections, require_outputs, stored

from paddlevit_dist.images.detection.data.transforms import resize_as_torchvision, whole_view
from paddlevit_dist.images.detection.rfdetr.network import RfDetr
from paddlevit_dist.images.detection.rfdetr.seg_network import RfDetrSeg
from paddlevit_dist.images.models.resampling import resize_position_embedding
from paddlevit_dist.images.transforms.described import normalize


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "batch"), batches(is_large=False))
def test_golden_maps_selection_and_outputs_of_every_layer(model, batch, dtype):
    require_outputs(model, batch, dtype)


@pytest.mark.parametrize(("model", "batch"), batches(is_large=False))
def test_golden_boxes_in_pixels_with_their_scores_and_masks(model, batch):
    require_detections(model, batch)


def test_golden_positions_for_other_sides():
    table = recipe()._rng(GOLDEN["seed"], "pieces/position_embeddings").standard_normal((1, 145, 6))
    sides = {int(found[1]): key for key in stored() if (found := re.fullmatch(r"pieces/positions(\d+)", key))}
    assert sides
    for side, key in sides.items():
        found = resize_position_embedding(table, (side, side), 1)
        np.testing.assert_allclose(found, stored()[key], rtol=0, atol=1e-6)  # loaded weights are float32
        sizes = {"embed_dim": 6, "depth": 1, "num_heads": 1, "image_size": 2 * side, "patch_size": 2}
        with weights_of_zero():
            network = RfDetr(1, backbone_options={**sizes, "feature_depths": [1]}, groups=1)
        loaded = network.resize_parameter("backbone.pos_embed", table)
        np.testing.assert_array_equal(loaded, found)


def test_golden_input_of_a_picture():
    *size, side = GOLDEN["pieces"]["picture"]
    pixels = recipe()._rng(GOLDEN["seed"], "pieces/picture").integers(0, 256, (*size, 3), dtype=np.uint8)
    view = whole_view(Image.fromarray(pixels), np.zeros((0, 4)), np.zeros(0, np.int64))
    resized = np.asarray(resize_as_torchvision(view, (side, side)).image)
    usual = SimpleNamespace(IMAGENET_MEAN=(0.485, 0.456, 0.406), IMAGENET_STD=(0.229, 0.224, 0.225))
    found = normalize(resized, usual)[0]
    np.testing.assert_allclose(found, stored()["pieces/predicted_picture"], rtol=0, atol=1e-5)


def test_golden_rows_of_other_class_counts():
    with weights_of_zero():
        network = RfDetrSeg(1, **RfDetrSeg.variants["rfdetr_seg_shapes"])
    for classes, rows in GOLDEN["pieces"]["resized_class_rows"].items():
        network.num_classes = int(classes)
        for value in (np.arange(6.0), np.tile(np.arange(6.0), (4, 1))):  # bias, and weight (inputs, outputs)
            found = network.begin_classifier("class_embed.weight", value)
            np.testing.assert_array_equal(found, np.broadcast_to(rows, (*value.shape[:-1], int(classes))))
            assert found.shape == (*value.shape[:-1], len(rows))
