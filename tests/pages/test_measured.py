"""Every section of measured figures begins with the command that made them and the machine that it ran on."""

import re

from .reading import PAGES, text_of

MACHINES = re.findall(r"^- \*\*(\w+)\*\*(?:, \*\*(\w+)\*\*)?:", text_of("docs/benchmarks.md"), re.MULTILINE)
TEXT = "\n".join(text_of(page) for page in PAGES if "benchmarks" in page)
SECTIONS = dict(re.findall(r"^##+ (.+)\n\n(.+(?:\n.+)*)", TEXT, re.MULTILINE))


def test_a_section_says_at_once_what_was_run_and_where():
    named = "|".join(name for names in MACHINES for name in names if name)
    assert named and len(SECTIONS) > 30
    for first in SECTIONS.values():
        assert re.search(r"`(python benchmarks/|make )|[Cc]ommand not recorded", first), first
        assert re.search(rf"\b({named})\b|machine not recorded", first), first
