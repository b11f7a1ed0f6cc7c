"""``evaluate detections`` as a command, where Paddle cannot be imported."""

import json
import subprocess
import sys

from support.networks import coco_peer
from support.samples.drawn_detections import as_coco


def test_the_command_needs_no_paddle_and_ends_with_code_2(tmp_path):
    truth = as_coco(4)
    results = [
        {**{n: one[n] for n in ("image_id", "category_id", "bbox")}, "score": 0.9} for one in truth["annotations"]
    ]
    (tmp_path / "a.json").write_text(json.dumps(truth))
    (tmp_path / "r.json").write_text(json.dumps(results[::2]))
    (tmp_path / "u.json").write_text(json.dumps([dict(results[0], image_id=99)]))
    program = (
        "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails
        "from paddlevit_dist.__main__ import main; sys.exit(main(['evaluate', 'detections', *sys.argv[1:]]))"
    )

    def evaluate(*words):
        command = [sys.executable, "-c", program, str(tmp_path / "a.json"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    ended = evaluate(str(tmp_path / "r.json"))
    assert ended.returncode == 0 and ended.stderr.startswith("note: the interval is rough")
    theirs = coco_peer.evaluated(truth, results[::2])
    assert [line.split()[-1] for line in ended.stdout.splitlines()[1:13]] == [f"{v:0.3f}" for v in theirs.stats]
    assert "maxDets=100" in ended.stdout and "cat" in ended.stdout
    ended = evaluate(str(tmp_path / "u.json"), "-json")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
