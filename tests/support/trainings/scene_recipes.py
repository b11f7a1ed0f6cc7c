"""Recipes for point clouds train on two processes, at reduced size, one after another in one group."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.processes import ROOT, run_workers, succeeded
from support.trainings.recipe_steps import require_two_updates

RECIPES = sorted(
    path.stem for kind in ("mink", "pointgroup", "ptv3") for path in (ROOT / "configs").glob(f"{kind}*.yaml")
)
BY_DAY = ("mink_classifier_solids", "minkunet_tutorial", "pointgroup_synthetic_rooms")
SMALL = (
    "-dataset=synthetic_rooms -batch_size=2 "
    "POINTS.ROOMS.TRAIN 8 POINTS.ROOMS.VAL 3 POINTS.ROOMS.SPACING_M 0.15 DATA.VOXEL_SIZE_M 0.25 DATA.BATCH_SIZE_EVAL 1 "
    "POINTS.MAX_POINTS 1500"
).split()
NO_INTENSITY = ["POINTS.FEATURES", "[xyz]"]  # rooms have none
NO_NORMALS = ["POINTS.FEATURES", "[centered_xyz, rgb]"]
SHAPES = "-batch_size=4 SHAPES.SOLIDS.TRAIN 16 SHAPES.SOLIDS.VAL 6 SHAPES.POINTS 200 SHAPES.VOXEL_SIZE 0.25".split()
SCORES = {"pointgroup": "AP", "mink_classifier": "top-1"}
CLUSTERS = (
    "POINTS.INSTANCES.PREPARE_EPOCHS 0 POINTS.INSTANCES.RADIUS_M 0.3 DATA.NUM_WORKERS 1 "
    "MODEL.OPTIONS.width 8 MODEL.OPTIONS.repeats 1"
).split()


def narrow(recipe: str) -> list[str]:
    """Words that make a serialized network small."""
    options = "encoder_depths: [1, 1, 1, 1, 1], encoder_channels: [8, 8, 16, 16, 16], encoder_heads: [1, 1, 2, 2, 2]"
    options += ", decoder_depths: [1, 1, 1, 1], decoder_channels: [8, 8, 8, 16], decoder_heads: [1, 1, 1, 2]"
    return ["MODEL.OPTIONS", f"{{{options}, patch_size: 16, enable_rpe: {str('s3dis' in recipe).lower()}}}"]


def train_each(recipes: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """What became of each recipe, on each rank."""
    words = {name: SMALL + (CLUSTERS if name.startswith("pointgroup") else []) for name in recipes}
    words.update({name: SHAPES for name in words if "classifier" in name})
    words.update({name: [*own, *narrow(name), *NO_NORMALS] for name, own in words.items() if name.startswith("ptv3")})
    words.update({name: [*own, *NO_INTENSITY] for name, own in words.items() if "nuscenes" in name})
    files = {str(ROOT / "configs" / f"{name}.yaml"): own for name, own in words.items()}
    return succeeded(run_workers("support.trainings.recipe_steps:run_each", files, str(folder))).results


def require_scored(recipe: str, of_ranks: list[dict[str, Any]]) -> None:
    """That both processes trained two updates alike, and evaluated the same."""
    require_two_updates(of_ranks)
    assert all(0 < loss < 20 for loss in of_ranks[0]["losses"])
    assert of_ranks[0]["evaluation"] == of_ranks[1]["evaluation"]
    score = next((one for start, one in SCORES.items() if recipe.startswith(start)), "mIoU")
    assert 0 <= of_ranks[0]["evaluation"][score] <= 100


def require_trained(recipe: str, folder: Path, ranks: list[dict[str, Any]]) -> None:
    """The same of a recipe among others, which has left its weights below ``folder``."""
    require_scored(recipe, [result[recipe] for result in ranks])
    assert (folder / recipe / "checkpoints" / "last" / "model.pdparams").is_file()
