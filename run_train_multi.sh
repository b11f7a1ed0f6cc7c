#!/bin/sh
# Train on every visible GPU, or on 2 CPU processes. Arguments go to main_multi_gpu.py (default: the digits example).
#   CUDA_VISIBLE_DEVICES=0,1,2,3 ./run_train_multi.sh -cfg=./configs/vit_base_patch16_224.yaml \
#       -dataset=imagenet2012 -batch_size=128 -data_path=/dataset/imagenet -amp
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
[ $# -gt 0 ] || set -- -cfg="$here/configs/vit_digits.yaml" -output=./output/digits
. "$here/tools/start.sh"
