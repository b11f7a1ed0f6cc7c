"""-show_config and -h: what they print, and what they do not do."""

import re
import sys

import pytest
import yaml
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import MAIN, refused, well

RECIPE = ROOT / "configs" / "vit_base_patch16_224.yaml"
DIGITS = ROOT / "configs" / "vit_digits.yaml"


def test_show_config_prints_values_with_sources_batch_and_rates_and_starts_nothing(tmp_path):
    output = tmp_path / "output"
    ended = well(
        run_main(
            f"-cfg={RECIPE}",
            f"-output={output}",
            "-data_path=/nowhere",
            "-batch_size=8",
            "-ngpus=2",
            "-show_config",
            "TRAIN.LINEAR_SCALED_LR",
            "64",
            "TRAIN.WARMUP_START_LR",
            "3e-7",
        )
    )
    assert max(map(len, ended.out.splitlines())) <= 100
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "BATCH_SIZE: 8 # command line" in lines
    # Of a path that is too long for 80 columns the end is shown.
    assert any(re.fullmatch(r"NAME: vit_base_patch16_224 # \S*/vit_base_patch16_224\.yaml", line) for line in lines)
    assert any(re.fullmatch(r"WEIGHT_DECAY: 0\.3 # \S*/_base_/vit_imagenet\.yaml", line) for line in lines)
    assert "MLP_RATIO: null # default" in lines
    batch = " ".join(lines[next(n for n, line in enumerate(lines) if line.startswith("# effective batch")) :])
    batch = batch.replace(" # ", " ")
    assert "effective batch 32 = 8 per process x 2 process(es) x 2 accumulated" in batch  # the recipe accumulates 2
    assert "learning rate 0.0015 (warm-up from 1.5e-07, end 0)" in batch  # 3e-3 and 3e-7, times 32 / 64
    assert "LINEAR_SCALED_LR 64" in batch
    assert not output.exists()


def test_what_is_shown_is_yaml_and_an_import_is_told_once(tmp_path):
    (tmp_path / "mine.py").write_text("import numpy\n")  # a module of which a run would start the process anew
    words = [f"-cfg={DIGITS}", f"-output={tmp_path / 'output'}", f"-import={tmp_path / 'mine.py'}", "-image_size=16"]
    ended = run_main(*words, "-show_config")
    shown = yaml.safe_load(ended.out)
    assert shown["DATA"]["IMAGE_SIZE"] == 16 and shown["IMPORTS"] == [str(tmp_path / "mine.py")]
    assert ended.code == 0 and len(ended.err.splitlines()) == ended.err.count("note: importing ") == 1


PROBE = """
import runpy, sys
sys.argv[:] = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    print("code", end.code, "paddle", "paddle" in sys.modules, "numpy", "numpy" in sys.modules)
"""


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["-h", f"-cfg={ROOT / 'configs' / 'pointgroup_scannet.yaml'}"], 0),
        (["--help", "all"], 0),
        (["TRAIN.BSE_LR", "1"], 2),
        (["-batchsize=3"], 2),
        (["-cfg=none.yaml"], 2),
        (["TASK", "landmarks", "-dataset=landmarks", "MODEL.NAME=unet3d", "-show_config", f"-cfg={DIGITS}"], 2),
    ],
    ids=["-h", "--help", "unknown key", "unknown flag", "missing file", "another task's key"],
)
def test_help_and_wrong_options_do_not_import_paddle(arguments, code):
    ended = run_command([sys.executable, "-c", PROBE, str(MAIN), *arguments], is_copy=False)
    assert ended.out.splitlines()[-1] == f"code {code} paddle False numpy False"
    assert len(ended.err.splitlines()) == (1 if code else 0)


def test_help_names_the_command_that_was_typed():
    out = well(run_main("-h", "-eval")).out
    assert out.startswith("usage: python main_multi_gpu.py -eval [RUN] [-flag=value ...]")
    assert "\n  python main_multi_gpu.py -eval output/mine\n" in out
    assert "'python -m paddlevit_dist inspect recipes' lists all" in refused("-cfg=zzz")
