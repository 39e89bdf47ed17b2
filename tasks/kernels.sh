#!/bin/sh
# Run the stages that have compiled kernels once, on small graphs: NUMBA_CACHE_DIR then holds the kernels.
set -eu
work=$(mktemp -d)
stage() { python -m superworkflow stage "$@" > /dev/null; }
for weights in without with; do
    awk -v with="$weights" 'BEGIN {
        for (u = 0; u < 200; u++) for (k = 1; k < 9; k++) print "v" u ",v" (u + k * k) % 200 (with == "with" ? "," k : "") }' \
        > "$work/$weights.csv"
    graph=$work/$weights/index/00000000000000000000000000000000
    stage index --input edges="$work/$weights.csv" --output "$graph"
    for q in 1.0 2.0; do
        walks=$work/$weights-$q/walk/00000000000000000000000000000000
        stage walk --params-json "{\"q\": $q, \"num_walks\": 1}" --input graph="$graph" --output "$walks"
    done
    stage holdout --input graph="$graph" --output "$work/$weights/holdout/00000000000000000000000000000000"
done
vocabulary=$work/prepare/00000000000000000000000000000000
stage prepare --input graph="$graph" --input walks="$walks" --output "$vocabulary"
stage embed --params-json '{"dimensions": 16}' --input graph="$graph" --input walks="$walks" \
    --input vocabulary="$vocabulary" --output "$work/embed/00000000000000000000000000000000"
rm -rf "$work"
