"""Tasks of docs/guides/extending.md on few images, with an export and groups.

It is copied into the folder of the guide's programs.
"""

from counting import Dots
from dot_files import CountingFiles
from paired import PairedCounting
from several_labels import Labeling

from paddlevit_dist import register_dataset, register_task
from paddlevit_dist.core.tasks import Exportable, ExportParts, TaskAspect

_SIZES = {"train": 40, "val": 13}


class FewDots(Dots):
    groups_by = {"tens": r"image (\d+)\d"}

    def __init__(self, split, max_dots):
        super().__init__(split, max_dots)
        self.split = split

    def __len__(self):
        return _SIZES[self.split]


class LabelExport(TaskAspect, Exportable):
    def export_parts(self):
        about = {"preprocessing": {"mode": "L", "resize": [32, 32], "divide_by": 255}}
        return ExportParts(1, about, size=(32, 32), output_names=("labels",), output_shape=(3,))


class ExportedLabels(Labeling):
    aspects = {"Exportable": LabelExport}


register_dataset("few_dots", FewDots)
register_task("few_counting_files", CountingFiles, tables=[])
register_task("few_paired_counting", PairedCounting, tables=[])
register_task("few_labels", ExportedLabels, tables=[])
