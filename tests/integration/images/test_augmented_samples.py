"""Samples with everything enabled are the same arrays whatever reads them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from support.processes import run_workers, succeeded
from support.samples.augmented_samples import drawn

from paddlevit_dist.core import settings
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import TrainingSampler
from paddlevit_dist.core.tasks.task_factory import make_task

TASKS = {
    "digits": ["-cfg=vit_digits", "DATA.IMAGE_SIZE", "16"],
    "boxes": ["-cfg=rtdetr_shapes", "DATA.SHAPES.TRAIN", "24", "DATA.MOSAIC", "0.5", "DATA.NO_AUGMENT_EPOCHS", "1"],
    "masks": ["-cfg=mask_rcnn_shapes", "DATA.SHAPES.TRAIN", "24", "DATA.MOSAIC", "0.5", "DATA.COPY_PASTE", "0.5"],
    "maps": ["-cfg=segformer_b0_shapes", "DATA.SHAPES.TRAIN", "24", "DATA.CROP_SIZE", "[40, 56]"],
}
STEPS = [
    {"__class_fullname__": "Rotate", "limit": [-20, 20], "p": 0.7},
    {"__class_fullname__": "RandomBrightnessContrast", "p": 0.5},
    {"__class_fullname__": "VerticalFlip", "p": 0.5},
]


def test_samples_do_not_depend_on_loader_processes():
    """In processes of their own: a fork beside threads that an earlier loader has left behind may hang."""
    expected = drawn(1, 12)
    for calls in ([(0, 1), (0, 2), (4, 1)], [(1, 1)]):  # each: loader processes, ranks
        ended = succeeded(run_workers("support.samples.augmented_samples:loaded_by", calls, 12, processes=1))
        assert ended.results[0] == [expected] * len(calls), calls


def test_samples_of_a_users_file_and_composed_images_do_not_depend_on_processes(tmp_path):
    pytest.importorskip("albumentations")
    calls = [(0, 1), (0, 2), (0, 3), (2, 1)]  # loader processes, ranks
    target = "integration.images.test_augmented_samples:load_with"
    ended = succeeded(run_workers(target, calls, str(tmp_path), processes=1))
    first, *others = ended.results[0]
    assert others == [first] * 3
    assert all(len(set(digests)) >= 24 for digests in first.values()), first


def load_with(calls: list[tuple[int, int]], folder: str) -> list[dict[str, list[str]]]:
    """Digests of the samples of two epochs of each task, for numbers of loader processes and ranks."""
    file = Path(folder, "file.json")
    file.write_text(json.dumps({"transform": {"__class_fullname__": "Compose", "transforms": STEPS}}))
    words = ["DATA.ALBUMENTATIONS", str(file), "-epochs=2", f"-output={folder}/run"]
    return [
        {name: digests_of([*recipe, *words], workers, ranks) for name, recipe in TASKS.items()}
        for workers, ranks in calls
    ]


def digests_of(words: list[str], workers: int, ranks: int, batch: int = 12, number: int = 24) -> list[str]:
    """The sorted digests of the first samples, as all ranks read them in two epochs, without padding."""
    task = make_task(settings.load(words).values)
    samples = task.build_dataset("train", Path(task.config.SAVE))
    digests = []

    def note(collated: list) -> dict[str, object]:
        texts = [hashlib.sha256(repr(arrays_of(sample)).encode()).hexdigest() for sample in collated]
        return {"digests": texts, "number": np.array(len(texts))}

    for rank in range(ranks):
        sampler = TrainingSampler(range(number), batch // ranks, rank=rank, world_size=ranks, seed=4)
        loader = DeviceLoader(samples, sampler, note, num_workers=workers, seed=4, epochs=2)
        for place, loaded in enumerate(loader.epochs(1, 2)):
            digests += [f"{place} {digest}" for digest in loaded["digests"]]
    return sorted(digests)


def arrays_of(sample: object) -> list[object]:
    """What a sample contains, except the time that it took."""
    parts = list(sample) if isinstance(sample, tuple) else [sample]
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in parts if not isinstance(part, float)]
