# sh examples/cluster/two_nodes.sh, from the root of the repository: two launchers on one machine, as on two machines
port=$(python -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
node() {
    python -m paddle.distributed.launch --nnodes 2 --rank "$1" --nproc_per_node 1 --master "127.0.0.1:$port" \
        --log_dir "launch_$1" main_multi_gpu.py -cfg=configs/vit_digits.yaml -epochs=1 TRAIN.WARMUP_EPOCHS 0 -output=output/nodes
}
node 0 &
first=$!
node 1
second=$?
wait "$first" && exit "$second"
