"""PCD files: each kind as it was written, and files that are damaged or say what is not there."""

import numpy as np
import pytest
from support.files.other_scenes import PCD_HEADER, lzf, pcd

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.pcd import read_pcd


@pytest.mark.parametrize("kind", ["ascii", "binary", "binary_compressed"])
def test_each_kind_of_pcd_files_has_the_points_that_were_written(tmp_path, kind):
    written = pcd(tmp_path / "a.pcd", kind, points=100)  # more than 256 bytes lie between equal ones
    found = read_pcd(str(tmp_path / "a.pcd"))
    np.testing.assert_allclose(np.stack([found[axis] for axis in "xyz"], axis=1), written["xyz"], rtol=1e-6)
    for name in ("intensity", "label"):
        np.testing.assert_array_equal(found[name], written[name], name, strict=True)
    colors = np.stack([found[color] for color in ("red", "green", "blue")], axis=1)
    np.testing.assert_array_equal(colors, written["rgb"].astype(np.uint8), strict=True)


@pytest.mark.parametrize("name", ["rgb", "rgba"])
@pytest.mark.parametrize("kind", ["U", "I", "F"])
def test_packed_colors_have_two_names_and_any_type_of_four_bytes(tmp_path, name, kind):
    packed = np.array([0x00102030, 0x00FF8001], np.uint32)
    text = packed if kind != "F" else [repr(float(value)) for value in packed.view(np.float32)]
    header = PCD_HEADER.format(points=2, kind="ascii").splitlines()
    words = {"FIELDS": f"x y z {name}", "SIZE": "4 4 4 4", "TYPE": f"F F F {kind}", "COUNT": "1 1 1 1"}
    lines = [f"{key} {words[key]}" if (key := line.split(" ")[0]) in words else line for line in header]
    lines = [line.upper() if line.startswith("DATA") and kind != "U" else line for line in lines]
    (tmp_path / "a.pcd").write_text("\n".join([*lines, *(f"1 2 3 {value}" for value in text), ""]))
    found = read_pcd(str(tmp_path / "a.pcd"))
    assert [found[color].tolist() for color in ("red", "green", "blue")] == [[16, 255], [32, 128], [48, 1]]


def test_damaged_pcd_files_are_told(tmp_path):
    path = tmp_path / "a.pcd"
    for kind, message in (
        ("ascii", "its points are not rows of 9 numbers|has 49 rows"),
        ("binary", "it ends after 49 of 50 points"),
        ("binary_compressed", "it has [0-9,]+ of [0-9,]+ bytes"),
    ):
        pcd(path, kind)
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(UserError, match=f"a.pcd is not a complete PCD file: ({message})"):
            read_pcd(str(path))
    for damage in range(0, 40, 3):  # no damage writes outside of the points, or is read as if there were none
        packed = bytearray(lzf(bytes(25 * 2)))
        packed[damage % len(packed)] ^= 0xFF
        body = np.array([len(packed), 50], "<u4").tobytes() + bytes(packed)
        path.write_bytes(PCD_HEADER.format(points=2, kind="binary_compressed").encode() + body)
        try:
            read_pcd(str(path))
        except UserError as error:
            assert "is not a complete PCD file" in str(error)
    for fields, counts, message in (
        ("x y", "", "its header has no valid FIELDS, SIZE, TYPE"),
        ("x y odd", "", "its header has no valid FIELDS, SIZE, TYPE, POINTS and DATA \\('0'\\); copy or export"),
        ("x y label", "", "vertex 0 has label 300, but its header declares it as uchar"),
        ("x y x", "", r"two of its FIELDS have the same name \(x y x\)"),
        ("x y z", "COUNT 1 1 99999999999999999999\n", "its header has DATA ascii, POINTS 1 and COUNT 1 1 9999"),
    ):
        last = {"x y label": ("1", "U"), "x y odd": ("4", "0")}.get(fields, ("4", "F"))
        header = f"FIELDS {fields}\nSIZE 4 4 {last[0]}\nTYPE F F {last[1]}\n{counts}POINTS 1\nDATA ascii\n1 2 300\n"
        path.write_bytes(header.encode())
        with pytest.raises(UserError, match=message):
            read_pcd(str(path))
    header = "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nPOINTS {}\nDATA {}\n"
    for points, kind, body, message in (
        (4, "ascii", b"1 2 3\n4 5 6\n", "its 12 bytes of text cannot hold 4 points of 3 numbers"),
        (2, "ascii", b"1 2 3 4\n5 6 7 8\n", "it has 2 rows of 4 numbers, its header says 2 of 3"),
        (2, "ascii", b"1 2 3 4\n5 6 7\n", "its points are not rows of 3 numbers"),
        (2, "binary", bytes(23), "it ends after 1 of 2 points"),
        (2, "binary_compressed", bytes(7), "it ends before its points"),
    ):
        path.write_bytes(header.format(points, kind).encode() + body)
        with pytest.raises(UserError, match=f"a.pcd is not a complete PCD file: {message}"):
            read_pcd(str(path))
    for kind, body in (("ascii", b""), ("binary", b""), ("binary_compressed", bytes(8))):
        path.write_bytes(header.format(0, kind).encode() + body)
        assert {name: column.tolist() for name, column in read_pcd(str(path)).items()} == {"x": [], "y": [], "z": []}
    path.write_bytes(header.format(2, "ascii").encode() + b"1 2 3\n4 5 6")
    assert [column.tolist() for column in read_pcd(str(path)).values()] == [[1, 4], [2, 5], [3, 6]]


def read_packed(folder, packed: bytes) -> bytes:
    """Read 2 points of 3 floats, 24 bytes, from LZF."""
    header = "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nPOINTS 2\nDATA binary_compressed\n"
    (folder / "a.pcd").write_bytes(header.encode() + np.array([len(packed), 24], "<u4").tobytes() + packed)
    return b"".join(column.tobytes() for column in read_pcd(str(folder / "a.pcd")).values())


LITERALS = bytes(range(40, 80))


def test_compressed_points_are_read_to_their_last_byte(tmp_path):
    """A control byte below 32 begins literals, others a copy: 3 bits of length - 2, 5 of distance - 1, then 8 more."""
    assert read_packed(tmp_path, bytes([23, *LITERALS[:24]])) == LITERALS[:24]
    assert read_packed(tmp_path, bytes([20, *LITERALS[:21], 1 << 5, 0])) == LITERALS[:21] + LITERALS[20:21] * 3
    assert (
        read_packed(tmp_path, bytes([2, *LITERALS[:3], 7 << 5, 12, 2])) == LITERALS[:3] * 8
    )  # 21 more, from the first


@pytest.mark.parametrize(
    "packed",
    [
        [23, *LITERALS[:24], 0],  # a byte too many
        [23, *LITERALS[:23]],
        [22, *LITERALS[:23]],  # a byte too few
        [24, *LITERALS[:25]],
        [21, *LITERALS[:22], 1 << 5, 0],  # a copy that ends behind the points
        [20, *LITERALS[:21], 1 << 5],
        [0, *LITERALS[:1], 7 << 5],
        [0, *LITERALS[:1], 7 << 5, 14],
        [2, *LITERALS[:3], 7 << 5, 12, 3],  # a copy of what is before the points
    ],
)
def test_compressed_points_that_are_damaged_anywhere_are_told(tmp_path, packed):
    with pytest.raises(UserError, match="a.pcd is not a complete PCD file: its compressed points are damaged"):
        read_packed(tmp_path, bytes(packed))
