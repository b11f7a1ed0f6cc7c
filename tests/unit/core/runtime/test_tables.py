"""Tables of users: separators, encodings, line ends, and what is no table."""

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.runtime.tables import find_separator, iterate_rows


@pytest.mark.parametrize(
    "line, separator",
    [
        ("a,b;c,d", ","),
        ("a;b;c,d", ";"),
        ("a\tb", "\t"),
        ('"a,b,c";d', ";"),
        ('x "a,b" y "c,d" z', " "),
        ("a b", " "),
        ("", " "),
        ("\n  \na;b,c;d", ";"),
    ],
)
def test_the_most_frequent_separator_outside_of_quotes_counts(tmp_path, line, separator):
    (tmp_path / "table").write_text(f"{line}\nx,x,x,x\n" if line else "")
    assert find_separator(str(tmp_path / "table")) == separator


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_have_the_number_of_their_line(tmp_path, encoding, end):
    mark = "\ufeff" if "16" in encoding else ""
    text = end.join(['name,"a ""b"""', ",", "", f'"Zoe\u0308{end}x",2', "z,3"])
    (tmp_path / "table.csv").write_bytes(f"{mark}{text}".encode(encoding))
    rows = list(iterate_rows(str(tmp_path / "table.csv"), ","))
    assert rows == [(1, ["name", 'a "b"']), (5, [f"Zo\xeb{end}x", "2"]), (6, ["z", "3"])]
    (tmp_path / "table.csv").write_text("a,b;c\n")
    assert list(iterate_rows(str(tmp_path / "table.csv"), ";")) == [(1, ["a,b", "c"])]


@pytest.mark.parametrize(
    "content, told",
    [
        (b"a,\xe9\n", "is not UTF-8 text; save it as UTF-8"),
        ("a,b".encode("utf-16-le"), "is not UTF-8 text; save it as UTF-8"),
        (b'"' + b"a" * 140_000, "is not a table: field larger than field limit (131072)"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, content, told):
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_bytes(content)
    assert refusal_of(lambda: list(iterate_rows(str(path), find_separator(str(path))))) == f"{path} {told}"
