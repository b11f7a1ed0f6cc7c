"""Benchmarks read the clock when the device is done, name the device, and stop where they would measure another one."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from support.processes import ROOT, run_command

BENCHMARKS = ROOT / "benchmarks"
SMALL = "--recipe vit_digits --image_size 28 --classes 10 --batch 4 --updates 2 --rounds 1 --workers 1".split()
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
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_a_small_run_on_a_cpu_measures_what_there_is_and_says_what_there_is_not(tmp_path):
    peer = tmp_path / "python"
    peer.write_text("#!/bin/sh\necho no timm here >&2\nexit 1\n")
    peer.chmod(0o755)
    program = BENCHMARKS / "gpu_throughput.py"
    ended = run_command([sys.executable, str(program), "--peer-python", str(peer), *SMALL])
    assert ended.code == 1 and "timm stops: no timm here" in ended.out, ended.out + ended.err
    assert "left out, as this device has none: O1 float16, O1 bfloat16, O2 float16, memory of a GPU" in ended.out
    for kind in ("plain", "trainer", "recipe"):
        assert f"{kind}: device CPU, framework paddle {paddle.__version__}, cuda none" in ended.out
    result = json.loads(ended.out.splitlines()[-1].removeprefix("RESULT "))
    assert list(result) == ["1x float32 trainer/plain", "1x float32 recipe/trainer"]
    assert all(value > 0 for value in result.values())


def test_ratios_are_of_the_same_round_and_goals_are_those_of_the_precision(capsys):
    import gpu_throughput as program

    cells = {
        "plain": program.Cell([1.0, 3.0], 1000),
        "trainer": program.Cell([2.0, 3.0], 1060),
        "timm": program.Cell([0.97, 2.85], 900),
    }
    found = program.get_ratios(cells)
    assert found["trainer/plain"] == (pytest.approx((0.75, 0.5, 1.0)), 0.98)
    assert found["trainer/timm"] == (pytest.approx((0.7175, 0.485, 0.95)), 1.0)
    assert found["memory trainer/plain"][0].median == 1.06
    cells["plain"] = cells["plain"]._replace(profile={"busy_ms": 34.04, "waits": 5.0})
    cells["recipe"] = program.Cell([], None, "out of memory")
    program.show("a column", cells, 6, found)
    said = capsys.readouterr().out
    assert "plain    4.0 [2.0, 6.0]" in said and "recipe stops: out of memory" in said
    assert "34.0" in next(line for line in said.splitlines() if "plain    4.0" in line)
    assert "trainer/timm 0.72 [0.48, 0.95], goal >= 1.0: missed" in said
    assert "memory trainer/plain 1.06 [1.06, 1.06], goal <= 1.05: missed" in said
    assert [program.get_counts(gpus) for gpus in (0, 1, 2, 6, 8)] == [[1], [1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_losses_of_first_updates_are_those_of_the_peer_or_there_is_no_ratio(capsys):
    import gpu_throughput as program

    right = [6.95, 6.50, 6.20]
    losses = {"plain": [6.95, 6.51, 6.21], "trainer": [6.95, 6.95, 6.95], "recipe": [], "timm": right}
    cells = {kind: program.Cell([1.0], None, losses=values) for kind, values in losses.items()}
    cells["timm, compiled"] = cells["timm"]
    assert program.find_disagreeing(losses, "float32") == ("timm", ["trainer"])
    assert list(program.drop_disagreeing(cells, "float32")) == ["plain", "timm", "timm, compiled"]
    said = capsys.readouterr().out
    assert "losses of the first updates: trainer 6.9500, 6.9500, 6.9500 (differs from timm: no ratio)" in said
    assert "`paddlevit-dist doctor` compares it with NumPy" in said
    cells["trainer"] = cells["plain"]
    assert program.drop_disagreeing(cells, "float32") == cells
    assert program.find_disagreeing({"plain": right, "trainer": right[:2]}, "float32") == ("plain", ["trainer"])
    assert program.find_disagreeing({"trainer": right}, "float32") == ("", [])
    off = {"timm": right, "plain": [value * 1.006 for value in right], "trainer": [float("nan")] * 3}
    assert program.find_disagreeing(off, "float32")[1] == ["plain", "trainer"]
    assert program.find_disagreeing(off, "O1 bfloat16")[1] == ["trainer"]


def test_an_update_on_a_gpu_launches_no_more_operations_than_it_did():
    ended = run_command([sys.executable, str(BENCHMARKS / "host_update.py"), "--updates", "2"])
    assert ended.code == 0, ended.out + ended.err
    result = json.loads(ended.out.splitlines()[-1].removeprefix("RESULT "))
    assert 400 < result["half operations"] <= 480 and 600 < result["float32 operations"] <= 710


def test_a_trainer_that_learns_nothing_gets_no_ratio():
    program = BENCHMARKS / "gpu_throughput.py"
    ended = run_command([sys.executable, str(program), *SMALL, "TRAIN.BASE_LR", "1e-6"])
    assert ended.code == 1 and "(differs from plain: no ratio)" in ended.out, ended.out + ended.err
    assert ended.out.splitlines()[-1] == "RESULT {}"


class Holds:
    """In place of a contender whose process keeps so many bytes of a GPU of 80."""

    def __init__(self, reserved: int, fails: bool = False) -> None:
        self.memory = {"memory_bytes": 80, "reserved_bytes": reserved}
        self.facts, self.fails, self.peak_bytes = {"rank": 0}, fails, None
        self.losses: list[float] = []

    def wait_until_ready(self) -> None:
        """It is."""

    def __call__(self, updates: int) -> float:
        import gpu_throughput as program

        if self.fails:
            raise program.Failed("no kernel")
        return 1.0 / self.memory["reserved_bytes"]


def test_contenders_that_would_fill_a_gpu_are_measured_one_after_the_other(monkeypatch, capsys):
    import gpu_throughput as program

    held = {"plain": 20, "trainer": 30, "recipe": 30, "timm": 10}
    open_now: list[Holds] = []
    seen: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def started(kinds: Any, *_: Any) -> Any:
        assert not open_now
        seen.append(tuple(kinds))
        running = {kind: Holds(held[kind], kind == "timm") for kind in kinds}
        open_now.extend(running.values())
        yield running
        open_now.clear()

    monkeypatch.setattr(program, "started", started)
    monkeypatch.setattr(program, "get_kinds", lambda *_: list(held))
    options = SimpleNamespace(updates=2, rounds=3)
    cells, facts = program.measure(options, "float32", 1)
    assert seen == [tuple(held), *((kind,) for kind in held)]
    assert "one contender after the other" in capsys.readouterr().out
    assert [cells[kind].seconds for kind in ("plain", "recipe")] == [[1 / 20] * 3, [1 / 30] * 3]
    assert cells["timm"].problem == "no kernel" and set(facts) == set(held)
    seen.clear()
    held.update(recipe=10, trainer=16)  # 20 + 16 + 10 and 20 more are not above 0.85 of 80
    cells, _ = program.measure(options, "float32", 1)
    assert seen == [tuple(held)] and cells["trainer"].seconds == [1 / 16] * 3


def test_ratios_are_to_the_eager_and_to_the_compiled_peer():
    import gpu_throughput as program

    times = {"trainer": 2.0, "timm": 2.2, "timm, compiled": 1.0}
    found = program.get_ratios({kind: program.Cell([seconds], None) for kind, seconds in times.items()})
    assert {what: spread.median for what, (spread, _) in found.items()} == {
        "trainer/timm": pytest.approx(1.1),
        "trainer/timm, compiled": pytest.approx(0.5),
    }


def test_a_gpu_is_busy_while_one_of_its_streams_is_and_calls_that_wait_are_counted():
    from gpu_profile import busy_and_waits

    def node(children: Any = (), **calls: Any) -> Any:
        runtime = [
            SimpleNamespace(name=name, device_node=[SimpleNamespace(start_ns=a, end_ns=b) for a, b in spans])
            for name, spans in calls.items()
        ]
        return SimpleNamespace(children_node=list(children), runtime_node=runtime)

    inner = node(cudaLaunchKernel=[(10, 30), (20, 25)], cudaStreamSynchronize_v3020=[])
    trees = {1: node([inner], cudaMemcpyAsync=[(28, 40)]), 2: node(cudaMemcpy=[(50, 55)], cudaLaunchKernel=[(35, 38)])}
    assert busy_and_waits(trees, 1) == {"busy_seconds": pytest.approx(35e-9), "waits": 1, "other_waits": 1}


def test_every_precision_is_one_of_the_command_line():
    import gpu_throughput_worker as worker

    from paddlevit_dist import settings

    options = {**OPTIONS, "recipe": str(ROOT / "configs" / "vit_digits.yaml"), "keys": ["TRAIN.GRAD_CLIP", "3.0"]}
    seen = {}
    for name in worker.PRECISIONS:
        values = settings.load(worker.get_words(options, name, True)).values
        assert values.TRAIN.GRAD_CLIP == 3.0
        seen[name] = f"{values.AMP_LEVEL} {values.AMP_DTYPE}" if values.AMP else "float32"
    assert all(name == told for name, told in seen.items())


# ---- clocks --------------------------------------------------------------------------------------------------------


class Done(Exception):
    """Enough updates have been made."""


class Asks:
    """In place of the parent of a contender: asks for two turns of two updates."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    def recv(self) -> int:
        if len(self.answers) == 2:
            raise Done
        return 2

    def send(self, answer: dict[str, Any]) -> None:
        self.answers.append(answer)


