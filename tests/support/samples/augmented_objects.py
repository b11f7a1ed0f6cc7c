"""Training samples of each image task with a user's file, mosaics and pasted objects, through loaders."""

import hashlib
import json
from pathlib import Path

import numpy as np

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
_STEPS = [
    {"__class_fullname__": "Rotate", "limit": [-20, 20], "p": 0.7},
    {"__class_fullname__": "RandomBrightnessContrast", "p": 0.5},
    {"__class_fullname__": "VerticalFlip", "p": 0.5},
]


def load_with(calls: list[tuple[int, int]], folder: str) -> list[dict[str, list[str]]]:
    """Digests of the samples of two epochs of each task, for numbers of loader processes and ranks."""
    file = Path(folder, "file.json")
    file.write_text(json.dumps({"transform": {"__class_fullname__": "Compose", "transforms": _STEPS}}))
    words = ["DATA.ALBUMENTATIONS", str(file), "-epochs=2", f"-output={folder}/run"]
    return [
        {name: _digests([*recipe, *words], workers, ranks) for name, recipe in TASKS.items()}
        for workers, ranks in calls
    ]


def _digests(words: list[str], workers: int, ranks: int, batch: int = 12, number: int = 24) -> list[str]:
    """The sorted digests of the first samples, as all ranks read them in two epochs, without padding."""
    task = make_task(settings.load(words).values)
    samples = task.build_dataset("train", Path(task.config.SAVE))
    digests = []

    def note(collated: list) -> dict[str, object]:
        texts = [hashlib.sha256(repr(_arrays(sample)).encode()).hexdigest() for sample in collated]
        return {"digests": texts, "number": np.array(len(texts))}

    for rank in range(ranks):
        sampler = TrainingSampler(range(number), batch // ranks, rank=rank, world_size=ranks, seed=4)
        loader = DeviceLoader(samples, sampler, note, num_workers=workers, seed=4, epochs=2)
        for place, loaded in enumerate(loader.epochs(1, 2)):
            digests += [f"{place} {digest}" for digest in loaded["digests"]]
    return sorted(digests)


def _arrays(sample: object) -> list[object]:
    """What a sample contains, except the time that it took."""
    parts = list(sample) if isinstance(sample, tuple) else [sample]
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in parts if not isinstance(part, float)]
