"""``inspect data`` and ``export`` for tasks on point clouds: an image, and one line on what cannot be exported."""

import sys

import numpy as np
import pytest
from PIL import Image
from support.processes import ROOT, run_command
from support.trainings.runs import refusal, well

from paddlevit_dist import UserError
from paddlevit_dist.core.commands import inspect_data
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.extensions.export import command as export_model
from paddlevit_dist.points.data.scannet_classes import COLORS


def command(*words):
    return run_command([sys.executable, "-m", "paddlevit_dist", *map(str, words)])


def test_inspect_data_draws_scenes_as_the_network_sees_them(tmp_path):
    words = f"POINTS.ROOMS.TRAIN 2 POINTS.ROOMS.SPACING_M 0.15 -output={tmp_path}".split()
    ended = well(command("inspect", "data", f"-cfg={ROOT}/configs/minkunet_tutorial.yaml", *words))
    told = [
        f"2 of 2 training scenes, 1 epoch: {tmp_path / 'data.png'}",
        "leaks: 0 of 24 scenes of val are also in train",
    ]
    assert ended.out.splitlines() == told
    sheet = np.asarray(Image.open(tmp_path / "data.png"))
    assert 2 * 480 < sheet.shape[1] <= 1320 and (sheet != 255).any(axis=2).mean() > 0.1  # two views fit a laptop
    legend = {tuple(color) for color in sheet[:, 2 * 484 :].reshape(-1, 3).tolist()}
    assert set(COLORS) <= legend


def test_inspect_data_without_data_is_told(tmp_path):
    words = ["inspect", "data", f"-cfg={ROOT}/configs/minkunet34c_scannet.yaml", f"-output={tmp_path}"]
    assert "dataset scannet needs -data_path" in refusal(command(*words))


def test_inspect_data_of_a_task_without_images_is_told(tmp_path, monkeypatch):
    class Blind(Task):
        def build_dataset(self, split, cache_folder):
            return range(3)

    monkeypatch.setitem(REGISTRY.tasks, "blind", Blind)
    (tmp_path / "blind.yaml").write_text("TASK: blind\nDATA:\n  DATASET: synthetic_rooms\n")
    with pytest.raises(UserError, match="inspect data: TASK blind cannot draw its samples"):
        inspect_data.run([f"-cfg={tmp_path / 'blind.yaml'}", f"-output={tmp_path}"])


@pytest.mark.parametrize("recipe", ("minkunet_tutorial", "pointgroup_synthetic_rooms"))
def test_sparse_networks_are_not_exported_and_the_line_says_why(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_bytes((ROOT / "configs" / f"{recipe}.yaml").read_bytes())
    np.savez(tmp_path / "run" / "weights.npz", anything=np.zeros(3, np.float32))
    name = "pointgroup" if recipe.startswith("pointgroup") else recipe
    for words in (["run/weights.npz"], [f"-model={name}", "run/weights.npz"]):
        with pytest.raises(UserError, match=f"^export: {name} is a sparse network, .* use the command predict"):
            export_model.run([*words, "out"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
