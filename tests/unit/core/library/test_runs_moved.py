"""``evaluate`` of a run's folder that was moved, or comes from others: its configuration is settings alone."""

import contextlib
import os

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.library import runs


@pytest.fixture
def evaluated(tmp_path, monkeypatch):
    """A folder with a configuration; ``evaluate`` stops once it has read that, which is returned."""
    (tmp_path / "moved" / "checkpoints").mkdir(parents=True)
    (tmp_path / "own_thing.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    load = settings.load

    def evaluate(text, *arguments, **keys):
        (tmp_path / "moved" / "config.yaml").write_text(f"DATA: {{DATASET: digits, CACHE_FOLDER: shared}}\n{text}")
        found = []

        def read(*given, **named):
            found.append(load(*given, **named).values)
            raise InterruptedError

        monkeypatch.setattr(settings, "load", read)
        with contextlib.suppress(InterruptedError):
            runs.evaluate(tmp_path / "moved", *arguments, **keys)
        return found[0]

    return evaluate


def test_nothing_is_imported_and_results_go_to_the_folder(evaluated, tmp_path):
    values = evaluated("SAVE: elsewhere\nIMPORTS: [own_thing.py]\n")
    assert values.EVAL and os.path.abspath(values.SAVE) == str(tmp_path / "moved")
    assert values.DATA.CACHE_FOLDER is None and not (tmp_path / "ran").exists()
    assert evaluated("SAVE: elsewhere\n", output="there").SAVE == "there"


def test_a_run_in_its_place_keeps_its_cache(evaluated):
    assert evaluated("SAVE: moved\n").DATA.CACHE_FOLDER == "shared"
    assert evaluated("SAVE: elsewhere\n", **{"DATA.CACHE_FOLDER": "mine"}).DATA.CACHE_FOLDER == "mine"


def test_a_configuration_that_is_named_and_imports_that_are_given_are_trusted(evaluated, tmp_path):
    evaluated("SAVE: elsewhere\n", IMPORTS=["own_thing.py"])
    assert (tmp_path / "ran").exists()
    values = evaluated("SAVE: elsewhere\n", tmp_path / "moved" / "config.yaml")
    assert values.SAVE == "elsewhere" and values.DATA.CACHE_FOLDER == "shared"


def test_code_that_is_needed_is_asked_for(evaluated):
    with pytest.raises(UserError, match="add -import=lost.py"):
        evaluated("IMPORTS: [lost.py]\nTASK: nobodys_task\n")
