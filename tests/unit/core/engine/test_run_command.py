"""Commands that a refusal offers."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from paddlevit_dist.core.engine.run_command import format_command


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The path of a run's checkpoint, seen from the folder of the run's folder."""
    monkeypatch.chdir(tmp_path)
    folder = Path("my run")
    (folder / "checkpoints" / "epoch_0001").mkdir(parents=True)
    for name in ("config.yaml", "run.json", "checkpoints/epoch_0001/state.json"):
        (folder / name).touch()
    said = {"settings": {"SAVE": "my run", "DATA": {"DATA_PATH": "data"}}}
    (folder / "checkpoints/epoch_0001/about.yaml").write_text(yaml.safe_dump(said))
    return f"{folder}/checkpoints/epoch_0001"


def command(use, source, save="my run", data="data", weights="my run", imports=()):
    model = SimpleNamespace(PRETRAINED=weights)
    values = SimpleNamespace(SAVE=save, DATA=SimpleNamespace(DATA_PATH=data), MODEL=model, IMPORTS=imports)
    return format_command(use, source, values).partition("paddlevit_dist ")[2] or format_command(use, source, values)


def test_an_evaluation_names_the_configuration_of_the_run(run):
    assert command("evaluate", run).endswith("evaluate 'my run'")
    other = command("evaluate", run, data="other")
    assert other.endswith("evaluate 'my run' -data_path=other")
    assert command("evaluate", run, data=os.path.abspath("data")) == command("evaluate", run)


def test_a_resumed_run_keeps_its_folder_and_another_gets_its_own(run):
    assert command("resume", run).endswith("train '-resume=my run'")
    assert command("resume", run, save="new").endswith(f" '-resume={run}' -output=new")
    assert command("resume", run, imports=["own.py"]).endswith("train '-resume=my run' -import=own.py")


def test_weights_outside_of_a_run_and_other_uses_have_no_command(run, tmp_path):
    assert command("start", run) == ""
    for name in ("config.yaml", "run.json"):  # above the run's folder they are not its own
        Path("my run", name).rename(name)
    assert command("evaluate", run) == ""
