"""Several labels of images that are not square and have several views."""

import numpy as np
import paddle
from support.samples.tagged_images import make_task

from paddlevit_dist.core.tasks.dataset import reading_generator

VIEWS = ["DATA.TEST_VIEWS", "[mirrored,five_crops]", "DATA.IMAGE_SIZE", "[16,24]", "DATA.CROP_PCT", "0.8"]


def collate(task, samples, number):
    return task.collate([samples.sample(row, reading_generator(0, 1, row, 0)) for row in range(number)])


def test_the_probability_of_a_label_is_the_mean_of_the_views_sigmoids(tmp_path):
    task, splits = make_task(*VIEWS, folder=tmp_path)
    assert splits["val"].eval_protocol == "mean of 10 views: five crops, mirrored, threshold 0.5"
    batch = {name: paddle.to_tensor(array) for name, array in collate(task, splits["val"], 4).items()}
    assert batch["images"].shape == [4, 10, 3, 16, 24]
    model = task.build_model()
    model.eval()
    shares = []
    for view in range(10):
        logits = model(task.normalizer(batch["images"][:, view])).numpy().astype(np.float64)
        shares.append(1 / (1 + np.exp(-logits)))
    found = 1 / (1 + np.exp(-task.logits(model, batch).numpy().astype(np.float64)))
    np.testing.assert_allclose(found, np.mean(shares, axis=0), rtol=1e-5)
    assert np.std(shares, axis=0).max() > 1e-4


def test_training_has_one_view_of_the_rectangle_with_boxes_inside_it(tmp_path):
    words = [*VIEWS, "TRAIN.CUTMIX_ALPHA", "1.0", "TRAIN.RANDOM_ERASE_PROB", "1.0"]
    task, splits = make_task(*words, folder=tmp_path)
    batch = collate(task, splits["train"], 6)
    assert batch["images"].shape == (6, 3, 16, 24)
    assert (batch["erase_boxes"][..., 2] <= 16).all() and (batch["erase_boxes"][..., 3] <= 24).all()
