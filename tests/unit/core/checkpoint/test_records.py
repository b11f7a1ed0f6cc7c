"""What a checkpoint has on record."""

import copy
import json
from contextlib import nullcontext

import paddle
import pytest
import yaml
from support.trainings.runs import STATE

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import records
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.integrity import DamagedCheckpointError

MOST = 1 << 53  # the largest whole number that is exact in every reader of JSON
SCALER = {"scale": [2.0], "incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 9, "decr_every_n_nan_or_inf": 1}
SCALER |= {"incr_count": 3, "decr_count": 0, "use_dynamic_loss_scaling": True}
BEST = {"name": "top-1", "value": 0.5, "epoch": 1, "line": ""}


def put(values, path, value):
    """Return nested mappings with another value at a path such as ``a.b``."""
    values, (*parents, last) = copy.deepcopy(values), path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value
    return values


@pytest.mark.parametrize(
    "path, good, bad",
    [
        ("position.epoch", (0, MOST), (-1, MOST + 1, 0.5)),
        ("position.consumed", (0,), (-1,)),
        ("position.update", (0,), (-1,)),
        ("extra.global_batch_size", (1, MOST), (0, MOST + 1)),
        ("extra.best", (None, BEST), ({**BEST, "epoch": -1}, {})),
        ("extra.skipped_updates", ({"total": 1, "in_a_row": 0},), ({"total": -1, "in_a_row": 0}, {"total": 1})),
        ("extra.scaler", ({}, SCALER), ({"scale": 1.0},)),
        ("extra.scaler.scale", (1e-9, [1e-9], float(MOST), [float(MOST)]), (0.0, [0.0], [], [1.0, 1.0], MOST + 2.0)),
        ("extra.scaler.incr_ratio", (-float(MOST), float(MOST)), (-MOST - 2.0, MOST + 2.0)),
        ("extra.scaler.use_dynamic_loss_scaling", (False, 1.0), (MOST + 2.0, "yes")),
        ("extra.weights_digest", ("a",), (1,)),
        ("extra.seed", (7,), ("7",)),
    ],
)
def test_a_state_has_numbers_in_their_range(tmp_path, path, good, bad):
    whole = {"position": {"epoch": 1, "consumed": 0, "update": 10}, "extra": {**STATE, "scaler": SCALER}}
    for value, is_good in [*((value, True) for value in good), *((value, False) for value in bad)]:
        changed = put(whole, path, value)
        (tmp_path / "state.json").write_text(json.dumps(changed))
        if is_good:
            assert records.read_state(tmp_path) == (changed["position"], changed["extra"])
        else:
            with pytest.raises(DamagedCheckpointError, match=r"/state\.json cannot be read \(.+\)$"):
                records.read_state(tmp_path)


@pytest.mark.parametrize(
    "name, position, is_good",
    [
        ("epoch_0002", (2, 0, 20), True),
        ("epoch_0003", (2, 0, 20), False),
        ("epoch_0002", (2, 1, 20), False),
        ("update_00000020", (1, 8, 20), True),
        ("update_00000021", (1, 8, 20), False),
        ("any", (1, 8, 20), True),
    ],
)
def test_a_state_is_that_of_the_checkpoints_name(tmp_path, name, position, is_good):
    whole = {"position": dict(zip(("epoch", "consumed", "update"), position)), "extra": STATE}
    (tmp_path / name).mkdir()
    (tmp_path / name / "state.json").write_text(json.dumps(whole))
    with nullcontext() if is_good else pytest.raises(DamagedCheckpointError, match="json is of another checkpoint: "):
        records.read_state(tmp_path / name)


RECORD = {"bytes": 0, "sha256": "0" * 64}


LOW_RANK = {"source": "w", "part": None, "unused": [], "digest": "0" * 64, "scale": 0.5}


@pytest.mark.parametrize(
    "about, is_good",
    [
        ({"low_rank": LOW_RANK, "data": {"val": None}, "more": 1}, True),
        ({"low_rank": {**LOW_RANK, "scale": 0}}, False),
        ({"low_rank": {**LOW_RANK, "digest": "0" * 63}}, False),
        ({"data": {"val": {"classes": "cat"}}}, False),
        ({"settings": []}, False),
        ({"data": {"val": {"number of classes": -3}}}, False),
        ({"data": {"val": {"number of classes": "many"}}}, False),
        ({"input": {"landmarks": "nose"}}, False),
        ({"settings": {"TASK": "classification", "DATA": {"IMAGE_SIZE": [16, 24]}, "OWN": {"KEY": [3]}}}, True),
        ({"settings": {"DATA": {"IMAGE_SIZE": "x"}}}, False),
        ({"settings": {"TASK": "multi_label", "MULTI_LABEL": {"WISHED": [3]}}}, False),
    ],
)
def test_metadata_have_the_types_that_are_expected(tmp_path, about, is_good):
    (tmp_path / "about.yaml").write_text(yaml.safe_dump(about))
    if is_good:
        assert records.read_about_file(tmp_path / "about.yaml") == about
    else:
        with pytest.raises(UserError, match=r"about\.yaml: .+; remove the file to continue without it$"):
            records.read_about_file(tmp_path / "about.yaml")


def test_metadata_of_another_form_are_damage_also_where_they_were_written_so(tmp_path):
    state = checkpoint_store.RunState({"epoch": 1, "consumed": 0, "update": 10}, {}, STATE)
    directory = checkpoint_store.save(tmp_path, "epoch_0001", {}, state, about={"settings": []})
    with pytest.raises(DamagedCheckpointError) as caught:
        records.verify(directory)
    told = "about.yaml: Expected `object | null`, got `array` - at `$.settings`"
    assert str(caught.value) == f"{directory}/{told}"


@pytest.mark.parametrize("size, is_read", [(16 << 20, True), ((16 << 20) + 1, False)])
def test_metadata_of_more_than_16_mib_are_not_parsed(tmp_path, size, is_read):
    file = tmp_path / "about.yaml"
    file.write_text("[")
    with open(file, "ab") as stream:
        stream.truncate(size)
    with pytest.raises(UserError, match=r"about\.yaml cannot be read \(.+\); remove the file") as caught:
        records.read_about_file(file)
    assert ("more than 16,777,216 bytes" in str(caught.value)) != is_read


def test_the_first_damaged_file_by_name_is_told(tmp_path):
    state = checkpoint_store.RunState({"epoch": 1, "consumed": 0, "update": 10}, {}, STATE)
    given = {"weight": paddle.zeros([1])}
    directory = checkpoint_store.save(tmp_path, "epoch_0001", given, state, given, {"input": {}})
    records.verify(directory)
    names = ["about.yaml", "model.pdparams", "model_ema.pdparams", "optimizer.npz", "state.json"]
    assert sorted(json.loads((directory / "manifest.json").read_text())["files"]) == names
    for name in reversed(names):
        (directory / name).rename(tmp_path / name)
        with pytest.raises(DamagedCheckpointError, match=f"/{name} is missing$"):
            records.verify(directory)
    for name in names:
        (tmp_path / name).rename(directory / name)
    for name in names[:2]:  # another size, and then a file that is not listed
        manifest = json.loads((directory / "manifest.json").read_text())
        (directory / "manifest.json").write_text(json.dumps({**manifest, "files": {**manifest["files"], name: RECORD}}))
        size = (directory / name).stat().st_size
        with pytest.raises(DamagedCheckpointError, match=f"/{name} has {size} bytes, 0 were written$"):
            records.verify(directory)
        del manifest["files"][name]
        (directory / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(DamagedCheckpointError, match=f"/{name} has {size} bytes, None were written$"):
            records.verify(directory)
        (directory / name).rename(tmp_path / name)
