"""Three tasks of a user learn as a plain loop does: on two processes, and on one that continues the run."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.hosts.own_modules import ENTRY
from support.processes import run_command
from support.registrations import forgotten
from support.trainings.runs import read_events, well

from paddlevit_dist.core import settings
from paddlevit_dist.core.data.sampler import SampleKey
from paddlevit_dist.core.tasks.dataset import reading_generator
from paddlevit_dist.core.tasks.task_factory import make_task

OWN = """
import albumentations as A
import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import io, nn
from PIL import Image
from paddlevit_dist import register_dataset, register_model, register_task
from paddlevit_dist.core.tasks import MeasuredTask, Model
from paddlevit_dist.images import Classification, ImageDataset, ImageSegmentation, SegmentationDataset, Segmenter

def fill(layer):
    for number, parameter in enumerate(layer.parameters()):
        values = np.random.default_rng(number).normal(0, 0.2, parameter.shape)
        parameter.set_value(values.astype("float32"))

class Drawn:
    class_names = ["one", "two", "three"]

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return 48 if self.split == "train" else 13

    def draw(self, index, shape):
        generator = np.random.default_rng([index, self.split == "train"])
        return generator.integers(0, 256, shape, dtype=np.uint8), generator

class Weighted(Drawn):
    def draw_order(self, generator):
        weights = 1.0 + np.arange(48) % 3
        return generator.choice(48, 48, p=weights / weights.sum())

class Patches(Weighted, ImageDataset):
    def read(self, index):
        return Image.fromarray(self.draw(index, (20, 24, 3))[0]), index % 7 % 3

class Net(Model):
    def __init__(self, num_classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2D(3, 8, 4, 4), nn.GELU(), nn.AdaptiveAvgPool2D(2), nn.Flatten())
        self.head = nn.Linear(32, num_classes)
        fill(self)

    def forward(self, images):
        return self.head(self.body(images))

class Focal(Classification):
    def losses(self, outputs, batch):
        logs = -F.cross_entropy(outputs, batch["labels"], reduction="none").flatten()
        return -((1 - logs.exp()) ** 2) * logs

class Maps(Drawn, SegmentationDataset):
    def read(self, index):
        pixels, generator = self.draw(index, (32, 40, 3))
        labels = generator.integers(0, 3, (32, 40), dtype=np.uint8)
        labels[: index % 30] = 255  # images have different numbers of labeled pixels
        return Image.fromarray(pixels), labels

class Deep(Segmenter):
    auxiliary_weight = 0.5

    def __init__(self, num_classes=3):
        super().__init__(num_classes)
        self.first, self.second = nn.Conv2D(3, 6, 3, 2, 1), nn.Conv2D(6, 6, 3, 2, 1)
        self.heads = nn.LayerList([nn.Conv2D(6, num_classes, 1) for _ in range(3)])
        fill(self)

    def forward(self, images):
        fine = F.gelu(self.first(images))
        coarse = F.gelu(self.second(fine))
        raised = fine + F.interpolate(coarse, fine.shape[2:], mode="bilinear")
        maps = [head(x) for head, x in zip(self.heads, (raised, fine, coarse))]
        return maps if self.training else maps[0]

class Supervised(ImageSegmentation):
    def losses(self, outputs, batch):
        labels = batch["labels"]
        return F.cross_entropy(outputs, labels, ignore_index=255, axis=1, reduction="none").reshape(labels.shape).sqrt()

class Pairs(Weighted, io.Dataset):
    def __getitem__(self, index):
        pair, _ = self.draw(index, (2, 12, 12, 3))
        steps = [A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(brightness_limit=0.5, p=0.8)]
        augment = A.Compose(steps, seed=np.random.randint(2**31))
        left, right = (augment(image=image)["image"] for image in pair) if self.split == "train" else pair
        return {"left": left, "right": right, "gap": (index % 5) / 5, "noise": np.random.normal()}

class Siamese(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2D(3, 4, 3, 3), nn.GELU(), nn.Flatten(), nn.Linear(64, 5))
        fill(self)

    def forward(self, left, right):
        return [self.body(image.transpose([0, 3, 1, 2]).astype("float32") / 255) for image in (left, right)]

class Comparison(MeasuredTask):
    def build_dataset(self, split, cache_folder):
        return Pairs(split)

    def build_model(self, num_classes=None):
        return Siamese()

    def measure(self, model, batch):
        left, right = model(batch["left"], batch["right"])
        gaps = (left - right).square().mean(axis=1) + 0.1 * batch["noise"] * left[:, 0]
        return {"loss": (gaps - batch["gap"]).abs()}

