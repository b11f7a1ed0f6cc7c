"""EoMT's semantic maps: windows of squares along the longer side, and one stretched square."""

import numpy as np
import paddle
import pytest
from PIL import Image
from support.networks.golden_eomt import GOLDEN, random, stored
from support.networks.golden_networks import sample

from paddlevit_dist.images.mask_queries.network import Prediction
from paddlevit_dist.images.mask_queries.semantic import share_pixels
from paddlevit_dist.images.segmentation.protocols import EvaluationProtocol, class_map, slide_windows, starts, upsample
from paddlevit_dist.images.segmentation.transforms import SegmentationEvaluationTransform

POST, WINDOWS = GOLDEN["post"], GOLDEN["windows"]
SIDE = WINDOWS["size"]
MEAN, DEVIATION = (np.array(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.mark.parametrize("image", range(len(POST["target_sizes"])))
def test_golden_eomt_stretched_square(image):
    """The file's scores are transformers', which gives pixels of a whole square to a picture."""
    parts = (stored()[f"post/{name}_logits"][image : image + 1].astype(np.float64) for name in ("class", "mask"))
    shares = share_pixels(Prediction(*map(paddle.to_tensor, parts)), (POST["size"],) * 2)
    shares = upsample(shares, POST["target_sizes"][image]).numpy()[0]
    expected = stored()[f"post/semantic/scores{image}"]
    np.testing.assert_allclose(sample(shares, len(expected)), expected, rtol=0, atol=2e-6)
    differ = shares.argmax(axis=0) != stored()[f"post/semantic/{image}"]
    best = np.sort(shares, axis=0)
    assert not differ.any() or (best[-1] - best[-2])[differ].max() < 1e-5


def _input(picture):
    height, width = WINDOWS["pictures"][picture]
    pixels = random(f"windows/picture{picture}").integers(0, 256, (height, width, 3), dtype=np.uint8)
    return SegmentationEvaluationTransform(SIDE)(Image.fromarray(pixels))


@pytest.mark.parametrize("picture", range(len(WINDOWS["pictures"])))
def test_golden_eomt_windows_along_the_longer_side(picture):
    offsets = [number for number, each in enumerate(WINDOWS["offsets"]) if each[0] == picture]
    number = len(WINDOWS["offsets"])
    masks = 3 * random("windows/masks").standard_normal((number, WINDOWS["queries"], SIDE // 4, SIDE // 4))
    classes = 2 * random("windows/classes").standard_normal((number, WINDOWS["queries"], WINDOWS["classes"] + 1))
    seen = []

    def network(pixels):
        seen.append(pixels.numpy())
        first = offsets[sum(map(len, seen[:-1]))]
        rows = slice(first, first + len(pixels))
        return share_pixels(Prediction(paddle.to_tensor(classes[rows]), paddle.to_tensor(masks[rows])), (SIDE, SIDE))

    image, size = paddle.to_tensor(_input(picture)[None]), tuple(WINDOWS["pictures"][picture])
    protocol = EvaluationProtocol((SIDE, SIDE), None, of_probabilities=True)
    found = class_map(network, image, size, protocol).numpy()
    expected = stored()[f"windows/map{picture}"]
    assert (found != expected).sum() == 0
    sides, axis = (size[0] < size[1]), 2 + (size[0] < size[1])
    for pixels, number in zip(np.concatenate(seen), offsets):
        start, end = WINDOWS["offsets"][number][1:]
        assert image.shape[axis] >= end and sides in (True, False)
        cut = np.take(image.numpy()[0], np.arange(start, end), axis=axis - 1)
        np.testing.assert_array_equal(pixels, cut)
        theirs = stored()["windows/pixels"][number]
        ours = (cut / 255 - MEAN) / DEVIATION
        np.testing.assert_allclose(sample(ours, len(theirs)), theirs, rtol=0, atol=1.01 / 255 / 0.224)
    seen.clear()
    shares = paddle.concat(list(slide_windows(network, image, (SIDE, SIDE), None)), axis=2)
    expected = stored()[f"windows/scores{picture}"]
    np.testing.assert_allclose(sample(upsample(shares, size).numpy()[0], len(expected)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("row", WINDOWS["table"], ids=lambda row: f"{row['size']} {row['picture']}")
def test_golden_eomt_places_of_windows_are_the_authors(row):
    (resized, _), side = SegmentationEvaluationTransform(row["size"]).sizes(tuple(row["picture"])), row["size"]
    assert list(resized) == row["authors_resized"]
    if row["authors_windows"] is not None:
        assert [[start, start + side] for start in starts(max(resized), side, None)] == row["authors_windows"]
    assert starts(min(resized), side, None) == [0]
