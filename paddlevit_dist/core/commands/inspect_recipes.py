"""``paddlevit-dist inspect recipes``: list the package's recipes, which ``-cfg=NAME`` finds by name."""

from ..registry import plugins
from ..runtime.errors import UserError
from ..settings import recipes
from .parser import CommandParser


def run(words: list[str]) -> None:
    """Run the command."""
    about = "List the name and title of each recipe, and the folder with all recipes."
    parser = CommandParser("inspect recipes", about, ("", "detr"), imports=True)
    parser.add_argument(
        "part", metavar="PART", nargs="?", default="", help="list only recipes whose name contains PART"
    )
    part = parser.parse_args(words).part
    plugins.load_installed()
    names = [recipe for recipe in recipes.recipe_names() if part in recipe]
    if not names:
        raise UserError(f"inspect recipes: no recipe's name contains '{part}'")
    width = max(len(recipe) for recipe in names)
    for name in names:
        print(f"{name:{width}}  {recipes.recipe_title(name)}")
    print(f"\n-cfg=NAME runs one; copy its file to change it: {recipes.recipe_folder()}")
