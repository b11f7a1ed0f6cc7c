"""Every file in configs/: it loads, says what it is, and its numbers match its header."""

import functools
import re
import shlex
from pathlib import Path

import pytest

import paddlevit_dist
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import DEFAULT_RECIPE, load, recipe_folder

ROOT = Path(paddlevit_dist.__file__).parents[1]
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))

PADDLEVITS_NAMES = {
    *(f"vit_{size}_patch16_{pixels}" for size in ("tiny", "small", "base", "large") for pixels in (224, 384)),
    *(f"vit_{size}_patch32_{pixels}" for size in ("small", "base", "large") for pixels in (224, 384)),
    "vit_huge_patch14_224",
}


@functools.cache
def load_once(recipe, *words):
    """Load a recipe for several tests, none of which changes its values."""
    return load([f"-cfg={recipe}", *words], DEFAULT_RECIPE)


def test_recipes_of_a_clone_are_those_of_its_folder():
    assert recipe_folder() == (ROOT / "configs").resolve() and len(RECIPES) > 100


def header(recipe):
    lines = recipe.read_text(encoding="utf-8").splitlines()
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]


@pytest.mark.parametrize("words", [[], ["-eval", "-pretrained=x"]], ids=["training", "evaluation"])
def test_it_loads_silently_for_training_and_evaluation(words):
    for recipe in RECIPES:
        configuration = load_once(recipe, *words)

        assert configuration.notices == [], recipe
        assert configuration.values.MODEL.NAME in REGISTRY.models, recipe
        assert configuration.values.DATA.DATASET in REGISTRY.datasets, recipe
        assert configuration.values.TASK in REGISTRY.tasks, recipe


def test_the_header_says_what_it_is():
    for recipe in RECIPES:
        lines = header(recipe)

        assert len(lines) >= 5 and re.match(r"# \S.+\.$", lines[0]), recipe
        for tag in ("command", "devices", "effective batch"):
            assert any(line.startswith(f"# {tag}: ") for line in lines), (recipe, tag)
        (score,) = [line for line in lines if re.match(r"# (published )?score: \S", line)]
        if "published" in score:
            assert "not measured by this project" in " ".join(lines[lines.index(score) :]), recipe
        long = [line for line in recipe.read_text(encoding="utf-8").splitlines() if len(line) > 120]
        assert long == [], recipe


def test_the_command_of_the_header_loads_this_file(monkeypatch):
    monkeypatch.chdir(ROOT)
    for recipe in RECIPES:
        lines = header(recipe)
        start = next(number for number, line in enumerate(lines) if line.startswith("# command: "))
        command = lines[start][len("# command: ") :]
        while command.endswith("\\"):
            start += 1
            command = command[:-1] + lines[start][1:]
        program, entry, *words = shlex.split(command)

        configuration = load(words)

        assert (program, entry) == ("python", "main_multi_gpu.py"), recipe
        assert configuration.sources["MODEL.NAME"] == f"configs/{recipe.name}"


def test_the_effective_batch_of_the_header_is_that_of_the_values():
    for recipe in RECIPES:
        (line,) = [line for line in header(recipe) if line.startswith("# effective batch: ")]
        kinds = "(?:image|object|scene|shape|volume)s"
        numbers = re.match(rf"# effective batch: (\d+) = (\d+) devices x (\d+) {kinds} x (\d+) batch(?:es)? per", line)
        total, devices, images, batches = map(int, numbers.groups())
        values = load_once(recipe).values

        assert total == devices * images * batches, recipe
        assert (images, batches) == (values.DATA.BATCH_SIZE, values.TRAIN.ACCUM_ITER), recipe


@pytest.mark.parametrize(
    "recipe", [recipe for recipe in RECIPES if recipe.stem in PADDLEVITS_NAMES], ids=lambda r: r.stem
)
def test_a_name_of_paddlevit_is_the_model_at_its_size(recipe):
    values = load_once(recipe).values

    assert values.MODEL.NAME == recipe.stem
    assert values.DATA.IMAGE_SIZE == int(recipe.stem.rsplit("_", 1)[1])
    assert values.DATA.CROP_PCT == (1.0 if values.DATA.IMAGE_SIZE == 384 else 0.875)
    assert values.MODEL.EMBED_DIM is values.MODEL.PATCH_SIZE is values.MODEL.DEPTH is None


def test_all_names_of_paddlevit_are_there():
    assert len(PADDLEVITS_NAMES) == 15 and PADDLEVITS_NAMES <= {path.stem for path in RECIPES}


def test_another_data_set_on_the_command_line_changes_nothing_else_of_a_recipe():
    # Without its DATASET the file would have the form of PaddleViT's, which have other rates and a warm-up in epochs.
    named, other = load(["-cfg=vit_mnist"]), load(["-cfg=vit_mnist", "-dataset=fashion_mnist"])
    assert other.values.TRAIN == named.values.TRAIN and other.notices == named.notices
