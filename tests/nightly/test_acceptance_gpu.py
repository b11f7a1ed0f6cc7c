"""Rows of what has to work on GPUs, small and on a CPU: what fails them, and that a row stops no other."""

import json
import re
import sys

import numpy as np
import pytest
from support.processes import ROOT, run_command


def test_a_row_of_what_has_to_work_runs_on_a_cpu():
    words = [sys.executable, str(ROOT / "tests" / "acceptance_gpu.py"), "--on_cpu", "evaluation"]
    ended = run_command(words)
    assert ended.code == 0, ended.out + ended.err
    line = ended.out.splitlines()[-1]
    assert line.startswith("evaluation ") and " reached " in line and "losses differ by 0.0e+00" in line


def test_a_library_for_another_numpy_ends_it_in_one_line(tmp_path, monkeypatch):
    from acceptance_gpu import require_importable

    (tmp_path / "built_for_numpy_2.py").write_text(
        'raise ImportError("A module that was compiled\\nnumpy.core.multiarray failed to import")', encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    require_importable("scipy.optimize", "json")
    said = rf"built_for_numpy_2 cannot be imported next to numpy {re.escape(np.__version__)} \(numpy.core.multiarray"
    with pytest.raises(SystemExit, match=said) as ended:
        require_importable("json", "built_for_numpy_2")
    assert "\n" not in str(ended.value)


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

    from paddlevit_dist.core.registry.lookup import list_models

    assert all(name.startswith(acceptance_gpu.FAMILIES) for name in list_models())
    assert {f"zoo {name}" for name in acceptance_gpu.FAMILIES} <= set(acceptance_gpu.ROWS)
