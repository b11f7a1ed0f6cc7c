"""Models of this package in a repository at Hugging Face, which a local server stands for."""

import numpy as np
import pytest
import yaml
from PIL import Image
from support.hosts.hubs import hub, weights  # noqa: F401
from support.trainings.trained import write_weights

import paddlevit_dist as pv
from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.model_record import read_record, read_stored_settings
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.extensions.export.hub_folder import write_hub_folder

NAMES = ["ash", "beech", "oak"]
SOURCE, PLACE = "hf:somebody/leaves", "/somebody/leaves/resolve/main/{}"


@pytest.fixture
def published(hub, tmp_path, monkeypatch):  # noqa: F811
    """Trained weights, and the folder that was published of them; the server has its files."""
    monkeypatch.setattr(
        REGISTRY, "models", {"vit": REGISTRY.models["vit"]}
    )  # to build a network of each family takes seconds
    trained = write_weights(tmp_path / "trained", NAMES)
    folder = tmp_path / "leaves"
    write_hub_folder(str(trained), str(folder), None, None, False)
    hub.beside |= {PLACE.format(file.name): file.read_bytes() for file in folder.iterdir()}
    return trained, folder


def test_a_published_model_predicts_as_its_run_by_name_and_as_a_folder(published, hub, tmp_path):  # noqa: F811
    pixels = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    images = [Image.fromarray(image) for image in pixels]
    expected = pv.Predictor(str(published[0]))(images)
    assert len({row["score"] for row in expected}) == 4 and {row["class"] for row in expected} <= set(NAMES)
    for source in (str(published[1]), SOURCE):
        assert pv.Predictor(source)(images) == expected
    assert not any(path.endswith("README.md") for path in hub.requests)


def test_a_model_is_made_of_it_without_naming_its_network(published):
    trained = pv.create_model(str(published[0]), pretrained=True).state_dict()
    arrays = {name: value.numpy() for name, value in trained.items()}
    places = [(SOURCE, False), (SOURCE, True), (str(published[1]), False)]
    for model in (pv.create_model(name, pretrained=is_trained) for name, is_trained in places):
        assert not model.training
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), arrays[name])
    assert pv.create_model(SOURCE, 2).state_dict()["head.weight"].shape == [16, 2]
    with pytest.raises(UserError, match="stores how its model is built: remove image_size"):
        pv.create_model(SOURCE, image_size=32)


def test_weights_and_record_are_read_for_a_training_that_begins_with_them(published, hub):  # noqa: F811
    assert read_stored_settings(SOURCE)["MODEL"]["NAME"] == "vit"
    assert hub.requests == [PLACE.format("about.yaml")]
    local = read_weights(str(published[1])).state
    assert local.keys() == read_weights(SOURCE).state.keys() and read_record(SOURCE).about["task"] == "classification"


def test_the_record_of_a_stranger_imports_nothing(published, hub, tmp_path):  # noqa: F811
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    about = yaml.safe_load(hub.beside[PLACE.format("about.yaml")])
    about["settings"] |= {"IMPORTS": [str(tmp_path / "evil.py")]}
    about["settings"]["MODEL"]["NAME"] = "evil_network"
    hub.beside[PLACE.format("about.yaml")] = yaml.safe_dump(about).encode()
    for read in (pv.create_model, pv.Predictor):
        with pytest.raises(UserError, match="evil.*-import"):
            read(SOURCE)
    assert not (tmp_path / "mark").exists()


def test_a_repository_that_cannot_be_asked_is_one_line(hub):  # noqa: F811
    hub.refusal = 401, "RepoNotFound"
    with pytest.raises(UserError, match=r"^create_model: .*about.yaml cannot be fetched: there is no such repository"):
        pv.create_model("hf:somebody/secret")
