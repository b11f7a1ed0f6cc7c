"""Images grouped by shape: each is still seen once, whatever the processes, and batches need less padding."""

import numpy as np
import pytest

from paddlevit_dist.core.data.sampler import TrainingSampler
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.images_part import ordered_by_shape
from paddlevit_dist.images.detection.data.samples import (
    DetectionSamples,
    draw_grouped_order,
    open_samples,
)
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.detection.data.transforms import DetectionEvaluationTransform, DetectionTrainingTransform

SHAPES = SyntheticShapes(None, "train", None, num_train=103, sides=(32, 96))
SAMPLES = DetectionSamples(SHAPES, DetectionTrainingTransform(), is_training=True, group=4)


def read_by(world_size, batch_size, epoch, consumed=0, updates=None, accumulation=1, samples=SAMPLES):
    """The indices that all ranks read together, in any order, and the micro-batches they come in."""
    batches = []
    for rank in range(world_size):
        sampler = TrainingSampler(
            samples, batch_size, rank=rank, world_size=world_size, accumulation_steps=accumulation, seed=3
        )
        own = [[key.index for key in batch] for batch in sampler.batches(epoch, consumed)]
        batches += own[: None if updates is None else updates * accumulation]
    return sorted(index for batch in batches for index in batch), batches


@pytest.mark.parametrize(("world_size", "batch_size", "accumulation"), [(1, 4, 1), (2, 4, 1), (3, 2, 2), (2, 1, 4)])
def test_every_image_is_read_once_by_all_ranks_together(world_size, batch_size, accumulation):
    read, _ = read_by(world_size, batch_size, 1, accumulation=accumulation)
    assert (
        len(set(read))
        == len(read)
        == 103 // (world_size * batch_size * accumulation) * (world_size * batch_size * accumulation)
    )
    order = SAMPLES.draw_order(np.random.default_rng([3, 1]))
    assert sorted(order.tolist()) == list(range(103))
    assert set(read) == set(order[: len(read)].tolist())


@pytest.mark.parametrize(("before", "after"), [((2, 4), (1, 4)), ((1, 4), (3, 4)), ((2, 4), (4, 2)), ((3, 2), (2, 4))])
def test_an_epoch_continued_by_another_number_of_processes_sees_every_image_once(before, after):
    first, _ = read_by(*before, epoch=2, updates=4)
    consumed = 4 * before[0] * before[1]
    rest, _ = read_by(*after, epoch=2, consumed=consumed)
    assert len(first) == consumed and not set(first) & set(rest)
    left = 103 - len(first) - len(rest)
    assert 0 <= left < after[0] * after[1] and len(set(first) | set(rest)) == 103 - left


def padding(batches, sizes):
    areas = [sizes[batch].prod(axis=1).sum() / (len(batch) * sizes[batch].max(axis=0).prod()) for batch in batches]
    return 1 - np.mean(areas)


def test_batches_need_less_padding_and_differ_between_epochs():
    free = DetectionSamples(SHAPES, DetectionTrainingTransform(), is_training=True)
    _, grouped = read_by(2, 4, 1)
    _, plain = read_by(2, 4, 1, samples=free)
    transform = DetectionEvaluationTransform(48, 200)
    sizes = np.array([transform.resized(SHAPES.size(index)) for index in range(103)])
    assert padding(grouped, sizes) < 0.5 * padding(plain, sizes)
    _, again = read_by(2, 4, 2)
    assert len({tuple(sorted(batch)) for batch in grouped} & {tuple(sorted(batch)) for batch in again}) < 3


@pytest.mark.parametrize(("number", "group"), [(0, 4), (3, 4), (4, 4), (1000, 16), (7, 1)])
def test_any_number_of_images_and_any_group(number, group):
    sizes = np.random.default_rng(0).integers(0, 500, (number, 2))
    order = draw_grouped_order(sizes, group, np.random.default_rng(1))
    assert sorted(order.tolist()) == list(range(number))
    np.testing.assert_array_equal(order, draw_grouped_order(sizes, group, np.random.default_rng(1)), strict=True)


def test_images_of_equal_proportions_stay_in_the_order_that_was_drawn():
    sizes = np.random.default_rng(0).integers(1, 3, (1000, 2))
    order, drawn = draw_grouped_order(sizes, 16, np.random.default_rng(1)), np.random.default_rng(1).permutation(1000)
    rank, proportions = np.argsort(drawn), sizes[:, 1] / sizes[:, 0]
    for group in order[: 1000 // 16 * 16].reshape(-1, 16):
        np.testing.assert_array_equal(np.lexsort((rank[group], proportions[group])), np.arange(16))
    np.testing.assert_array_equal(order[-8:], drawn[-8:])


def test_images_of_equal_shapes_come_together_in_an_evaluation_only(tmp_path):
    words = ["-cfg=detr_shapes", "DATA.SHAPES.SIDES", "[40,80]", "DETECTION.EVAL_BATCHING"]
    single, equal = (load([*words, batching]).values for batching in ("single", "equal_shapes"))
    for config, split in ((equal, "train"), (single, "val")):
        samples = open_samples(config, split, tmp_path, split == "train")
        assert samples.dataset.image_ids.tolist() == [*range(1, len(samples) + 1)]
    samples = open_samples(equal, "val", tmp_path, is_training=False)
    sizes = [samples.transform.resized(tuple(size)) for size in samples.dataset.sizes.tolist()]
    assert sizes == sorted(sizes) and samples.dataset.image_ids.tolist() != [*range(1, len(samples) + 1)]


def test_images_to_be_evaluated_come_by_their_size_and_each_once(tmp_path):
    transform = DetectionEvaluationTransform(48, 60)
    ordered = ordered_by_shape(SHAPES, transform.resized, tmp_path)
    sizes = [transform.resized(ordered.size(index)) for index in range(len(ordered))]
    assert sizes == sorted(sizes) and sorted(ordered.image_ids.tolist()) == SHAPES.image_ids.tolist()
    np.testing.assert_array_equal(
        ordered.annotations(5).boxes, SHAPES.annotations(ordered.image_id(5) - 1).boxes, strict=True
    )


def test_the_order_of_groups_is_drawn():
    """Within a part of the images, groups are made by rising proportions: they do not come in that order."""
    sizes = np.column_stack([np.full(960, 50), np.arange(960) + 50])
    rises = []
    for seed in range(4):
        order = draw_grouped_order(sizes, 8, np.random.default_rng(seed))
        rises.append(np.mean(np.diff(order.reshape(-1, 8).mean(axis=1)) > 0))
    assert len(set(rises)) > 1 and 0.35 < min(rises) and max(rises) < 0.65
