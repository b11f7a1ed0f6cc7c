"""One contender of train_throughput.py and eval_throughput.py: a process of a model's steps on fixed tensors.

    python benchmarks/throughput.py {ours,trainer,timm,paddlevit} {train,eval} MODEL [--paddlevit FOLDER]

It is run by the interpreter that has the framework. Several of them form a data-parallel group.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import children
import rounds
from contenders import OURS, ProcessGroup, group_environments, serve, started
from smallest import sized
from training_updates import get_torch_update

CLASSES = 1000
NAMES = {
    "vit_tiny_patch16_224": "ViT-Ti/16",
    "vit_small_patch16_224": "ViT-S/16",
    "swin_tiny_patch4_window7_224": "Swin-T",
    "convnext_tiny": "ConvNeXt-T",
}


def random_images(batch_size: int, rank: int) -> Any:
    """The same images (batch, 3, 224, 224) and labels (batch) for every contender."""
    import numpy as np

    generator = np.random.default_rng(rank)
    images = generator.standard_normal((batch_size, 3, 224, 224)).astype(np.float32)
    return images, generator.integers(0, CLASSES, batch_size)


def torch_step(model: Any, trains: bool, batch_size: int) -> tuple[Callable[[], Any], Any]:
    """An eager model's step, and the model: training with fused AdamW over gloo, evaluation in inference mode."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or torch.get_num_threads())
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    images, labels = (torch.from_numpy(x) for x in random_images(batch_size, int(os.environ.get("RANK", "0"))))
    if not trains:
        model.eval()

        def evaluate() -> Any:
            with torch.inference_mode():
                return model(images)

        return evaluate, model
    if processes > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    loss = lambda: torch.nn.functional.cross_entropy(model(images), labels)  # noqa: E731
    return get_torch_update(model.parameters(), loss, weight_decay=0.05), model


def our_model(name: str) -> Any:
    from paddlevit_dist import create_model

    return create_model(name, num_classes=CLASSES)


def paddlevit_model(name: str, folder: str) -> Any:
    """PaddleViT's own model, of its checkout, with the configuration that it ships for this model."""
    place, module, build = {
        "vit_tiny_patch16_224": ("ViT", "vit", "build_vit"),
        "vit_small_patch16_224": ("ViT", "vit", "build_vit"),
        "swin_tiny_patch4_window7_224": ("SwinTransformer", "swin", "build_swin"),
        "convnext_tiny": ("ConvNeXt", "convnext", "build_convnext"),
    }[name]
    root = os.path.join(folder, "image_classification", place)
    sys.path.insert(0, root)
    config = importlib.import_module("config").get_config(os.path.join(root, "configs", f"{name}.yaml"))
    return getattr(importlib.import_module(module), build)(config)


def paddle_step(model: Any, trains: bool, batch_size: int, one_pass: bool = False) -> Callable[[], Any]:
    """A plain loop with Paddle's AdamW or our trainer's, or an evaluation without gradients."""
    import paddle

    processes = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    images, labels = (paddle.to_tensor(x) for x in random_images(batch_size, rank))
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
    options = {"learning_rate": 1e-4, "parameters": model.parameters(), "weight_decay": 0.05}
    if one_pass:
        from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW

        options["parameters"] = [{"params": model.parameters(), "weight_decay": 0.05}]
        optimizer = FusedAdamW({parameter.name: 0.05 for parameter in model.parameters()}, **options)
    else:
        optimizer = paddle.optimizer.AdamW(**options)

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
        import timm

        return torch_step(timm.create_model(arguments.model, num_classes=CLASSES), trains, arguments.batch_size)[0]
    if arguments.kind == "paddlevit":
        return paddle_step(paddlevit_model(arguments.model, arguments.paddlevit), trains, arguments.batch_size)
    return paddle_step(our_model(arguments.model), trains, arguments.batch_size, arguments.kind == "trainer")


