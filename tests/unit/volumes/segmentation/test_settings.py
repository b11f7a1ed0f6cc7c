"""Keys of volume segmentation that a run does not read."""

import pytest

from paddlevit_dist.core.settings import load


@pytest.mark.parametrize("axes, is_told", [("[]", True), ("[depth,width]", False)])
def test_mirrored_passes_without_axes_have_no_effect(axes, is_told):
    words = ["-cfg=volume_unet3d_phantoms", "VOLUMES.MIRROR_AXES", axes, "VOLUMES.TEST_MIRROR", "true"]
    told = [notice for notice in load(words).notices if "VOLUMES.TEST_MIRROR" in notice]
    assert len(told) == is_told and all("it names no axis" in notice for notice in told)
