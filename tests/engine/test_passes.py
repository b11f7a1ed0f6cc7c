"""The trial of TO_STATIC auto: what it decides, and that it leaves no trace.

What is compiled runs in a separate process: the threads of Paddle's executor live as long as the process.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from support.processes import run_workers, succeeded
from yacs.config import CfgNode

from paddlevit_dist.contracts.task import Step, Task, Term
from paddlevit_dist.engine import passes
from paddlevit_dist.engine.passes import PassesTrial, allowed_difference, difference, verdict
from paddlevit_dist.engine.precision import Precision
from paddlevit_dist.engine.steps import COUNTS

OTHER, FAILS = "they give other gradients, as with dropout", "the model fails with TypeError: no"


# Of each rank seconds of a pass as it is written and compiled, of compiling, and what speaks against the compiled one.
@pytest.mark.parametrize(
    "trials, is_compiled, reason",
    [
        ([(1.0, 0.5, 3.0, None)], True, "the same gradients (2.00 times as fast on the first batch, 3.0 s to compile)"),
        ([(1.0, 0.5, 3.0, None), (1.0, 0.8, 4.0, None)], True, "1.25 times as fast on the first batch, 4.0 s"),
        ([(1.0, 0.5, 3.0, None), (1.0, 1.0, 3.0, None)], False, "they are no faster (1.00 times"),
        ([(1.0, 0.99, 3.0, None)], False, "no faster (1.01 times"),
        ([(1.0, 0.5, 3.0, None), (1.0, 0.5, 3.0, OTHER)], False, f"{OTHER} (2.00 times"),
        ([(1.0, 0.5, 3.0, None), (1.0, 0.0, 0.0, FAILS)], False, FAILS),
    ],
)
def test_compiled_passes_need_equal_gradients_on_all_ranks_and_a_gain_on_the_slowest(trials, is_compiled, reason):
    line, chosen = verdict(trials)
    assert chosen is is_compiled and reason in line
    assert line.startswith("compiled passes" if is_compiled else "passes as they are written (TO_STATIC auto)")


def _values(x):
    return [[number + 0.0 for number in row] for row in x.tolist()]  # of a program's variable there are none


class Model(paddle.nn.Layer):
    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.layers = paddle.nn.Sequential(
            paddle.nn.Linear(3, 5), paddle.nn.BatchNorm1D(5), paddle.nn.Dropout(0.5), paddle.nn.Linear(5, 1)
        )

    def forward(self, x):
        if self.kind == "other values" and not paddle.in_dynamic_mode():
            x = x * 1.5
        if self.kind == "no program":
            x = paddle.to_tensor(_values(x))
        return self.layers(x)


class OneTerm(Task):
    compiles = True

    def __init__(self) -> None:
        self.batches = []

    def train_step(self, model: Any, batch: dict[str, Any], step: Step) -> dict[str, Term]:
        self.batches.append(sorted(batch))
        return {"loss": Term(model(batch.pop("x")).square().sum(), 4)}


def trial_of(task: Task, model: paddle.nn.Layer, to_static: Any = "auto", recompute: bool = False) -> Any:
    """A trial, and the lines that it has said."""
    values = {"TO_STATIC": to_static, "TASK": "one_term", "TRAIN": {"RECOMPUTE": recompute}, "AMP": False, "SEED": 0}
    said: list[str] = []
    parts = {"task": task, "model": model, "precision": Precision(False), "record": SimpleNamespace(say=said.append)}
    return PassesTrial(SimpleNamespace(config=CfgNode(values), **parts)), said


def state_of(model: paddle.nn.Layer) -> dict[str, Any]:
    state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    state["gradients"] = [p.grad is None for p in model.parameters()]
    return state


def tried(kind: str) -> dict[str, Any]:
    """What a trial says, what it leaves behind, and the next random number with and without it."""
    paddle.seed(1)
    model, task = Model(kind), OneTerm()
    batch = {"x": paddle.randn([4, 3]), COUNTS: paddle.ones([1], dtype="float64")}
    before, names = state_of(model), sorted(batch)
    trial, said = trial_of(task, model)
    paddle.seed(5)
    expected = paddle.rand([3]).numpy()
    paddle.seed(5)
    trial.update_started(Step(1, 0, 10), [batch])
    drawn = paddle.rand([3]).numpy()
    trial.update_started(Step(1, 1, 10), [batch])
    (line,) = said
    result = {"line": line, "drawn": (drawn, expected)}
    result["kept"] = names == sorted(batch), before, state_of(model)
    result["read"] = task.batches[0], len(task.batches)
    result["is_compiled"] = not hasattr(model.forward, "__func__")
    model.eval()
    result["value"] = model(paddle.ones([1, 3])).item()
    return result


def results_of_kinds() -> dict[str, Any]:
    return {kind: tried(kind) for kind in ("plain", "other values", "no program")}


@pytest.fixture(scope="module")
def results():
    (found,) = succeeded(run_workers("engine.test_passes:results_of_kinds", processes=1)).results
    return found


@pytest.mark.parametrize("kind", ["plain", "other values", "no program"])
def test_a_trial_changes_neither_weights_nor_statistics_nor_gradients_nor_the_generator(results, kind):
    result = results[kind]
    keeps_batch, before, after = result["kept"]
    assert keeps_batch and before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert all(after["gradients"])
    np.testing.assert_array_equal(*result["drawn"])
    names, passes = result["read"]
    assert names == ["x"] and passes >= 4


def test_what_the_trial_finds_is_what_is_done(results):
    assert "they give other gradients" in results["other values"]["line"]
    assert "the model fails with" in results["no program"]["line"]
    plain = results["plain"]["line"]
    assert "the same gradients" in plain or "they are no faster" in plain
    for result in results.values():
        assert result["is_compiled"] == result["line"].startswith("compiled passes")
        assert "the trial took" in result["line"]
    assert results["plain"]["value"] == results["other values"]["value"]  # in evaluation: the model as it is written


@pytest.mark.parametrize(
    "to_static, recompute, compiles, reason",
    [
        (False, False, True, None),
        (True, False, True, None),
        ("auto", True, True, "TRAIN.RECOMPUTE"),
        ("auto", False, False, "task one_term cannot be compiled"),
    ],
)
def test_nothing_is_tried_where_it_cannot_be_or_was_not_asked_for(to_static, recompute, compiles, reason):
    task = OneTerm()
    task.compiles = compiles
    trial, said = trial_of(task, Model("plain"), to_static, recompute)
    trial.update_started(Step(1, 0, 10), [{}])
    assert [reason in line for line in said] == ([] if reason is None else [True])
    assert not task.batches


def results_off_by(share: float) -> list:
    """A loss, two gradients and a parameter without one; the sizes of the numbers add up to 4."""
    changed = paddle.to_tensor([0.5, -2.0, 1e-3])
    changed[2] = 1e-3 + 4.0 * share
    return [paddle.to_tensor(1.499), changed, None, paddle.zeros([2, 2])]


def test_results_are_compared_by_the_size_of_their_numbers():
    one = results_off_by(0.0)
    assert difference(one, results_off_by(0.0)) == 0.0
    assert difference(one, results_off_by(1e-3)) == pytest.approx(1e-3, rel=1e-3)
    assert not difference(one, results_off_by(float("nan"))) <= 1.0
    assert difference(one, [*one[:2], one[3], None]) == float("inf")


def test_on_a_gpu_gradients_are_equal_up_to_the_rounding_that_is_in_force(monkeypatch):
    def allowed(amp: bool, tf32: bool, on_gpu: bool = True) -> float:
        monkeypatch.setattr(passes.gpu, "rounds_to_tf32", lambda: tf32)
        return allowed_difference(CfgNode({"AMP": amp, "AMP_DTYPE": "bfloat16"}), on_gpu)

    assert allowed(amp=True, tf32=True, on_gpu=False) == 0.0
    plain, tf32, half = allowed(False, False), allowed(False, True), allowed(True, True)
    assert 0.0 < plain <= 1e-4 < tf32 < half < 0.2


def test_passes_are_timed_between_waits_and_nothing_is_copied_to_the_host(monkeypatch):
    happened = []
    monkeypatch.setattr(passes, "is_on_gpu", lambda: True)
    monkeypatch.setattr(paddle.device.cuda, "synchronize", lambda: happened.append("wait"))
    monkeypatch.setattr(passes.time, "perf_counter", lambda: happened.append("clock") or float(len(happened)))
    for name in ("numpy", "item", "tolist"):
        monkeypatch.setattr(paddle.Tensor, name, lambda *_: happened.append("copy"))
    weight = paddle.ones([3])
    weight.stop_gradient = False

    def make_pass():
        happened.append("pass")
        loss = (weight * 2).sum()
        loss.backward()
        return [loss.detach(), weight.grad]

    passes._time(make_pass, lambda: None)
    assert happened == ["wait", "clock", "pass", "wait", "clock"] * 4
