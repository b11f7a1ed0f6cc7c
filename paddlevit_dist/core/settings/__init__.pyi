"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .configuration import Configuration, load
from .files import StoredSettings
from .key import Key, Range
from .recipes import DEFAULT_RECIPE, RecipeMissing, recipe_folder, recipe_title
from .table import default_config
from .yaml_output import dump_yaml

__all__ = [
    "Configuration",
    "DEFAULT_RECIPE",
    "Key",
    "Range",
    "RecipeMissing",
    "StoredSettings",
    "default_config",
    "dump_yaml",
    "load",
    "recipe_folder",
    "recipe_title",
]
