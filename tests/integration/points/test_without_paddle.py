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


def test_scores_of_instances_are_computed_without_paddle():
    code = (
        "import sys; sys.modules['paddle'] = None; import numpy as np;"
        "from paddlevit_dist.core.tasks.score_kind import find_score_kind;"
        "arrays = {'statistics': np.ones((1, 3, 2)), 'losses': np.ones(1), 'instance_classes': np.array([1])};"
        "arrays |= {'rows': np.array([1]), 'class_numbers': np.zeros(1, int), 'thresholds': np.zeros(1, int)};"
        "arrays |= {'scores': np.ones(1), 'is_right': np.array([True]), 'missed': np.zeros((1, 1, 10), int)};"
        "arrays['num_true'] = np.ones((1, 1), int);"
        "values = find_score_kind('instances', ['wall', 'chair']).compute(arrays, np.ones((1, 1)));"
        "print(values['AP50 chair'][0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "1.0", done.stderr
