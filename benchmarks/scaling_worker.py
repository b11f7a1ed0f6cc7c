"""One process of ``scaling.py``: training steps of one rank, evaluations, or a loader of images.

    python benchmarks/scaling_worker.py steps {ours,torch,torch-plain} MODEL BATCH {train,eval}
    python benchmarks/scaling_worker.py loads {ours,torch} FOLDER WORKERS

It is run by the interpreter that has the framework, and answers requests with seconds and counts.
"""

import contextlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from contenders import serve
from throughput import CLASSES, random_images, torch_step

SIZE = 224
LOADED_BATCH = 64
# Width, heads and blocks of the models that ``torch-plain`` can build.
PLAIN = {"vit_tiny_patch16_224": (192, 3, 12), "vit_small_patch16_224": (384, 6, 12)}

Answer = Callable[[dict[str, Any]], dict[str, float]]


# ---- steps ---------------------------------------------------------------------------------------------------


def plain_torch_model(name: str) -> Any:
    """A ViT of torch's own layers, as timm's: pre-norm blocks, class token, fused attention."""
    import torch
    from torch import nn

    width, heads, depth = PLAIN[name]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            qkv = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(*qkv.unbind(0))  # (batch, heads, tokens, head_dim)
            x = x + self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.mlp(self.norm2(x))

    class Vit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, 16)
            self.token = nn.Parameter(torch.zeros(1, 1, width))
            self.places = nn.Parameter(0.02 * torch.randn(1, (SIZE // 16) ** 2 + 1, width))
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, CLASSES)

        def forward(self, images: Any) -> Any:
            x = self.patches(images).flatten(2).transpose(1, 2)  # (batch, patches, width)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.norm(self.blocks(x))[:, 0])

    return Vit()


def torch_answer(name: str, batch: int, trains: bool, plain: bool) -> Answer:
    """timm's model where it is installed: eager, fused AdamW, DistributedDataParallel over gloo, inference mode."""
    if plain or not importlib.util.find_spec("timm"):
        model = plain_torch_model(name)
    else:
        import timm

        model = timm.create_model(name, num_classes=CLASSES)
    step, model = torch_step(model, trains, batch)
    return timed(step, getattr(model, "no_sync", contextlib.nullcontext))


def our_answer(name: str, batch: int, trains: bool) -> Answer:
    """Our model and group in a plain loop with Paddle's AdamW."""
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.distributed import data_parallel
    from paddlevit_dist.core.launch.rendezvous import join_group

    join_group("cpu", spawned=False)
    images, labels = (paddle.to_tensor(x) for x in random_images(batch, int(os.environ.get("PADDLE_TRAINER_ID", "0"))))
    paddle.seed(0)
    inner = create_model(name, num_classes=CLASSES)
    inner.train() if trains else inner.eval()
    model = data_parallel(inner)
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=inner.parameters(), weight_decay=0.05)

    def step() -> Any:
        if not trains:
            with paddle.no_grad():
                return model(images)
        loss = paddle.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return timed(step, getattr(model, "no_sync", contextlib.nullcontext))


def timed(step: Callable[[], Any], without_exchange: Callable[[], Any]) -> Answer:
    """Seconds of so many steps, with gradients exchanged or not."""
    step()

    def answer(request: dict[str, Any]) -> dict[str, float]:
        started = time.perf_counter()
        with contextlib.nullcontext() if request["exchange"] else without_exchange():
            for _ in range(request["steps"]):
                result = step()
        float((result.detach() if hasattr(result, "detach") else result).reshape([-1])[0])
        return {"seconds": time.perf_counter() - started}

    return answer


# ---- loaders -------------------------------------------------------------------------------------------------


def our_loads(folder: str, workers: int) -> Answer:
    """Our loader with Pillow, uint8 samples, normalized in this process."""
    from pathlib import Path

    from paddlevit_dist.core import settings
    from paddlevit_dist.core.data.loader import DeviceLoader
    from paddlevit_dist.core.data.sampler import TrainingSampler
    from paddlevit_dist.core.registry.lookup import resolve

    given = ["-dataset=folder", f"-data_path={folder}", f"-image_size={SIZE}", f"-batch_size={LOADED_BATCH}"]
    values = settings.load(given).values
    task = resolve("task", values.TASK)(values)
    cache = tempfile.mkdtemp(dir=folder)
    samples = task.build_dataset("train", Path(cache))
    sampler = TrainingSampler(samples, LOADED_BATCH, rank=0, world_size=1)
    loader = DeviceLoader(samples, sampler, task.collate, num_workers=workers, seed=0)
    # All in one go: the processes of the loader live as long as the training.
    batches = loader.epochs(1, 1_000_000)

    def next_batch() -> Any:
        return task.normalize(next(batches)["images"])

    return counted(next_batch)


class TorchImages:
    """The images of a folder as timm reads and transforms them, with Pillow: a random resized crop, bicubic, and a
    flip, as uint8 (3, 224, 224)."""

    def __init__(self, folder: str) -> None:
        root = os.path.join(folder, "train")
        self.files = [
            (os.path.join(root, c, f), i)
            for i, c in enumerate(sorted(os.listdir(root)))
            for f in sorted(os.listdir(os.path.join(root, c)))
        ]

    def __len__(self) -> int:
        return 1_000_000  # they begin again when they end: the processes live as long as the training

    def __getitem__(self, index: int) -> Any:
        import math
        import random

        import numpy as np
        from PIL import Image

        path, label = self.files[index % len(self.files)]
        image = Image.open(path).convert("RGB")
        width, height = image.size
        box = (0, 0, width, height)
        for _ in range(10):
            area = width * height * random.uniform(0.08, 1.0)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if w <= width and h <= height:
                left, top = random.randint(0, width - w), random.randint(0, height - h)
                box = (left, top, left + w, top + h)
                break
        image = image.crop(box).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), label


