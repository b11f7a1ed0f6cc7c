"""Data sets that were opened in one process are read in another."""

import pickle
import sys

from support.forks import in_child
from support.processes import run_command
from unit.images.data.test_image_dataset_contract import EVERY, opened
from unit.images.data.test_tar import contents, write_webdataset

from paddlevit_dist.images.data.tar import TarImages


def test_a_forked_process_shares_the_open_archive(tmp_path):
    folder, cache = tmp_path / "data", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    write_webdataset(folder)
    dataset = TarImages(str(folder), "train", cache)
    expected = contents(dataset)
    of_child = in_child(lambda: [contents(dataset) for _ in range(20)])
    assert all(contents(dataset) == expected for _ in range(20))
    assert of_child() == [expected] * 20


def test_pickles_are_small_after_reading_and_read_the_same_in_another_process_without_paddle(tmp_path):
    expected = []
    for name, split in EVERY:
        dataset = opened(name, split, tmp_path / f"{name}-{split}")
        image, label = dataset.read(len(dataset) - 1)
        pickled = pickle.dumps(dataset)
        assert len(pickled) <= 1200, (name, split)  # names of where the data are from, but none of their rows
        (tmp_path / f"{name}-{split}.pickle").write_bytes(pickled)
        expected.append([f"{name}-{split}.pickle", str(label), image.tobytes().hex()])
    program = (
        "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails
        "import pickle, pathlib\n"
        "for name in sys.argv[1:]:\n"
        "    dataset = pickle.loads(pathlib.Path(name).read_bytes())\n"
        "    image, label = dataset.read(len(dataset) - 1); print(name, label, image.tobytes().hex())"
    )
    names = [name for name, _, _ in expected]
    ended = run_command([sys.executable, "-c", program, *names], timeout=600, folder=tmp_path, is_copy=False)
    assert [line.split() for line in ended.out.splitlines()] == expected, ended.err
