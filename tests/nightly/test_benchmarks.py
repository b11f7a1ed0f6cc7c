"""What the benchmark of a GPU measures and says, and to which goals it compares the ratios."""

import contextlib
import importlib.util
import json
import sys
from types import SimpleNamespace
from typing import Any

import paddle
import pytest
from support.processes import ROOT, run_command

BENCHMARKS = ROOT / "benchmarks"
SMALL = "--recipe vit_digits --image_size 28 --classes 10 --batch 4 --updates 2 --rounds 1 --workers 1".split()


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
    assert 20 < result["captured operations"] <= 40  # around a graph
    if importlib.util.find_spec("triton") is not None:  # with fused kernels
        assert 200 < result["fused launching"] <= 260 and result["fused launches of Triton"] <= 99


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


def test_contenders_that_would_fill_a_gpu_are_measured_one_after_the_other(capsys):
    import gpu_throughput as program

    held = {"plain": 20, "trainer": 30, "recipe": 30, "timm": 10}
    open_now: list[Holds] = []
    seen: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def start_all(kinds: Any) -> Any:
        assert not open_now
        seen.append(tuple(kinds))
        running = {kind: Holds(held[kind], kind == "timm") for kind in kinds}
        open_now.extend(running.values())
        yield running
        open_now.clear()

    options = SimpleNamespace(updates=2, rounds=3)
    cells, facts = program.measure(list(held), start_all, options)
    assert seen == [tuple(held), *((kind,) for kind in held)]
    assert "one contender after the other" in capsys.readouterr().out
    assert [cells[kind].seconds for kind in ("plain", "recipe")] == [[1 / 20] * 3, [1 / 30] * 3]
    assert cells["timm"].problem == "no kernel" and set(facts) == set(held)
    seen.clear()
    held.update(recipe=10, trainer=16)  # 20 + 16 + 10 and 20 more are not above 0.85 of 80
    cells, _ = program.measure(list(held), start_all, options)
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
