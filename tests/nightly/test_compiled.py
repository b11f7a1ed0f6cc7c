"""Compiled loops are ready before loader processes are forked, so these need not compile or load anything."""

import os
import subprocess
import sys

import pytest
from support.processes import ROOT

COUNT = """
import sys
import numpy as np

def compiled_for():
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("paddlevit_dist.points"):
            for value in vars(module).values():
                if hasattr(value, "dispatcher"):
                    found[value.__module__ + "." + value.__name__] = value.dispatcher().signatures
    return found

from pathlib import Path
from paddlevit_dist.points.data.rooms import generate_room
from paddlevit_dist.points.data.scene_store import read_scene, write_scene
path = Path(sys.argv[1])
write_scene(path, generate_room(0, (7, 0), 0.1, "room"))
scene = read_scene(str(path), "room")
small = scene._make(field[:1000] if isinstance(field, np.ndarray) else field for field in scene)
assert len(scene.xyz) > 5000
"""

# What a task does before its loader processes are forked, and what these do then.
LOADING = """
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry import resolve
values = settings.load([*sys.argv[2:], "-dataset=synthetic_rooms"]).values
task = resolve("task", values.TASK)(values)
read = {split: task.build_dataset(split, None) for split in ("train", "val")}
task.build_model()
before = compiled_for()
for samples in read.values():
    task.collate([samples.build_sample(one, np.random.default_rng(0)) for one in (scene, small)])
"""
TASKS = {
    "semantic": ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", "POINTS.AUGMENT.ELASTIC", "1"],
    "instances": ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "POINTS.MAX_POINTS", "5000"],  # the small one whole
}


@pytest.mark.parametrize("task", TASKS)
def test_loader_processes_find_everything_compiled(task, tmp_path):
    script = COUNT + LOADING
    script += "after = compiled_for()\nprint(len(before), sum(map(len, before.values())))\n"
    script += "print({name: found for name, found in after.items() if found != before[name]})\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "room.scene"), *TASKS[task]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    counts, new = done.stdout.strip().splitlines()[-2:]
    functions, signatures = map(int, counts.split())
    # All but the average precision of resampled scenes, which is the main process's, and what only PCD files need.
    assert functions >= 6 and signatures >= functions - 2 and new == "{}"
