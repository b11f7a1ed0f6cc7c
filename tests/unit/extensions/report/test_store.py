"""Figures in a file: what comes back, what is refused, and how points are packed."""

import io
import zlib

import numpy as np
import pytest
from PIL import Image
from support.trainings.report_runs import one_of_each

from paddlevit_dist.core.tasks.figures import Chart, ConfusionMatrix, FigureTable, Gallery, PointSet, SliceStack
from paddlevit_dist.extensions.report import still, store


def stored(path, *figures):
    assert store.save(path, figures, {"of": "x", "top-1": float("nan")}) == []
    return store.load(path).figures


def test_every_kind_comes_back(tmp_path):
    figures = stored(tmp_path / "f.zip", *one_of_each())
    assert [figure["kind"] for figure in figures] == [
        "table",
        "matrix",
        "chart",
        "chart",
        "gallery",
        "points",
        "slices",
    ]
    table, matrix, chart, bars, gallery, _, slices = figures
    assert table["rows"] == [*([name, 12, 0.5] for name in ("dog", "ant", "cow")), ["none", None, None]]
    assert chart["lines"][0]["y"] == [3.0, 1.0, None] and bars["shape"] == "bar"
    dense = np.zeros((3, 3), np.uint64)
    assert {*map(type, matrix["cells"])} == {int}
    for row, column, count in np.reshape(matrix["cells"], (-1, 3)):
        dense[row, column] = count
    np.testing.assert_array_equal(dense, one_of_each()[1].values, strict=True)
    assert gallery["images"][1]["caption"] == ["ant", "second line"]
    assert [[image["caption"] for image in stack] for stack in slices["stacks"]] == [
        [["dog", "Dice 0.5"]] * 3,
        [["b"]] * 2,
    ]
    brightness = [
        np.asarray(Image.open(io.BytesIO(image["image"])), np.float32).mean() for image in slices["stacks"][0]
    ]
    assert brightness[0] + brightness[1] == pytest.approx(255, abs=3) and brightness[2] < brightness[0]


def test_small_images_are_exact_and_large_ones_small(tmp_path):
    generator = np.random.default_rng(0)
    exact = generator.integers(0, 256, (64, 30, 3), np.uint8)
    large = np.tile(np.arange(1000, dtype=np.uint16).astype(np.uint8), (2000, 1))
    first, second = stored(tmp_path / "f.zip", Gallery("g", [(exact, "a"), (large, "b")]))[0]["images"]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(first["image"]))), exact, strict=True)
    assert second["size"] == [256, 512] and Image.open(io.BytesIO(second["image"])).size == (256, 512)


def test_a_figure_of_the_wrong_form_is_told_and_the_others_are_kept(tmp_path):
    xyz, colors = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.uint8)
    wrong = [
        FigureTable("t", ("a", "b"), [(1,)]),
        ConfusionMatrix("m", ("a",), np.zeros((2, 2), int)),
        ConfusionMatrix("m", ("a",), np.array([[-1]])),
        Chart("c", "x", "y", {"l": ([1, 2], [1])}),
        Chart("c", "x", "y", {}, kind="pie"),
        Gallery("g", [(np.zeros((4, 4), np.float32), "")]),
        PointSet("p", xyz, {"a": colors[:3]}, {}),
        PointSet("p", np.full((4, 3), np.nan, np.float32), {"a": colors}, {}),
        SliceStack("s", [([np.zeros((4, 4), np.float32)], "")]),
        "no figure",
    ]
    problems = store.save(tmp_path / "f.zip", [*wrong, FigureTable("right", ("a",), [(1,)])], {})
    assert len(problems) == len(wrong) and all("was skipped" in line for line in problems)
    loaded = store.load(tmp_path / "f.zip")
    assert [figure["title"] for figure in loaded.figures] == ["right"] and loaded.problems == problems


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"x" * 5000])
def test_a_damaged_file_is_a_value_error(tmp_path, content):
    (tmp_path / "f.zip").write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        store.load(tmp_path / "f.zip")


def unpacked(content, number, size, layers):
    """Positions in the cube and colors, by the description of the format."""
    planes = np.frombuffer(zlib.decompress(content), np.uint8).reshape(6 + 3 * layers, number).astype(np.int64)
    steps = np.cumsum(planes[0:6:2] + 256 * planes[1:6:2], axis=1) & 65_535
    return steps.T / 65_535 * size, [planes[6 + 3 * n : 9 + 3 * n].T for n in range(layers)]