register_dataset("patches", Patches)
register_dataset("maps", Maps)
register_model("net", Net)
register_model("deep", Deep)
register_task("focal", Focal)
register_task("supervised", Supervised)
register_task("comparison", Comparison, tables=[])
"""
COMMON = "TRAIN: {NUM_EPOCHS: 2, BASE_LR: 0.02, WEIGHT_DECAY: 0.0, WARMUP_EPOCHS: 0, LR_SCHEDULER: {NAME: constant}}\n"
RECIPES = {
    "focal": "DATA: {DATASET: patches, IMAGE_SIZE: 16, BATCH_SIZE: 8}\nMODEL: {NAME: net}\n",
    "supervised": "DATA: {DATASET: maps, CROP_SIZE: [24, 24], BATCH_SIZE: 8}\nMODEL: {NAME: deep}\n",
    "comparison": "DATA: {BATCH_SIZE: 8}\n",
}


def compute_focal(task, model, batch):
    labels, outputs = paddle.to_tensor(batch["labels"]), model(task.normalizer(paddle.to_tensor(batch["images"])))
    share = paddle.take_along_axis(F.softmax(outputs), labels.unsqueeze(1), axis=1)
    return {"loss": (-((1 - share) ** 2) * share.log()).mean()}


def compute_supervised(task, model, batch):
    labels = paddle.to_tensor(batch["labels"]).astype("int64")
    known = labels != 255
    outputs = model(task.normalizer(paddle.to_tensor(batch["images"])))

    def mean(maps):
        logs = F.log_softmax(F.interpolate(maps, labels.shape[1:], mode="bilinear"), axis=1)
        index = paddle.where(known, labels, paddle.zeros_like(labels)).unsqueeze(1)
        losses = (-paddle.take_along_axis(logs, index, axis=1)[:, 0]).sqrt()
        return losses.masked_select(known).mean()

    main, *others = map(mean, outputs if model.training else [outputs])
    return {"loss": main, **({"auxiliary": paddle.add_n(others)} if others else {})}


def compute_comparison(task, model, batch):
    tensors = {name: paddle.to_tensor(values) for name, values in batch.items()}
    left, right = model(tensors["left"], tensors["right"])
    gaps = ((left - right) ** 2).mean(axis=1) + 0.1 * tensors["noise"] * left[:, 0]
    return {"loss": F.l1_loss(gaps, tensors["gap"])}


def list_readings(name, epoch):
    """Yield index and how often it was read before, in the order of an epoch."""
    generator, seen, weights = np.random.default_rng([0, epoch]), {}, 1.0 + np.arange(48) % 3
    is_plain = name == "supervised"
    order = generator.permutation(48) if is_plain else generator.choice(48, 48, p=weights / weights.sum())
    for index in map(int, order):
        seen[index] = seen.get(index, -1) + 1
        yield index, seen[index]


def read_pair(samples, epoch, index, repeat):
    np.random.seed(int(reading_generator(0, epoch, index, repeat).integers(1 << 32)))
    return samples[index]


def learn(name, words, compute):
    """Return the terms of each update of a plain loop, and after each epoch the loss of the validation samples."""
    task = make_task(settings.load(words).values)
    splits = [task.build_dataset(split, None) for split in ("train", "val")]
    model = task.build_model()
    optimizer, updates = paddle.optimizer.AdamW(0.02, parameters=model.parameters(), weight_decay=0.0), []
    evaluated = []
    for epoch in (1, 2):
        readings = list(list_readings(name, epoch))
        for first in range(0, 48, 8):
            keys = readings[first : first + 8]
            if name == "comparison":
                read = [read_pair(splits[0], epoch, *key) for key in keys]
            else:
                read = [splits[0][SampleKey(epoch, *key)] for key in keys]
            terms = compute(task, model, task.collate(read))
            (terms["loss"] + 0.5 * terms.get("auxiliary", 0.0)).backward()
            optimizer.step()
            optimizer.clear_grad()
            updates.append({key: float(term) for key, term in terms.items()})
        model.eval()
        with paddle.no_grad():
            evaluated.append(evaluate(name, task, model, splits[1], compute))
        model.train()
    return updates, evaluated


def evaluate(name, task, model, samples, compute):
    if name == "comparison":
        return float(
            compute(task, model, task.collate([read_pair(samples, 0, index, 0) for index in range(13)]))["loss"]
        )
    read = [samples[index] for index in range(13)]
    if name == "focal":
        return float(compute(task, model, task.collate(read))["loss"])
    batch = {
        "images": np.stack([sample.image for sample in read]),
        "labels": np.stack([sample.labels for sample in read]),
    }
    return float(compute(task, model, batch)["loss"])


@pytest.mark.parametrize("name", RECIPES)
def test_losses_are_a_plain_loops_on_two_processes_and_on_one_that_resumes(name, tmp_path, monkeypatch):
    pytest.importorskip("albumentations")
    (tmp_path / f"{name}_code.py").write_text(OWN)
    recipe = f"IMPORTS: [{name}_code.py]\nTASK: {name}\nREPORT_FREQ: 1\n{COMMON}{RECIPES[name]}"
    (tmp_path / "own.yaml").write_text(recipe)
    for part in ("-ngpus=2 -batch_size=4 -stop_after_epoch=1", "-ngpus=1 -batch_size=8 -resume=auto"):
        words = f"train -cfg=own.yaml -num_workers=1 -output=run {part} DATA.BATCH_SIZE_EVAL 4 REPORT False"
        well(run_command([*ENTRY, *words.split()], folder=tmp_path))
    monkeypatch.chdir(tmp_path)
    with forgotten():
        updates, evaluated = learn(name, ["-cfg=own.yaml"], globals()[f"compute_{name}"])
    events = read_events(tmp_path / "run")
    found = [event for event in events if event["kind"] == "training"]
    assert [event["update"] for event in found] == list(range(1, 13))
    for event, expected in zip(found, updates, strict=True):
        assert {key: event[key] for key in expected} == pytest.approx(expected, rel=2e-6), event
    assert [event["loss"] for event in events if event["kind"] == "evaluation"] == pytest.approx(evaluated, rel=2e-6)
