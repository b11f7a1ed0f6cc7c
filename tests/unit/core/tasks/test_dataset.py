"""What a dataset says of its samples, and the randomness with which a task reads them."""

import hashlib
import itertools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.register import register_dataset, register_task
from paddlevit_dist.core.runtime.errors import OwnCodeError
from paddlevit_dist.core.tasks import dataset as datasets
from paddlevit_dist.core.tasks.dataset import Dataset, TransformedDataset, require_folder
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset, describe_sample, name_sample
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.task import Task


class Files(Dataset):
    """Samples that are files; three classes, one sample without a label."""

    holds = "images"
    labels = np.array([2, 0, -1, 1], "int32")
    groups_by = {"patient": r"^(p\d)_"}

    def __init__(self, paths, root=None):
        self.paths, self.root = list(paths), root

    def __len__(self):
        return len(self.paths)

    def read(self, index):
        return self.paths[index], self.labels[index]

    def describe(self, index):
        return self.paths[index]


class Read(TransformedDataset):
    """Gives back what it is asked to read."""

    def __init__(self, dataset=None, length=4, **attributes):
        self._length = length
        if dataset is not None:
            self.dataset = dataset
        vars(self).update(attributes)

    def __len__(self):
        return self._length

    def sample(self, index, generator):
        return index, generator.integers(1 << 40)


class Doubled(Files):
    """Counts what is made of its samples: numbers are doubled, text is not a sample."""

    made = 0
    makers = {**Dataset.makers, "title": "make_title"}

    def read(self, index):
        return 10 * index if index < 3 else "three"

    def make_sample(self, sample):
        self.made += 1
        if isinstance(sample, str):
            raise BadSample(f"its number is {sample}") from ValueError("cause")
        return 2 * sample

    def make_title(self, title):
        return title.upper()


class Titled(Doubled):
    def title(self, index):
        return f"title {index}"


class Mixin:
    def read(self, index):
        return super().read(index) + 1


class FurtherDerived(Mixin, Titled):
    def title(self, index):
        return super().title(index)[:-1] + "x"


class Plain(FurtherDerived):
    pass


NAMES = ["p1_a.png", "p1_b.png", "p2_a.png", "p3_a.png"]


def first_draw(*position, **options):
    return int(datasets.reading_generator(*position, **options).integers(1 << 40))


def test_each_reading_has_its_own_stream_and_the_same_in_every_release():
    draws = {position: first_draw(*position) for position in itertools.product((0, 1, 3), (0, 1, 2), (0, 1, 5), (0, 1))}
    assert len(set(draws.values())) == len(draws) == 54
    assert [first_draw(1, 2, 3, 1), first_draw(7, 1, 70_000, 2), first_draw(0, 0, 0, 0)] == [
        918065539924,
        634327179136,
        12695790600,
    ]


def test_a_stream_knows_the_epochs_after_it():
    assert datasets.reading_generator(0, 3, 1, 0, epochs=10).epochs_left == 7
    assert datasets.reading_generator(0, 3, 1, 0).epochs_left is None
    assert first_draw(0, 3, 1, 0, epochs=10) == first_draw(0, 3, 1, 0)


def test_a_sample_is_read_by_its_index_also_from_the_end():
    samples, stored = Read(seed=5), Files(NAMES)
    key = type("Key", (int,), {"epoch": 2, "repeat": 1})(3)
    assert samples[key] == (3, first_draw(5, 2, 3, 1))
    assert samples[-1] == samples[3] == (3, first_draw(5, 0, 3, 0)) != samples[key]
    assert Read()[2] == (2, first_draw(0, 0, 2, 0))  # without a seed of its own
    assert stored[-4] == (NAMES[0], 2) and stored[3] == (NAMES[3], 1) and len(list(stored)) == 4
    for index in (4, -5):
        with pytest.raises(IndexError, match=f"^index {index} of 4 samples$"):
            stored[index]
        with pytest.raises(IndexError, match=f"^index {index} of 4 samples$"):
            samples[index]


