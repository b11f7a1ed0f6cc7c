"""Networks whose queries learn masks, in the task that classifies pixels."""

import numpy as np
import paddle
import pytest
from support.trainings import small_segmenters

from paddlevit_dist import UserError, load_weights
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.models.resampling import bicubic_matrix
from paddlevit_dist.images.segmentation.class_masks import COUNTS, count_classes
from paddlevit_dist.images.segmentation.data.segmentation_dataset import IGNORED
from paddlevit_dist.images.segmentation.samples import HOST, split_batch

SIZES = {"embed_dim": 16, "depth": 2, "num_heads": 2}
OPTIONS = f"{{backbone_options: {SIZES}, num_queries: 5, num_blocks: 1, loss_points: 64}}".replace("'", "")
EOMT = ["MODEL.NAME", "eomt_semantic_shapes", "MODEL.OPTIONS", OPTIONS, "MODEL.TYPE", "eomt"]


def build_task(*words: str):
    task = make_task(settings.load([*small_segmenters.SHAPES, *EOMT, *words]).values)
    return task, {split: task.build_dataset(split, None) for split in ("train", "val")}


def make_batch(task, samples, indices=(0, 1, 2)):
    drawn = [samples["train"].sample(index, np.random.default_rng(index)) for index in indices]
    drawn[1].labels[:] = IGNORED  # an image without objects
    return task.collate(drawn)


def test_classes_of_a_crop_are_its_objects():
    task, samples = build_task()
    batch = make_batch(task, samples)
    assert batch[HOST][COUNTS][1] == 0 and batch["classes"].shape[1] == max(batch[HOST][COUNTS])
    for labels, classes, number in zip(batch["labels"], batch["classes"], batch[HOST][COUNTS]):
        assert classes[:number].tolist() == np.unique(labels[labels != IGNORED]).tolist()
        assert (classes[number:] == -1).all()


def test_counts_of_the_loader_are_those_of_the_step_and_the_loss_can_be_learned():
    task, samples = build_task("TRAIN.RANDOM_SAMPLING", "False")
    batch = make_batch(task, samples)
    normalizers = task.loss_normalizers(batch)
    paddle.seed(1)
    model = task.build_model(task.num_classes)
    assert model.image_size == (24, 40) and not model.random_samples  # a crop's, and as configured
    model.train()
    optimizer = paddle.optimizer.AdamW(2e-3, parameters=model.parameters())
    tensors = {name: paddle.to_tensor(value) if name != HOST else value for name, value in batch.items()}
    losses = []
    for update in range(30):
        terms = task.train_step(model, tensors, StepPosition(1, update, 60))
        assert set(normalizers) == set(task.traits.normalizer_names) == set(terms) - {"accuracy"}
        assert {name: term.count for name, term in terms.items() if name in normalizers} == normalizers
        loss = compute_loss(terms, normalizers, 1, 1)
        loss.backward()
        missing = [name for name, value in model.named_parameters() if value.grad is None]
        assert not missing  # as each rank has to have the same
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0]
    assert task.criterion.weights == {"class": 2.0, "mask": 5.0, "dice": 5.0}


def test_weights_of_a_rectangle_are_resampled_from_its_own_grid(tmp_path):
    """Crops of 26 x 72 pixels are 4 x 9 patches of 8, as many as the 6 x 6 of other crops."""
    small_segmenters.build(str(tmp_path), *EOMT, "DATA.CROP_SIZE", "[26, 72]").train()
    file = next(tmp_path.rglob("*.pdparams"))
    before = paddle.load(str(file))["backbone.pos_embed"].numpy()
    for crop, grid in (("[48, 48]", (6, 6)), ("[26, 70]", (4, 9)), ("[40, 20]", (5, 3))):
        task, _ = build_task("DATA.CROP_SIZE", crop)
        model = task.build_model(task.num_classes)
        load_weights(model, file, strict=True)
        down, across = bicubic_matrix(4, grid[0]), bicubic_matrix(9, grid[1])
        expected = np.einsum("yh,xw,hwc->yxc", down, across, before.reshape(4, 9, -1))
        np.testing.assert_allclose(
            model.backbone.pos_embed.numpy().reshape(expected.shape), expected, rtol=1e-4, atol=1e-6
        )
    resumed = ["DATA.CROP_SIZE", "[48, 48]", "-resume=auto", "-epochs=2", "-allow_changes"]
    with pytest.raises(UserError, match=r"pos_embed is of images of 32 x 72 pixels, .*-pretrained=.*epoch_0001"):
        small_segmenters.build(str(tmp_path), *EOMT, *resumed).train()


def test_an_evaluation_gives_each_pixel_the_most_likely_class():
    task, samples = build_task("SEGMENTATION.PROTOCOL", "spread", "SEGMENTATION.CROP", "[24, 24]")
    model = task.build_model(task.num_classes)
    assert model.image_size == (24, 40)  # a window of the evaluation changes no weight
    model.eval()
    batch = task.collate([samples["val"].sample(index, np.random.default_rng(0)) for index in (4, 0)])
    tensors = {name: paddle.to_tensor(value) if name != HOST else value for name, value in batch.items()}
    for image, (found, labels) in zip(split_batch(tensors), task.class_maps(model, tensors)):
        assert found.shape == labels.shape and found.max() < 4
        pixels = task.normalizer(image.image)
        if image.image.shape[2:] == [24, 24]:
            np.testing.assert_array_equal(found, model(pixels)[0].argmax(axis=0).numpy())
        shares = model(pixels)
        assert shares.shape[2:] == pixels.shape[2:] and float(shares.sum(axis=1).max()) <= 5 + 1e-5


@pytest.mark.parametrize(
    "words",
    [
        ["TRAIN.DICE_WEIGHT", "1"],
        ["SEGMENTATION.CLASS_WEIGHTS", "[1, 2, 1, 1]"],
        ["SEGMENTATION.OHEM_THRESHOLD", "0.7"],
    ],
    ids=lambda words: words[0],
)
def test_losses_of_pixels_are_refused(words):
    with pytest.raises(UserError, match=f"{words[0]}.*losses of queries"):
        build_task(*words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["MODEL.OPTIONS", f"{OPTIONS[:-1]}, annealing: [[0, 1], [2, 3]]}}"], "num_blocks"),
        (["MODEL.OPTIONS", f"{OPTIONS[:-1]}, num_blocks: 3}}"], "num_blocks 3"),
        (["MODEL.BACKBONE", "resnet18", "MODEL.OPTIONS", "{}"], "plain"),
    ],
    ids=["annealing", "blocks", "backbone"],
)
def test_options_that_do_not_fit_are_refused(words, expected):
    task = make_task(settings.load([*small_segmenters.SHAPES, *EOMT, *words]).values)
    with pytest.raises(UserError, match=expected):
        task.build_model(4)


def test_counts_are_known_without_the_device():
    task, samples = build_task()
    batch = make_batch(task, samples)
    assert count_classes(batch).tolist() == batch[HOST][COUNTS]
