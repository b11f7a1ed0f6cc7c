"""Each key is in a recipe, or on a page besides that of all keys: a key in none of them has no reader."""

import json
import re
from pathlib import Path

import yaml

from paddlevit_dist.core.settings import recipe_folder
from paddlevit_dist.core.settings.table import find_keys, leaves

REPOSITORY = Path(__file__).resolve().parents[4]
PADDLEVITS = json.loads((REPOSITORY / "tests/golden/paddlevit_keys.json").read_text(encoding="utf-8"))["keys"]
REFERENCE = "keys.md", "commands.md"  # written from the keys


def find_recipe_keys() -> set[str]:
    """The keys that a recipe or a BASE file sets, or that the comments of one name."""
    found: set[str] = set()
    for file in recipe_folder().rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        found |= leaves(yaml.safe_load(text) or {}).keys()
        found |= set(re.findall(r"\b[A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)+", text))
    return found


def read_pages() -> list[str]:
    files = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    return [file.read_text(encoding="utf-8") for file in files if file.name not in (*REFERENCE, "CHANGELOG.md")]


def is_named(key, page: str) -> bool:
    """Whether a page has a key's name, its last part in code of a page that names the section, or its flag."""
    if key.name in page and re.search(rf"(?<![\w.]){re.escape(key.name)}(?!\w)", page):
        return True
    if (
        key.flag is not None
        and f"-{key.flag.name}" in page
        and re.search(rf"(?<![\w-])-{re.escape(key.flag.name)}\b", page)
    ):
        return True
    section, _, last = key.name.rpartition(".")
    if not section or section not in page or last not in page:
        return False
    return bool(re.search(rf"`[^`\n]*(?<!\w)(?<!\w\.){last}(?!\w)[^`\n]*`", page))


def test_each_key_is_in_a_recipe_or_on_a_page():
    pages, in_recipes = read_pages(), find_recipe_keys()
    nowhere = [
        name
        for name, key in find_keys().items()
        if name not in in_recipes and not any(is_named(key, page) for page in pages)
    ]
    assert nowhere == []


def test_the_last_part_of_a_key_counts_in_code_of_a_page_that_names_its_section():
    key = find_keys()["SHAPES.ROTATION_DEGREES"]
    for page in (
        "`SHAPES.ROTATION_DEGREES`",
        "`SHAPES.UP_AXIS` and `.ROTATION_DEGREES`",
        "SHAPES: `ROTATION_DEGREES 90`",
    ):
        assert is_named(key, page)
    for page in ("`ROTATION_DEGREES`", "SHAPES: ROTATION_DEGREES", "SHAPES: `POINTS.AUGMENT.ROTATION_DEGREES`"):
        assert not is_named(key, page)


def test_paddlevits_keys_are_known():
    assert len(PADDLEVITS) == 84 and set(PADDLEVITS) <= set(find_keys())
