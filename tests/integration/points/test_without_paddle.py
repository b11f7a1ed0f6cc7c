"""What loader processes need of scenes comes without Paddle."""

import subprocess
import sys


def test_plans_are_built_without_paddle():
    program = (
        "import sys, numpy; from paddlevit_dist.points.sparse.coordinate_plan import build_plan; "
        "from paddlevit_dist.points.sparse.coordinate_plan import MapKey, PlanSpec; "
        "build_plan(numpy.array([[0, 1, 2, 3]]), PlanSpec((MapKey(1, 1, 3),))); print('paddle' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "False", done.stderr


def test_the_room_imports_without_paddle():
    code = (
        "import sys, paddlevit_dist.points as points; points.sparse_quantize; points.sparse_collate;"
        "sys.exit('paddle' in sys.modules or 'SparseTensor' not in dir(points))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=600, check=False).returncode == 0
