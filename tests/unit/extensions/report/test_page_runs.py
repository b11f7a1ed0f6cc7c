"""Several runs, and the seeds of a group, share the charts of a page."""

import json
import re

import pytest
from support.trainings.report_runs import training, write_run

from paddlevit_dist.extensions.report import command
from paddlevit_dist.extensions.report.page import write_page


def test_several_runs_are_overlaid_and_their_differences_listed(tmp_path):
    one = write_run(tmp_path / "one" / "run")
    two = write_run(tmp_path / "two" / "run", training(20, 2.0), "TRAIN:\n  NUM_EPOCHS: 2\n  BASE_LR: 0.002\n")
    content = write_page([one, two], tmp_path / "page.html").read_text(encoding="utf-8")
    lines = json.loads(re.search(r'class="data">(.*?)</script>', content)[1])["lines"]
    assert [line["name"] for line in lines] == [
        f"{n}/run {k}" for n in ("one", "two") for k in ("training", "evaluation")
    ]
    assert len({line["color"] for line in lines}) == 2
    differing = content[content.index('id="differences"') : content.index('id="configuration"')]
    rows = re.findall(r"<th scope=\"row\">(.*?)</th><td>(.*?)</td><td>(.*?)</td>", differing)
    assert rows == [("MODEL.NAME", "vit", "(not set)"), ("TRAIN.BASE_LR", "0.001", "0.002")]


def test_seeds_of_a_group_are_a_bundle_of_one_color_around_their_mean(tmp_path, capsys):
    for seed, scale in ((2, 1.0), (10, 2.0), (11, 6.0)):
        events = training(20, scale)
        events[-1] |= {"best": "top-1", "top-1": 80.0 + scale}
        write_run(tmp_path / "group" / f"seed_{seed}", events[: 8 if seed == 11 else None])
    alone = write_run(tmp_path / "alone")
    command.run([str(tmp_path / "group")])
    content = (tmp_path / "group" / "report.html").read_text(encoding="utf-8")
    assert "group/report.html, " in capsys.readouterr().out
    lines = json.loads(re.search(r'class="data">(.*?)</script>', content)[1])["lines"]
    bundle = [line for line in lines if line["style"] == "thin"]
    assert [line["name"].split()[0] for line in bundle if "training" in line["name"]] == [
        "seed_2",
        "seed_10",
        "seed_11",
    ]
    assert {line["color"] for line in lines} == {0}
    (mean,) = [line for line in lines if line["name"] == "group training, mean of 3"]
    assert mean["x"] == list(range(1, 21)) and mean["style"] == "line"
    assert mean["y"][:2] == pytest.approx([2 * 3.0, 2 * 3.0 / 2]) and mean["y"][-1] == pytest.approx(2 * 1.5 / 20)
    legend = re.search(r'class="legend">(.*?)</ul>', content)[1]
    assert legend.count("<li>") == 2 and "seed_" not in legend
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", content[content.index("Groups of seeds") :])
    assert cells[7:14] == ["group", "2", "top-1", "81.5", "0.7071", "81", "82"]
    content = write_page([tmp_path / "group", alone], tmp_path / "both.html").read_text(encoding="utf-8")
    lines = json.loads(re.search(r'class="data">(.*?)</script>', content)[1])["lines"]
    assert {line["color"]: line["style"] for line in lines if "alone" in line["name"]} == {1: "dots"}
