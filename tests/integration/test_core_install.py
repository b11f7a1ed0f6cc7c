"""What is installed without any extra, so without Paddle and numba, scores results; compares and reports at night."""

import json
import os
import re
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.networks import coco_peer
from support.processes import ROOT, Finished, run_command, succeeded

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.points.data.scannet_classes import NYU40_NUMBERS
from paddlevit_dist.volumes.slicer_files import LandmarkPoint, format_fcsv

ROOMS = f"BASE: {settings.recipe_folder() / 'pointgroup_synthetic_rooms.yaml'}\nPOINTS: {{ROOMS: {{VAL: 2}}}}\n"


ALONE = {"OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}


def link(folder: Path, needed: list[str]) -> Path:
    """``folder``, with what pip would install for these names, linked from this environment, and nothing else."""
    linked = set()
    while needed:
        name = re.sub(r"[-_.]+", "-", needed.pop()).lower()
        if name in linked:
            continue
        linked.add(name)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of a platform or an extra that is not this one
            continue
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).unlink(missing_ok=True)
            (folder / top).symlink_to(package.locate_file(top))
        needed += [re.split(r"[^\w.-]", line)[0] for line in package.requires or () if "extra ==" not in line]
    return folder


def core() -> list[str]:
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    (names,) = re.findall(r"^CORE = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    return re.findall(r'"([\w-]+)>=', names)


def run_with(packages: Path, folder: Path, *words: str) -> Finished:
    """A command with these packages alone."""
    kept = {**ALONE, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}
    kept["PADDLEVIT_DIST_PYTHON"] = "another"  # it does not go on with the environment beside the repository
    return run_command([sys.executable, "-S", "-m", "paddlevit_dist", *words], folder=folder, **kept)


@pytest.fixture(scope="module")
def core_packages(tmp_path_factory) -> Path:
    return link(tmp_path_factory.mktemp("core"), core())


@pytest.fixture
def commands(core_packages, tmp_path):
    """Runs one command with everything and with the core alone; what both wrote to stdout, equally."""

    def run(*words: str) -> str:
        whole = succeeded(run_command([sys.executable, "-m", "paddlevit_dist", *words], folder=tmp_path, **ALONE))
        alone = succeeded(run_with(core_packages, tmp_path, *words))
        assert alone.out == whole.out
        return alone.out

    return run


def test_neither_paddle_nor_numba_is_there(core_packages, tmp_path):
    names = {path.name for path in core_packages.iterdir()}
    assert {"numpy", "yaml", "jinja2"} <= names and not {"numba", "paddle", "scipy", "cv2"} & names


def test_calls_that_need_paddle_say_how_to_install_it_and_others_work(core_packages, tmp_path):
    program = """
import paddlevit_dist as pv
for call in (lambda: pv.train("vit_digits"), lambda: pv.predict("run", "x"), lambda: pv.Accuracy(3)):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
print(pv.load_config("vit_digits", epochs=3).TRAIN.NUM_EPOCHS, pv.list_models("vit_tiny_*384"))
"""
    kept = {**ALONE, "PYTHONPATH": os.pathsep.join([str(core_packages), str(ROOT)])}
    said = succeeded(run_command([sys.executable, "-S", "-c", program], folder=tmp_path, **kept)).out
    *lines, last = said.splitlines()
    for name, line in zip(("train", "predict", "paddlevit_dist.Accuracy"), lines, strict=True):
        needed = "needs Paddle, which is not installed"
        assert line.startswith(f"{name} {needed}: {sys.executable} -m pip install paddlepaddle"), line
    assert last == "3 ['vit_tiny_patch16_384']"


def test_results_are_scored_without_paddle_and_numba(commands, tmp_path):
    rng = np.random.default_rng(0)
    for name, content in zip(("truth", "found"), coco_peer.random_case(1)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content, default=int))
        for number in range(3):
            (tmp_path / f"{name}_masks").mkdir(exist_ok=True)
            pixels = rng.integers(0, 3, (20, 20), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{name}_masks" / f"{number}.png")
        (tmp_path / f"{name}_points").mkdir()
        for number in range(3):
            points = [LandmarkPoint("nose", tuple(f"{value:.3f}" for value in rng.normal(0, 9, 3)), "")]
            (tmp_path / f"{name}_points" / f"{number}.fcsv").write_text(format_fcsv(points, "ras"))
    (tmp_path / "truth.csv").write_text("image,label\na,cat\nb,dog\nc,cat\n")
    (tmp_path / "found.csv").write_text("image,cat,dog\na,0.9,0.1\nb,0.8,0.2\nc,0.7,0.3\n")
    (tmp_path / "rooms.yaml").write_text(ROOMS)
    recipe = settings.load([f"-cfg={tmp_path / 'rooms.yaml'}"]).values
    rooms = resolve("dataset", "synthetic_rooms").open(recipe, "val", None)
    (tmp_path / "rooms").mkdir()
    for index in range(len(rooms)):
        room = rooms.read(index)
        guessed = np.array(NYU40_NUMBERS)[np.where(rng.random(len(room.xyz)) < 0.8, np.maximum(room.semantic, 0), 3)]
        (tmp_path / "rooms" / f"{room.name}.txt").write_text("\n".join(map(str, guessed)))

    assert "Average Precision" in commands("evaluate", "detections", "truth.json", "found.json")
    assert "top-1 66.67" in commands("evaluate", "classes", "truth.csv", "found.csv")
    assert "IoU of each" in commands("evaluate", "masks", "truth_masks", "found_masks")
    assert "mre_mm" in commands("evaluate", "landmarks", "truth_points", "found_points")
    assert "mIoU" in commands("evaluate", "scenes", "rooms", "-cfg=rooms.yaml")
