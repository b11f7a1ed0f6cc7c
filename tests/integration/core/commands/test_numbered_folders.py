"""The output folder of a command that is given none."""

import sys

from support.processes import run_command
from support.trainings.runs import DIGITS, MAIN, last_line, refusal, well

from paddlevit_dist.core.settings import load


def run_in(folder, *words):
    return run_command([sys.executable, str(MAIN), *DIGITS, *words], folder=folder)


def test_each_run_has_its_own_folder_and_a_refused_one_none(tmp_path):
    outputs = tmp_path / "output"
    assert "-data_path" in refusal(run_in(tmp_path, "-dataset=folder"))
    assert not outputs.exists()

    assert "output folder: output/plain (" in well(run_in(tmp_path)).out
    assert "nothing to do" in last_line(well(run_in(tmp_path, "-resume=auto")))
    assert "output folder: output/plain_eval (" in well(run_in(tmp_path, "-eval", "-pretrained=output/plain")).out
    again = ["-eval", "-pretrained=output/plain", f"-cfg={outputs / 'plain' / 'config.yaml'}"]
    assert "output folder: output/plain_eval-2 (" in well(run_in(tmp_path, *again)).out
    assert sorted(path.name for path in outputs.iterdir()) == ["plain", "plain_eval", "plain_eval-2"]
    assert load([f"-cfg={outputs / 'plain' / 'config.yaml'}"]).values.SAVE == "output/plain"
