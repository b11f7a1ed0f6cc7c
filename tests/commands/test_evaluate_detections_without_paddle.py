"""``evaluate detections`` as a command, where Paddle cannot be imported."""

# suite: integration

import json
import subprocess
import sys

import pytest
from support import coco_peer

from paddlevit_dist.commands import evaluate_detections

ANNOTATIONS = {
    "images": [{"id": 7, "width": 100, "height": 80}, {"id": 3, "width": 60, "height": 90}],
    "categories": [{"id": 5, "name": "cup"}, {"id": 2, "name": "hat"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 10, 40, 40], "area": 1600, "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 2, "bbox": [50, 20, 20, 30], "area": 600, "iscrowd": 0},
        {"id": 3, "image_id": 3, "category_id": 5, "bbox": [5, 5, 50, 80], "area": 4000, "iscrowd": 1},
    ],
}
RESULTS = [
    {"image_id": 7, "category_id": 5, "bbox": [12, 11, 40, 41], "score": 0.9},
    {"image_id": 3, "category_id": 5, "bbox": [5, 5, 20, 20], "score": 0.8},
    {"image_id": 7, "category_id": 2, "bbox": [50, 25, 22, 30], "score": 0.3},
    {"image_id": 7, "category_id": 2, "bbox": [5, 25, 22, 30], "score": 0.7},
]


@pytest.fixture
def evaluate(tmp_path, capsys):
    """Evaluates files of these contents, or texts; what stands on stdout as JSON, and stderr."""

    def run(annotations, results, *options):
        for name, content in (("annotations.json", annotations), ("results.json", results)):
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text, encoding="utf-8")
        words = [str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-json", *options]
        evaluate_detections.run(words)
        captured = capsys.readouterr()
        assert captured.out.count("\n") == 1
        return json.loads(captured.out), captured.err

    return run


def test_the_command_needs_no_paddle_and_ends_with_code_2(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ANNOTATIONS))
    (tmp_path / "r.json").write_text(json.dumps(RESULTS))
    (tmp_path / "u.json").write_text(json.dumps([dict(RESULTS[0], image_id=1)]))
    program = (
        "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails
        "from paddlevit_dist.__main__ import main; sys.exit(main(['evaluate', 'detections', *sys.argv[1:]]))"
    )

    def evaluate(*words):
        command = [sys.executable, "-c", program, str(tmp_path / "a.json"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    ended = evaluate(str(tmp_path / "r.json"))
    assert ended.returncode == 0 and ended.stderr.startswith("note: the interval is rough")
    theirs = coco_peer.evaluated(ANNOTATIONS, RESULTS)
    assert [line.split()[-1] for line in ended.stdout.splitlines()[1:13]] == [f"{v:0.3f}" for v in theirs.stats]
    assert "maxDets=100" in ended.stdout and "cup" in ended.stdout
    ended = evaluate(str(tmp_path / "u.json"), "-json")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
