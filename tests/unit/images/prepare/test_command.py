"""What ``prepare images`` and ``prepare index`` hand on, print and end with."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddlevit_dist.images.data import inspection
from paddlevit_dist.images.data.quarantine import UnreadableFile, read_quarantine
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.prepare import command, published_index, shards, source

BAD = [UnreadableFile("/d/a.png", "torn"), UnreadableFile("/d/b\x1b.png", "empty")]


class Skipped(SimpleNamespace):
    example = "x.heic"

    def lines(self):
        return [f"{self.num_images} skipped"]

    def summary(self):
        return f"{self.num_images} images cannot be opened here"


class Images(SimpleNamespace):
    encoded, describe, skipped_files = "encoded", "describe", None

    def __len__(self):
        return self.number


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command on two splits; return code, printed lines and calls."""

    def run(*words, bad=(), skipped=(None, None), left_out=0, raises=None):
        calls = []

        def note(name, result):
            def call(*given):
                calls.append((name, *given))
                if raises is not None:
                    raise raises
                return result

            return call

        numbers = zip((1200, 34), skipped)
        splits = [Images(number=n, skipped_files=None if s is None else Skipped(num_images=s)) for n, s in numbers]
        datasets = dict(zip(("train", "val"), splits))
        monkeypatch.setattr(source, "open_input", note("open", datasets))
        monkeypatch.setattr(source, "check_images", note("check", list(bad)))
        monkeypatch.setattr(shards, "prepare_shards", note("prepare", SimpleNamespace(left_out=left_out)))
        monkeypatch.setattr(inspection, "note_pixels", lambda *given: [f"pixels of {given}"])
        try:
            command.run_images(list(words))
            code = 0
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        assert not raises or err
        return code, out.splitlines() + err.splitlines(), calls, datasets

    return run


PIXELS = [f"note: pixels of ({number}, 'encoded', 'describe')" for number in (1200, 34)]


def test_a_check_says_whether_all_can_be_read(run, tmp_path):
    code, lines, calls, datasets = run(str(tmp_path), "-workers=3")
    assert (code, lines) == (0, [*PIXELS, f"all 1,234 images of {tmp_path} can be read"])
    assert calls[0][:4] == ("open", str(tmp_path), None, ReadConfig().max_pixels) and isinstance(calls[0][4], Path)
    assert calls[1] == ("check", datasets, 3)
    code, lines, *_ = run(str(tmp_path), skipped=(None, 1005))
    said = f"all 1,234 images of {tmp_path} can be read, but 1,005 skipped cannot"
    assert (code, lines[2:]) == (1, ["1005 skipped", said])


def test_a_check_lists_what_cannot_be_read(run, tmp_path):
    code, lines, *_ = run(str(tmp_path), bad=BAD, skipped=(2, 3))
    said = f"2 of 1,234 images of {tmp_path} cannot be read"
    listed = ["/d/a.png\ttorn", "/d/b\\x1b.png\tempty"]
    assert (code, lines[2:]) == (1, ["2 skipped", "3 skipped", f"{said}:", *listed])
    file = tmp_path / "bad.tsv"
    code, lines, *_ = run(str(tmp_path), f"-quarantine={file}", bad=BAD)
    assert (code, lines[2:]) == (1, [f"{said}; they are listed in {file}"]) and read_quarantine(file) == BAD


@pytest.mark.parametrize(
    "left_out, missing", [(0, ""), (1, "; 1 unreadable one is omitted"), (2, "; 2 unreadable ones are omitted")]
)
def test_a_preparation_says_what_it_wrote(run, tmp_path, left_out, missing):
    output = tmp_path / "out"
    output.mkdir()
    (output / "a.tar").write_bytes(bytes(1_250_000))
    (output / "b.tmp").write_bytes(bytes(9_000_000))
    words = ["-dataset=tar", "-shorter_side=99", "-quality=80", "-shard_size=7", "-store=pages", "-max_pixels=5"]
    skip = "-on_bad_sample=skip"
    code, lines, calls, datasets = run(
        str(tmp_path), str(output), *words, "-workers=2", skip, skipped=(None, 4), left_out=4 + left_out
    )
    assert calls[0][1:4] == (str(tmp_path), "tar", 5)
    settings = (99, 80, 7, True, "pages")
    assert calls[1] == ("prepare", datasets, str(tmp_path), output, settings, 2) and code == 0
    listed = f", listed in {output}/quarantine.tsv" if missing else ""
    written = f"prepared {1234 - left_out:,} images in {output} (1.2 MB){missing}{listed}"
    assert lines[2:] == ["4 skipped", f"{written}; to train on them: -dataset=tar -data_path={output}"]


def test_defaults_are_those_of_the_page(run, tmp_path):
    cores = len(os.sched_getaffinity(0))
    code, lines, calls, _ = run(str(tmp_path), str(tmp_path / "out"), skipped=(0, None))
    assert calls[1][4:] == ((320, 90, 1000, False, "jpeg"), cores)
    assert code == 0 and lines[2] == "0 skipped"  # other files than images


def test_mistakes_and_interruptions_are_told(run, refuse, tmp_path):
    said = refuse(lambda: run(str(tmp_path), "out", skipped=(None, 3)))
    assert said == (
        "3 images cannot be opened here, such as x.heic: convert or remove them, or add --on_bad_sample=skip to omit "
        "them"
    )
    said = refuse(run, str(tmp_path), "out", "-quarantine=a")
    assert said == "--quarantine is for a check without OUT: remove it; with OUT the list is quarantine.tsv in OUT"
    for word in ("-quality=0", "-quality=101", "-shorter_side=0", "-shard_size=0", "-max_pixels=0"):
        assert word.split("=")[0].lstrip("-") in refuse(run, str(tmp_path), word)
    kept = "interrupted; finished tar files are kept: run the same command to continue"
    for words, line in (([], "interrupted"), (["out"], kept)):
        code, lines, *_ = run(str(tmp_path), *words, raises=KeyboardInterrupt())
        assert (code, lines) == (130, [line])


def test_an_index_is_announced_by_split(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = []
    rows = [("train", 1200, 1003), ("val", 5, 1)]
    monkeypatch.setattr(published_index, "publish_index", lambda folder: given.append(folder) or rows)
    command.run_index(["small"])
    assert given == [tmp_path / "small"] and capsys.readouterr().out.splitlines() == [
        f"indexed 1,200 train images in 1,003 tar files of {tmp_path}/small",
        f"indexed 5 val images in 1 tar files of {tmp_path}/small",
    ]
