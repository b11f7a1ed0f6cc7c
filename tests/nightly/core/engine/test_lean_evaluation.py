"""Training and evaluation of other tasks than classification import nothing that only other commands ask of them."""

import pytest
from integration.core.engine.test_lean_evaluation import RUNS, require_lean_imports


@pytest.mark.parametrize("task", [task for task in RUNS if task != "classification"])
def test_nothing_of_predictions_figures_exports_and_debugging_is_imported(task, tmp_path):
    require_lean_imports(task, tmp_path)
