"""A run that reads its images from a web server equals a run that reads them from a folder."""

import json

import pytest
from integration.core.distributed.resumed_runs import assert_bit_equal, weights
from support.files.shard_writer import write_shards
from support.hosts.range_server import RangeServer
from support.processes import run_main, succeeded
from support.trainings.runs import IMAGES

pytest.importorskip("aiohttp")
ARGUMENTS = [*IMAGES, "-epochs=2", "-num_workers=2", "SAVE_EVERY_UPDATES", "4", "KEEP_UPDATES", "9", "REPORT", "False"]


def test_a_run_resumed_in_mid_epoch_from_an_address_equals_one_from_a_folder(tmp_path):
    write_shards(tmp_path / "data", "train", range(44), per_shard=7)
    write_shards(tmp_path / "data", "val", range(100, 110), per_shard=7)
    local, remote = tmp_path / "local", tmp_path / "remote"
    succeeded(run_main(*ARGUMENTS, "-dataset=tar", f"-data_path={tmp_path / 'data'}", f"-output={local}"))
    saved = sorted(path.name for path in (local / "checkpoints").iterdir() if path.name.startswith("update_"))
    with RangeServer(tmp_path / "data") as server:
        server.cuts = server.errors = 2
        source = local / "checkpoints" / saved[0]  # after 4 of 11 updates
        ended = succeeded(
            run_main(
                *ARGUMENTS, "-dataset=tar", f"-data_path={server.address()}", f"-resume={source}", f"-output={remote}"
            )
        )
    assert "tar files of 0.00 GiB are read from http://127.0.0.1" in ended.out and "update 4" in ended.out
    assert_bit_equal(weights(local), weights(remote))
    scores = [
        [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").open() if '"kind": "evaluation"' in line]
        for folder in (local, remote)
    ]
    assert scores[0] == scores[1] and len(scores[0]) == 2
