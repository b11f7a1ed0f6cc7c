"""Views of test images where they are configured: samples, notices, figures and inputs that are too large."""

import numpy as np
import paddle
import pytest
from PIL import Image
from support.trainings.runs import IMAGES

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.classification.export import ImageClassExport
from paddlevit_dist.images.classification.samples import ClassificationInput, build_view_transform
from paddlevit_dist.images.classification.task import Classification

WORDS = [*IMAGES, "-data_path=."]
VIEWS = ["DATA.TEST_VIEWS", "mirrored", "DATA.TEST_SCALES", "[1.0,1.5]"]


def load(*words):
    return settings.load([*WORDS, *words])


def test_photographs_have_the_views_of_the_keys_and_glyphs_none():
    assert build_view_transform(load().values.DATA, "photo") is None
    transform = build_view_transform(load(*VIEWS, "DATA.CROP_PCT", "0.9").values.DATA, "photo")
    assert (transform.scales, transform.has_corners, transform.is_mirrored) == ((1.0, 1.5), False, True)
    assert transform.plain.crop_pct == 0.9 and transform(Image.new("RGB", (9, 9)), None).shape == (4, 3, 16, 16)
    assert build_view_transform(load(*VIEWS).values.DATA, "glyph") is None
    assert build_view_transform(load("DATA.TEST_SCALES", "[1.25]").values.DATA, "photo").scales == (1.25,)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-dataset=digits"], "glyphs are neither cropped nor mirrored: "),
        (["TASK", "knn_probe"], "features are computed once, with the evaluation transform: "),
    ],
)
def test_views_that_have_no_effect_are_told(words, reason):
    notices = load(*VIEWS, *words).notices
    told = [line for line in notices if line.startswith(("DATA.TEST_VIEWS", "DATA.TEST_SCALES"))]
    assert len(told) == 2 and all("no effect" in line and reason in line for line in told), notices


def test_a_batch_of_views_has_the_logits_of_their_mean_probability():
    task = Classification(load(*VIEWS).values)
    weights = paddle.to_tensor(np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32))
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 6, 8), dtype=np.uint8)

    def model(normalized):
        return normalized.mean(axis=[2, 3]) @ weights

    found = task.logits(model, {"images": paddle.to_tensor(images)}).numpy()
    logits = ((images / 255 - 0.5) / 0.5).mean(axis=(3, 4)) @ weights.numpy()  # (images, views, classes)
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.exp(found), shares.mean(axis=1), rtol=1e-5)
    one = task.logits(model, {"images": paddle.to_tensor(images[:, 0])}).numpy()
    np.testing.assert_allclose(one, logits[:, 0], atol=1e-5)


def test_the_largest_scale_of_an_input_decides_whether_it_is_too_large():
    transform = build_view_transform(load(*VIEWS, "DATA.CROP_PCT", "1.0").values.DATA, "photo")
    narrow = Image.new("RGB", (4, 40))  # resized to 16 x 160, and to 24 x 240 at the larger scale
    assert ClassificationInput(transform, 24 * 240)(narrow, None)[0].shape == (4, 3, 16, 16)
    with pytest.raises(BadSample, match="an image of 4 x 40 pixels would be scaled to 24 x 240"):
        ClassificationInput(transform, 24 * 240 - 1)(narrow, None)


def test_an_export_computes_one_view():
    ImageClassExport(Classification(load().values)).check_export()
    with pytest.raises(UserError, match=r"^export: DATA.TEST_VIEWS \[\], DATA.TEST_SCALES \[1.5\]: an exported model"):
        ImageClassExport(Classification(load("DATA.TEST_SCALES", "[1.5]").values)).check_export()
