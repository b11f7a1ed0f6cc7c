#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=64
#SBATCH --time=24:00:00 --requeue --signal=TERM@300
# Several machines under Slurm: each task is a launcher. Not run by this project. The launcher hides the run's exit
# code, so the last record says whether the run was interrupted. For one machine see docs/guides/running.md.
export PADDLEVIT_DIST_SECRET_FILE=$HOME/.paddlevit_dist_secret
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER=$(getent ahostsv4 "$first" | awk 'NR == 1 { print $1 }'):38700
srun bash -c 'exec python -m paddle.distributed.launch --nnodes "$SLURM_NNODES" --rank "$SLURM_NODEID" \
    --master "$MASTER" --log_dir "launch/$SLURM_NODEID" main_multi_gpu.py -cfg=run.yaml -output=/shared/run -resume=auto'
status=$?
if tail -n 1 /shared/run/metrics.jsonl | grep -q interruption; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