def contender(kind: str, tmp_path: Path, name: str = "vit_digits", **others: Any) -> None:
    """Let a contender of ``gpu_throughput`` work in this process, on the recipe of that name."""
    import gpu_throughput_worker as worker

    from paddlevit_dist import settings

    parent = Asks()
    turns = worker.Turns.__new__(worker.Turns)
    turns._parent, turns._left, turns._started, turns.losses = parent, 0, 0.0, []
    recipe = str(ROOT / "configs" / f"{name}.yaml")
    options = {**OPTIONS, "recipe": recipe, **others}
    values = settings.load([*worker.get_words(options, "float32", False), f"-output={tmp_path}"]).values
    with pytest.raises(Done):
        (worker.plain_loop if kind == worker.PLAIN else worker.trainer_loop)(values, lambda: turns, False)
    assert [answer["peak_bytes"] for answer in parent.answers] == [None, None]
    assert all(answer["seconds"] > 0 for answer in parent.answers)


def overhead(monkeypatch: Any, tmp_path: Path) -> None:
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


def recomputation(monkeypatch: Any, tmp_path: Path) -> None:
    import recomputation as program

    monkeypatch.setattr(program, "BATCHES", {"vit_tiny_patch16_224": 1})
    monkeypatch.setattr(program, "STEPS", 1)
    program.work("vit_tiny_patch16_224", program.KEPT)


