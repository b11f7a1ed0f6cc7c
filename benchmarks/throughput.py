"""One contender of train_throughput.py and eval_throughput.py: a process of a model's steps on fixed tensors.

    python benchmarks/throughput.py {ours,timm,paddlevit} {train,eval} MODEL [--batch-size 8] [--paddlevit FOLDER]

It is run by the interpreter that has the framework, answers each line of its standard input, the number of steps to
make, with the seconds they took, and needs nothing of this repository unless it is 'ours'. Several of them form a
data-parallel group with the variables of ``group_environment``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Callable, Dict

CLASSES = 1000


def group_environment(kind: str, rank: int, processes: int, port: int) -> Dict[str, str]:
    """The variables by which a process finds its group; none for a single one."""
    if processes == 1:
        return {}
    if kind == "timm":
        return {"RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    places = [f"127.0.0.1:{port + 1 + number}" for number in range(processes)]
    return {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(processes),
        "PADDLE_MASTER": f"127.0.0.1:{port}",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(places),
        "PADDLE_CURRENT_ENDPOINT": places[rank],
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


def pictures(batch_size: int, rank: int) -> Any:
    """The same images (batch, 3, 224, 224) and labels (batch) for every contender."""
    import numpy as np

    generator = np.random.default_rng(rank)
    images = generator.standard_normal((batch_size, 3, 224, 224)).astype(np.float32)
    return images, generator.integers(0, CLASSES, batch_size)


def torch_step(name: str, trains: bool, batch_size: int) -> Callable[[], Any]:
    """timm's model, eager; training with fused AdamW, evaluation in inference mode."""
    import timm
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or torch.get_num_threads())
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    images, labels = (torch.from_numpy(x) for x in pictures(batch_size, int(os.environ.get("RANK", "0"))))
    model = timm.create_model(name, num_classes=CLASSES)
    if not trains:
        model.eval()

        def evaluate() -> Any:
            with torch.inference_mode():
                return model(images)

        return evaluate
    if processes > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

    def train() -> Any:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train


def our_model(name: str) -> Any:
    from paddlevit_dist import create_model

    return create_model(name, num_classes=CLASSES)


def paddlevit_model(name: str, folder: str) -> Any:
    """PaddleViT's own model, of its checkout, with the configuration that it ships for this model."""
    place, module, build, recipe = {
        "vit_tiny_patch16_224": ("ViT", "transformer", "build_vit", None),
        "vit_small_patch16_224": ("ViT", "transformer", "build_vit", None),
        "swin_tiny_patch4_window7_224": (
            "SwinTransformer",
            "swin_transformer",
            "build_swin",
            "swin_tiny_patch4_window7_224.yaml",
        ),
        "convnext_tiny": ("ConvNeXt", "convnext", "build_convnext", "convnext_tiny_224.yaml"),
    }[name]
    root = os.path.join(folder, "image_classification", place)
    sys.path.insert(0, root)
    import importlib

    config = importlib.import_module("config").get_config(recipe and os.path.join(root, "configs", recipe))
    if place == "ViT":  # it has no configuration of these sizes
        sizes = {"vit_tiny_patch16_224": (192, 3), "vit_small_patch16_224": (384, 6)}[name]
        config.defrost()
        config.DATA.IMAGE_SIZE, config.MODEL.PATCH_SIZE = 224, 16
        config.MODEL.EMBED_DIM, config.MODEL.NUM_HEADS, config.MODEL.DEPTH = sizes[0], sizes[1], 12
    return getattr(importlib.import_module(module), build)(config)


def paddle_step(model: Any, trains: bool, batch_size: int) -> Callable[[], Any]:
    """A plain loop with Paddle's AdamW, or an evaluation without gradients."""
    import paddle

    processes = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    images, labels = (paddle.to_tensor(x) for x in pictures(batch_size, int(os.environ.get("PADDLE_TRAINER_ID", "0"))))
    if not trains:
        model.eval()

        def evaluate() -> Any:
            with paddle.no_grad():
                return model(images)

        return evaluate
    model.train()
    if processes > 1:
        paddle.distributed.init_parallel_env()
        model = paddle.DataParallel(model)
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters(), weight_decay=0.05)

    def train() -> Any:
        loss = paddle.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return train


def make_step(arguments: argparse.Namespace) -> Callable[[], Any]:
    trains = arguments.mode == "train"
    if arguments.kind == "timm":
        return torch_step(arguments.model, trains, arguments.batch_size)
    if arguments.kind == "paddlevit":
        return paddle_step(paddlevit_model(arguments.model, arguments.paddlevit), trains, arguments.batch_size)
    return paddle_step(our_model(arguments.model), trains, arguments.batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["ours", "timm", "paddlevit"])
    parser.add_argument("mode", choices=["train", "eval"])
    parser.add_argument("model")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--paddlevit")
    step = make_step(parser.parse_args())
    step()
    for line in sys.stdin:
        started, busy = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            result = step()
        float(result.reshape([-1])[0])
        print(json.dumps([time.perf_counter() - started, time.process_time() - busy]), flush=True)


if __name__ == "__main__":
    main()