def test_a_samples_identity_does_not_depend_on_the_folder():
    paths = ["/data/set/a/1.png", "/data/set/b/../a/2.png", "/elsewhere/3.png", "/data/sets/4.png"]
    expected = ["a/1.png", "a/2.png", "/elsewhere/3.png", "/data/sets/4.png"]
    for root in ("/data/set", "/data/set/"):
        assert [Files(paths, root).identity(index) for index in range(4)] == expected
    assert Files(paths).identity(1) == paths[1]


def test_digests_are_those_of_blake2b():
    def digest(name, salt):
        return int.from_bytes(hashlib.blake2b(name, digest_size=8, salt=salt).digest(), "little")

    found = datasets.digests(["a/1.png", "\udce9"])
    assert found.dtype == np.uint64 and found.tolist() == [digest(b"a/1.png", b""), digest(b"\xe9", b"")]
    assert datasets.digests(["a"], salt=258).tolist() == [digest(b"a", b"\2\1")]
    assert Files(NAMES).identities().tolist() == datasets.digests(NAMES).tolist()


def test_machines_compare_names_without_the_folder_and_labels_of_eight_bytes():
    listed = {name: b"".join(buffers) for name, buffers in Files(["/data/a.png", "b/c.png"]).listed().items()}
    assert listed == {"names": b"a.png\0b/c.png\0", "labels": np.array([2, 0, -1, 1], "<i8").tobytes()}
    unlabeled = Files(["b.png"])
    unlabeled.labels = None
    assert list(unlabeled.listed()) == ["names"]


def test_buffers_are_compared_by_digest():
    def digest(content):
        return hashlib.sha256(content).digest()[:8]

    by_name = Read(Files(NAMES)).listed_digests()
    names = digest("".join(f"{name}\0" for name in NAMES).encode())
    assert by_name == {"names": names, "labels": digest(np.array([2, 0, -1, 1], "<i8").tobytes())}
    assert Read(length=2).listed_digests() == {"names": digest(b"sample 0\0sample 1\0")}


@pytest.mark.parametrize(
    "paths, root, is_random_split, is_known",
    [
        (["/here/a.png"], None, False, False),  # the path says where the file is on this machine
        (["/here/a.png"], None, True, True),
        (["/here/a.png"], "/here", False, True),
        (["a.png"], None, False, True),
        ([], None, False, True),
    ],
)
def test_identities_are_unknown_where_they_are_paths_of_this_machine(paths, root, is_random_split, is_known):
    found = Read(Files(paths, root), is_random_split=is_random_split).identities()
    assert (found is not None) == is_known
    if is_known:
        names = [path.removeprefix(f"{root}/") for path in paths]
        assert found.tolist() == datasets.digests(names).tolist()


def test_samples_without_a_dataset_have_numbers():
    samples = Read(length=3)
    assert samples.identities() is None and samples.name(2) == samples.describe(2) == "sample 2"
    assert Read(["no", "dataset"]).describe(1) == "sample 1"
    named = Read(Files(["/set/a.png", "/set/b.png"], "/set"))
    assert (named.describe(1), named.name(1)) == ("/set/b.png", "b.png")
    plain = TransformedDataset()
    plain.dataset = Files(NAMES)
    assert len(plain) == 4


def test_a_dataset_is_opened_with_path_split_and_folder_in_this_order():
    class Opened(Dataset):
        def __init__(self, *given):
            self.given = given

        def __len__(self):
            return 3

    config = SimpleNamespace(DATA=SimpleNamespace(DATA_PATH="/set", DATASET="own"))
    assert Opened.open(config, "val", "/cache").given == ("/set", "val", "/cache")
    assert (Dataset.labeled, Dataset.is_remote) == (True, False)
    samples = TransformedDataset
    assert (samples.labeled, samples.is_random_split, samples.seed) == (True, False, 0)


