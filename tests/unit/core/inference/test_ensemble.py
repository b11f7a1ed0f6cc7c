"""Several models in one prediction: which paths are runs, what fits, and turns on the device."""

from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.ensemble import ModelEnsemble, join_digests, require_ensemble, split_runs
from paddlevit_dist.core.tasks import EnsembleMember, Ensembling
from paddlevit_dist.core.tasks.aspects import has_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

INPUT = {"spacing_mm": [2.0, 1.0, 1.0], "channels": ["CT"], "label_numbers": [0, 1]}


def weights(name="fold_1", classes=("background", "liver"), task="volume_segmentation", outputs=2, **changes):
    learned = CheckpointMeta(outputs, classes and tuple(classes), {**INPUT, **changes}, {})
    digests = {"weights_sha256": f"w {name}", "settings_sha256": "s"}
    return SimpleNamespace(weights=name, learned=learned, config=SimpleNamespace(TASK=task), digests=lambda: digests)


def test_runs_come_before_inputs(tmp_path):
    for name in ("fold_0/checkpoints", "last", "scans"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "last" / "about.yaml").touch()
    run, checkpoint, scans = (str(tmp_path / name) for name in ("fold_0", "last", "scans"))
    assert split_runs([run, checkpoint, "a.pdparams", scans, run]) == ([run, checkpoint, "a.pdparams"], [scans, run])
    assert split_runs(["scan.nii.gz"]) == ([], ["scan.nii.gz"]) and split_runs([run]) == ([run], [])


@pytest.mark.parametrize(
    "other, said",
    [
        (weights(classes=("background", "spleen")), r"its list of classes is \['background', 'spleen'\], not \["),
        (weights(spacing_mm=[1.0, 1.0, 1.0]), r"its spacing_mm is \[1.0, 1.0, 1.0\], not \[2.0, 1.0, 1.0\]"),
        (weights(channels=["CT", "PET"]), r"its channels is \['CT', 'PET'\]"),
        (weights(regions={"a": [1]}), r"its regions is {'a': \[1\]}, not None"),
        (weights(task="heads"), r"its task is heads, not volume_segmentation; name runs on the same data"),
        (weights(classes=None, outputs=3), r"its list of classes is None, not \["),
        (weights(outputs=5), r"its number of classes is 5, not 2"),
    ],
)
def test_members_that_differ_are_refused_by_name(other, said):
    task = VolumeSegmentation.__new__(VolumeSegmentation)
    assert has_aspect(task, Ensembling)
    require_ensemble(task, [weights("fold_0"), weights()])
    with pytest.raises(UserError, match=f"^predict: fold_1 does not fit fold_0: {said}") as error:
        require_ensemble(task, [weights("fold_0"), weights("fold_2"), other])
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"; name runs on the same data with the same input$"):
        require_ensemble(task, [weights("fold_0"), other])
    with pytest.raises(UserError, match="task heads cannot predict with several runs"):
        require_ensemble(object(), [weights(task="heads")] * 2)
    require_ensemble(object(), [weights()])
    joined = join_digests([weights("b"), weights("a")])
    assert joined == {"weights_sha256": "w b + w a", "settings_sha256": "s + s"}
    assert join_digests([weights("b")]) == {"weights_sha256": "w b", "settings_sha256": "s"}


def test_one_model_at_a_time_is_on_the_device():
    """On a made-up GPU: after each one is built it leaves, and each turn ends before the next begins."""
    on_device, most = set(), []

    class Model:
        def __init__(self):
            on_device.add(self)
            most.append(len(on_device))

        def to(self, device):
            (on_device.discard if device == "cpu" else on_device.add)(self)
            most.append(len(on_device))

    ensemble = ModelEnsemble((EnsembleMember(None, Model()) for _ in range(3)), "gpu:0")
    for _ in range(2):
        assert [member.model in on_device for member in ensemble] == [True] * 3
    assert max(most) == 1 and not on_device
    with pytest.raises(StopIteration):  # an error in a turn, whose model leaves the device, too
        for _ in ensemble:
            raise StopIteration
    assert not on_device
    stays = ModelEnsemble(iter([EnsembleMember(None, None)]))  # on a CPU nothing moves
    assert [member.model for member in stays] == [None]
