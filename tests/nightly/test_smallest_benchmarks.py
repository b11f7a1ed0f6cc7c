"""Every benchmark starts in its smallest form: what nobody starts for weeks runs when somebody wants a figure."""

import ast
import importlib.util
import json
import re
import sys

import pytest
from support.processes import ROOT, run_command

FOLDER = ROOT / "benchmarks"
# Programs that another benchmark starts, with arguments of its own.
WORKERS = {
    "detrpose_training": "keypoints",
    "gpu_throughput_worker": "gpu_throughput",
    "injected_run": "faults",
    "scaling_worker": "scaling",
    "startup_by_hand": "startup",
    "throughput": "train_throughput",
    "vitpose_training": "keypoints",
}
QUICK = ("color_height_baseline", "exported_onnx", "update", "voxelize")
# What a benchmark cannot do without, any of those in a row.
NEEDS = {
    "coco_evaluation": [["pycocotools"]],
    "exported_detector": [["onnxruntime"], ["paddle2onnx"]],
    "exported_onnx": [["onnxruntime"], ["timm"], ["torch"], ["a GPU"]],
    "hub_images": [["pyarrow"]],
    "gpu_kernels": [["torch"], ["triton"]],
    "image_pipeline": [["skimage", "sklearn"]],
    "label_scores": [["sklearn"]],
    "pretraining_parity": [["torch"], ["transformers"]],
    "scene_memory": [["scipy"]],
    "scene_stages": [["scipy"]],
}


def programs() -> list[str]:
    """All files of the folder that do something when they are run."""
    found = []
    for file in sorted(FOLDER.glob("*.py")):
        tests = [node.test for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
        found += [file.stem] if any("__main__" in ast.unparse(test) for test in tests) else []
    return [name for name in found if name not in WORKERS]


def is_here(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def lacking(name: str) -> list[str]:
    """What is missing of what a benchmark needs."""
    return [" or ".join(one) for one in NEEDS.get(name, []) if not any(map(is_here, one))]


def starts(name: str) -> None:
    ended = run_command([sys.executable, str(FOLDER / f"{name}.py"), "--smallest"])
    said = f"{name}: {ended.code}\n{ended.out[-2000:]}\n{ended.err[-2000:]}"
    missing = lacking(name)
    if missing:
        packages = [one for one in missing if one != "a GPU"]
        line = ended.err.splitlines()[-1] if ended.err else ""
        assert ended.code == 1 and "Traceback" not in ended.err, said
        assert line.startswith(f"{name}.py needs {', '.join(packages) or 'a GPU'}"), said
    else:
        assert ended.code == 0, said
        result = json.loads(ended.out.splitlines()[-1].removeprefix("RESULT "))
        assert isinstance(result, dict) and result, said


@pytest.mark.parametrize("name", QUICK)
def test_a_benchmark_starts_in_its_smallest_form(name):
    starts(name)


@pytest.mark.parametrize("name", [name for name in programs() if name not in QUICK])
def test_every_other_benchmark_starts_in_its_smallest_form(name):
    starts(name)


def test_what_another_benchmark_starts_is_named_by_it():
    for worker, starter in WORKERS.items():
        assert worker in (FOLDER / f"{starter}.py").read_text(encoding="utf-8"), worker
    assert set(QUICK) | set(NEEDS) <= set(programs())


def test_what_is_run_for_headlines_is_there(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import headlines

    commands = [command for row in headlines.HEADLINES for command in (row.command, row.whole)]
    named = {command.split()[0] for command in (*commands, *headlines.ONLY_WHOLE)}
    assert {file for file in named if not (FOLDER / file).is_file()} == set()


def test_pages_name_no_benchmark_that_is_gone():
    for page in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"benchmarks/(\w+\.py)", page.read_text(encoding="utf-8")):
            assert (FOLDER / name).is_file(), (page.name, name)
