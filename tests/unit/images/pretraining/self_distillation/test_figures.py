"""Pictures of views: which are side by side, and what an evaluation shows."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, LogContributor, Recomputable, StateKeeping
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation

WORDS = "TASK self_distillation -image_size=8 MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 16 MODEL.DEPTH 3"
WORDS += " MODEL.NUM_HEADS 2 SELF_DISTILLATION.OUTPUTS 8 SELF_DISTILLATION.HEAD_WIDTH 8 SELF_DISTILLATION.BOTTLENECK 4"


@pytest.fixture(scope="module")
def task():
    return SelfDistillation(settings.load(WORDS.split()).values)


@pytest.mark.parametrize(("small_views", "number"), [(0, 3), (3, 3), (3, 1)])
def test_the_views_of_an_image_are_side_by_side(task, small_views, number):
    generator = np.random.default_rng(small_views)
    views = [
        tuple(generator.integers(0, 256, (n, 3, s, s), np.uint8) for n, s in ((2, 8), (small_views, 4)))
        for _ in range(number)
    ]
    batch = task.collate([(*pair, -1) for pair in views])
    drawn = get_aspect(task, Drawable).visualize_batch(None, batch, 1)
    assert [caption for _, caption in drawn] == [f"2 large views, {small_views} small ones"] * number
    for (large, small), (pixels, _) in zip(views, drawn):
        expected = np.full((8, 16 + 4 * small_views, 3), 255, np.uint8)
        for place, view in enumerate(large):
            expected[:, 8 * place : 8 * place + 8] = view.transpose(1, 2, 0)
        for place, view in enumerate(small):
            expected[:4, 16 + 4 * place : 20 + 4 * place] = view.transpose(1, 2, 0)
        np.testing.assert_array_equal(pixels, expected)


def test_evaluated_images_are_drawn_in_the_order_asked_for(task):
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), np.uint8)

    class Samples:
        def sample(self, index, generator):
            return images[index : index + 1], images[:0], 1

    drawn = get_aspect(task, Drawable).visualize_eval_samples(Samples(), [2, 0])
    np.testing.assert_array_equal([pixels for pixels, _ in drawn], images[[2, 0]].transpose(0, 2, 3, 1))


def test_the_student_is_recomputed_block_by_block(task):
    model = task.build_model()
    layers = get_aspect(task, Recomputable).recomputed_layers(model)
    assert list(map(id, layers)) == list(map(id, model.backbone.blocks)) and len(layers) == 3


def test_a_collapse_is_told_once(task):
    log = get_aspect(task, LogContributor)
    assert log.finish_epoch() == []  # nothing has been trained
    state = get_aspect(task, StateKeeping).build_state(task.build_model(), None)
    told = []
    for informative in (True, False, False, False):
        state.before_update(StepPosition(1, 600, 999))
        shares = paddle.eye(8) if informative else paddle.full([8, 8], 0.125)
        state.collect(StepPosition(1, 0, 1), shares, shares, shares)
        state.update(None)
        told.append(log.finish_epoch())
    assert [len(lines) for lines in told] == [0, 1, 0, 0]
    assert told[1][0].startswith("warning: self-distillation has collapsed: the teacher's outputs are uniform")
