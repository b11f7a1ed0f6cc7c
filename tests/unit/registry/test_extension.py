"""The rows and functions of optional folders exist, and are not used without their folder."""

import importlib
import inspect

import pytest

from paddlevit_dist.commands import COMMANDS, import_command
from paddlevit_dist.engine.evaluation import EvaluationObserver
from paddlevit_dist.engine.hooks import Hook
from paddlevit_dist.registry import extension
from paddlevit_dist.runtime.lazy_names import import_object

HOOKS, OBSERVERS = extension.TRAINING_HOOKS, extension.EVALUATION_OBSERVERS
ROWS = (*HOOKS, *OBSERVERS)


@pytest.fixture
def no_folders(monkeypatch):
    monkeypatch.setattr(extension, "FOLDERS", ())
    extension.has.cache_clear()
    yield
    extension.has.cache_clear()


def test_every_function_is_in_its_module():
    for name, module in extension._MODULES.items():
        target = getattr(extension, name)
        assert target.__module__ == f"paddlevit_dist.{module}" and target.__name__ == name


def test_mypy_reads_the_signature_of_every_function():
    source = inspect.getsource(extension)
    for name, module in extension._MODULES.items():
        assert f"    from ..{module} import {name} as {name}\n" in source


@pytest.mark.parametrize("row", ROWS, ids=[row.key for row in ROWS])
def test_a_hook_or_observer_is_made_of_the_trainer(row):
    kind = import_object(row.location)
    assert issubclass(kind, Hook if row in HOOKS else EvaluationObserver)
    assert list(inspect.signature(kind).parameters) == ["run"]


def test_jobs_and_commands_are_functions_of_one_argument():
    functions = [*map(extension.import_job, extension.JOBS), *map(import_command, COMMANDS)]
    for function in functions:
        assert len(inspect.signature(function).parameters) == 1, function


def test_keys_of_rows_are_those_of_the_folders():
    keys = {key.name for table in extension.find_tables() for key in table.keys}
    assert {row.key for row in ROWS} | set(extension.JOBS) <= keys
    assert all(
        table.is_optional or not table.check.__module__.endswith("settings") for table in extension.find_tables()
    )


def test_a_row_is_built_only_if_its_key_is_set():
    run = type("Run", (), {"config": dict.fromkeys((row.key for row in ROWS), False)})
    assert extension.build_hooks(run) == extension.build_observers(run) == []
    assert extension.find_job({"SELFTEST": False, "SEEDS": 3}) == "SEEDS"
    assert extension.find_job({"SELFTEST": False, "SEEDS": None}) is None


def test_without_folders_there_is_nothing(no_folders):
    assert not any(map(extension.has, ("cpu_kernels", "report")))
    assert extension.find_tables() == []


def test_a_folder_needs_its_module(monkeypatch):
    monkeypatch.setitem(extension._REQUIRED_MODULES, "cpu_kernels", "a_module_that_nobody_has")
    extension.has.cache_clear()
    assert not extension.has("cpu_kernels") and extension.is_missing(".cpu_kernels.accelerate:accelerate")
    extension.has.cache_clear()
    assert importlib.import_module("paddlevit_dist.cpu_kernels")
