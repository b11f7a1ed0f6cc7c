"""mypy knows each key."""

import pytest


def test_mypy_finds_a_mistyped_key_and_a_wrong_type(tmp_path):
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "reader.py"
    program.write_text(
        "from paddlevit_dist.images.segmentation.settings import SegmentationSettings\n"
        "def read(config: SegmentationSettings) -> int:\n"
        "    config.TRAIN.BASE_LR = 0.1\n"
        "    rate: int = config.TRAIN.BASE_LR\n"
        "    return config.DATA.BATCHSIZE + config.DATA.BATCH_SIZE + config.SEGMENTATION.OHEM_MIN_KEPT\n"
    )

    found, _, _ = api.run(["--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}", str(program)])

    assert [line.partition("reader.py:")[2][0] for line in found.splitlines()[:-1]] == ["3", "4", "5"], found
    assert "read-only" in found and '"BATCHSIZE"; maybe "BATCH_SIZE"' in found