def compiled(monkeypatch: Any, tmp_path: Path) -> None:
    import compiled as program

    from paddlevit_dist.engine import precision

    monkeypatch.setattr(program, "BATCH", 1)
    monkeypatch.setattr(precision, "compile_passes", lambda model: None)
    for training in (True, False):
        for step in program.contenders(training).values():
            assert step() > 0


OF_SHAPES = {"name": "detr_shapes", "classifies": False, "batch": 2, "keys": "DATA.SHAPES.TRAIN 8".split()}
ON_GPUS = {
    "gpu_throughput, plain": lambda monkeypatch, tmp_path: contender("plain", tmp_path),
    "gpu_throughput, trainer": lambda monkeypatch, tmp_path: contender("trainer", tmp_path),
    "gpu_throughput, plain, shapes": lambda monkeypatch, tmp_path: contender("plain", tmp_path, **OF_SHAPES),
    "gpu_throughput, trainer, shapes": lambda monkeypatch, tmp_path: contender("trainer", tmp_path, **OF_SHAPES),
    "framework_overhead": overhead,
    "recomputation": recomputation,
    "compiled": compiled,
}


@pytest.mark.parametrize("name", ON_GPUS)
def test_what_may_run_on_a_gpu_reads_no_clock_while_the_device_works(monkeypatch, tmp_path, name):
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
    monkeypatch.setattr(paddle.nn.Layer, "__call__", called)
    monkeypatch.setattr(clock, "synchronize_device", synchronized)
    monkeypatch.setattr(time, "perf_counter", looked)
    run(monkeypatch, tmp_path)
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


