"""Benchmarks read the clock when the device is done, name the device, and stop where they would measure another one."""

import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paddle
import pytest
from support.processes import ROOT
from support.simulated import machine, other_paddle  # noqa: F401

from paddlevit_dist.core import settings

BENCHMARKS = ROOT / "benchmarks"
OPTIONS = {
    "classifies": True,
    "batch": 4,
    "image_size": 28,
    "workers": 0,
    "classes": 10,
    "updates": 2,
    "keys": [],
    "tf32": True,
    "weights": "",
    "channels": 1,
    "clips": True,
}


@pytest.fixture(autouse=True)
def of_benchmarks(monkeypatch):
    """Import programs of the benchmarks by their names, anew in each test, in their smallest form."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("BENCHMARK_SMALLEST", "1")
    forget_benchmarks()
    yield
    forget_benchmarks()


def forget_benchmarks() -> None:
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").parent == BENCHMARKS:
            del sys.modules[name]


def test_every_precision_is_one_of_the_command_line():
    import gpu_throughput_worker as worker

    options = {**OPTIONS, "recipe": str(ROOT / "configs" / "vit_digits.yaml"), "keys": ["TRAIN.GRAD_CLIP", "3.0"]}
    seen = {}
    for name in worker.PRECISIONS:
        values = settings.load(worker.get_words(options, name, True)).values
        assert values.TRAIN.GRAD_CLIP == 3.0
        seen[name] = f"{values.AMP_LEVEL} {values.AMP_DTYPE}" if values.AMP else "float32"
    assert all(name == told for name, told in seen.items())


class EnoughUpdates(Exception):
    """Enough updates have been made."""


class AskingParent:
    """In place of the connection with the parent of a contender: asks for two turns of two updates."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    def recv(self) -> int:
        if len(self.answers) == 3:  # the first are facts
            raise EnoughUpdates
        return 2

    def send(self, answer: dict[str, Any]) -> None:
        self.answers.append(answer)


def contender(kind: str, tmp_path: Path, name: str = "vit_digits", **others: Any) -> None:
    """Let a contender of ``gpu_throughput`` work in this process, on the recipe of that name."""
    import gpu_throughput_worker as worker

    parent = AskingParent()
    turns = worker.Turns(parent, 0)
    recipe = str(ROOT / "configs" / f"{name}.yaml")
    options = {**OPTIONS, "recipe": recipe, **others}
    values = settings.load([*worker.get_words(options, "float32", False), f"-output={tmp_path}"]).values
    with pytest.raises(EnoughUpdates):
        (worker.plain_loop if kind == worker.PLAIN else worker.trainer_loop)(values, lambda **facts: turns, False)
    facts, *answers = parent.answers
    assert facts["device"] == "CPU" and [answer["peak_bytes"] for answer in answers] == [None, None]
    assert all(answer["seconds"] > 0 for answer in answers)


def overhead(tmp_path: Path) -> None:
    import framework_overhead

    turns = framework_overhead.Turns(block_updates=1)
    layer = paddle.nn.Linear(2, 2)

    def bare() -> Any:
        while True:
            layer(paddle.ones([1, 2]))
            yield

    turns.bare_steps = bare()
    for _ in range(5):
        turns.before_engine_step()
        layer(paddle.ones([1, 2]))
    assert len(turns.seconds["engine"]) == len(turns.seconds["bare"]) == 4


def recomputation(tmp_path: Path) -> None:
    import recomputation as program

    program.work("vit_small_patch16_224", program.KEPT)


def compiled(tmp_path: Path) -> None:
    import compiled as program

    for training in (True, False):
        for step in program.contenders(training).values():
            assert step() > 0


OF_SHAPES = {"name": "detr_shapes", "classifies": False, "batch": 2, "keys": "DATA.SHAPES.TRAIN 8".split()}
ON_GPUS = {
    "gpu_throughput, plain": lambda tmp_path: contender("plain", tmp_path),
    "gpu_throughput, trainer": lambda tmp_path: contender("trainer", tmp_path),
    "gpu_throughput, plain, shapes": lambda tmp_path: contender("plain", tmp_path, **OF_SHAPES),
    "gpu_throughput, trainer, shapes": lambda tmp_path: contender("trainer", tmp_path, **OF_SHAPES),
    "framework_overhead": overhead,
    "recomputation": recomputation,
    "compiled": compiled,
}


