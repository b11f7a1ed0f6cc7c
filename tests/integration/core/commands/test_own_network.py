"""A user's network whose layers lie in one attribute: its run is resumed, evaluated, exported and loaded again."""

import pytest
from support.hosts.own_modules import ENTRY
from support.processes import run_command
from support.trainings.runs import well

MODULE = """
from paddle import nn

from paddlevit_dist import register_model
from paddlevit_dist.core.tasks import Model


class Inner(nn.Layer):
    def __init__(self, num_classes):
        super().__init__()
        self.{inner} = nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.BatchNorm1D(8), nn.Linear(8, num_classes))

    def forward(self, images):
        return self.{inner}(images)


class Own(Model):
    def __init__(self, num_classes=10, in_channels=1):
        super().__init__()
        self.{outer} = nn.LayerList([Inner(num_classes)])

    def forward(self, images):
        return self.{outer}[0](images)


register_model("own", Own)
"""
TRAIN = ("-cfg=vit_digits", "-ngpus=1", "-num_workers=0", "-import=own.py", "MODEL.NAME", "own")
LOAD = """
import sys

import own
import paddlevit_dist

model = paddlevit_dist.create_model("run", pretrained=True)
print(paddlevit_dist.load_weights(own.Own(), model.state_dict(), strict=True).loaded_fraction)
"""


@pytest.mark.parametrize("outer, inner", [("net", "net"), ("_orig_mod", "teacher")])
def test_a_run_of_an_own_network_is_used_by_every_command(tmp_path, outer, inner):
    (tmp_path / "own.py").write_text(MODULE.format(outer=outer, inner=inner))

    def run(*words):
        return well(run_command([*ENTRY, *words], folder=tmp_path)).out.splitlines()

    average = ("TRAIN.MODEL_EMA", "true", "TRAIN.MODEL_EMA_DECAY", "0.9")
    run("train", *TRAIN, *average, "-epochs=2", "-stop_after_epoch=1", "-output=run")
    trained = run("train", *TRAIN, *average, "-epochs=2", "-resume=auto", "-output=run")
    scores = [line.partition(" (")[0] for line in trained if line.startswith("top-1")]
    run("convert", "run", "own.safetensors", "-import=own.py")
    for weights in ("run", "own.safetensors"):
        evaluated = run(
            "evaluate", "-import=own.py", "-cfg=run/config.yaml", f"-pretrained={weights}", "-output=scored"
        )
        assert [line.partition(" (")[0] for line in evaluated if line.startswith("top-1")] == scores[-1:]
    assert any(
        "loaded 8 of 8 (100.0 % of parameters)" in line for line in run("export", "run", "out/m", "-import=own.py")
    )
    (tmp_path / "load.py").write_text(LOAD)
    assert well(run_command([ENTRY[0], "load.py"], folder=tmp_path)).out.splitlines()[-1] == "1.0"
