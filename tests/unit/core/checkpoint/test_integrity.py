"""Whether the files of a checkpoint are as they were written."""

import hashlib
import json
from contextlib import nullcontext

import paddle
import pytest
from support.trainings.runs import STATE

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import integrity
from paddlevit_dist.core.checkpoint import store as checkpoint_store

MOST = 1 << 53  # the largest whole number that is exact in every reader of JSON
RECORD = {"bytes": 0, "sha256": "0" * 64}
BLOCK = 32 << 20  # bytes that are read at once


@pytest.mark.parametrize("size", [0, 1, 50, BLOCK, BLOCK + 7])
def test_a_fingerprint_is_that_of_the_whole_file_however_it_is_read(tmp_path, size):
    written = bytes(range(7, 200)) * (size // 193 + 1)
    written = written[:size]
    (tmp_path / "file").write_bytes(written)
    assert integrity.fingerprint(tmp_path / "file") == {"bytes": size, "sha256": hashlib.sha256(written).hexdigest()}


@pytest.mark.parametrize(
    "manifest, is_good",
    [
        ({"format": 1, "files": {"a" * 255: RECORD}}, True),
        ({"format": 1, "files": {"b": {**RECORD, "bytes": MOST}}}, True),
        ({"format": 2, "files": {}}, False),
        *(({"format": 1, "files": {name: RECORD}}, False) for name in ("a" * 256, "", "a/b", "a\\b", "a\0")),
        ({"format": 1, "files": {"a": {**RECORD, "more": 1}}}, False),
        ({"format": 1, "files": {"a": {**RECORD, "bytes": -1}}}, False),
        *(({"format": 1, "files": {"a": {**RECORD, "sha256": text}}}, False) for text in ("0" * 63, "0" * 64 + "\n")),
        ({"format": 1}, False),
    ],
)
def test_a_manifest_lists_plain_names_with_size_and_digest(tmp_path, manifest, is_good):
    (tmp_path / "state.json").touch()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    advice = "the checkpoint is damaged; restore it, or use another checkpoint of the run$"
    told = nullcontext() if is_good else pytest.raises(UserError, match=f"json cannot be read .+: {advice}")
    with told, integrity.verify_while_reading(tmp_path / "c"):  # not listed
        pass


def test_a_file_that_goes_while_it_is_read_is_damage(tmp_path):
    state = checkpoint_store.RunState({"epoch": 1, "consumed": 0, "update": 10}, {}, STATE)
    directory = checkpoint_store.save(tmp_path, "epoch_0001", {"weight": paddle.zeros([1])}, state, {}, {"input": {}})
    file = directory / "model.pdparams"
    with integrity.verify_while_reading(file):
        pass
    file.unlink()
    message = r"model.pdparams cannot be read \(No such file.*the checkpoint is damaged"
    with pytest.raises(UserError, match=message), integrity.verify_while_reading(file):
        pass
