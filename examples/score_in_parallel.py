"""Score predictions in several processes, with the same intervals: python examples/score_in_parallel.py [PROCESSES].

A padding sampler counts images twice, and a mean of the processes' means weights them wrongly. EvaluationSampler reads
each image once, and concat_rank_tables puts the tables of all processes in the order of the images.
"""

import sys

import numpy as np
from paddlevit_dist import EvaluationSampler, all_gather, launch_workers, open_dataset, plan_processes, rank, world_size
from paddlevit_dist.core.intervals import ClassificationCounts, bootstrap, concat_rank_tables


def read(split):
    """The pixels of the embedded digits, (images, 64), and their classes."""
    samples = list(open_dataset("vit_digits", split).dataset)
    return np.array([np.ravel(image) for image, _ in samples], float), np.array([label for _, label in samples])


def evaluate(images, labels, prototypes):
    """Run in each process; any network can compute the scores."""
    indices, ranks_of_truth = [], []
    for batch in EvaluationSampler(labels, 50, rank=rank(), world_size=world_size()):
        numbers = [int(index) for index in batch]
        scores = -np.square(images[numbers, None] - prototypes).sum(axis=2)  # (batch, classes)
        true = scores[np.arange(len(numbers)), labels[numbers]]
        indices += numbers
        ranks_of_truth += (scores > true[:, None]).sum(axis=1).tolist()  # number of classes with a higher score
    table = [np.array(indices), np.array(ranks_of_truth)]
    order, ranks_of_truth = concat_rank_tables(all_gather((indices, table)))
    results = bootstrap(ClassificationCounts(labels[order], ranks_of_truth, 10, top=(1, 3)), len(order))
    if rank() == 0:
        for name in ("top-1", "top-3", "balanced accuracy", "recall 8"):
            print(f"{name} {results[name].value:.2f} {results[name].ends(1)} of {len(order)}", flush=True)


if __name__ == "__main__":
    (train_images, train_labels), (images, labels) = read("train"), read("val")
    means = np.stack([train_images[train_labels == digit].mean(axis=0) for digit in range(10)])
    launch_workers(evaluate, (images, labels, means), plan_processes(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
