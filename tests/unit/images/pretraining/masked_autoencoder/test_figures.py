"""Pictures of masked images: which pixels they show, and which evaluated images a report has."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Recomputable, Reportable
from paddlevit_dist.images.pretraining.masked_autoencoder.figures import MaskedImageDrawing
from paddlevit_dist.images.pretraining.masked_autoencoder.task import MaskedAutoencoding

WORDS = "TASK masked_autoencoder -image_size=[8,16] MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 16 MODEL.DEPTH 3"
WORDS += " MODEL.NUM_HEADS 2 MASKED_AUTOENCODER.DECODER_WIDTH 8 MASKED_AUTOENCODER.DECODER_DEPTH 1"
WORDS += " MASKED_AUTOENCODER.DECODER_HEADS 2 MASKED_AUTOENCODER.MASK_SHARE 0.5"
ORDERS = ([7, 0, 2, 5, 1, 3, 4, 6], [1, 2, 3, 6, 0, 4, 5, 7])  # of 2 x 4 patches, the first 4 of which are seen


@pytest.fixture(scope="module")
def task():
    return MaskedAutoencoding(settings.load(WORDS.split()).values)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (2, 3, 8, 16), np.uint8)


class Samples:
    """Three evaluated samples, of which the second is missing."""

    def __init__(self, images):
        self.images = images

    def sample(self, index, generator):
        if index == 1:
            raise UserError("images/1.png does not exist")
        return self.images[index // 2], -1, np.array(ORDERS[index // 2])

    def describe(self, index):
        return f"images/{index}.png"


def test_a_training_batch_shows_seen_patches_and_the_mean_color_elsewhere(task, images):
    batch = task.collate([(image, -1, np.array(order)) for image, order in zip(images, ORDERS)])
    drawn = get_aspect(task, Drawable).visualize_batch(None, batch, 1)
    assert [caption for _, caption in drawn] == ["", ""]
    gray = np.rint(task.normalizer.mean).astype(np.uint8).reshape(3)
    for image, order, (pixels, _) in zip(images, ORDERS, drawn):
        expected = image.transpose(1, 2, 0).copy()
        for patch in order[4:]:
            row, column = divmod(patch, 4)
            expected[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = gray
        np.testing.assert_array_equal(pixels, expected)


def test_evaluated_images_are_drawn_whole(task, images):
    drawing = get_aspect(task, Drawable)
    assert isinstance(drawing, MaskedImageDrawing)
    drawn = drawing.visualize_eval_samples(Samples(images), [2, 0])
    np.testing.assert_array_equal([pixels for pixels, _ in drawn], images[[1, 0]].transpose(0, 2, 3, 1))


def test_a_report_leaves_out_images_that_cannot_be_read(task, images):
    model = task.build_model()
    model.eval()
    figures, records = get_aspect(task, Reportable).figures, [(0, 0.25), (1, 0.5), (2, 0.75)]
    [gallery] = figures(Samples(images), records, model)
    assert [caption for _, caption in gallery.images] == ["loss 0.250\nimages/0.png", "loss 0.750\nimages/2.png"]
    for (row, _), image in zip(gallery.images, images):
        np.testing.assert_array_equal(row[:, :16], image.transpose(1, 2, 0))
    assert figures(Samples(images), records[1:2], model) == []


@pytest.mark.parametrize("is_normalized", [False, True])
def test_a_reconstruction_has_the_predicted_pixels_in_hidden_patches_alone(images, is_normalized):
    words = [*WORDS.split(), "MASKED_AUTOENCODER.NORMALIZED_PATCHES", str(is_normalized)]
    task = MaskedAutoencoding(settings.load(words).values)
    model = task.build_model()
    model.eval()
    samples = Samples(images)
    batch = task.collate([samples.sample(index, None) for index in (0, 2)])
    tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
    prediction = task.predict(model, tensors)[1][0].numpy()  # (2, 8, 48)
    [gallery] = get_aspect(task, Reportable).figures(samples, [(0, 0.25), (2, 0.75)], model)
    assert gallery.note.startswith("Each image, the patches that the encoder sees")
    assert ("the mean and the deviation of their patch" in gallery.note) == is_normalized
    mean, deviation = (np.array(values) for values in (task.config.DATA.IMAGENET_MEAN, task.config.DATA.IMAGENET_STD))
    for number, (row, _) in enumerate(gallery.images):
        assert row.shape == (8, 3 * 16 + 2 * 2, 3)
        image = images[number].transpose(1, 2, 0)
        seen, filled = image.astype(float), image.astype(float)
        for patch in ORDERS[number][4:]:
            rows, columns = (slice(4 * place, 4 * place + 4) for place in divmod(patch, 4))
            seen[rows, columns] = 255 * mean
            own, found = (image[rows, columns] / 255 - mean) / deviation, prediction[number, patch].reshape(4, 4, 3)
            found = found * np.sqrt(own.var(ddof=1) + 1e-6) + own.mean() if is_normalized else found
            filled[rows, columns] = np.clip(255 * (found * deviation + mean), 0, 255)
        assert np.abs(row[:, 18:34] - seen).max() < 0.51 and np.abs(row[:, 36:] - filled).max() < 0.51


def test_the_encoder_is_recomputed_block_by_block(task):
    model = task.build_model()
    layers = get_aspect(task, Recomputable).recomputed_layers(model)
    assert list(map(id, layers)) == list(map(id, model.encoder.blocks)) and len(layers) == 3
