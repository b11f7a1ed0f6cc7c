"""PLY files: every variant that programs write, and damaged files."""

import struct

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.data.ply import DamagedPlyError, parse_typed, read_vertices, write_colored_ply, write_points

ROWS = [(1.5, -2.0, 3.25, 10, 20, 255, 7), (0.0, 1e-3, -9.5, 0, 128, 3, 65000)]
PROPERTIES = ["float x", "float y", "float z", "uchar red", "uchar green", "uchar blue", "ushort label"]
FACES = ["element face 2", "property list uchar int vertex_indices"]


def header(form, vertices=PROPERTIES, count=2, before=(), after=FACES, newline="\n"):
    lines = ["ply", f"format {form} 1.0", "comment made by hand", "", "obj_info nothing", *before]
    lines += [f"element vertex {count}", *(f"property {item}" for item in vertices), *after, "end_header"]
    return "".join(line + newline for line in lines).encode()


def body(order, rows=ROWS):
    return b"".join(struct.pack(order + "fffBBBH", *row) for row in rows)


def faces(order):
    return struct.pack(order + "Biii", 3, 0, 1, 1) + struct.pack(order + "Biiii", 4, 0, 1, 1, 0)


def text(rows=ROWS):
    return "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()


def check(columns):
    assert list(columns) == ["x", "y", "z", "red", "green", "blue", "label"]
    assert [column.dtype.str[1:] for column in columns.values()] == ["f4", "f4", "f4", "u1", "u1", "u1", "u2"]
    assert all(column.dtype.isnative for column in columns.values())
    for column, values in zip(columns.values(), zip(*ROWS)):
        assert column.tolist() == np.array(values, column.dtype).tolist()


@pytest.mark.parametrize("newline", ("\n", "\r\n"))
@pytest.mark.parametrize("form, order", (("binary_little_endian", "<"), ("binary_big_endian", ">")))
def test_binary_files_of_both_byte_orders(tmp_path, form, order, newline):
    path = tmp_path / "a.ply"
    path.write_bytes(header(form, newline=newline) + body(order) + faces(order))
    check(read_vertices(path))


@pytest.mark.parametrize("newline", ("\n", "\r\n"))
def test_ascii_files(tmp_path, newline):
    path = tmp_path / "a.ply"
    path.write_bytes(header("ascii", newline=newline) + text() + b"3 0 1 1\n4 0 1 1 0\n")
    check(read_vertices(path))


def test_properties_in_any_order_and_of_any_type(tmp_path):
    path = tmp_path / "a.ply"
    properties = ["uint8 blue", "double z", "int8 label", "float64 x", "int32 extra", "float32 y"]
    rows = [(3, 0.25, -1, 1e10, -70000, 0.5)]
    path.write_bytes(header("binary_big_endian", properties, 1, after=()) + struct.pack(">Bdbdif", *rows[0]))
    columns = read_vertices(path)
    assert {name: column.item() for name, column in columns.items()} == dict(
        zip(("blue", "z", "label", "x", "extra", "y"), rows[0])
    )


def test_elements_before_the_vertices_are_passed_over(tmp_path):
    path = tmp_path / "a.ply"
    camera = ["element camera 1", "property float view", "element strip 2", "property list int short items"]
    strips = struct.pack("<ihhh", 3, 1, 2, 3) + struct.pack("<i", 0)
    path.write_bytes(header("binary_little_endian", before=camera) + struct.pack("<f", 1.0) + strips + body("<"))
    check(read_vertices(path))
    path.write_bytes(header("ascii", before=camera) + b"1.0\n3 1 2 3\n0\n" + text())
    check(read_vertices(path))


@pytest.mark.parametrize("form, rows", (("binary_big_endian", body(">")), ("ascii", text())))
def test_an_element_without_records_needs_no_properties(tmp_path, form, rows):
    path = tmp_path / "a.ply"
    path.write_bytes(header(form, before=["element face 0"]) + rows)
    check(read_vertices(path))
    path.write_bytes(header(form, [], 0, after=["element face 0"]))
    assert read_vertices(path) == {}


