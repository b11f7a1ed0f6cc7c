#!/bin/sh
# Evaluate on every visible GPU, or on 2 CPU processes. Arguments go to main_multi_gpu.py (default: the digits example).
#   CUDA_VISIBLE_DEVICES=0,1,2,3 ./run_eval_multi.sh -cfg=./configs/vit_base_patch16_224.yaml \
#       -dataset=imagenet2012 -batch_size=128 -data_path=/dataset/imagenet -pretrained=./vit_base_patch16_224
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
[ $# -gt 0 ] || set -- -cfg="$here/configs/vit_digits.yaml" -output=./output/digits -pretrained=./output/digits
set -- -eval "$@"
. "$here/tools/start.sh"