def test_points_come_back_in_another_order_with_their_own_colors():
    generator = np.random.default_rng(1)
    xyz = (generator.uniform(0, 1, (3000, 3)) * (4, 9, 2) + (100, -50, 3)).astype(np.float32)
    # The color tells the point: three bytes of its number.
    number = np.arange(3000)
    colors = np.stack([number & 255, number >> 8, np.zeros_like(number)], axis=1).astype(np.uint8)
    packed = store.pack(PointSet("p", xyz, {"a": colors, "b": 255 - colors}, {}))
    assert store.pack(PointSet("p", xyz.astype(float), {"a": colors, "b": 255 - colors}, {})) == packed
    places, (first, second) = unpacked(packed.content, packed.number, packed.size_m, 2)
    order = first[:, 0] + 256 * first[:, 1]
    assert sorted(order.tolist()) == number.tolist()
    np.testing.assert_array_equal(second, 255 - first, strict=True)
    offset = places - xyz[order]
    assert np.ptp(offset, axis=0).max() < 2.5 * packed.size_m / 65_535 and packed.size_m == pytest.approx(9, rel=1e-2)


def test_too_many_points_are_thinned_out_evenly_and_bad_ones_left_out():
    xyz = np.zeros((10_000, 3), np.float32)
    xyz[:, 0] = np.arange(10_000)
    xyz[5] = np.nan
    packed = store.pack(PointSet("p", xyz, {"a": np.zeros((10_000, 3), np.uint8)}, {}), most=100)
    places, _ = unpacked(packed.content, packed.number, packed.size_m, 1)
    gaps = np.diff(np.sort(places[:, 0]))
    assert packed.number == 100 and gaps.min() > 95 and gaps.max() < 106


def test_points_of_several_sets_share_a_limit_and_each_layer_is_checked(tmp_path, monkeypatch):
    xyz = np.random.default_rng(3).uniform(0, 1, (60, 3)).astype(np.float32)
    colors = np.zeros((60, 3), np.uint8)
    monkeypatch.setattr(store, "_MOST_POINTS", 100)
    sets = [PointSet(name, xyz, {"a": colors}, {"a": [("wall", (1, 2, 3)), ("floor", (4, 5, 6))]}) for name in "pqr"]
    assert [line.partition(": ")[0] for line in store.save(tmp_path / "f.zip", sets, {})] == ["figure 'r' was skipped"]
    first, second = store.load(tmp_path / "f.zip").figures
    assert [(figure["number"], figure["of"]) for figure in (first, second)] == [(60, 60), (40, 60)]
    assert first["content"] == store.pack(sets[0]).content and first["size_m"] == store.pack(sets[0]).size_m
    assert first["layers"] == ["a"] and first["legends"] == {"a": [["wall", [1, 2, 3]], ["floor", [4, 5, 6]]]}
    for layers, odd in (({"a": colors, "b": colors[:3]}, "b"), ({"a": colors.astype(int), "b": colors}, "a")):
        with pytest.raises(ValueError, match=f"for layer '{odd}'"):
            store.pack(PointSet("p", xyz, layers, {}))
    for most, layers in ((0, {"a": colors}), (9, {})):
        with pytest.raises(ValueError, match="there are no points to show"):
            store.pack(PointSet("p", xyz, layers, {}), most)
    for shape in ((60,), (60, 2)):
        with pytest.raises(ValueError, match=r"expected xyz \(points, 3\), got \(60,"):
            store.pack(PointSet("p", np.zeros(shape), {"a": colors}, {}))


