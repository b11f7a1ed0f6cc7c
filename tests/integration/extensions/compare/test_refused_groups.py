"""What a group of seeds is not for is refused."""

import json
import shutil

from support.processes import run_main
from support.trainings.runs import DIGITS, refused

SHORT = [*DIGITS, "-ngpus=1", "REPORT", "False", "EVALUATION.RESAMPLES", "100", "-batch_size=400"]


def test_what_a_group_is_not_for_is_refused_in_a_line(tmp_path):
    folder = f"-output={tmp_path / 'group'}"
    assert "expected a whole number >= 2" in refused(*SHORT, "-seeds=1")
    assert "-seeds trains; remove one of them" in refused(*SHORT, "-seeds=2", "-eval", "-pretrained=nothing")
    assert "-resume continues one run; to continue a group of seeds, repeat its command" in refused(
        *SHORT, "-seeds=2", "-resume=run"
    )
    ended = run_main(*SHORT, "-seeds=2", folder, "-dataset=folder", "-data_path=/nowhere")
    assert ended.code == 2 and "error: data path /nowhere does not exist" in ended.err
    assert "seed 0 did not start (see the error above); no other seed was started" in ended.err
    assert not (tmp_path / "group").exists()
    (tmp_path / "group" / "checkpoints" / "epoch_0001").mkdir(parents=True)
    assert "already holds a run's checkpoints" in refused(*SHORT, "-seeds=2", folder)
    shutil.rmtree(tmp_path / "group")
    (tmp_path / "group").mkdir()
    settings = {"TRAIN": {"BASE_LR": 0.5}}
    described = {"task": "t", "dataset": "d", "score": "s", "more_is_better": True, "settings": settings}
    (tmp_path / "group" / "seeds.json").write_text(json.dumps({"format": 1, **described, "seeds": []}))
    assert "contains training runs with several seeds (seeds.json): add -seeds=N" in refused(*SHORT, folder)
    said = refused(*SHORT, "-seeds=2", folder)
    assert "contains seeds of another configuration: TRAIN.BASE_LR 0.5 -> 0.001" in said
