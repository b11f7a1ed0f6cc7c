"""Samples that must not be computed with are named where they are read, in training and in evaluation."""

from support.trainings.small_runs import Part


class Changed(Part):
    """Samples of which number 5 is changed on its way."""

    def __init__(self, samples, size, change):
        super().__init__(samples, size)
        self.change = change

    def sample(self, index, generator):
        sample = super().sample(index, generator)
        return self.change(sample) if index == 5 else sample
