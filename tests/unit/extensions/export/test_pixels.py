"""Models that take pixels compute what the trained ones compute of normalized images."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.step_types import ExportParts
from paddlevit_dist.extensions.export.pixels import convert_to_pixel_input, to_pixels
from paddlevit_dist.extensions.export.trained_models import TrainedModel

MEAN, DEVIATION = [0.5, 0.25, 0.75], [0.25, 0.5, 0.125]


class Returned(paddle.nn.Layer):
    """Returns its inputs."""

    def forward(self, images, sizes=None):
        return images if sizes is None else (images, sizes)


def make_trained(**changes) -> TrainedModel:
    steps = {"resize": [4, 5], "divide_by": 255, "subtract": MEAN, "divide_by_deviation": DEVIATION}
    steps["layout"] = "batch, channels, height, width"
    about = {"preprocessing": steps, "mean": MEAN, "standard_deviation": DEVIATION, "input_shape": [None, 3, 4, 5]}
    parts = ExportParts(3, {}, example={"input": np.zeros((1, 3, 4, 5), np.float32), "file": 7}, paddlex={"a": 1})
    return TrainedModel(Returned(), {**about, "model": "vit", **changes}, parts)


def test_pixels_are_normalized_inside_and_the_description_says_so():
    trained = convert_to_pixel_input(make_trained())
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
    expected = (pixels / 255.0 - MEAN) / DEVIATION
    images = trained.model(paddle.to_tensor(pixels)).numpy()
    np.testing.assert_allclose(images, expected.transpose(0, 3, 1, 2), atol=1e-5)
    np.testing.assert_array_equal(to_pixels(images, MEAN, DEVIATION), pixels)
    shown, sizes = trained.model(paddle.to_tensor(pixels), paddle.to_tensor([[5, 4]] * 2))
    np.testing.assert_array_equal(shown.numpy(), images)
    assert sizes.tolist() == [[5, 4]] * 2 and not trained.model.training
    about = trained.about
    assert (about["input_type"], about["input_shape"], about["model"]) == ("uint8", [None, 4, 5, 3], "vit")
    assert about["preprocessing"] == {"resize": [4, 5], "layout": "batch, height, width, channels"}
    assert about["computed_inside"] == {"divide_by": 255, "subtract": MEAN, "divide_by_deviation": DEVIATION}
    example, level = trained.parts.example, np.rint(255 * np.array(MEAN))  # of a normalized 0
    assert example["file"] == 7 and (example["input"] == level.astype(np.uint8)).all()
    assert example["input"].shape == (1, 4, 5, 3) and trained.parts.paddlex is None


def test_values_beyond_the_pixels_are_cut_off():
    images = np.full((1, 3, 1, 2), 9.0, np.float32)
    images[..., 1] = -9.0
    assert to_pixels(images, MEAN, DEVIATION).tolist() == [[[[255] * 3, [0] * 3]]]


def test_only_models_of_images_take_pixels():
    steps = make_trained().about["preprocessing"]
    trained = make_trained(preprocessing={**steps, "layout": "batch, channels, depth, height, width"})
    without_mean = {name: value for name, value in make_trained().about.items() if name != "mean"}
    for changed in (trained, trained._replace(about=without_mean), make_trained(preprocessing="gray")):
        with pytest.raises(UserError, match="-input=uint8 is for models of images: remove it"):
            convert_to_pixel_input(changed)
    with pytest.raises(UserError, match="export the run's folder"):
        convert_to_pixel_input(trained._replace(parts=None, about=SimpleNamespace(get=lambda _: None)))
