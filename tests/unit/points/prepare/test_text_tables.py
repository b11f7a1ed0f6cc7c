"""Tables of points as text: separators, names, comments and counts of lines, and what is said of damaged ones."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.text_tables import read_text

ROWS = [[1.0, -2.5, 3.0, 7.0], [4.0, 5.0, 6e-3, 8.0], [-7.0, 8.0, 9.0, 9.0]]


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize("separator", [" ", "\t", ",", ";", ", "])
@pytest.mark.parametrize("start", ["", "3\n", "\n# made by a scanner\n3\n", "\ufeff"])
def test_numbers_are_read_after_a_count_and_comments(tmp_path, separator, start):
    text = start + "".join(separator.join(map(str, row)) + "\n" for row in ROWS)
    table = read_text(write(tmp_path / "a.txt", text))
    assert isinstance(table, np.ndarray) and table.dtype == np.float64 and table.tolist() == ROWS


@pytest.mark.parametrize("length", [65_534, 65_535, 65_536, 65_537, 200_000])
def test_points_after_a_very_long_comment_are_all_read(tmp_path, length):
    table = read_text(write(tmp_path / "a.xyz", f"#{' ' * (length - 1)}\n1 2 3\n4 5 6\n"))
    assert table.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "head", ['"X", Y ,z,Label', "# x,y,z,label", "//x,y,z,label\n// 2024", "x,y,z,label\n# a, b, c, d"]
)
def test_columns_have_the_names_of_the_first_line(tmp_path, head):
    text = head + "\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS) + "// the end\n# of it\n"
    columns = read_text(write(tmp_path / "a.csv", text))
    assert list(columns) == ["x", "y", "z", "label"]
    assert {name: values.tolist() for name, values in columns.items()} == dict(
        zip("x y z label".split(), zip(*ROWS))
    ) | {name: [row[place] for row in ROWS] for place, name in enumerate(("x", "y", "z", "label"))}


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "a.txt has no points; remove it"),
        ("# x y z\n\n", "a.txt has no points; remove it"),
        ("x y z\n1 2 3 4\n", "a.txt names 3 columns, but its rows have 4 numbers"),
        ("x y X\n1 2 3\n", r"a.txt has two columns of the same name \(x, y, x\); rename one"),
        ("3\nx 2 z\n", "a.txt, line 2: 'x 2 z' is neither a row of numbers nor of names; fix or remove it$"),
        ("hello\n1 2 3\n", "a.txt, line 1: 'hello' is neither"),
        ("1,5;2,5;3,5\n", "a.txt, line 1: .* neither .*; decimals need a point, not a comma"),
        ("# a\nx y z\n1 2 3\n4 5\n", "a.txt is not a table of numbers: .*in line 4"),
        ("# a\nx y z\n1 2 3\n4 5 six\n", "a.txt is not a table of numbers: .*in line 4"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(UserError, match=said) as error:
        read_text(write(tmp_path / "a.txt", text))
    assert "\n" not in str(error.value)


def test_comments_may_be_in_another_encoding(tmp_path):
    columns = read_text(write(tmp_path / "a.txt", "# größe in m\nx y größe\n1 2 3\n".encode("latin-1")))
    assert list(read_text(write(tmp_path / "b.txt", "# z x y\n1 2 3\n"))) == ["z", "x", "y"]
    assert list(columns) == ["x", "y", "gr\ufffd\ufffde"] and [values.tolist() for values in columns.values()] == [
        [1],
        [2],
        [3],
    ]


def test_control_characters_are_spaces_where_a_remark_can_say_so(tmp_path):
    path = write(tmp_path / "a.txt", b"1 2 3\n4\x105 6\n")
    remarks = ["before"]
    assert read_text(path, remarks).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert len(remarks) == 2 and remarks[1].startswith(f"{path} has control characters")
    with pytest.raises(UserError, match="not a table of numbers"):
        read_text(path)
    assert read_text(write(tmp_path / "b.txt", b"1 2\t3\r\n"), remarks).tolist() == [[1, 2, 3]] and len(remarks) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no points; remove it"),
        ("# only\n# remarks\n", "has no points; remove it"),
        ("x y z\n", "has no points; remove it"),
        ("#\n" * 70_000, "has no row of numbers in its first"),
    ],
)
def test_a_table_without_rows_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=rf"a\.txt {message}"):
        read_text(write(tmp_path / "a.txt", text))
