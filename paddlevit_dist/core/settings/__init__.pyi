from .configuration import Configuration, load
from .files import DEFAULT_RECIPE, RecipeMissing, StoredSettings, recipe_folder, recipe_title
from .key import Key, Range
from .table import default_config, dump_yaml

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