def test_lists_of_a_vertex_are_left_out(tmp_path):
    path = tmp_path / "a.ply"
    properties = ["float x", "list uchar float weights", "short label"]
    rows = struct.pack("<fBffh", 1.0, 2, 0.5, 0.5, 3) + struct.pack("<fBh", 2.0, 0, 4)
    path.write_bytes(header("binary_little_endian", properties, 2, after=()) + rows)
    columns = read_vertices(path)
    assert columns["x"].tolist() == [1.0, 2.0] and columns["label"].tolist() == [3, 4] and len(columns) == 2


def test_no_vertex_at_all(tmp_path):
    path = tmp_path / "a.ply"
    for form in ("ascii", "binary_little_endian"):
        path.write_bytes(header(form, count=0))
        assert [len(column) for column in read_vertices(path).values()] == 7 * [0]


def test_the_shortest_text_of_some_numbers_is_read(tmp_path):
    path = tmp_path / "a.ply"
    path.write_bytes(header("ascii", ["float x", "float y"], 2, after=()) + b"1 2\n3 4")
    assert {name: column.tolist() for name, column in read_vertices(path).items()} == {"x": [1, 3], "y": [2, 4]}
    path.write_bytes(header("ascii", ["float x", "float y"], 3, after=()) + b"1 2\n3 4")
    with pytest.raises(UserError, match="its 7 bytes of text cannot hold 3 records of 'vertex'"):
        read_vertices(path)


def test_numbers_that_are_not_finite_come_through(tmp_path):
    path = tmp_path / "a.ply"
    path.write_bytes(header("ascii", ["float x", "float y"], 2, after=()) + b"nan 1\ninf -inf\n")
    columns = read_vertices(path)
    assert np.isnan(columns["x"][0]) and columns["x"][1] == np.inf and columns["y"][1] == -np.inf


@pytest.mark.parametrize(
    "word", "-nan(ind) nan(ind) 1.#QNAN -1.#IND00 nan(snan) -NAN(IND) 1.#qnan 1.#SNAN 1.#ind0".split()
)
def test_what_windows_writes_for_nan_is_nan(tmp_path, word):
    path = tmp_path / "a.ply"
    rows = f"1 {word} 7\n2 0.5 {word}\n-1.#inf 1.#INF00 {word}\n".encode()
    path.write_bytes(header("ascii", ["float x", "float y", "float label"], 3, after=()) + rows)
    columns = read_vertices(path)
    np.testing.assert_array_equal(columns["x"], [1, 2, -np.inf])
    np.testing.assert_array_equal(columns["y"], [np.nan, 0.5, np.inf])
    np.testing.assert_array_equal(columns["label"], [7, np.nan, np.nan])
    path.write_bytes(header("ascii", ["float x", "float y"], 1, after=()) + f"3 {word}\n".encode())
    assert [column.tolist() for column in read_vertices(path).values()] == [[3.0], [pytest.approx(np.nan, nan_ok=True)]]