def test_what_measures_processors_stops_where_paddle_would_use_a_gpu(monkeypatch, capsys):
    import rounds

    from paddlevit_dist.launch import devices

    monkeypatch.setattr(devices, "count_gpus", lambda: 1)
    with pytest.raises(SystemExit, match="^this measures processors; hide the GPUs: CUDA_VISIBLE_DEVICES= python "):
        rounds.print_machine()
    rounds.print_machine(cpu_only=False)
    assert "CPU only" not in capsys.readouterr().out
    monkeypatch.undo()
    rounds.print_machine()
    assert capsys.readouterr().out.endswith("; CPU only\n")


# ---- make accept-gpu -----------------------------------------------------------------------------------------------


def test_a_row_of_what_has_to_work_runs_on_a_cpu():
    words = [sys.executable, str(ROOT / "tests" / "acceptance_gpu.py"), "--on_cpu", "evaluation"]
    ended = run_command(words)
    assert ended.code == 0, ended.out + ended.err
    line = ended.out.splitlines()[-1]
    assert line.startswith("evaluation ") and " reached " in line and "losses differ by 0.0e+00" in line


@pytest.mark.parametrize("row", ["zoo resnet", "zoo mask_rcnn", "amp O2 bfloat16", "kill -9"])
def test_a_row_reaches_its_goal_where_an_update_is_known_one_update_late(row):
    words = [sys.executable, str(ROOT / "tests" / "acceptance_gpu.py"), "--on_cpu", "--queued", row]
    ended = run_command(words)
    assert ended.code == 0 and " reached " in ended.out.splitlines()[-1], ended.out + ended.err
    if row.startswith("zoo"):  # the next one was begun and is not known
        shown = [line.split()[3] for line in ended.out.splitlines() if line.startswith("epoch 1 update ")]
        updates = [int(word.partition("/")[0]) for word in shown]
        assert updates[0] == 1 and max(updates) <= 30
        for dtype in ("float32", "float16", "bfloat16"):  # a CPU computes all three in float32
            assert f"the first update in {dtype} is off by 0.0e+00 of the CPU's loss" in ended.out


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([1.9, 20.0, 300.0, 900.0, 3515.0], "the loss grows from 1.9 to 3515"),
        ([4.2e36] * 6, "the first loss is 4.2e\\+36"),
        ([0.9, 0.4, -0.1, -3.0, -20.0, -98.0], "a loss of -98 is below zero"),
        ([2.0, 1.0, float("nan")], "losses"),
        ([2.0, 1.9, 2.1, 1.95, 1.9, 1.92], "the loss stays: its last 2 are 0.95 of its first, 2"),
    ],
)
def test_losses_that_no_training_has_fail_a_row(losses, said):
    from support.networks.gpu_networks import require_falling

    require_falling([2.0, 2.5, 1.9, 2.1, 1.8, 1.7])
    with pytest.raises(AssertionError, match=f"^{said}"):
        require_falling(losses)


def test_first_updates_are_compared_with_those_of_a_cpu():
    from support.networks.gpu_networks import require_equal

    cpu = [{"class": 1.5, "box": 0.5, "loss": 2.0, "gradient_norm": 10.0}, {"loss": 1.0, "gradient_norm": 9.0}]

    def other(update: int, **values: float) -> list[dict[str, float]]:
        return [{**one, **values} if number == update else one for number, one in enumerate(cpu, 1)]

    assert require_equal(cpu, other(1, box=0.5001), "float32") == pytest.approx(5e-5)
    require_equal(cpu, other(2, loss=1.01, gradient_norm=1.0), "float32")
    for wrong, said in (
        (other(1, box=0.501, **{"class": 1.499}), "update 1: box of float32 0.501, of the CPU 0.5: off by 5.0e-04"),
        (other(1, gradient_norm=10.1), "update 1: gradient norm 10.1, of the CPU 10: off by 1.0e-02"),
        (other(2, loss=1.03), "update 2: loss 1.03, of the CPU 1: off by 3.0e-02"),
    ):
        with pytest.raises(AssertionError, match=said):
            require_equal(cpu, wrong, "float32")
    skipped = [{"loss": 2.09}, {"loss": 2.09}]  # as where a loss scale is too high at first
    assert require_equal(cpu, skipped, "float16") == pytest.approx(0.045)
    require_equal(cpu, [{"loss": 2.3}], "bfloat16")
    for dtype in ("float16", "bfloat16"):
        with pytest.raises(AssertionError, match=f"loss of {dtype} 2.5, of the CPU 2: off by 2.5e-01 of the loss"):
            require_equal(cpu, [{"loss": 2.5}], dtype)


