"""What is noted of the files of a checkpoint."""

import hashlib

import pytest

from paddlevit_dist.checkpoint import content


@pytest.mark.parametrize("block", [1, 7, 32 << 20])
@pytest.mark.parametrize("size", [0, 1, 14, 50])
def test_a_fingerprint_is_that_of_the_whole_file_however_it_is_read(tmp_path, monkeypatch, block, size):
    monkeypatch.setattr(content, "_BLOCK_BYTES", block)
    written = bytes(range(7, 7 + size))
    (tmp_path / "file").write_bytes(written)
    assert content.fingerprint(tmp_path / "file") == {"bytes": size, "sha256": hashlib.sha256(written).hexdigest()}
