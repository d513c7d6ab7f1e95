#!/usr/bin/env bash
# The reference experiment at ten times the size, on one GPU in about ten minutes: 6 layers, width 384, windows of 1,024
# tokens, tested to 8,192. Two seeds, so it says whether the ranking survives, and tests little. Then the model of The
# Annotated Transformer with rotary and sinusoidal positions, if the folder multi30k is there.
#
#   OUT=folder bash studies/reference_gpu.sh          # from the repository's root, which has the folder manuals
#   TRY=1 OUT=folder bash studies/reference_gpu.sh    # a few steps of tiny models on the CPU
#
# Runs and results go to $OUT (default: gpu-results/reference). An interrupted call resumes. PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} out=${OUT:-gpu-results/reference}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
length=1024
size=(layers=6 width=384 heads=6 feed_forward=1536 batch_tokens=65536 vocabulary=4000 learning_rate=1e-3 epochs=4 device=cuda)
translation=(device=cuda)
if [[ ${TRY:-} == 1 ]]; then
  length=64
  size=(layers=2 width=32 heads=2 feed_forward=64 batch_tokens=2048 vocabulary=500 epochs=0.002)
  translation=(width=16 heads=2 encoder_layers=1 decoder_layers=1 feed_forward=32 epochs=0.02 beam=1)
fi

for encoding in rotary none rotary_skipping alibi; do
  run=$out/models/$encoding
  if [[ -e $run/results.json ]]; then continue; fi
  "$python" -m ropewalk.cli compare --task causal-lm --data manuals --import examples/claims_encodings.py --encodings "$encoding" \
    --seeds 1,2 --out "$run" train_length=$length length_multiples=1 test_examples=50 "${size[@]}"
done
"$python" studies/reference.py score "$out"/models/* --texts manuals --out "$out"
for run in "$out"/models/*; do "$python" studies/reference.py keep costs "$run" --out "$out"; done
"$python" studies/reference.py judge --script studies/reference_gpu.sh --out "$out"

if [[ -e multi30k && ! -e $out/annotated/results.json ]]; then
  "$python" -m ropewalk.cli compare --preset annotated --data ./multi30k --encodings sinusoidal,rotary --seeds 1,2,3 --out "$out/annotated" "${translation[@]}"
fi
