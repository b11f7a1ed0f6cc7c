"""Every recipe that ``inspect recipes`` lists has a tiny set in a published layout, on which it trains at night."""

import sys

from support.processes import ROOT, run_command
from support.trainings.published_names import KNOWN
from support.trainings.published_recipes import CANNOT, LAYOUTS, SMALL, WITHOUT_CLASS, cut, find_layout, list_recipes
from support.trainings.runs import well

from paddlevit_dist.core import settings


def test_every_recipe_has_a_layout_and_every_layout_a_class_whose_name_is_followed():
    listed = well(run_command([sys.executable, "-m", "paddlevit_dist", "inspect", "recipes"])).out
    recipes = [line.split()[0] for line in listed.splitlines()[:-2]]
    assert recipes == list_recipes() and len(recipes) > 100
    assert {find_layout(recipe) for recipe in recipes} | set(SMALL) == set(LAYOUTS) == {*KNOWN, *WITHOUT_CLASS}
    assert CANNOT == {}, "a recipe needs a tiny set; if it cannot have one, say why here, too"


def test_every_recipe_can_be_cut_and_starts_its_backbone_from_scratch():
    """A task without cuts, or a start that must be fetched, is found before the night."""
    for recipe in list_recipes():
        values = settings.load([f"-cfg={ROOT / 'configs' / recipe}.yaml", *cut(recipe)]).values
        assert values.MODEL.get("BACKBONE_PRETRAINED") is None, recipe
