"""How a log describes images without labels, and the list of those that could not be read."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import Checkable, LogContributor, Reportable
from paddlevit_dist.core.tasks.task_factory import make_task

WORDS = "MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 8 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 -dataset=unlabeled"


@pytest.fixture
def pool(tmp_path):
    for name in ("train/a.png", "train/b.png", "train/c.png", "val/x/d.png", "val/y/e.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 8)).save(tmp_path / name)
    return tmp_path


def make(pool, task, *words):
    common = [f"-data_path={pool}", "-image_size=8", f"-output={pool / 'out'}"]
    return make_task(settings.load(["TASK", task, *WORDS.split(), *common, *words]).values)


@pytest.mark.parametrize(
    ("name", "chooses"),
    [
        ("masked_autoencoder", "the loss chooses the best one"),
        ("self_distillation", "the last checkpoint counts as the best"),
    ],
)
def test_evaluated_images_are_described_by_their_classes_or_by_what_chooses_without_them(pool, name, chooses):
    task = make(pool, name, "PRETRAINING.NEIGHBORS", "7")
    log = get_aspect(task, LogContributor)
    splits = {split: task.build_dataset(split, pool) for split in ("train", "val")}
    assert log.describe_samples(splits["train"]) == "3 images"
    assert log.describe_samples(splits["val"]) == "2 images of 2 classes, compared with their 7 nearest neighbors"
    (pool / "val" / "y").rename(pool / "val" / "x" / "y")
    task = make(pool, name)
    found = get_aspect(task, LogContributor).describe_samples(task.build_dataset("val", pool))
    assert found == f"2 images, which have no classes: {chooses}"


def test_images_that_cannot_be_read_are_listed_and_replaced(pool):
    (pool / "out").mkdir()
    (pool / "train" / "b.png").write_bytes((pool / "train" / "b.png").read_bytes()[:40])
    task = make(pool, "masked_autoencoder", "DATA.ON_INVALID_SAMPLE", "skip")
    samples = task.build_dataset("train", pool)
    log = get_aspect(task, LogContributor)
    assert log.finish_epoch() == []
    images = [samples.sample(index, np.random.default_rng(5))[0] for index in range(3)]
    np.testing.assert_array_equal(images[1], images[2])
    (line,) = log.finish_epoch()
    assert line.startswith("1 unreadable image so far replaced by the next readable one, listed in ")
    assert (
        line.endswith(f"{pool}/out/quarantine.tsv")
        and str(pool / "train/b.png") in (pool / "out/quarantine.tsv").read_text()
    )


def test_tasks_without_labels_have_no_label_to_check_and_a_log_without_figures(pool):
    task = make(pool, "self_distillation")
    samples = task.build_dataset("train", pool)
    assert get_aspect(task, Checkable).labels_in(samples.sample(0, np.random.default_rng(0))) is None
    assert get_aspect(task, Reportable).figures(samples, [], None) == []
