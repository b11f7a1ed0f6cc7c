"""The recipe for one's own images, as a user starts it: class folders, weights by name from a local server, two
processes."""

import json
import re

import pytest
from support.hosts.servers import Server, answer_as_hub
from support.processes import ROOT, run_main
from support.samples.drawn_images import NEW, OLD, write_drawn
from support.trainings.runs import last_line, refusal, well

from paddlevit_dist import create_model
from paddlevit_dist.core.checkpoint.array_files import write_safetensors

SMALL = {"embed_dim": 48, "depth": 1, "num_heads": 4}
COMMON = [f"-cfg={ROOT / 'configs' / 'finetune_folder.yaml'}", "-image_size=32", "-ngpus=2", "-num_workers=0"]
COMMON += [word for name, value in SMALL.items() for word in (f"MODEL.{name.upper()}", str(value))]
COMMON += ["TRAIN.NUM_SAMPLES", "60", "TRAIN.EPOCH_LIMITS", "[3, 9]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own_pictures")
    write_drawn(folder / "mine", NEW[:3], train=6, val=0)
    write_drawn(folder / "others", OLD[:3], train=6, val=0)
    return folder


@pytest.fixture(scope="module")
def hub(folder):
    model = create_model("vit_small_patch16_224", num_classes=1000, **SMALL)
    write_safetensors(folder / "w", {name: value.numpy() for name, value in model.state_dict().items()})
    with Server() as server:
        server.answer = answer_as_hub((folder / "w").read_bytes())
        yield server


def start(folder, hub, data, output, *arguments):
    variables = {"HF_ENDPOINT": hub.address("")[:-1], "PADDLEVIT_DIST_CACHE": str(folder / "cache")}
    words = [*COMMON, f"-data_path={folder / data}", f"-output={folder / output}", *arguments]
    return run_main(*words, no_proxy="127.0.0.1", HF_HOME=str(folder / "none"), **variables)


def test_weights_by_name_epochs_by_size_resumed_evaluated_and_handed_on(folder, hub):
    ended = well(start(folder, hub, "mine", "run", "-stop_after_epoch=2"))
    assert "15 training images: 4 epochs, 12 updates (TRAIN.NUM_SAMPLES 60, EPOCH_LIMITS 3 to 9)" in ended.out
    assert "3 of 18 training images are held out for validation" in ended.out
    (path,) = (path for path in hub.requests if "/api/" not in path)  # of two processes
    assert path == "/timm/vit_small_patch16_224.augreg_in21k_ft_in1k/resolve/main/model.safetensors"
    assert len(re.findall(r"^fetching http://127.0.0.1\S+$", ended.out, re.M)) == 1
    report = json.loads((folder / "run" / "load_report.json").read_text())
    assert [entry["name"] for entry in report["reinitialized"]] == ["head.weight", "head.bias"]
    assert [entry["name"] for entry in report["resized"]] == ["pos_embed"] and not report["missing"]

    (folder / "mine" / NEW[0] / "one_more.png").write_bytes((folder / "mine" / NEW[0] / "0000.png").read_bytes())
    grown = well(start(folder, hub, "mine", "run", "-resume=auto", "-allow_changes", "TRAIN.EPOCH_LIMITS", "[3,9]"))
    assert "16 training images: 4 epochs, 16 updates (as before)" in grown.out
    assert "epoch 4/4 training" in grown.out and len([one for one in hub.requests if "/api/" not in one]) == 1

    evaluated = well(start(folder, hub, "mine", "look", "-eval", f"-pretrained={folder / 'run'}", "-batch_size=3"))
    assert re.match(r"top-1 [\d.]+ (\[[\d., ]+\] )?loss", last_line(evaluated))

    others = well(start(folder, hub, "others", "next", f"-pretrained={folder / 'run'}", "-epochs=1"))
    assert "0 of 3 classes by name, the rest new; re-initialized head.weight, head.bias" in others.out


def test_without_weights_it_says_what_it_needs(folder, hub):
    message = refusal(start(folder, hub, "others", "none", "MODEL.PRETRAINED", "None"))
    assert "starts from trained weights" in message and "-pretrained=PATH" in message
    unreachable = hub.address("").replace(str(hub.server.server_port), "1")
    variables = {"HF_ENDPOINT": unreachable, "PADDLEVIT_DIST_CACHE": str(folder / "empty"), "HF_HOME": "/nowhere"}
    words = [*COMMON, f"-data_path={folder / 'others'}", f"-output={folder / 'none'}"]
    message = refusal(run_main(*words, **variables))
    assert "cannot be fetched" in message and "give its path (-pretrained=FILE)" in message
    assert not (folder / "none" / "checkpoints").exists()


def test_a_single_class_is_refused(folder, hub):
    write_drawn(folder / "one", NEW[:1], train=4, val=0)
    assert "has only one class, heart" in refusal(start(folder, hub, "one", "none"))
