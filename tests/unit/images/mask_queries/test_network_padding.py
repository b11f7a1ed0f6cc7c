"""Images that are no whole number of patches, which the backbone pads: masks are of the images alone."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import create_model

BACKBONE = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "registers": 1, "init_values": 0.1}


def make_network(task):
    paddle.seed(0)
    network = create_model(f"eomt_{task}_shapes", 3, (40, 56), random_samples=False, backbone_options=BACKBONE)
    network.eval()
    return network


def make_images():
    """Images, and the same padded to 40 x 56 pixels."""
    images = paddle.randn([2, 3, 33, 50])
    return images, paddle.nn.functional.pad(images, [0, 6, 0, 7])


def test_pixels_have_the_classes_that_they_have_in_the_padded_image():
    network, (images, padded) = make_network("semantic"), make_images()
    np.testing.assert_array_equal(network(images).numpy(), network(padded).numpy()[:, :, :33, :50])


@pytest.mark.parametrize("size", [(33, 50), (40, 49), (39, 56)])
def test_masks_that_rise_with_the_pixels_still_do(size):
    """A cell of two pixels has the coordinate of its center; so has one of the cells that cover the image alone."""
    network = make_network("panoptic")
    rows, columns = np.arange(20) * 2.0 + 1, np.arange(28) * 2.0 + 1
    masks = paddle.to_tensor(np.stack([np.tile(rows[:, None], 28), np.tile(columns, (20, 1))])[None])
    found = network.crop_masks(masks, paddle.zeros([1, 3, *size])).numpy()[0]
    down, across = ((np.arange(cells) + 0.5) * side / cells for cells, side in zip((20, 28), size))
    np.testing.assert_allclose(found[0, :, 0], np.clip(down, 1, 39), atol=1e-5)  # nothing before the first center
    np.testing.assert_allclose(found[1, 0], np.clip(across, 1, 55), atol=1e-5)


@pytest.mark.parametrize("task", ["semantic", "panoptic", "instance"])
def test_what_is_learned_and_evaluated_are_masks_of_the_image(task):
    network, (images, padded) = make_network(task), make_images()
    parts = network.predict_all(images, [1.0, 1.0]), network.predict_all(padded, [1.0, 1.0])
    for own, whole in zip(*parts):
        np.testing.assert_array_equal(own.masks.numpy(), whole.masks.numpy())  # what the blocks see
    outputs = network.training_outputs(images, 0, 100)
    for number, prediction in enumerate(parts[1]):
        expected = network.crop_masks(prediction.masks, images).numpy()
        np.testing.assert_allclose(outputs[f"masks_{number}"].numpy(), expected, atol=1e-5)
    if task != "semantic":
        found, last = network(images), network.predict(padded).masks
        np.testing.assert_allclose(found["masks"].numpy(), network.crop_masks(last, images).numpy(), atol=1e-5)
        assert network(padded)["masks"].shape == found["masks"].shape
        np.testing.assert_array_equal(network(padded)["masks"].numpy(), last.numpy())