def test_samples_are_grouped_by_the_patterns_of_their_dataset():
    groups = Read(Files(NAMES)).groups("patient")
    assert groups.names.tolist() == ["p1", "p1", "p2", "p3"] and (groups.by, groups.source) == (
        "patient",
        "the dataset",
    )
    with pytest.raises(UserError, match="patient"):
        Read(length=4).groups("patient")


def test_a_description_that_fails_is_told():
    assert describe_sample(Files(NAMES), 2) == "p2_a.png"
    assert describe_sample(Files(NAMES), 9) == "no description: list index out of range"


def test_a_split_that_is_missing_is_refused():
    assert datasets.require_split("val", ["train", "val"], "birds") == "val"
    message = refusal_of(datasets.require_split, "test", ["train", "val"], "birds in /data", "; see the page")
    assert message == "dataset birds in /data has no split 'test' (-split): it has train, val; see the page"
    with pytest.raises(UserError, match="it has none$"):
        datasets.require_split("test", [], "birds")


def test_only_training_augments_the_training_split():
    def is_training(split, evaluates):
        return datasets.is_training_split(SimpleNamespace(EVAL=evaluates), split)

    assert [is_training("train", False), is_training("train", True), is_training("val", False)] == [True, False, False]


def config_of(classes, task="classification", dataset="birds"):
    names = SimpleNamespace(DATASET=dataset)
    return SimpleNamespace(TASK=task, DATA=names, MODEL=SimpleNamespace(NUM_CLASSES=classes))


def test_a_dataset_of_other_samples_is_refused_with_those_that_fit():
    class OwnTask(Task):
        build_dataset = collate = build_model = train_step = build_metrics = eval_step = None

    class Scenes(Dataset):
        holds = "scenes"
        __len__ = read = None

    class Anything(Files):
        holds = ""

    register_task("own_task", OwnTask)
    for name, cls in {"own_images": Files, "own_scenes": Scenes, "own_others": Anything}.items():
        register_dataset(name, cls)
    for name, cls in {"own_images": Files, "own_others": Anything}.items():
        assert datasets.dataset_class(config_of(None, "own_task", name), Files).wrapped_class is cls
    message = refusal_of(datasets.dataset_class, config_of(None, "own_task", "own_scenes"), Files)
    expected = "dataset own_scenes holds scenes, but TASK own_task reads images; set DATA.DATASET to one of "
    assert message == expected + "own_images, own_others"


