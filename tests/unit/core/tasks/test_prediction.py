"""The inputs of a prediction: which are found, what their files are called, and when they have changed."""

import os
import pickle

import numpy as np
import pytest

from paddlevit_dist.core.runtime.errors import UserError
from paddlevit_dist.core.tasks import prediction
from paddlevit_dist.core.tasks.prediction import (
    InputSamples,
    PredictionWriter,
    claim_file_name,
    find_inputs,
    note_counted,
    output_names,
    pack_array,
    stamps,
)


@pytest.mark.parametrize(
    "stems, names",
    [
        (["a", "b", "a", "a"], ["a", "b", "a_2", "a_3"]),
        (["a", "A", "a"], ["a", "A_2", "a_3"]),
        (["a", "a_2", "a", "A_2"], ["a", "a_2", "a_3", "A_2_2"]),
        (["a_2", "a", "a", "a"], ["a_2", "a", "a_3", "a_4"]),
    ],
)
def test_each_input_has_a_file_of_its_own(stems, names):
    assert output_names(stems) == names
    assert len({name.lower() for name in names}) == len(stems)


def test_files_are_stamped_with_size_and_time(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"12345")
    os.utime(file, ns=(7, 1_600_000_000_000_000_003))
    found = stamps([str(file), "gone.png", str(file)])
    assert found == [
        (str(file), 5, 1_600_000_000_000_000_003),
        ("gone.png", 0, 0),
        (str(file), 5, 1_600_000_000_000_000_003),
    ]


def inputs_of(names, unreadable=()):
    samples = InputSamples()
    samples.names, samples.unreadable = names, unreadable
    return samples


def test_a_prediction_continues_with_the_same_inputs_only(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.png", "b.png", "c.png")]
    for path in paths:
        with open(path, "wb") as file:
            file.write(b"1")
    samples = inputs_of(paths[:2], [(paths[2], "not an image")])
    before = samples.fingerprint()
    assert (len(samples), samples.describe(1)) == (2, paths[1]) and samples.content() == stamps(paths[:2])
    assert inputs_of(paths[:2], [(paths[2], "another reason")]).fingerprint() == before
    others = [
        inputs_of(paths[1::-1], samples.unreadable),
        inputs_of(paths[:2]),
        inputs_of(paths[:1], samples.unreadable),
    ]
    assert before not in [other.fingerprint() for other in others]
    os.utime(paths[2], ns=(1, 1))
    assert samples.fingerprint() != before
    assert len(inputs_of(["\udce9.png"]).fingerprint()) == 64


def test_inputs_keep_their_order_and_others_have_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    for name in (
        "full/2.ply",
        "full/1.ply",
        "full/b.e57",
        "full/c.E57",
        "full/a",
        "full/n.txt",
        "3.ply",
        "note.txt",
        "0.ply",
    ):
        (tmp_path / name).touch()

    def open_file(path):
        return path if path.endswith(".ply") else None

    def list_folder(folder, others):
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        others += [path for path in paths if open_file(path) is None]
        return filter(open_file, paths)

    words = ["3.ply", "full", "note.txt", "empty", "gone.ply", "~/0.ply"]
    given = [word if word.startswith("~") else str(tmp_path / word) for word in words]
    found, unreadable, notices = find_inputs(given, list_folder, open_file, what="scene", expected="give PLY files")
    assert found == [str(tmp_path / name) for name in ("3.ply", "full/1.ply", "full/2.ply", "0.ply")]
    assert unreadable == [
        (str(tmp_path / "note.txt"), "not a scene by its name: give PLY files"),
        (str(tmp_path / "empty"), "the folder contains no scenes: give PLY files"),
        (str(tmp_path / "gone.ply"), "no such file or folder"),
    ]
    kinds = "2 .e57, 1 without a suffix"
    left_out = f"note: 3 files below {tmp_path / 'full'} skipped ({kinds}), such as a: not scenes by their names: give"
    assert notices == [f"{left_out} PLY files"]


def test_a_writer_writes_nothing_by_default():
    writer = PredictionWriter()
    assert not writer.writes_evaluations
    assert (writer.write(0, np.zeros(3)), writer.summarize(0, np.zeros(3)), writer.finish([])) == ({}, None, [])


@pytest.mark.parametrize("stems", [["A", "a"], ["a", "A", "A_2"], ["A_2", "a", "A", "a"], ["B", "b_2", "b", "B", "b"]])
def test_names_of_files_differ_where_case_is_ignored(stems):
    names = output_names(stems)
    assert len({name.lower() for name in names}) == len(stems) and names[0] == stems[0]
    assert all(name.startswith(stem) for name, stem in zip(names, stems))


@pytest.mark.parametrize(
    "suffix",
    [".txt", ".md", ".rst", ".pdf", ".html", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv", ".xml", ".log"],
)
def test_notes_beside_inputs_are_not_told(suffix):
    for written in (suffix, suffix.upper()):
        assert prediction._note_others("in", [f"in/a{written}"], "no image") == []
        (line,) = prediction._note_others("in", [f"in/a{written}", f"in/b{written}x"], "no image")
        assert line == f"note: 1 file below in skipped (1 {suffix}x), such as b{written}x: no image"


@pytest.mark.parametrize(("number", "more"), [(1, ""), (5, ""), (6, ", …")])
def test_up_to_five_kinds_of_skipped_files_are_told(number, more):
    paths = [f"in/{place}.x{place}" for place in range(number)] + ["in/0.X0"]
    (line,) = prediction._note_others("in", paths, "why")
    kinds = ", ".join(["2 .x0", *(f"1 .x{place}" for place in range(1, min(number, 5)))])
    assert line == f"note: {number + 1} files below in skipped ({kinds}{more}), such as 0.x0: why"


def test_two_samples_cannot_claim_one_name_of_files(tmp_path):
    for index, name in enumerate(["room", "Hall", "b" * 200]):
        claim_file_name(tmp_path, name, index, "scene")
        claim_file_name(tmp_path, name, index, "scene")
    with pytest.raises(UserError, match=r"^scene 0 and scene 5 both have the name 'room', and the files"):
        claim_file_name(tmp_path, "room", 5, "scene")
    for odd in ("", " ", "a/b", "a\0b", "b" * 201, None, 7):
        with pytest.raises(UserError, match=r"^scene 6 has the name .*, which cannot be that of the files"):
            claim_file_name(tmp_path, odd, 6, "scene")


def test_names_that_are_counted_in_files_are_told():
    stems = ["a", "b", "a", "a"]
    note = "note: 2 images of 4 have the name of another; in the names of files these are counted, such as a_2"
    assert note_counted(stems, output_names(stems), "image") == [note]
    assert note_counted(["a", "b"], output_names(["a", "b"]), "image") == []


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3).T, np.zeros((0, 4), np.uint16), np.float64(2.5)])
def test_a_packed_array_is_made_again_with_its_shape_and_type(array):
    made = pickle.loads(pickle.dumps(pack_array(np.asarray(array))))()
    np.testing.assert_array_equal(made, np.asarray(array), strict=True)


def test_a_packed_label_map_takes_little_memory():
    label_map = np.zeros((1000, 2000), np.uint8)
    label_map[300:400, 500:] = 7
    assert len(pickle.dumps(pack_array(label_map))) < label_map.size / 50
