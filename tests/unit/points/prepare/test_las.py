"""Laser scans are read without what a damaged header could make of the memory."""

import sys

import laspy
import numpy as np
import pytest
from support.files.other_scenes import las
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.las import read_las, write_classified


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_no_scan_is_opened_with_the_decompressor_that_allocates_what_a_header_announces(tmp_path, monkeypatch, suffix):
    las(tmp_path / f"a{suffix}")
    told, plain = [], laspy.open

    def watched(source, mode="r", **options):
        told.append((mode, options.get("laz_backend")))
        return plain(source, mode, **options)

    monkeypatch.setattr(laspy, "open", watched)
    read_las(str(tmp_path / f"a{suffix}"))
    write_classified(str(tmp_path / f"a{suffix}"), tmp_path / f"b{suffix}", np.zeros(90, np.int64))
    backends = [backends for mode, backends in told if mode == "r"]
    assert len(backends) == 2 and [mode for mode, _ in told] == ["r", "r", "w"]
    for given in backends:
        assert given and set(given) <= {laspy.LazBackend.Lazrs, laspy.LazBackend.Laszip}


def test_files_that_are_missing_and_libraries_that_are_not_installed_are_told(tmp_path, monkeypatch):
    las(tmp_path / "a.laz")
    for name, reason in (("b.las", "No such file or directory"), ("", "Is a directory")):
        assert refusal_of(read_las, str(tmp_path / name)) == f"{tmp_path / name} cannot be read: {reason}"
    monkeypatch.setattr(laspy.LazBackend, "is_available", lambda self: False)  # as laspy says without lazrs
    message = refusal_of(read_las, str(tmp_path / "a.laz"))
    assert message == f"{tmp_path / 'a.laz'} is compressed, which needs lazrs: pip install 'laspy[lazrs]'"
    monkeypatch.setitem(sys.modules, "laspy", None)
    with pytest.raises(UserError, match="a.laz needs laspy to be read: pip install 'laspy\\[lazrs\\]' "):
        read_las(str(tmp_path / "a.laz"))


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_points_of_several_chunks_keep_their_places(tmp_path, monkeypatch, suffix):
    """90 points, 40 at a time, against the file as laspy reads it at once."""
    monkeypatch.setattr("paddlevit_dist.points.prepare.las._CHUNK_POINTS", 40)
    written = las(tmp_path / f"a{suffix}", time=np.arange(90.0))
    columns = read_las(str(tmp_path / f"a{suffix}"))
    np.testing.assert_allclose(np.stack([columns[axis] for axis in "xyz"], axis=1), written["xyz"], atol=1e-9)
    assert {"X", "Y", "Z"}.isdisjoint(columns) and list(columns)[:4] == ["x", "y", "z", "intensity"]
    for name, field in (("intensity", "intensity"), ("label", "classification"), ("time", "time")):
        expected = np.arange(90.0) if name == "time" else written[name]
        np.testing.assert_array_equal(columns[field], expected, strict=True)
    classes, instances = np.arange(90) % 7, np.where(np.arange(90) % 4 == 0, -5, np.arange(90) // 3)
    write_classified(str(tmp_path / f"a{suffix}"), tmp_path / f"b{suffix}", classes, instances)
    whole = laspy.read(tmp_path / f"b{suffix}")
    np.testing.assert_array_equal(whole.classification, classes)
    np.testing.assert_array_equal(whole["predicted_instance"], np.maximum(instances, -1))
    np.testing.assert_array_equal(whole["time"], np.arange(90.0), strict=True)


@pytest.mark.parametrize("chunks", [None, 1 << 31])
def test_a_table_of_chunks_may_be_found_from_the_end_of_a_file(tmp_path, chunks):
    """As a stream is written, whose writer cannot go back; one with too many chunks ends the process of lazrs."""
    written = las(tmp_path / "a.laz")
    content = bytearray((tmp_path / "a.laz").read_bytes())
    points = int.from_bytes(content[96:100], "little")
    table = bytes(content[points : points + 8])
    content[points : points + 8] = (-1).to_bytes(8, "little", signed=True)
    if chunks is not None:
        place = int.from_bytes(table, "little") + 4
        content[place : place + 4] = chunks.to_bytes(4, "little")
    (tmp_path / "b.laz").write_bytes(bytes(content) + table)
    if chunks is not None:
        with pytest.raises(UserError, match="b.laz is not a complete LAS file: a table of 2,147,483,648 chunks; copy"):
            read_las(str(tmp_path / "b.laz"))
        return
    columns = read_las(str(tmp_path / "b.laz"))
    np.testing.assert_allclose(np.stack([columns[axis] for axis in "xyz"], axis=1), written["xyz"], atol=1e-9)
