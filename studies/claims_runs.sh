#!/usr/bin/env bash
# Trains what results/claims.md has no result for yet, unit by unit, and writes the page anew after each.
# A unit whose folder is there is skipped; one that was interrupted goes on where it stopped.
#
#   bash studies/claims_runs.sh           # all of them, some two hours on two cores
#   bash studies/claims_runs.sh layers    # those whose name begins so
#
# PYTHON names the interpreter, TRY=1 makes every unit tiny and keeps it in runs/claims-try.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} wanted=${1:-}
runs=runs/claims results=results/claims tiny=()
if [[ ${TRY:-} == 1 ]]; then
  runs=runs/claims-try results=runs/claims-try/results
  tiny=(examples=60 test_examples=12 width=16 heads=2 layers=2 feed_forward=32 batch_tokens=512)
fi
export PYTHONPATH="examples${PYTHONPATH:+:$PYTHONPATH}" # where --import finds the encodings, by name: results keep no path

unit() { # NAME, then what stands behind `ropewalk compare`
  local name=$1
  shift
  if [[ $name != "$wanted"* || -e $results/$name/results.json ]]; then return; fi
  echo "== $name"
  local words=() word
  for word in "$@"; do
    if [[ ${TRY:-} == 1 && " ${tiny[*]}" == *" ${word%%=*}="* ]]; then continue; fi # a field is given once
    if [[ ${TRY:-} == 1 && $word == 1,2,3 ]]; then word=1; fi
    words+=("$word")
  done
  "$python" -m ropewalk.cli compare "${words[@]}" --out "$runs/$name" "${tiny[@]}"
  "$python" -m ropewalk.lab.report.publish "$runs/$name" "$results/$name"
  page
}

page() { if [[ ${TRY:-} != 1 ]]; then "$python" studies/claims.py; fi; }

causal=(--task causal-lm --seeds 1,2,3 examples=2000)
masked=(--task masked-lm --seeds 1,2,3 examples=5000)
outside=(--import claims_encodings)

# Positions at every layer, or at one.
unit layers-causal "${causal[@]}" "${outside[@]}" --against none --encodings "rotary,rotary_only,rotary_only(layer=last),none" length_multiples=1
unit layers-masked "${masked[@]}" "${outside[@]}" --encodings "rotary,rotary_only,rotary_only(layer=last)"

# Many frequencies, or one for all pairs.
unit frequencies-causal "${causal[@]}" --encodings "rotary,rotary(frequency=1.0),rotary(frequency=0.3),rotary(frequency=0.1),rotary(frequency=0.03),rotary(frequency=0.01)" length_multiples=1,8
unit frequencies-masked "${masked[@]}" --encodings "rotary,rotary(frequency=1.0),rotary(frequency=0.1),rotary(frequency=0.01)"

# Distances clipped near and far, on text and where a distance has to be told exactly.
unit clip-causal "${causal[@]}" "${outside[@]}" --encodings "shaw(distance=64),shaw(distance=16),shaw(distance=4),rotary,rotary_clipped(distance=16),rotary_clipped(distance=4)" --against rotary length_multiples=1
unit clip-copy --task copy --preset quick --seeds 1,2,3 "${outside[@]}" --encodings "shaw(distance=64),shaw(distance=16),shaw(distance=4),rotary,rotary_clipped(distance=4)" --against rotary length_multiples=1

# Values that rotate as well, and back with the output or not.
unit values-causal "${causal[@]}" --encodings "rotary,rotary(values=True),rotary(values=absolute)" length_multiples=1,8
unit values-masked "${masked[@]}" --encodings "rotary,rotary(values=True),rotary(values=absolute)"

# A quarter of the parameters, and four times as many.
unit sizes-small --task causal-lm --seeds 1,2,3 examples=2000 --encodings sinusoidal,rotary width=64 heads=4 layers=2 feed_forward=256 length_multiples=1
unit sizes-large --task causal-lm --seeds 1,2,3 examples=1000 --encodings sinusoidal,rotary width=256 heads=8 layers=4 feed_forward=1024 learning_rate=2e-3 length_multiples=1

# What positions that are added leave of a token: models of the unit above, looked into.
if [[ token-left == "$wanted"* && ! -e $results/token-left/results.json && -e $runs/sizes-large/results.json ]]; then
  echo "== token-left"
  "$python" studies/token_left.py "$runs/sizes-large" --out "$results/token-left"
  page
fi

# Integers as positions, with the norms of this lab and of the first transformer.
if [[ integer-positions == "$wanted"* && ! -e $results/integer-positions/results.json ]]; then
  echo "== integer-positions"
  if [[ ${TRY:-} == 1 ]]; then
    "$python" studies/integer_positions.py "$runs/integer-positions" "${tiny[@]}" seeds=1 --out "$results/integer-positions"
  else
    "$python" studies/integer_positions.py "$runs/integer-positions"
  fi
  page
fi
