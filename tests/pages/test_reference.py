"""The pages of keys and commands are what their program writes, and leave nothing out."""

from __future__ import annotations

import re
import runpy

import pytest
from support.processes import ROOT

from paddlevit_dist.__main__ import COMMANDS
from paddlevit_dist.config.command_line import help_text

REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def written() -> dict:
    return runpy.run_path(str(ROOT / "tools" / "reference.py"))["pages"]()


@pytest.mark.parametrize("page", ["keys.md", "commands.md"])
def test_the_page_is_up_to_date(page, written):
    assert (REFERENCE / page).read_text(encoding="utf-8") == written[page], "run python tools/reference.py"


def test_every_key_that_the_help_shows_has_a_row():
    shown = set(re.findall(r"^  ([A-Z][A-Z0-9_.]+) ", help_text(["-h", "all"]), re.MULTILINE))
    rows = set(
        re.findall(r"^\| `([A-Z][A-Z0-9_.]+)`", (REFERENCE / "keys.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert len(shown) > 150 and shown == rows - {"BASE"}


def test_every_command_has_a_section_with_more_than_its_name():
    sections = re.split(r"^## ", (REFERENCE / "commands.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lengths = {name.strip(): len(text.strip()) for name, _, text in (s.partition("\n") for s in sections[1:])}
    assert [name for name in COMMANDS if lengths.get(name, 0) < 40] == []
