"""``inspect`` with keys shows the model that a training run with them would build."""

import pytest
from support.refusals import refusal_of
from support.trainings.trained import network, write_weights

from paddlevit_dist.core.commands.inspect_model import run
from paddlevit_dist.core.tasks.model_cost import count_parameters
from paddlevit_dist.core.tasks.model_factory import create_model

SMALL = (
    "MODEL.DEPTH 2 MODEL.EMBED_DIM 16 MODEL.NUM_HEADS 2 DATA.IMAGE_SIZE 32 DATA.IMAGE_CHANNELS 1 MODEL.NUM_CLASSES=5"
)


def test_keys_set_the_options_of_the_model(capsys):
    run(["vit", "-depth=0", *SMALL.split(), "TRAIN.BASE_LR", "1e-3", "-epochs=3"])
    model = create_model("vit", 5, 32, depth=2, embed_dim=16, num_heads=2, in_channels=1)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "no effect" in line] == [
        "TRAIN.NUM_EPOCHS 3 (-epochs): no effect: inspect does not read it",
        "TRAIN.BASE_LR 0.001 (command line): no effect: inspect does not read it",
    ]
    assert "vit: VisionTransformer, images 1 x 32 x 32, 5 classes" in said
    assert any(line.startswith(f"parameters: {count_parameters(model):,} ") for line in said)


def test_trained_weights_are_reported_with_their_own_network(tmp_path, capsys):
    weights = write_weights(tmp_path / "weights", ["cat", "ant", "bee"])
    run([str(weights), "-depth=0"])
    said = capsys.readouterr().out.splitlines()
    assert f"{weights}: vit: VisionTransformer, images 3 x 16 x 16, 3 classes" in said
    assert any(line.startswith(f"parameters: {count_parameters(network(3)):,} ") for line in said)
    assert "-image_size: the size is stored with a run" in refusal_of(run, [str(weights), "-image_size=32"])
    (tmp_path / "photos").mkdir()
    assert "photos" in refusal_of(run, [str(tmp_path / "photos")])
    assert "there is no file or folder output/gone;" in refusal_of(run, ["output/gone"])


def test_an_option_that_the_model_lacks_is_named(capsys):
    run(["resnet18", "-depth=0", "-image_size=32", "MODEL.DEPTH", "3"])
    assert "MODEL.DEPTH 3: no effect: resnet18 has no such option" in capsys.readouterr().out


def test_networks_of_other_tasks_take_their_keys(capsys):
    parameters = []
    for depth in ("1", "2"):
        run(["unet3d", "-depth=0", "VOLUMES.UNET_WIDTH=4", "VOLUMES.UNET_DEPTH", depth])
        parameters.append(capsys.readouterr().out)
    assert parameters[0] != parameters[1]


@pytest.mark.parametrize(
    "words, said",
    [
        ("vit MODEL.DEPT 3", "MODEL.DEPT (3) is not a known key: the closest is MODEL.DEPTH"),
        ("vit DETECTION.FLIP true", "DETECTION.FLIP is read by tasks detection, "),
        ("vit MODEL.NAME resnet18", "inspect: MODEL.NAME resnet18: the model is vit; name one"),
        ("-list vit MODEL.DEPTH 3", "inspect: MODEL.DEPTH=3: --list takes no keys"),
    ],
)
def test_wrong_keys_are_refused_in_one_line(words, said):
    assert said in refusal_of(run, words.split())
