"""Packages under their former names are the packages of today, with a note: programs of users import them so."""

import importlib

import pytest
from support import small_runs

import paddlevit_dist
from paddlevit_dist.runtime.renamed_modules import _NOW
from paddlevit_dist.tasks.task import Task


def test_a_module_at_a_former_name_is_the_one_of_today_and_a_note_says_so():
    for old, now in {**_NOW, "contracts.task": "tasks.task", "loading.sampler": "data.sampler"}.items():
        with pytest.warns(FutureWarning, match=rf"^paddlevit_dist\.{old} is paddlevit_dist\.{now} now") as notes:
            found = importlib.import_module(f"paddlevit_dist.{old}")
        assert found is importlib.import_module(f"paddlevit_dist.{now}") and found.__name__ == f"paddlevit_dist.{now}"
        assert len(notes) <= 2  # that of its package comes first
        assert importlib.import_module(f"paddlevit_dist.{old}") is found


def test_what_never_was_is_not_there():
    for name in ("contracts.nothing", "nothing"):
        with pytest.raises(ModuleNotFoundError, match="nothing"):
            importlib.import_module(f"paddlevit_dist.{name}")


def test_a_method_of_a_task_counts_under_its_former_name():
    with pytest.warns(FutureWarning, match=r"Own\.pictures is called images now"):

        class Own(Task):
            def pictures(self, samples, batch, epoch):
                return ["drawn"]

    assert Own.images(None, None, None, 0) == ["drawn"]


def test_public_names_of_before_go_on_with_a_note(tmp_path):
    for old, now in (("Observer", "Callback"), ("register_observer", "register_callback")):
        with pytest.warns(FutureWarning, match=rf"^paddlevit_dist\.{old} is paddlevit_dist\.{now} now"):
            assert getattr(paddlevit_dist, old) is getattr(paddlevit_dist, now)
        assert old not in dir(paddlevit_dist)
    told = []

    class Own(paddlevit_dist.Callback):
        def end(self, outcome):
            told.append(outcome)

    made = small_runs.build(str(tmp_path), "-epochs=1", "-batch_size=32", train_size=64)
    with pytest.warns(FutureWarning, match=r"paddlevit_dist\.Trainer is paddlevit_dist\.Run now"):
        trainer = paddlevit_dist.Trainer(made.config, made.task, made.datasets, observers=[Own()])
    assert trainer.train()["top-1"] >= 0 and told == ["finished"]
