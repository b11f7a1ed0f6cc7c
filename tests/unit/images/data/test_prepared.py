"""The record of prepared images: what it stores, what makes other files, and damage to it."""

import json

import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.prepared import Preparation, read_preparation, write_preparation

MADE = Preparation(
    source="/data/set",
    shorter_side=256,
    quality=90,
    shard_size=1000,
    num_classes=5,
    fingerprints={"train": "a", "val": "b"},
    complete=True,
)
PLAIN = {"source": "/data/set", "shorter_side": 256, "quality": 90, "shard_size": 1000, "num_classes": 5}


def changed(**fields):
    return Preparation(**{**PLAIN, "fingerprints": {"train": "a", "val": "b"}, **fields})


@pytest.mark.parametrize(
    "other, said",
    [
        ({"shorter_side": 224}, "shorter_side 256, now 224"),
        ({"quality": 75}, "quality 90, now 75"),
        ({"shard_size": 9}, "shard_size 1000, now 9"),
        ({"num_classes": 6, "fingerprints": {}}, "num_classes 5, now 6"),
        ({"stored": "pages"}, "stored jpeg, now pages"),
        ({"fingerprints": {"train": "a", "val": "c"}}, "the images of the source"),
        ({"source": "/moved", "left_out": 3, "complete": False}, None),
    ],
)
def test_settings_that_make_other_files_are_told(other, said):
    assert MADE.difference(changed(**other)) == said


def test_a_record_is_read_as_it_was_written(tmp_path):
    assert read_preparation(str(tmp_path)) is None
    write_preparation(tmp_path, MADE)
    text = (tmp_path / "prepared.json").read_text(encoding="ascii")
    stored = {**PLAIN, "fingerprints": MADE.fingerprints, "complete": True, "left_out": 0, "stored": "jpeg"}
    assert json.loads(text) == {"version": 1, **stored} and text.startswith('{\n "version": 1,') and text[-1] == "\n"
    assert read_preparation(str(tmp_path)) == MADE
    write_preparation(tmp_path, changed())
    message = refusal_of(read_preparation, str(tmp_path))
    assert message == f"the preparation of {tmp_path} was not finished; run the command that began it again"
    assert read_preparation(str(tmp_path), unfinished=True) == changed(complete=False)
    for damage in ('{"version": 2}', "{", '{"version": 1}'):
        (tmp_path / "prepared.json").write_text(damage)
        with pytest.raises(
            UserError, match=r"prepared.json cannot be read \(.*\); prepare the images again in an empty"
        ):
            read_preparation(str(tmp_path), unfinished=True)


def test_the_line_of_a_run_tells_form_and_skipped_images():
    line = "note: the images of here were prepared from /data/set with a shorter side of at most 256 pixels"
    assert MADE.note("here") == f"{line}, JPEG quality 90"
    assert (
        changed(stored="pages", left_out=7).note("here") == f"{line}, as pages of pixels, 7 unreadable images skipped"
    )
