#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=64
#SBATCH --time=24:00:00 --requeue --open-mode=append --signal=TERM@60
# Several machines under Slurm: each task is a launcher. For one machine see docs/guides/running.md.
# A run that was stopped or has lost a rank starts again; one that failed by itself does not.
output=/shared/run # in an array, a folder for each task: /shared/run/$SLURM_ARRAY_TASK_ID
export PADDLEVIT_DIST_SECRET_FILE=$HOME/.paddlevit_dist_secret
# SLURM_JOB_ID of an array's last task is the ID of the whole array.
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
export logs=launch/$job
mkdir -p "$logs"

# Prints the address of this machine as Slurm lists it, since its own name may mean 127.0.1.1.
find_address() {
    for name in $(scontrol show node "$1" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p') "$1"; do
        echo "$name"
        getent ahostsv4 "$name"
    done | cat - <(hostname -I | tr ' ' '\n') | awk '/^[0-9.]+( |$)/ && !/^127\./ { print $1; exit }'
}
export -f find_address
address=$(find_address "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)") # where this script runs
if [ -z "$address" ] && [ "${SLURM_NNODES:-1}" -gt 1 ]; then
    echo "error: this machine has no address that others reach: set its NodeAddr in slurm.conf" >&2
    exit 2
fi
export MASTER=${address:-127.0.0.1}:$((38700 + ${SLURM_JOB_ID:-0} % 1000))

# Ranks stop by themselves 300 s before the job's end: 30 s after a signal, their launcher would kill them.
end=$(date -d "$(squeue --noheader --jobs="$job" --format=%e 2>&1)" +%s 2> /dev/null)
left=$((${end:-0} - $(date +%s)))
export stop=$((left > 600 ? left - 300 : left > 0 ? left / 2 : 0))

before=$(cat "$output/metrics.jsonl" 2> /dev/null | wc -l)
touch "$logs/started"
srun bash -c 'host=$(find_address "$SLURMD_NODENAME")
    exec python -m paddle.distributed.launch --nnodes "$SLURM_NNODES" --rank "$SLURM_NODEID" --master "$MASTER" \
    ${host:+--host "$host"} --log_dir "$logs/$SLURM_NODEID" main_multi_gpu.py -cfg=run.yaml -output="$0" -resume=auto \
    $([ "$stop" -gt 0 ] && echo "-stop_after_seconds=$stop")' "$output"
status=$?
[ "$status" -eq 0 ] && exit

# What this start recorded last decides.
case $(tail -n +"$((before + 1))" "$output/metrics.jsonl" 2> /dev/null | tail -n 1) in
    *'"kind": "interruption"'*) ;;
    *'"kind": "failure"'*) exit "$status" ;;
    *) case $status in
        75 | 15) ;; # stopped before the first update; a launcher that was told to end
        134 | 137 | 143 | 241 | 247 | 250) ;; # a rank was killed, as srun (128 + signal) or the launcher (256 -) tell it
        *) exit "$status" ;;
    esac ;;
esac
# Restarts that bring no new checkpoint are counted.
fruitless=$(($(cat "$logs/restarts" 2> /dev/null || echo -1) + 1))
[ -n "$(find "$output/checkpoints" -mindepth 1 -newer "$logs/started" -print -quit 2> /dev/null)" ] && fruitless=0
if [ "$fruitless" -ge 3 ]; then
    echo "not requeued: 3 restarts have brought no new checkpoint; see the end of $output/log.txt and $logs" >&2
    rm -f "$logs/restarts"
    exit "$status"
fi
echo "$fruitless" > "$logs/restarts"
echo "requeued after exit code $status"
scontrol requeue "$job"
exit "$status"
