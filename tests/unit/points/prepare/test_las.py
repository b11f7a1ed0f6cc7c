"""Laser scans are read without what a damaged header could make of the memory."""

import laspy
import numpy as np
import pytest
from support.files.other_scenes import las

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