def fast_collate(samples: list[Any]) -> Any:
    """uint8 tensors (batch, 3, 224, 224) and labels, as timm's prefetching loader collates them."""
    import numpy as np
    import torch

    return torch.from_numpy(np.stack([image for image, _ in samples])), torch.tensor([label for _, label in samples])


def torch_loads(folder: str, workers: int) -> Answer:
    """torch's loader with timm's transform, collation and normalization in this process."""
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        TorchImages(folder), LOADED_BATCH, shuffle=True, num_workers=workers, collate_fn=fast_collate
    )
    batches = iter(loader)
    mean, deviation = (torch.tensor([value] * 3).view(1, 3, 1, 1) for value in (127.5, 127.5))

    def next_batch() -> Any:
        return next(batches)[0].float().sub_(mean).div_(deviation)

    return counted(next_batch)


def counted(next_batch: Callable[[], Any]) -> Answer:
    """Images and the seconds that they took, after the given seconds of running in."""

    def answer(request: dict[str, Any]) -> dict[str, float]:
        end = time.perf_counter() + request["warm_up"]
        while time.perf_counter() < end:
            next_batch()
        started, count = time.perf_counter(), 0
        while time.perf_counter() < started + request["seconds"]:
            count += int(next_batch().shape[0])
        return {"seconds": time.perf_counter() - started, "images": count}

    return answer


def main(words: list[str]) -> None:
    kind, framework, *rest = words
    if kind == "loads":
        answer = (our_loads if framework == "ours" else torch_loads)(rest[0], int(rest[1]))
    else:
        name, batch, trains = rest[0], int(rest[1]), rest[2] == "train"
        if framework == "ours":
            answer = our_answer(name, batch, trains)
        else:
            answer = torch_answer(name, batch, trains, framework == "torch-plain")
    serve(lambda **request: answer(request))
    if kind == "steps":
        os._exit(0)  # a group need not be taken down in order


if __name__ == "__main__":
    main(sys.argv[1:])
