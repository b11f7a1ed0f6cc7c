"""The layout of help pages."""

import shlex

from paddlevit_dist.core.runtime.help_pages import page, row

LONG = "paddlevit-dist train -cfg=" + "x" * 40 + ".yaml -output 'a folder with blanks' " + "KEY=1 " * 12


def test_a_page_has_its_parts_in_two_columns():
    rows = [("-a", "one " * 30), ("-longer=X", "two"), ("-" + "w" * 40, "three")]
    text = page("command " + "[option] " * 12, "does it", ["command -a"], rows, "a note")
    parts = text.split("\n\n")
    assert parts[0].splitlines() == [
        "usage: command [option] [option] [option] [option] [option] [option] [option]",
        " " * 9 + "[option] [option] [option] [option] [option]",
        "does it",
    ]
    assert parts[1] == "  command -a" and parts[3] == "a note" and len(parts) == 4
    lines = parts[2].splitlines()
    ones = [line for line in lines if "one" in line]
    assert ones[0].startswith("  -a        one one") and ones[1].startswith(" " * 12 + "one")
    assert sum(line.count("one") for line in ones) == 30 and len(ones) == 2
    assert lines[2:] == ["  -longer=X two", f"  -{'w' * 40} three"]
    assert max(map(len, text.splitlines())) <= 80 and page("u", "m", [], []) == "usage: u\nm"


def test_the_widest_column_is_32():
    narrow, wide = [page("u", "m", [], [("-" + "w" * size, "x"), ("-b", "y")]) for size in (31, 32)]
    assert f"  -b{' ' * 30} y" in narrow.splitlines() and "  -b y" in wide.splitlines()
    assert row("-c", "does", 6) == ["  -c     does"]


def test_a_long_example_is_split_where_a_shell_joins_it():
    lines = page("u", "m", [LONG], []).split("\n\n")[1].splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 80 and lines[1].startswith("    ")
    assert all(line.endswith(" \\") for line in lines[:-1]) and len(lines[0]) + len("'a") > 60
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(LONG)
    exact = "c " + "x" * 72  # with two blanks before and two characters after it, 78 wide
    assert page("u", "m", [exact + " y"], []).split("\n\n")[1].splitlines() == [f"  {exact} \\", "    y"]


def test_words_are_broken_nowhere_and_a_line_is_filled():
    words = ["a-long-word-with-hyphens", "w" * 90]
    meaning = " ".join(["x" * 30, *words * 2, "end"])
    assert row("-a", meaning, 4) == [
        *(
            f"  -a   {'x' * 30} {words[0]}",
            f"       {words[1]}",
            f"       {words[0]}",
            f"       {words[1]}",
            "       end",
        ),
    ]
    assert row("-a", "y" * 73 + " z", 4) == [f"  -a   {'y' * 73}", "       z"]
    assert row("-a", "y" * 71 + " z", 4) == [f"  -a   {'y' * 71} z"] and len(row("-a", "y" * 72 + " z", 4)) == 2
    for size, lines in ((73, 1), (74, 2)):
        shown = page("u", "m", ["c " + "x" * size], []).split("\n\n")[1].splitlines()
        assert len(shown) == lines


def test_only_wide_options_have_no_column():
    wide = "-" + "w" * 40
    lines = page("u", "m", [], [(wide, "x " * 60)]).split("\n\n")[1].splitlines()
    assert lines[0].startswith(f"  {wide} x x") and lines[1].startswith("   x x")
