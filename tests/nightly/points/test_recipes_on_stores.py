"""Each recipe for point clouds, also of large networks, trains on a store that our commands prepare."""

from pathlib import Path
from typing import Any

import pytest
from support.processes import ROOT, run_workers, succeeded
from support.trainings.recipe_steps import run
from support.trainings.scene_recipes import require_scored
from support.trainings.store_recipes import LAYOUTS, STORES

FEW = "-batch_size=1 DATA.BATCH_SIZE_EVAL 1 DATA.NUM_WORKERS 0 VALIDATE_FREQ 1".split()


def train_on_stores(names: tuple[str, ...], folder: Path) -> list[dict[str, Any]]:
    """Prepare each store once; return what became of each recipe, on each of two processes."""
    tables = {}
    for name in names:
        recipe, layout, words = STORES[name]
        raw, store = folder / f"raw {layout}", folder / f"store {layout}"
        make, prepare = LAYOUTS[layout]
        if not raw.exists():
            raw.mkdir()
            make(raw)
            if prepare is not None:
                prepare([str(raw), str(store), "--workers=1"])
        path = f"-data_path={store if prepare else raw}"
        tables[name] = str(ROOT / "configs" / f"{recipe}.yaml"), [*FEW, *words, path]
    return succeeded(run_workers("nightly.points.test_recipes_on_stores:run_tables", tables, str(folder))).results


def run_tables(tables: dict[str, tuple[str, list[str]]], output: str) -> dict[str, Any]:
    """What became of each recipe, by name."""
    return {name: run(recipe, f"{output}/{name.replace(' ', '_')}", words) for name, (recipe, words) in tables.items()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_on_stores(tuple(STORES), tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("name", STORES)
def test_two_updates_and_an_evaluation(name, trained):
    require_scored(STORES[name][0], [result[name] for result in trained])
