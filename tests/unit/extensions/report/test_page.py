"""The page of a report: what it holds, that nothing in it is obeyed, and runs that are damaged or go on."""

import json
import re
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from support.trainings.report_runs import HOSTILE, Page, event, one_of_each, training, write_run

from paddlevit_dist import UserError
from paddlevit_dist.core.launch.lock import lock_output_dir
from paddlevit_dist.core.tasks.figures import Gallery
from paddlevit_dist.extensions.report import command, curves, store
from paddlevit_dist.extensions.report import page as page_module
from paddlevit_dist.extensions.report.page import render, write_last_page, write_page
from paddlevit_dist.extensions.report.runs import read_runs
from paddlevit_dist.extensions.report.summary import format_best, format_duration, format_state


def make_page(*folders, target=None) -> Page:
    file = write_page(list(folders), target or folders[0] / "report.html")
    return Page(file.read_text(encoding="utf-8"))


def captions(page: Page, content: str) -> list:
    return re.findall(r"<figcaption[^>]*>([^<]*)</figcaption>", content)


def test_a_page_is_whole_and_needs_nothing_else(tmp_path):
    folder = write_run(tmp_path / "run", figures=one_of_each())
    page = make_page(folder)
    content = (folder / "report.html").read_text(encoding="utf-8")
    for tag, attributes in page.tags:
        for name in ("src", "href"):
            link = attributes.get(name) or ""
            assert not link or link.startswith(("data:", "#")), (tag, link)
    assert not re.search(r"@import|url\((?!data:)", content)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) and page.named("html") == [{"lang": "en"}]
    for link in page.named("a"):
        assert link["href"][1:] in ids
    for image in page.named("img"):
        assert image["alt"]
    assert all(heading.get("scope") in ("row", "col") for heading in page.named("th"))
    titles = {"A table", "A matrix", "A chart", "Bars", "A gallery", "Points", "Slices"}
    assert titles <= set(captions(page, content))
    assert page.named("img")[2]["class"] == "still" and "hidden" not in page.named("img")[2]  # until the points turn
    assert [("hidden" in image) for image in page.named("img")[3:]] == [
        True,
        False,
        True,
        True,
        False,
    ]  # the middle ones


def test_every_quantity_has_a_curve_and_evaluations_stand_at_the_end_of_their_epochs(tmp_path):
    folder = write_run(tmp_path / "run")
    content = (write_page([folder], tmp_path / "page.html")).read_text(encoding="utf-8")
    names = captions(Page(content), content)
    for name in ("Loss", "top-1", "Learning rate", "Gradient norm", "Memory (MiB)"):
        assert name in names
    assert "Updates skipped so far" not in names and "samples" not in names
    data = [json.loads(part) for part in re.findall(r'class="data">(.*?)</script>', content)]
    training_loss, evaluation_loss = data[0]["lines"]
    assert (training_loss["name"], evaluation_loss["name"]) == ("training", "evaluation")
    assert training_loss["x"] == list(range(1, 21)) and training_loss["y"][3] == 0.5
    assert (evaluation_loss["x"], evaluation_loss["y"]) == ([10, 20], [1.5, 0.75])


