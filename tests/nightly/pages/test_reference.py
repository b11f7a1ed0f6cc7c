"""The pages of keys and commands are what their program writes, and leave nothing out."""

import json
import os
import re
import subprocess
import sys

import pytest
from support.processes import ROOT

from paddlevit_dist.core.commands import COMMANDS

REFERENCE = ROOT / "docs" / "reference"


# In a process of its own: other tests register tasks and keys in this one.
PROGRAM = """
import json, runpy
from paddlevit_dist.core.settings.help import help_text
pages = runpy.run_path("tools/reference.py")["pages"]()
print(json.dumps({**pages, "help": help_text(["-h", "all"])}))
"""


@pytest.fixture(scope="module")
def written() -> dict:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stdout=subprocess.PIPE, timeout=600
    )
    return json.loads(said.stdout)


def test_the_page_of_commands_is_up_to_date(written):  # that of keys: tests/unit/tools/test_reference.py
    assert (REFERENCE / "commands.md").read_text(encoding="utf-8") == written["commands.md"], "run make reference"


def test_every_key_that_the_help_shows_has_a_row(written):
    shown = set(re.findall(r"^  ([A-Z][A-Z0-9_.]+) ", written["help"], re.MULTILINE))
    rows = set(
        re.findall(r"^\| `([A-Z][A-Z0-9_.]+)`", (REFERENCE / "keys.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert len(shown) > 150 and shown == rows - {"BASE"}


def test_every_command_has_a_section_with_more_than_its_name():
    sections = re.split(r"^## ", (REFERENCE / "commands.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lengths = {name.strip(): len(text.strip()) for name, _, text in (s.partition("\n") for s in sections[1:])}
    assert [name for name in COMMANDS if lengths.get(name, 0) < 40] == []
