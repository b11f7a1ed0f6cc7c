"""What tests of segmentation of volumes share."""

import pytest

from paddlevit_dist.volumes.segmentation import fingerprint


@pytest.fixture
def fewer_drawn_voxels(monkeypatch) -> int:
    """Let a fingerprint draw this many voxels instead of ten millions, which take seconds."""
    monkeypatch.setattr(fingerprint, "_SAMPLED", 20_000)
    return 20_000