def test_a_folder_of_data_is_absolute_and_one_that_is_not_there_is_named(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("photos", "~/photos", "photos/../photos", tmp_path / "photos"):
        assert require_folder(given, "own", "of images") == str(tmp_path / "photos")
    end = "dataset own expects a folder of images"
    for given, told in (
        (None, "dataset own needs -data_path=<folder>, of images"),
        ("file", f"data path {tmp_path}/file is not a folder; {end}"),
        ("none", f"data path {tmp_path}/none does not exist; {end}"),
    ):
        assert refusal_of(require_folder, given, "own", "of images") == told


@pytest.mark.parametrize("kind, read, title", [(Doubled, 20, None), (Titled, 20, "TITLE 1"), (Plain, 22, "TITLE X")])
def test_samples_are_made_once_whichever_class_defines_how_they_are_read(kind, read, title):
    dataset = pickle.loads(pickle.dumps(OpenedDataset(kind(NAMES))))
    assert (dataset.read(1), dataset.made, dataset[-3], dataset.made) == (read, 1, read, 2)
    assert title is None or dataset.title(1) == title


def test_a_sample_that_cannot_be_made_is_named_wherever_it_is_read():
    with pytest.raises(BadSample, match=r"^sample 3 \(p3_a.png\): its number is three$") as caught:
        OpenedDataset(Doubled(NAMES)).read(3)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(again.name("sample 7")) == str(caught.value) and again.reason == "its number is three"


def test_a_sample_that_its_own_code_refuses_is_named_once():
    class Refused(Doubled):
        def read(self, index):
            raise BadSample(f"array[{index}] is nan")

        def describe(self, index):
            if index == 3:
                raise BadSample("no title")
            return super().describe(index)

    class Derived(Refused):
        def read(self, index):
            return super().read(index)

    for kind in (Refused, Derived):
        with pytest.raises(BadSample, match=r"^sample 1 \(p1_b.png\): array\[1\] is nan$"):
            OpenedDataset(kind(NAMES)).read(1)
        with pytest.raises(BadSample, match="^no title$"):
            OpenedDataset(kind(NAMES)).describe(3)


def test_own_code_that_reads_its_own_samples_gets_what_it_returned():
    class Described(Doubled):
        def describe(self, index):
            return f"number {self.read(index)}"

    with pytest.raises(BadSample) as caught:
        OpenedDataset(Described(NAMES)).read(3)
    assert str(caught.value) == "sample 3 (number three): its number is three"
    assert OpenedDataset(Described(NAMES)).describe(2) == "number 20"


def test_a_sample_with_nothing_but_a_number_is_named_with_its_split():
    class Numbered(Doubled):
        describe = Dataset.describe

        def __init__(self, data_path, split, cache_folder):
            super().__init__(NAMES)

    config = SimpleNamespace(DATA=SimpleNamespace(DATA_PATH=None, DATASET="numbered"))
    samples = make_samples(Numbered.open(config, "val", None))
    assert name_sample(samples, 2) == "sample 2 of val"
    with pytest.raises(BadSample, match="^sample 3 of val: its number is three$"):
        samples.dataset.read(3)
    with pytest.raises(BadSample, match="^sample 3: its number is three$"):
        OpenedDataset(Numbered(None, "val", None)).read(3)


def make_samples(dataset):
    class Samples(TransformedDataset):
        def sample(self, index, generator):
            return self.dataset.read(index)

    samples = Samples()
    samples.dataset = dataset
    return samples


class Wet(Dataset):
    """Each method by index fails for sample 1, also ``title``, whose result nothing is made of."""

    indexed = ("title",)

    def __len__(self):
        return 3

    def fail(self, index):
        if index == 1:
            raise KeyError("my disk is wet")
        return f"text {index}"

    read = describe = title = fail


class WetPictures(Wet):
    describe = Dataset.describe

    def title(self, index):
        return self.read(index)

    def read(self, index):
        try:
            return super().read(index)
        except KeyError:  # still of its type
            raise OSError("no picture") from None


def test_an_exception_of_own_code_is_told_with_its_sample_split_and_dataset():
    config = SimpleNamespace(DATA=SimpleNamespace(DATASET="d", DATA_PATH=None))
    for cls, error, said in (
        (Wet, KeyError, "KeyError: 'my disk is wet'"),
        (WetPictures, OSError, "OSError: no picture"),
    ):
        opened = cls.open(config, "train", None)
        for name in ("read", "describe", "title") if cls is Wet else ("read", "title"):
            assert getattr(opened, name)(0) == "text 0"
            with pytest.raises(error) as caught:
                getattr(opened, name)(1)
            kept = pickle.loads(pickle.dumps(caught.value))  # as from a loader process
            for each in (caught.value, kept):
                own = OwnCodeError.find(each)
                assert str(own) == f"sample 1 of train (dataset d): {said}"
            lines = own.traceback.splitlines()
            assert lines[0].startswith("Traceback") and lines[-1] == said
    assert OwnCodeError.find(KeyError("x")) is None
    with pytest.raises(KeyError) as caught:  # not opened, and described
        OpenedDataset(type("Named", (Wet,), {"describe": lambda self, index: f"{index}.png"})(None, "x", None)).read(1)
    assert str(OwnCodeError.find(caught.value)) == "sample 1 (1.png): KeyError: 'my disk is wet'"


def test_wrong_input_and_samples_of_own_code_are_told_as_before():
    for error in (UserError("no file"), BadSample("is odd")):

        class Refusing(Wet):
            def read(self, index, error=error):
                raise error

        with pytest.raises(type(error)) as caught:
            OpenedDataset(Refusing(None, "train", None)).read(0)
        assert OwnCodeError.find(caught.value) is None
