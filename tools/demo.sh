#!/bin/sh
# Train a small ViT on handwritten digits on all devices, evaluate the saved checkpoint, and compare the two scores.
# Arguments are passed to the training: make demo DEMO_FLAGS=-epochs=1
set -eu
cd -- "$(dirname -- "$0")/.."
output=./output/demo
rm -rf "$output"

trap '' PIPE # the reader may stop early
say() { printf '%s\n' "$@" 2>/dev/null || :; }

say "== training: ./run_train_multi.sh"
./run_train_multi.sh -cfg=./configs/vit_digits.yaml -output="$output" "$@"
say "" "== evaluation of the saved checkpoint: ./run_eval_multi.sh"
said=$(./run_eval_multi.sh -cfg=./configs/vit_digits.yaml -output="$output" -pretrained="$output/checkpoints/last")
say "$said" ""
evaluated=$(printf '%s\n' "$said" | tail -n 1)
trained=$(grep ' top-1 ' "$output/log.txt" | grep 'evaluation: ' | tail -n 1)
trained=${trained#*evaluation: }
trained=${trained% (best*)}

if [ "$trained" != "$evaluated" ]; then
    say "error: the evaluation after training said '$trained', the evaluation of the checkpoint '$evaluated'" >&2
    exit 1
fi
say "== done: the checkpoint gives exactly what training ended with: $evaluated" \
    "log          $output/log.txt" \
    "metrics      $output/metrics.jsonl" \
    "checkpoint   $output/checkpoints/last/model.pdparams" \
    "run record   $output/run.json" \
    "" \
    "Next, on your own images (folders my_data/train/<class>/*.jpg and my_data/val/<class>/*.jpg):" \
    "  ./run_train_multi.sh -cfg=./configs/finetune_folder.yaml -data_path=my_data -output=./output/mine"