def test_the_order_of_points_interleaves_the_bits_of_their_cells():
    def interleave(cells) -> list[int]:
        bits = [[f"{axis:010b}" for axis in cell] for cell in cells]
        return [int("".join(z + y + x for x, y, z in zip(*axes)), 2) for axes in bits]

    cells = np.random.default_rng(4).integers(0, 1024, (50, 3)).astype(np.uint16)
    assert store.compute_morton_code(cells).tolist() == interleave(cells)
    packed = store.pack(PointSet("p", cells, {"a": np.zeros((50, 3), np.uint8)}, {}))
    steps = np.rint(unpacked(packed.content, 50, 65_535, 1)[0]).astype(int)
    assert interleave(steps >> 6) == sorted(interleave(steps >> 6))  # of 16 bits, ten are compared
    cells, colors = np.repeat([[0], [9]], 100, axis=0) * np.ones(3), np.zeros((200, 3), np.uint8)
    colors[:, 0] = np.random.default_rng(5).permutation(200)
    packed = store.pack(PointSet("p", cells[::-1], {"a": colors}, {}))
    _, (found,) = unpacked(packed.content, 200, 9, 1)
    assert [*found[:, 0]] == [*colors[100:, 0], *colors[:100, 0]]  # those of a cell keep their order


def test_points_of_one_place_have_a_cube_and_are_in_its_center():
    packed = store.pack(PointSet("p", np.full((3, 3), 7.0), {"a": np.zeros((3, 3), np.uint8)}, {}))
    places, _ = unpacked(packed.content, 3, packed.size_m, 1)
    assert packed.size_m == 1.0 and np.abs(places - 0.5).max() < 1e-4


def test_values_are_plain_and_a_chart_has_numbers(tmp_path):
    about = {
        "a\nb": np.int64(3),
        "f": np.float32(0.5),
        "inf": float("inf"),
        "flag": np.bool_(True),
        "t": (1, None),
        5: "x",
    }
    assert store.save(tmp_path / "f.zip", [Chart("c", "x", "y", {"l": ([1, 2], [True, "2.5"])}, note="n")], about) == []
    stored = store.load(tmp_path / "f.zip")
    expected = {"f": 0.5, "inf": None, "flag": True, "t": [1, None], "5": "x"}
    assert {name: stored.about[name] for name in expected} == expected and stored.about["flag"] is True
    assert sorted(map(type, stored.about.values()), key=str) == sorted(
        [int, float, type(None), bool, list, str], key=str
    )
    (figure,) = stored.figures
    assert figure["lines"][0]["y"] == [1.0, 2.5] and figure["lines"][0]["y"][0] is not True and figure["note"] == "n"
    assert (figure["x_label"], figure["y_label"], figure["title"]) == ("x", "y", "c")


@pytest.mark.parametrize("size, is_refused", [(1 << 28, False), ((1 << 28) + 1, True)])
def test_a_member_that_would_fill_the_memory_is_refused(tmp_path, size, is_refused):
    store.save(tmp_path / "f.zip", [], {})
    content = bytearray((tmp_path / "f.zip").read_bytes())
    directory = content.index(b"PK\x01\x02")  # of one member, with its size at byte 24
    content[directory + 24 : directory + 28] = size.to_bytes(4, "little")
    (tmp_path / "f.zip").write_bytes(content)
    if not is_refused:
        assert store.load(tmp_path / "f.zip").figures == []
        return
    with pytest.raises(ValueError, match="its member figures.json is too large"):
        store.load(tmp_path / "f.zip")


def test_the_first_view_of_points_is_drawn_with_the_nearest_in_front():
    square = np.stack(np.meshgrid(np.linspace(-1, 1, 60), np.linspace(-1, 1, 60)), axis=-1).reshape(-1, 2)
    below, above = (np.column_stack([square, np.full(len(square), z)]) for z in (-1.0, 1.0))
    colors = np.repeat(np.array([[200, 0, 0], [0, 200, 0]], np.uint8), len(square), axis=0)
    packed = store.pack(PointSet("p", np.concatenate([below, above]).astype(np.float32), {"truth": colors}, {}))
    xyz, first = still.unpack(packed.content, packed.number)
    assert np.abs(xyz).max() == pytest.approx(0.5, abs=1e-4) and {*map(tuple, first.tolist())} == {
        (200, 0, 0),
        (0, 200, 0),
    }
    image = still.project(xyz, first)
    assert image.shape == (500, 800, 3) and image[0, 0].tolist() == [32, 38, 45]
    middle = image[230:270, 380:420].reshape(-1, 3)  # seen from above, the upper square hides the lower
    assert {*map(tuple, middle.tolist())} == {(0, 200, 0)}
    entry = {"content": packed.content, "number": packed.number, "title": "p", "layers": ["truth"]}
    assert still.draw_still(entry)["size"] == (800, 500)
    with pytest.raises(ValueError):
        still.draw_still({**entry, "number": packed.number + 1})
