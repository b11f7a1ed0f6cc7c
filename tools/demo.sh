#!/bin/sh
# Train a small ViT on handwritten digits on all devices, evaluate what was saved, and compare the two numbers.
# Arguments go to the training: make demo DEMO_FLAGS=-epochs=1
set -eu
cd -- "$(dirname -- "$0")/.."
output=./output/demo
rm -rf "$output"

echo "== training: ./run_train_multi.sh"
./run_train_multi.sh -cfg=./configs/vit_digits.yaml -output="$output" "$@"
echo
echo "== evaluation of the saved checkpoint: ./run_eval_multi.sh"
said=$(./run_eval_multi.sh -cfg=./configs/vit_digits.yaml -output="$output" -pretrained="$output/checkpoints/last")
printf '%s\n' "$said"
evaluated=$(printf '%s\n' "$said" | tail -n 1)
trained=$(grep ' top-1 ' "$output/log.txt" | grep 'evaluation: ' | tail -n 1)
trained=${trained#*evaluation: }
trained=${trained%% (best)}

echo
if [ "$trained" != "$evaluated" ]; then
    echo "error: the evaluation after training said '$trained', the evaluation of the checkpoint '$evaluated'" >&2
    exit 1
fi
cat <<END
== done: the checkpoint gives exactly what training ended with: $evaluated
log          $output/log.txt
metrics      $output/metrics.jsonl
checkpoint   $output/checkpoints/last/model.pdparams
run record   $output/run.json

Next, on your own pictures (folders my_data/train/<class>/*.jpg and my_data/val/<class>/*.jpg):
  ./run_train_multi.sh -cfg=./configs/vit_tiny_patch16_224.yaml -data_path=my_data -batch_size=32 -output=./output/mine
END
