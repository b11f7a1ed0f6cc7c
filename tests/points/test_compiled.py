"""Compiled loops are ready before loader processes are forked: those need not compile or load anything themselves."""

from __future__ import annotations

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
from paddlevit_dist.points.data.rooms.generator import make_room
from paddlevit_dist.points.data.scene_store import read_scene, write_scene
path = Path(sys.argv[1])
write_scene(path, make_room(0, (7, 0), 0.1, "room"))
scene = read_scene(str(path), "room")

class Scenes:
    class_names = ["a"] * 20
    def __len__(self): return 1
    def read(self, index): return scene
"""

INSTANCES = """
from paddlevit_dist.models import create_model
from paddlevit_dist.points.instances.batches import collate_scenes, compile_loops, network_batch
from paddlevit_dist.points.instances.samples import Changes, InstanceSamples
spec = create_model("pointgroup", num_classes=20).plan_spec()
compile_loops()
before = compiled_for()
for changes in (Changes(max_points=5000), Changes(), None):
    samples = [InstanceSamples(Scenes(), 50.0, 512, changes).sample(0, np.random.default_rng(0))] * 2
    collate_scenes(samples)
    network_batch(samples, spec)
"""

SEMANTIC = """
from paddlevit_dist.models import create_model
from paddlevit_dist.points.data.augment import Strength
from paddlevit_dist.points.data.samples import PointSamples, compile_loops, join_views
from paddlevit_dist.points.sparse import build_plan
spec = create_model("minkunet14a", num_classes=20).plan_spec()
compile_loops()
before = compiled_for()
for augmentation in (Strength(elastic=1.0).build(), None):
    samples = PointSamples(Scenes(), 0.1, ("rgb",), augmentation).sample(0, np.random.default_rng(0))
    build_plan(join_views([samples, samples])["coordinates"], spec, 2)
"""


@pytest.mark.parametrize("task", ["instances", "semantic"])
def test_loader_processes_find_everything_compiled(task, tmp_path):
    script = COUNT + {"instances": INSTANCES, "semantic": SEMANTIC}[task]
    script += "after = compiled_for()\nprint(len(before), sum(map(len, before.values())))\n"
    script += "print({name: found for name, found in after.items() if found != before[name]})\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "room.scene")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    counts, new = done.stdout.strip().splitlines()[-2:]
    functions, signatures = map(int, counts.split())
    assert functions >= 6 and signatures >= functions and new == "{}"
