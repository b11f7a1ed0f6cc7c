"""Evaluation throughput against timm on torch and against PaddleViT's own models, on the same fixed tensors.

    python benchmarks/eval_throughput.py --peer-python PYTHON [--paddlevit FOLDER] [--models NAME ...]
        [--modes 1x1 1x2 2x1] [--rounds 7]

PYTHON is an interpreter with torch and timm, FOLDER a checkout of PaddleViT; what is not given is left out. A mode is
processes x threads. Each contender is a group of processes that stay for all rounds and evaluate a batch when
asked; ``throughput.py`` has their loops. 'ours' has the environment that ``restart_with_environment`` sets, timm only
the number of threads, since the switches are Paddle's. PaddleViT is there with our environment and as shipped.
"""

import throughput

if __name__ == "__main__":
    throughput.compare("eval")
