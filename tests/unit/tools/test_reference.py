"""The page of keys states the values that each key takes, its default and its help."""

import runpy

from support.processes import ROOT

keys_page = runpy.run_path(str(ROOT / "tools" / "reference.py"))["keys_page"]


def test_the_page_of_keys_is_up_to_date():
    page = (ROOT / "docs" / "reference" / "keys.md").read_text(encoding="utf-8")
    assert page.splitlines() == keys_page().splitlines(), "run make reference"