def test_a_network_starts_from_the_weights_of_another_process_and_drops_the_same(tmp_path):
    code = (
        "import sys; from pathlib import Path; from support.networks.gpu_networks import train_network as train; "
        "import json; place = Path(sys.argv[1]); "
        "print(json.dumps(train('detr_small', True, place / sys.argv[2], 2, place / 'first.npz')))"
    )
    places = f"{ROOT}:{ROOT / 'tests'}"
    found = []
    for name in ("cpu", "other", "changed"):
        if name == "changed":
            with np.load(tmp_path / "first.npz") as arrays:
                np.savez(tmp_path / "first.npz", **{key: 1.01 * arrays[key] for key in arrays.files})
        ended = run_command([sys.executable, "-c", code, str(tmp_path), name], is_copy=False, PYTHONPATH=places)
        assert ended.code == 0, ended.out + ended.err
        found.append(json.loads(ended.out.splitlines()[-1]))
    assert found[0] == found[1] and len(found[0]) == 2
    with pytest.raises(AssertionError, match="^update 1: "):
        from support.networks.gpu_networks import require_equal

        require_equal(found[0], found[2], "float32")


def test_losses_after_a_kill_are_compared_bit_for_bit():
    import acceptance_gpu

    straight = {update: 2.0 / update for update in range(1, 9)}
    assert acceptance_gpu.compare_resumed(straight, dict(straight), 3).endswith("the next 5 losses are equal")
    for difference in (3.6e-2, 1e-15):
        resumed = {**straight, 6: straight[6] * (1 + difference)}
        with pytest.raises(AssertionError, match="from update 3: losses differ from update 6 on"):
            acceptance_gpu.compare_resumed(straight, resumed, 3)
    with pytest.raises(AssertionError, match=r"updates \[8\]"):
        acceptance_gpu.compare_resumed(straight, {update: straight[update] for update in range(1, 8)}, 3)
    with pytest.raises(AssertionError, match="no update is left"):
        acceptance_gpu.compare_resumed(straight, dict(straight), 8)


def test_weights_after_a_kill_are_compared_bit_for_bit(tmp_path):
    import acceptance_gpu

    state = {"norm.weight": np.array([1.0, 0.0], np.float32), "head.bias": np.ones(3, np.float32)}
    paths = [tmp_path / f"{name}.npz" for name in ("straight", "same", "zero", "fewer")]
    changed = {**state, "norm.weight": np.array([1.0, -0.0], np.float32)}
    for path, arrays in zip(paths, (state, state, changed, {"head.bias": state["head.bias"]})):
        np.savez(path, **arrays)
    acceptance_gpu.require_equal_weights(paths[0], paths[1])
    with pytest.raises(AssertionError, match="1 of 2 weights differ, such as norm.weight"):
        acceptance_gpu.require_equal_weights(paths[0], paths[2])
    with pytest.raises(AssertionError, match="weights .'norm.weight'."):
        acceptance_gpu.require_equal_weights(paths[0], paths[3])


def test_a_row_that_fails_or_overruns_stops_no_other_and_is_in_the_exit_code(monkeypatch, capsys):
    import acceptance_gpu

    results = {"first": (False, "exit code 2: error: no such file"), "second": (True, "all is well")}
    rows = {name: acceptance_gpu.Row("works", 1.0, lambda place: "") for name in results}
    monkeypatch.setattr(acceptance_gpu, "ROWS", rows)
    monkeypatch.setattr(acceptance_gpu, "in_a_process", lambda name, limit_seconds, on_cpu, queues: results[name])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert acceptance_gpu.main(["--on_cpu"]) == 1
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert "NOT REACHED  exit code 2: error: no such file" in first and "reached      all is well" in second
    monkeypatch.undo()
    reached, said = acceptance_gpu.in_a_process("evaluation", 0.1, on_cpu=True)
    assert not reached and said == "took longer than 0.1 s"


def test_every_network_of_the_zoo_has_a_row():
    import acceptance_gpu

    from paddlevit_dist.registry.lookup import list_models

    assert all(name.startswith(acceptance_gpu.FAMILIES) for name in list_models())
    assert {f"zoo {name}" for name in acceptance_gpu.FAMILIES} <= set(acceptance_gpu.ROWS)
