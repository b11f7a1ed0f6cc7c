"""The list of all keys, ``tests/support/keys.txt``: a key is added by a line that says who sets it and why."""

import json

from support.key_pages import read_list
from support.processes import ROOT

from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings.key_tables import key_tables
from paddlevit_dist.core.settings.table import find_keys, index_former

WHO = {"owner", "author", "trainer", "operator", "evaluator", "developer"}


def test_each_key_has_a_line_and_each_line_is_of_a_key():
    names = [key.name for key in read_list()]
    assert names == sorted(set(names))
    assert set(find_keys()) - set(names) == set(), "tests/support/keys.txt says what a new key needs"
    assert REGISTRY.absent or set(names) - set(find_keys()) == set()


def test_each_line_says_who_sets_the_key_and_why():
    meanings = {name: key.meaning for name, key in find_keys().items()}
    paddlevits = json.loads((ROOT / "tests/golden/paddlevit_keys.json").read_text())["keys"]
    for key in read_list():
        assert key.who in WHO and key.why != meanings.get(key.name), key
        assert "PaddleViT's key" not in key.why or key.name in paddlevits, key
        assert len(key.why.split()) > 1, key


def test_a_former_key_is_not_a_key_again():
    assert set(index_former(key_tables())) & {key.name for key in read_list()} == set()