@pytest.mark.parametrize(
    "content, message",
    (
        (b"", "its first line is not 'ply'"),
        (b"solid thing", "its first line is not 'ply'"),
        (b"ply\nformat ascii 1.0\nelement vertex 2\n", "its header has no end"),
        (b"ply\nend_header\n", "its header names no format"),
        (b"ply\nformat binary_middle_endian 1.0\nend_header\n", "line 'format binary_middle_endian 1.0'"),
        (b"ply\nformat ascii 1.0\nelement vertex many\nend_header\n", "line 'element vertex many'"),
        (b"ply\nformat ascii 1.0\nelement vertex -1\nend_header\n", "line 'element vertex -1'"),
        (b"ply\nformat ascii 1.0\nproperty float x\nend_header\n", "line 'property float x'"),
        (header("binary_little_endian", []), "element 'vertex' has no properties"),
        (header("ascii", ["color x"]), "line 'property color x'"),
        (header("binary_little_endian") + body("<")[:-1], "ends after 1 of 2 records of 'vertex'"),
        (header("binary_little_endian", count=10**15) + body("<"), "ends after"),
        (header("binary_little_endian", before=FACES[:2]) + faces("<")[:-1], "ends within the records of 'face'"),
        (header("ascii") + text()[:-40], "vertices are not rows|ends after 1 of 2"),
        (header("ascii") + text(ROWS[:1]), "ends after 1 of 2 records"),
        (
            header("ascii", before=["element camera 3", "property float view"]) + b"1\n2\n",
            "within the records of 'camera'",
        ),
        (header("ascii", PROPERTIES[:6]) + text(), "have 7 numbers each, its header says 6"),
        (header("ascii") + b"a b c d e f g\n" * 2, "vertices are not rows of 7 numbers"),
        (header("binary_little_endian", ["float x", "float x"]) + bytes(16), "have the same name"),
    ),
)
def test_a_damaged_file_is_told_in_one_line(tmp_path, content, message):
    path = tmp_path / "a.ply"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_vertices(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_no_vertices_and_no_file_are_told(tmp_path):
    path = tmp_path / "a.ply"
    path.write_bytes(b"ply\nformat ascii 1.0\nend_header\n")
    with pytest.raises(UserError, match="has no element 'vertex'"):
        read_vertices(path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_vertices(tmp_path / "b.ply")


def test_written_points_are_read_again(tmp_path):
    path = tmp_path / "out.ply"
    generator = np.random.default_rng(0)
    columns = {name: generator.normal(size=50).astype(np.float32) for name in "xyz"}
    columns.update({name: generator.integers(0, 256, 50, dtype=np.uint8) for name in ("red", "green", "blue")})
    columns["label"] = generator.integers(-100, 20, 50).astype(np.int16)
    write_points(path, columns, ["predicted"])
    again = read_vertices(path)
    assert list(again) == list(columns)
    assert all(np.array_equal(again[name], columns[name]) for name in columns)
    assert b"\ncomment predicted\n" in path.read_bytes()
    with pytest.raises(ValueError):
        write_points(path, {"x": columns["x"], "y": columns["y"][:3]})


def test_numbers_of_text_get_the_type_of_the_header_if_it_holds_them():
    values = np.array([1.0, 2.5, 64.0])
    assert parse_typed(values, "x", "f8") is values
    assert parse_typed(values, "x", "f4").dtype == np.float32
    far = np.array([5_400_000.123])
    assert parse_typed(far, "x", "f4") is far
    huge = np.array([1e39, np.nan])
    assert parse_typed(huge, "x", "f4") is huge
    with pytest.raises(DamagedPlyError, match="^vertex 0 has red 1e\\+39, but its header declares it as uchar"):
        parse_typed(huge, "red", "u1")
    assert parse_typed(np.array([255.0]), "red", "u1").dtype == np.uint8
    with pytest.raises(DamagedPlyError, match="^vertex 1 has red 2.5, but its header declares it as "):
        parse_typed(values, "red", "u1")


def test_floats_stay_double_if_any_has_more_digits_than_float_holds():
    values = np.array([1.5, np.nan, -0.25, 5_400_000.123])
    assert parse_typed(values, "x", "f4") is values
    values[3] = 54.5
    np.testing.assert_array_equal(parse_typed(values, "x", "f4"), values.astype(np.float32), strict=True)


@pytest.mark.parametrize("offset, kind", (((0.0, 0.0, 0.0), "f4"), ((0.0, 4e6, 0.0), "f8")))
@pytest.mark.parametrize("classes", (None, np.array([3, -1], np.int64)))
def test_colored_points_are_written_at_their_place_with_their_labels(tmp_path, offset, kind, classes):
    xyz, colors = np.array([[1, 2, 3], [4.1, 5, 6]], np.float32), np.array([[7, 8, 9], [250, 1, 2]], np.uint8)
    write_colored_ply(tmp_path / "a.ply", xyz, colors, np.array([-100, 32767]), offset, classes)
    found = read_vertices(tmp_path / "a.ply")
    names = ["x", "y", "z", "red", "green", "blue", "label", *(["class"] if classes is not None else [])]
    assert list(found) == names
    assert [found[name].dtype.str[1:] for name in names] == [*[kind] * 3, *["u1"] * 3, *["i2"] * (len(names) - 6)]
    expected = xyz.astype(np.float64) + offset
    np.testing.assert_array_equal(np.stack([found[axis] for axis in "xyz"], 1), expected)
    assert np.stack([found[name] for name in ("red", "green", "blue")], 1).tolist() == colors.tolist()
    assert found["label"].tolist() == [-100, 32767] and (classes is None or found["class"].tolist() == [3, -1])
