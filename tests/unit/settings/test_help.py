"""Pages of help offer nothing that a command refuses."""

import re

import pytest

from paddlevit_dist.settings import command_line
from paddlevit_dist.settings.help import ABOUT, help_text


@pytest.mark.parametrize("command", sorted(ABOUT))
def test_every_flag_and_example_is_known(command):
    for example in ABOUT[command].examples:
        command_line.read(example.split())
    flags = re.findall(r"^ {9}-(\w+)", help_text(("-h",), command), re.MULTILINE)
    assert set(flags) <= set(command_line.flags())
