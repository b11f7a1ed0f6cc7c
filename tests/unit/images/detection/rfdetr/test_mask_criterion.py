"""RF-DETR Seg's losses of masks, beside the numbers of the golden file."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.rfdetr.seg_network import RfDetrSeg

CLASSES, SIDE = 3, 64


def _network():
    paddle.seed(0)
    return RfDetrSeg(CLASSES, **RfDetrSeg.variants["rfdetr_seg_shapes"])


def _criterion(**losses):
    losses = {"random_samples": False, **losses}
    return RfDetrSeg.criterion("rfdetr_seg_shapes", CLASSES, losses, random_samples=losses["random_samples"])


def _targets(counts, size=SIDE):
    """Rectangles, which differ from image to image; masks of ``size`` pixels."""
    most = max(1, *counts)
    boxes, labels = np.zeros((len(counts), most, 4), np.float32), np.full((len(counts), most), -1)
    masks = np.zeros((len(counts), most, size, size), np.uint8)
    for image, count in enumerate(counts):
        for number in range(count):
            x, y = 8 * (image + number), 8 * number
            boxes[image, number], labels[image, number] = [x, y, x + 24, y + 16], number % CLASSES
            scale = size / SIDE
            masks[image, number, int(y * scale) : int((y + 16) * scale), int(x * scale) : int((x + 24) * scale)] = 1
    sizes = np.full((len(counts), 2), SIDE)
    return DetectionTargets(*map(paddle.to_tensor, (boxes, labels, sizes)), np.array(counts), paddle.to_tensor(masks))


def _images(number):
    random = np.random.default_rng(5)
    return paddle.to_tensor(random.standard_normal((number, 3, SIDE, SIDE)).astype("float32"))


@pytest.mark.parametrize("counts", [(2, 0), (0, 0)])
def test_every_parameter_learns_also_without_objects(counts):
    network, targets = _network(), _targets(counts)
    terms = _criterion().terms(network(_images(2), targets=targets), targets)
    weights = {"class": 1.0, "box": 5.0, "giou": 2.0, "mask": 5.0, "dice": 5.0, "iou": 0.0}
    assert {name: term.weight for name, term in terms.items()} == {
        **weights,
        **{f"{name}_auxiliary": weight for name, weight in weights.items() if weight},
    }
    objects = 3 * sum(counts)  # of three groups
    assert {term.count for term in terms.values()} == {objects}
    assert (float(terms["mask"].sum) > 0) == (float(terms["dice"].sum) > 0) == bool(objects)
    sum(term.sum for term in terms.values()).backward()
    assert [name for name, parameter in network.named_parameters() if parameter.grad is None] == []


def test_evenly_spread_points_give_an_image_the_same_losses_in_any_company():
    network, images = _network(), _images(2)

    def sums(rows, counts):
        targets = _targets((2, 3))
        parts = [None if part is None else part[rows] for part in targets[:5]]
        targets = DetectionTargets(*parts)
        terms = _criterion().terms(network(images[rows], targets=targets), targets)
        return {name: float(term.sum) for name, term in terms.items()}

    together, apart = sums([0, 1], (2, 3)), [sums([row], (count,)) for row, count in enumerate((2, 3))]
    for name, value in together.items():
        np.testing.assert_allclose(apart[0][name] + apart[1][name], value, rtol=1e-4, err_msg=name)


def test_points_are_fractions_of_masks_of_any_size():
    network, images = _network(), _images(2)
    found = []
    for size in (SIDE, 2 * SIDE):
        targets = _targets((2, 1), size)
        terms = _criterion().terms(network(images, targets=targets), targets)
        found.append([float(term.sum) for term in terms.values()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_points_are_drawn_anew_from_the_seed():
    network, images, targets = _network(), _images(2), _targets((2, 1))
    outputs, criterion, found = network(images, targets=targets), _criterion(random_samples=True), []
    for seed in (1, 1, 2):
        paddle.seed(seed)
        found.append(float(criterion.terms(outputs, targets)["mask"].sum))
    assert found[0] == found[1] != found[2]


def test_data_without_masks_are_refused():
    network, targets = _network(), _targets((1,))._replace(masks=None)
    with pytest.raises(UserError, match="RF-DETR Seg learns masks, but these data have only boxes"):
        _criterion().terms(network(_images(1), targets=targets), targets)
