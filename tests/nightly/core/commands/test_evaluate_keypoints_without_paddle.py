"""``evaluate keypoints`` as a command, where Paddle cannot be imported."""

import json
import subprocess
import sys

from support.networks import golden, keypoint_peer


def test_the_command_needs_no_paddle_and_ends_with_code_2(tmp_path):
    truth, results = golden.program("recipe_keypoints.py").keypoint_case(3, 30, 5)
    (tmp_path / "a.json").write_text(json.dumps(truth))
    (tmp_path / "r.json").write_text(json.dumps(results))
    (tmp_path / "u.json").write_text(json.dumps([dict(results[0], image_id=1)]))
    program = (
        "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails
        "from paddlevit_dist.__main__ import main; sys.exit(main(['evaluate', 'keypoints', *sys.argv[1:]]))"
    )

    def evaluate(*words):
        command = [sys.executable, "-c", program, str(tmp_path / "a.json"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    ended = evaluate(str(tmp_path / "r.json"), "-sigmas=0.1")
    assert ended.returncode == 0, ended.stderr
    theirs = keypoint_peer.evaluated(truth, results, [0.1] * 5)
    assert [line.split()[-1] for line in ended.stdout.splitlines()[1:11]] == [f"{v:0.3f}" for v in theirs.stats]
    assert "maxDets= 20" in ended.stdout and "p4" in ended.stdout and "[0." in ended.stdout
    ended = evaluate(str(tmp_path / "u.json"), "-json")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