def test_what_never_changes_is_told_and_not_drawn(tmp_path):
    folder = write_run(tmp_path / "run", [{**one, "accuracy": 25.0, "ups": 0.0} for one in training(20)])
    content = write_page([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    names = captions(Page(content), content)
    assert "Loss" in names and "accuracy" not in names and "ups" not in names
    shown = content.partition('id="curves"')[2].partition("</section>")[0]
    assert "Constant: " in shown and "accuracy 25" in shown and "ups 0" not in shown
    two = [folder, write_run(tmp_path / "other", [{**one, "accuracy": 26.0} for one in training(20)])]
    content = write_page(two, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "accuracy" in captions(Page(content), content)  # the runs differ


def test_foreign_text_is_shown_and_not_obeyed(tmp_path):
    events = [
        *training(4),
        event("interruption", epoch=1, reason=HOSTILE),
        event("training", epoch=1, update=9, **{HOSTILE: 1.0}),
    ]
    folder = write_run(
        tmp_path / "run", events, config=json.dumps({HOSTILE: HOSTILE}), figures=one_of_each((HOSTILE, "b"))
    )
    (folder / "load_report.json").write_text(
        json.dumps({"missing": [{"name": HOSTILE}], "source": HOSTILE, "notices": [HOSTILE]})
    )
    page = make_page(folder)
    assert "{{ 7 * 7 }}" in page.text and "&amp; 49" not in page.text
    assert "<script>alert('x')</script>" in page.text and '\n"quoted"' not in page.text
    assert not any("alert" in script and not script.startswith("{") for script in page.scripts)
    assert sum(tag == "script" for tag, _ in page.tags) == 1 + sum("type" in script for script in page.named("script"))


def test_the_paired_difference_of_several_runs_is_shown_or_why_there_is_none(tmp_path, monkeypatch):
    one, two = (write_run(tmp_path / name) for name in ("one", "two"))
    assert "The scores are not compared sample by sample: " in make_page(one, two, target=tmp_path / "page.html").text
    asked = []
    rows = [["run", "top-1", "difference", "p", ""], ["two", "80.00", "+4.00 [1.00, 7.00]", "0.03", "better"]]
    found = lambda names: asked.append(names) or (rows, ["of the same 64 samples"])  # noqa: E731
    monkeypatch.setattr(page_module, "COMPARE_RUNS", SimpleNamespace(find=lambda: found))
    content = (write_page([one, two], tmp_path / "page.html")).read_text(encoding="utf-8")
    assert asked == [{str(one): "one", str(two): "two"}]
    assert "+4.00 [1.00, 7.00]" in content and ">finding<" in content and "<li>of the same 64 samples</li>" in content
    assert "Differences of the scores" not in make_page(one).text
    monkeypatch.setattr(page_module, "COMPARE_RUNS", SimpleNamespace(find=lambda: None))  # the folder was deleted
    assert "sample by sample" not in make_page(one, two, target=tmp_path / "page.html").text


def test_runs_of_different_tasks_share_a_page(tmp_path):
    one = write_run(tmp_path / "a", figures=one_of_each())
    other = [
        event("training", epoch=1, update=1, semantic=1.0),
        event("evaluation", epoch=1, mIoU=0.5, **{"IoU wall": 0.5}),
    ]
    two = write_run(tmp_path / "b", other, "TASK: semantic\n")
    content = write_page([one, two], tmp_path / "page.html").read_text(encoding="utf-8")
    assert {"Loss", "top-1"} <= set(captions(Page(content), content))
    assert "Measured once, so without a curve: mIoU, semantic, IoU wall." in Page(content).text


def test_superseded_values_are_not_drawn_but_told(tmp_path):
    events = [{**line, "superseded": True} for line in training(8, 100.0)] + [event("resume", epoch=0), *training(20)]
    content = write_page([write_run(tmp_path / "run", events)], tmp_path / "page.html").read_text(encoding="utf-8")
    lines = json.loads(re.search(r'class="data">(.*?)</script>', content)[1])["lines"]
    assert max(lines[0]["y"]) == 2.0
    assert content.count("superseded evaluation") == 2 and ">resume<" in content


@pytest.mark.parametrize(
    "damage",
    [
        "broken last line",
        "no events",
        "not finite",
        "no metrics",
        "no settings",
        "damaged files",
        "not text",
        "epochs only",
    ],
)
def test_a_damaged_run_is_shown_as_far_as_it_can_be(tmp_path, damage):
    folder = write_run(tmp_path / "run", figures=one_of_each())
    metrics = folder / "metrics.jsonl"
    if damage == "broken last line":
        metrics.write_text(metrics.read_text() + '{"kind": "training", "upd')
    elif damage == "no events":
        metrics.write_text("")
    elif damage == "not finite":
        bad = [
            event("training", epoch=1, update=u, loss=v)
            for u, v in ((21, float("nan")), (22, float("-inf")), (1e400, 1.0))
        ]
        metrics.write_text(metrics.read_text() + "".join(json.dumps(line) + "\n" for line in bad))
    elif damage == "no metrics":
        metrics.unlink()
    elif damage == "no settings":
        (folder / "config.yaml").unlink()
    elif damage == "damaged files":
        (folder / "report_data.zip").write_bytes((folder / "report_data.zip").read_bytes()[:500])
        (folder / "run.json").write_text("[1, 2")
        (folder / "config.yaml").write_text("a: [")
    elif damage == "not text":
        metrics.write_bytes(b"\xff\xfe\x00[[[[" * 40 + b"\n" + b"[" * 100_000 + b"\n" + metrics.read_bytes())
    else:
        metrics.write_text(json.dumps(event("evaluation", epoch=3, loss=1.0)) + "\n")
    page = make_page(folder)
    assert ("cannot be shown" in page.text) == (damage == "damaged files")
    assert ("unreadable" in page.text) == (damage in ("broken last line", "not text"))
    has_curves = any(attributes.get("class") == "chart" for attributes in page.named("figure"))
    assert has_curves


def test_a_damaged_figure_costs_a_line_and_charts_stand_side_by_side(tmp_path):
    table, matrix, chart, bars, gallery, points, _ = one_of_each()
    folder = write_run(tmp_path / "run", [], figures=[chart, table, bars, gallery, chart, points, matrix])
    with zipfile.ZipFile(folder / store.TRAINING) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    index = json.loads(members["figures.json"])
    del index["figures"][3]["images"][1]["suffix"], index["figures"][5]["layers"]
    index["figures"] += [{"kind": "unknown"}, 5, {**index["figures"][0], "title": "</script>"}]
    with zipfile.ZipFile(folder / store.TRAINING, "w") as archive:
        for name, content in {**members, "figures.json": json.dumps(index)}.items():
            archive.writestr(name, content)
    content = write_page([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    assert Page(content).text.count("a figure cannot be shown: ") == 4
    content = content.partition('class="figures"')[2].partition("</section>")[0]
    assert ["".join(one) for one in re.findall(r'class="(charts)"|<figcaption[^>]*>([^<]*)', content)] == [
        *("charts", "A chart", "A table", "charts", "Bars", "A chart", "A matrix", "charts", "&lt;/script&gt;")
    ]


def test_a_run_that_goes_on_says_where_it_is(tmp_path):
    events = training(20)[:14]
    with lock_output_dir(write_run(tmp_path / "run", events), print, is_evaluation=False):
        assert "in epoch 2 of 2; last entry" in make_page(tmp_path / "run").text
    assert "killed in epoch 2 of 2" in make_page(tmp_path / "run").text
    with lock_output_dir(tmp_path / "run", print, is_evaluation=True):  # which writes the report anew before it ends
        assert "killed in epoch 2 of 2" in make_page(tmp_path / "run").text
    config = "TRAIN: {NUM_EPOCHS: 30, STOP_AFTER_EPOCH: 2}\n"
    assert "stopped after epoch 2 of 30" in make_page(write_run(tmp_path / "stopped", config=config)).text
    assert "complete, 2 epochs" in make_page(write_run(tmp_path / "done")).text
    assert "has no figures" in make_page(tmp_path / "done").text


def timed(kind, seconds, **values):
    return {**event(kind, **values), "time": 1_700_000_000.0 + seconds}


def summary(folder):
    """State, best evaluation and time of the only run."""
    (run,) = read_runs([folder])
    return format_state(run), format_best(run), format_duration(run)


def test_a_summary_tells_the_best_and_the_time_of_the_training_whatever_was_evaluated_later(tmp_path):
    events = [
        timed("training", 10, epoch=1, update=1, loss=1.0),
        timed("evaluation", 60, epoch=1, loss=0.9, best="top-1", **{"top-1": 81.0}),
        timed("evaluation", 95, epoch=2, loss=0.8, **{"top-1": 70.0}),
        timed("evaluation", 571, loss=0.7, **{"top-1": 12.0}),  # of anybody's weights
        timed("difference_of_export", 572, largest_difference=1e-6),
    ]
    folder = write_run(tmp_path / "run", events)
    (folder / "eval_load_report.json").write_text(json.dumps({"source": "elsewhere", "loaded": []}))
    started = "2023-11-15 06:13:20 +0800"  # in Shanghai
    (folder / "run.json").write_text(json.dumps({"started": started}))
    assert summary(folder) == ("complete, 2 epochs", "top-1 81, epoch 1", "1 min 35 s")
    assert "elsewhere" not in make_page(folder).text
    del events[1]["best"]  # of a version that did not note it
    assert summary(write_run(tmp_path / "old", events))[1] == "loss 0.8, top-1 70 (the last)"


def test_the_time_of_a_training_is_that_of_its_sessions(tmp_path):
    events = [
        timed("training", 10, epoch=1, update=1, loss=1.0),
        timed("training", 50, epoch=1, update=5, loss=1.0),
        timed("interruption", 7_000, epoch=0, reason="found when resuming"),
        timed("resume", 7_000, epoch=0, update=0),
        timed("training", 7_030, epoch=1, update=5, loss=1.0),
        timed("interruption", 7_040, epoch=1, reason="asked to stop (SIGINT)"),
    ]
    folder = write_run(tmp_path / "run", events)
    (folder / "run.json").write_text(json.dumps({"started": "2023-11-15 00:09:55 +0000"}))  # 5 s before it resumed
    state, _, seconds = summary(folder)
    assert (state, seconds) == ("interrupted after epoch 1 of 2: asked to stop (SIGINT)", "1 min 25 s in 2 sessions")


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="give the -output"):
            command.run([str(folder), f"-output={tmp_path / 'new' / 'page.html'}"])
    with pytest.raises(UserError, match="give the -output"):
        command.run([str(tmp_path / "absent")])
    assert not [*tmp_path.iterdir()]


def test_a_run_that_has_recorded_nothing_leaves_the_page_of_the_one_before(tmp_path):
    folder = write_run(tmp_path / "run")
    write_last_page(folder, (folder / "metrics.jsonl").stat().st_mtime_ns)
    assert not (folder / "report.html").exists()
    write_last_page(folder, 0)
    assert (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_hides_no_failure_of_the_run(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "jinja2", None)  # it is not installed
    write_last_page(folder, 0)
    assert not (folder / "report.html").exists()
    assert "no report was written: ModuleNotFoundError: import of jinja2 " in (folder / "log.txt").read_text()


@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-3.2, 7.9), (1e-9, 3e-9), (0.0, 1234567.0), (5.0, 5.1)])
def test_ticks_are_even_and_reach_over_the_values(low, high):
    ticks = curves.ticks(low, high)
    steps = {round((b - a) / (high - low), 6) for a, b in zip(ticks, ticks[1:])}
    assert 3 <= len(ticks) <= 8 and len(steps) == 1
    assert ticks[0] <= low + 1e-12 and ticks[-1] >= high - 1e-12


def test_the_number_comes_first(tmp_path):
    best = timed("evaluation", 0, epoch=2, best="top-1", **{"top-1": 81.25, "top-1 count": 26, "loss": 0.5})
    folder = write_run(tmp_path / "run", [*training(4), best])
    write_run(tmp_path / "other")

    def read_result(folder):
        return make_page(folder).text.partition("Result\n")[2][:120].split()

    assert read_result(folder)[:4] == ["top-1", "81.25", "%", "loss"]
    interval = {"percent": 95, "top-1": [80.03, 82.5]}
    told = write_run(tmp_path / "told", [*training(4), {**best, "interval": interval}])
    assert read_result(told)[3:9] == ["95", "%", "interval:", "80.03", "to", "82.50"]
    damaged = write_run(tmp_path / "damaged", [*training(4), {**best, "interval": {"percent": 95, "top-1": [1, "x"]}}])
    assert read_result(damaged)[:3] == ["top-1", "81.25", "%"] and "interval:" not in read_result(damaged)
    several = re.sub(r"<[^>]+>", " ", render(read_runs([folder, tmp_path / "other"])).partition("</thead>")[2])
    assert several.split()[:5] == ["run", "top-1", "81.25", "%,", "epoch"]


def test_what_is_known_of_the_data_is_told(tmp_path):
    folder = write_run(tmp_path / "run")
    notes = ["skipped below pics: 1 .heic", "3 images of val are identical to images of train", HOSTILE]
    train = {"holds": "62 images: cat 30, dog 32", "classes": 2, "notes": notes[:2]}
    data = {"train": train, "val": {"holds": "20 images: cat 10, dog 10", "classes": 2, "notes": notes[1:]}}
    (folder / "run.json").write_text(json.dumps({"data": data}))
    (folder / "quarantine.tsv").write_text("path\treason\n" + "".join(f"{n}.png\ttruncated\n" for n in range(12)))
    told = make_page(folder).text.partition("Splits")[2].partition("Curves")[0]
    for line in ("62 images: cat 30, dog 32", "20 images: cat 10, dog 10", *notes[:2]):
        assert told.count(line) == 1
    assert "12 unreadable" in told and "9.png: truncated" in told and "10.png" not in told
    (folder / "run.json").write_text(json.dumps({"data": {"train": 3, "val": {"notes": 3}}}))
    assert "Splits" in make_page(folder).text


@pytest.mark.parametrize("classes", [19, 20])
def test_top_5_of_few_classes_is_not_shown(tmp_path, classes):
    values = {"top-1": 50.0, "top-5": 98.0, "top-5 count": 49}
    folder = write_run(tmp_path / "run", [*training(4), timed("evaluation", 0, loss=1.0, **values)])
    metrics = (folder / "metrics.jsonl").read_text().replace('"top-1": 80.0', '"top-1": 80.0, "top-5": 98.0')
    (folder / "metrics.jsonl").write_text(metrics)
    (folder / "run.json").write_text(json.dumps({"data": {"val": {"holds": "64", "classes": classes, "notes": []}}}))
    assert ("top-5" in make_page(folder).text) == (classes >= 20)


def test_paths_are_relative_and_nobodys_home_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/srv/people/eve")
    work = "/home/anna/work"
    events = [*training(4), timed("evaluation", 0, weights=f"{work}/output/run/checkpoints/best", loss=1.0)]
    config = f"SAVE: {work}/output/run\nDATA:\n  DATA_PATH: /data/anna/pics\nMODEL:\n  PRETRAINED: /Users/bob/w.pth\n"
    gallery = Gallery("Wrong", [(np.zeros((9, 9), np.uint8), "true: cat\n/data/anna/pics/cat/1.png")])
    folder = write_run(tmp_path / "run", events, config, [gallery])
    (folder / "load_report.json").write_text(json.dumps({"source": "/root/w.pth", "notices": ["/srv/people/eve/x"]}))
    command = f"/home/anna/.venv/bin/python {work}/train.py -output=output/run /mnt/home/annals/x"
    notes = {"train": {"holds": "9", "notes": [f"skipped below {work}/pics: 1"]}}
    (folder / "run.json").write_text(json.dumps({"command": command, "folder": work, "data": notes}))
    text = make_page(folder).text
    for private in ("/home/anna", "/Users", "/root", "/srv/people", "/data/anna/pics/"):
        assert private not in text.replace("/mnt/home/annals", "")
    shown = [
        "output/run/checkpoints/best",
        "cat/1.png",
        "~/w.pth",
        "~/x",
        "skipped below pics: 1",
        "/mnt/home/annals/x",
    ]
    assert [line for line in shown if line not in text] == []
    assert "~/.venv/bin/python train.py -output=output/run" in text and "1.png" in text.partition("true: cat")[2][:12]


def test_a_home_that_is_the_root_hides_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/")
    folder = write_run(tmp_path / "run")
    (folder / "load_report.json").write_text(json.dumps({"source": "/w.pth", "notices": ["3 / 4, /root/x"]}))
    assert "3 / 4, ~/x" in make_page(folder).text


def test_an_evaluation_that_shows_the_same_is_shown_once(tmp_path):
    folder = write_run(tmp_path / "run", figures=one_of_each())
    store.save(folder / store.EVALUATION, one_of_each(), {"of": "checkpoints/best"})
    page = make_page(folder)
    assert page.text.count("A gallery") == 1 and "shown once" in page.text
    store.save(folder / store.EVALUATION, one_of_each(("cat", "cow")), {"of": "checkpoints/best"})
    assert make_page(folder).text.count("A gallery") == 2


def test_a_comparison_in_the_folder_of_a_run_is_linked(tmp_path):
    one, two = (write_run(tmp_path / name) for name in ("a b", "\udcff"))  # the other's name is no UTF-8
    assert "compared.html" not in write_page([one, two], tmp_path / "page.html").read_text(encoding="utf-8")
    (one / "compared.html").write_text("<p>")
    assert '<a href="compared.html">a b/compared.html</a>' in write_page([one], one / "report.html").read_text(
        encoding="utf-8"
    )
    assert '<a href="a%20b/compared.html">a b/compared.html</a>' in write_page(
        [one, two], tmp_path / "page.html"
    ).read_text(encoding="utf-8")
    (two / "compared.html").write_text("<p>")
    assert 'href="%FF/compared.html"' in write_page([one, two], tmp_path / "page.html").read_text(encoding="utf-8")


def test_each_run_lists_its_settings_as_key_and_value_in_order(tmp_path):
    config = "TRAIN:\n  NUM_EPOCHS: 2\n  BASE_LR: 0.001\nMODEL:\n  NAME: vit\nAMP: false\n"
    runs = [write_run(tmp_path / "a", config=config), write_run(tmp_path / "b"), write_run(tmp_path / "c", config="")]
    content = write_page(runs, tmp_path / "page.html").read_text(encoding="utf-8")
    part = content.partition('id="configuration"')[2].partition("</section>")[0]
    tables = re.findall(r"<table.*?</table>", part, re.DOTALL)
    rows = [
        [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]
        for table in tables
    ]
    common = [["MODEL.NAME", "vit"], ["TRAIN.BASE_LR", "0.001"], ["TRAIN.NUM_EPOCHS", "2"]]
    assert rows == [[["key", "value"], ["AMP", "False"], *common], [["key", "value"], *common]]
    assert captions(Page(content), part) == ["config.yaml", "config.yaml"]


def test_curves_stand_in_the_order_of_their_kind_and_of_their_first_value(tmp_path):
    values = {"memory_mib": 1, "IoU wall": 1, "gradient_norm": 1, "AP50 chair": 1, "mIoU": 1, "learning_rate": 1}
    values |= {"IoU": 1, "mean error of all": 1, "loss": 1, "skipped_updates": 1}
    events = [
        event("training", epoch=1, update=update, **{name: update * one for name, one in values.items()})
        for update in (1, 2, 3)
    ]
    content = write_page([write_run(tmp_path / "run", events)], tmp_path / "page.html").read_text(encoding="utf-8")
    shown = captions(Page(content), content.partition('id="curves"')[2].partition("</section>")[0])
    assert shown == [
        *("Loss", "mIoU", "IoU", "IoU wall", "AP50 chair", "mean error of all", "Learning rate", "Gradient norm"),
        *("Memory (MiB)", "Updates skipped so far"),
    ]