def contenders(arguments: argparse.Namespace, mode: str, model: str, processes: int, threads: int) -> dict[str, Any]:
    """(kind, interpreter, environment) of each contender."""
    count = {"OMP_NUM_THREADS": str(threads)}
    tuned, plain = ({**children.tuned_environment(processes, tuned=on), **count} for on in (True, False))
    bare = {**children.clean_environment(), **count}
    found: dict[str, Any] = {"ours": ("ours", sys.executable, tuned)}
    if mode == "train":
        found["ours, optimizer of the trainer"] = ("trainer", sys.executable, tuned)
    found["ours, CPU_TUNING false"] = ("ours", sys.executable, plain)
    if arguments.peer_python:
        found["timm"] = ("timm", arguments.peer_python, bare)
    if arguments.paddlevit:
        found["PaddleViT, our environment"] = ("paddlevit", sys.executable, tuned)
        found["PaddleViT as shipped"] = ("paddlevit", sys.executable, bare)
    return found


def measure(arguments: argparse.Namespace, mode: str, model: str, processes: int, threads: int) -> dict[str, float]:
    """Let all contenders take turns; print their images/s and return how many times as fast ours is."""
    groups = {}
    for name, (kind, python, variables) in contenders(arguments, mode, model, processes, threads).items():
        command = [python, __file__, kind, mode, model, "--batch-size", str(arguments.batch_size)]
        if kind == "paddlevit":
            command += ["--paddlevit", arguments.paddlevit]
        environments = group_environments("timm" if kind == "timm" else OURS, processes, variables)
        groups[name] = ProcessGroup(command, environments)
    with started(groups):
        slowest = {name: lambda group=group: max(group.ask()) for name, group in groups.items()}
        seconds = rounds.interleave(slowest, arguments.rounds, warm_up=1)
    images = processes * arguments.batch_size
    rows, result = [], {}
    for name, values in seconds.items():
        speed = rounds.Spread.of([images / value for value in values])
        ratio = rounds.ratios(values, seconds["ours"])
        rows.append([name, speed.text(), ratio.text()])
        result[name] = ratio.median
    title = f"{NAMES.get(model, model)}, {mode}, {processes} x {threads} threads, {arguments.batch_size} images each"
    rounds.print_table(title, ["", "images/s", "ours is times as fast"], rows)
    return result


def compare(mode: str) -> None:
    """The main program of both benchmarks."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--peer-python", help="an interpreter with torch and timm")
    parser.add_argument("--paddlevit", help="a checkout of PaddleViT")
    parser.add_argument("--models", nargs="+", default=sized(list(NAMES), list(NAMES)[:1]))
    parser.add_argument("--modes", nargs="+", default=sized(["1x1", "1x2", "2x1"], ["1x1"]), help="processes x threads")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=sized(8, 1))
    arguments = parser.parse_args()
    rounds.print_machine()
    for given, missing in ((arguments.peer_python, "--peer-python: no timm"), (arguments.paddlevit, "--paddlevit")):
        if not given:
            print(f"left out, as it was not given: {missing}")
    result: dict[str, float] = {}
    for model in arguments.models:
        for shape in arguments.modes:
            processes, threads = (int(part) for part in shape.split("x"))
            for name, ratio in measure(arguments, mode, model, processes, threads).items():
                if name != "ours":
                    result[f"{model} {shape} {name}"] = ratio
    rounds.print_result(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["ours", "trainer", "timm", "paddlevit"])
    parser.add_argument("mode", choices=["train", "eval"])
    parser.add_argument("model")
    parser.add_argument("--batch-size", type=int, default=sized(8, 1))
    parser.add_argument("--paddlevit")
    step = make_step(parser.parse_args())
    step()

    def turn() -> float:
        began = time.perf_counter()
        float(step().reshape([-1])[0])
        return time.perf_counter() - began

    serve(turn)


if __name__ == "__main__":
    main()