@pytest.mark.parametrize("name", ON_GPUS)
def test_what_may_run_on_a_gpu_reads_no_clock_while_the_device_works(monkeypatch, other_paddle, tmp_path, name):  # noqa: F811
    """A device is played that works from the first call of a layer until somebody waits for it."""
    import clock

    works, waits, early = [False], [], []
    call, read = paddle.nn.Layer.__call__, time.perf_counter

    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        works[0] = True
        return call(self, *arguments, **options)

    def synchronized() -> None:
        waits.append(works[0])
        works[0] = False

    def looked() -> float:
        caller = Path(sys._getframe(1).f_code.co_filename)
        if works[0] and caller.parent == BENCHMARKS:
            early.append(caller.name)
        return read()

    run: Callable[..., Any] = ON_GPUS[name]
    other_paddle({"nn.Layer.__call__": called})
    monkeypatch.setattr(clock, "synchronize_device", synchronized)
    monkeypatch.setattr(time, "perf_counter", looked)
    run(tmp_path)
    assert early == [] and any(waits)


def framework(name: str, waits: list[str], **others: Any) -> Any:
    """A stand-in for a framework with a GPU."""
    cuda = SimpleNamespace(
        synchronize=lambda: waits.append(name),
        max_memory_allocated=lambda: 5,
        max_memory_reserved=lambda: 6,
        current_device=lambda: 0,
        get_device_properties=lambda device: SimpleNamespace(total_memory=80),
        get_device_name=lambda: f"GPU of {name}",
        is_available=lambda: True,
    )
    return SimpleNamespace(__name__=name, __version__="9", cuda=cuda, version=SimpleNamespace(cuda="12"), **others)


def test_the_clock_waits_for_the_gpu_of_the_framework_that_is_loaded(monkeypatch):
    import clock

    waits: list[str] = []
    clock.now()
    assert clock.peak_bytes() is None and clock.device_facts()["device"] == "CPU" and clock.memory_bytes() == {}
    theirs = framework("torch", waits)
    ours = framework("paddle", waits, is_compiled_with_cuda=lambda: True, get_device=lambda: "gpu:0")
    ours.device, ours.version.cuda = SimpleNamespace(cuda=ours.cuda), lambda: "11.8"
    monkeypatch.setitem(sys.modules, "torch", theirs)
    monkeypatch.setitem(sys.modules, "paddle", ours)
    clock.now()
    assert clock.peak_bytes() == 5 and clock.memory_bytes() == {"memory_bytes": 80, "reserved_bytes": 6}
    assert clock.device_facts() == {"device": "GPU of paddle", "framework": "paddle 9", "cuda": "11.8"}
    monkeypatch.delitem(sys.modules, "paddle")
    clock.now()
    assert clock.memory_bytes() == {"memory_bytes": 80, "reserved_bytes": 6}
    assert clock.device_facts() == {"device": "GPU of torch", "framework": "torch 9", "cuda": "12"}
    assert waits == ["paddle", "torch"]


def test_what_measures_processors_stops_where_paddle_would_use_a_gpu(machine, capsys):  # noqa: F811
    import rounds

    machine.gpus = 1
    with pytest.raises(SystemExit, match="^this measures processors; hide the GPUs: CUDA_VISIBLE_DEVICES= python "):
        rounds.print_machine()
    rounds.print_machine(cpu_only=False)
    assert "CPU only" not in capsys.readouterr().out
    machine.gpus = 0
    rounds.print_machine()
    assert capsys.readouterr().out.endswith("; CPU only\n")


def test_processes_answer_by_rank_in_whichever_order_they_connect(tmp_path):
    import gpu_throughput

    contender = gpu_throughput.Contender([], str(tmp_path / "socket"), processes=2)
    try:
        with Client(str(tmp_path / "socket")) as late, Client(str(tmp_path / "socket")) as first:
            for connection, rank in ((late, 1), (first, 0)):
                connection.send({"rank": rank, "device": f"of rank {rank}"})
            contender.wait_until_ready()
            for connection, rank in ((late, 1), (first, 0)):
                connection.send({"losses": [float(rank)], "peak_bytes": None, "seconds": 1.0 + rank})
            assert contender(2) == 1.0
        assert contender.losses == [0.0] and contender.facts["device"] == "of rank 0"
    finally:
        contender.end()
