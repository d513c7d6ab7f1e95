#!/usr/bin/env bash
# Trains everything that results/ publishes: the units that have no result there yet, and publishes each when it ends.
# A unit with a result is skipped; an interrupted unit resumes where it stopped.
#
#   bash studies/runs.sh                # all units, about 50 hours on two cores
#   bash studies/runs.sh claims/layers  # units whose name begins with claims/layers
#
# PYTHON names the interpreter. COMMIT=1 commits each result. TRY=1 makes every unit tiny and stores it in runs/try.
# MULTI30K is a folder with the corpus; without it, it is downloaded. AGAIN=1, together with a name, makes existing results again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} wanted=${1:-} multi30k=${MULTI30K:-multi30k}
runs=runs results=results tiny=()
if [[ ${TRY:-} == 1 ]]; then
  runs=runs/try results=runs/try/results
  tiny=(examples=60 test_examples=12 width=16 heads=2 layers=2 feed_forward=32 batch_tokens=512)
fi

compare() { # RUN, then the arguments of `ropewalk compare`
  local run=$1 words=() word more=("${tiny[@]}")
  shift
  for word in "$@"; do
    if [[ ${TRY:-} == 1 && " ${tiny[*]}" == *" ${word%%=*}="* ]]; then continue; fi # a field may be set only once
    if [[ ${TRY:-} == 1 && $word == 1,2,3 ]]; then word=1,2; fi
    if [[ ${TRY:-} == 1 && $word == epochs=* ]]; then word=epochs=0.001; fi # of a folder, whatever its examples
    words+=("$word")
  done
  if [[ ${TRY:-} == 1 && $* != *--task* ]]; then
    more=(width=16 heads=2 encoder_layers=1 decoder_layers=1 feed_forward=32 epochs=0.05 beam=1)
  fi
  "$python" -m ropewalk.cli compare "${words[@]}" --out "$run" "${more[@]}"
}

ended() { # NAME: a result has been published
  if [[ ${TRY:-} == 1 ]]; then return; fi
  "$python" studies/claims.py
  if [[ ${COMMIT:-} == 1 ]]; then git add results && git commit -qm "Add the result of ${1//\// of }"; fi
}

there() { [[ -e $1 && ! (${AGAIN:-} == 1 && -n $wanted) ]]; } # FILE of a result: it exists and need not be made again

holds() { there "$1" && grep -qF "\"slug\": \"$2\"" "$1"; } # FILE of a result, and an encoding's folder name

unit() { # NAME, a folder in results, then the arguments of `ropewalk compare`
  local name=$1
  shift
  if [[ $name != "$wanted"* ]] || there "$results/$name/results.json"; then return; fi
  echo "== $name"
  compare "$runs/$name" "$@"
  "$python" studies/publish.py "$runs/$name" "$results/$name"
  ended "$name"
}

part() { # NAME and the folder name of one encoding to add to it, then as above
  local name=$1 slug=$2
  shift 2
  if [[ $name/$slug != "$wanted"* ]] || holds "$results/$name/results.json" "$slug"; then return; fi
  echo "== $name, $slug"
  compare "$runs/$name/$slug" "$@"
  "$python" studies/publish.py "$runs/$name/$slug" "$results/$name" --add
  ended "$name/$slug"
}

more_seeds() { # NAME of a published result, the seeds to add, then the arguments of `ropewalk compare`
  local name=$1 seeds=$2
  shift 2
  if [[ $name/more-seeds != "$wanted"* ]] || grep -qF "\"seed\": ${seeds##*,}," "$results/$name/results.json"; then return; fi
  echo "== $name, seeds $seeds"
  compare "$runs/$name-$seeds" "$@" --seeds "$seeds"
  "$python" studies/publish.py "$runs/$name-$seeds" "$results/$name" --add
  ended "$name/seeds-$seeds"
}

study() { # NAME, the run whose models it reads, then the arguments of `python`
  local name=$1 run=$2
  shift 2
  if [[ $name != "$wanted"* || ! -e $run/results.json ]] || there "$results/$name/results.json"; then return; fi
  echo "== $name"
  "$python" "$@" --out "$results/$name"
  ended "$name"
}

seeds=(--seeds 1,2,3,4,5 test_examples=500)
causal=(--task causal-lm "${seeds[@]}" examples=2000)
masked=(--task masked-lm "${seeds[@]}" examples=5000)
outside=(--import examples/claims_encodings.py)

# Rotary against sinusoids with a quarter of the parameters, and with four times as many.
unit claims/sizes-small "${causal[@]}" --encodings sinusoidal,rotary width=64 heads=4 layers=2 feed_forward=256 length_multiples=1
unit claims/sizes-large --task causal-lm "${seeds[@]}" examples=1000 --encodings sinusoidal,rotary width=256 heads=8 layers=4 feed_forward=1024 learning_rate=2e-3 length_multiples=1

# How much added positions leave of a token, in the models of the unit above.
study claims/token-left "$runs/claims/sizes-large" studies/token_left.py "$runs/claims/sizes-large"

# Distances clipped at small and large values, on a task that needs exact distances and on text.
unit claims/clip-copy --task copy --preset quick "${seeds[@]}" "${outside[@]}" --encodings "shaw(distance=64),shaw(distance=16),shaw(distance=4),rotary,rotary_clipped(distance=4)" --against rotary length_multiples=1
unit claims/clip-causal "${causal[@]}" "${outside[@]}" --encodings "shaw(distance=64),shaw(distance=16),shaw(distance=4),rotary,rotary_clipped(distance=16),rotary_clipped(distance=4)" --against rotary length_multiples=1

# Positions in every layer, or in one.
unit claims/layers-causal "${causal[@]}" "${outside[@]}" --against none --encodings "rotary,rotary_only,rotary_only(layer=last),none" length_multiples=1
unit claims/layers-masked "${masked[@]}" "${outside[@]}" --encodings "rotary,rotary_only,rotary_only(layer=last)"

# Values that also rotate, with the output rotated back or not.
unit claims/values-causal "${causal[@]}" --encodings "rotary,rotary(values=True),rotary(values=absolute)" length_multiples=1,8
unit claims/values-masked "${masked[@]}" --encodings "rotary,rotary(values=True),rotary(values=absolute)"

# Many frequencies, or one frequency for all pairs.
unit claims/frequencies-causal "${causal[@]}" --encodings "rotary,rotary(frequency=1.0),rotary(frequency=0.3),rotary(frequency=0.1),rotary(frequency=0.03),rotary(frequency=0.01)" length_multiples=1,8
unit claims/frequencies-masked "${masked[@]}" --encodings "rotary,rotary(frequency=1.0),rotary(frequency=0.1),rotary(frequency=0.01)"

# How far apart trained vectors of positions are, in windows of 512 tokens of which all are trained.
if [[ claims/learned-distances == "$wanted"* ]] && ! there "$results/claims/learned-distances/results.json"; then
  echo "== claims/learned-distances"
  compare "$runs/claims/learned" --task causal-lm --encodings learned --seeds 1,2,3,4,5 examples=300 train_length=512 length_multiples=1
fi
study claims/learned-distances "$runs/claims/learned" studies/learned_distances.py "$runs/claims/learned"

# Integers as positions, with the norms of this lab and of the original transformer.
name=claims/integer-positions
if [[ $name == "$wanted"* ]] && ! there "$results/$name/results.json"; then
  echo "== $name"
  if [[ ${TRY:-} == 1 ]]; then
    "$python" studies/integer_positions.py "$runs/$name" "${tiny[@]}" seeds=1 --out "$results/$name"
  else
    "$python" studies/integer_positions.py "$runs/$name"
  fi
  ended "$name"
fi

# Every encoding on stories, also beyond the trained length; rules of rotary without training; the parts of a rope.
every='sinusoidal,none,integer,binary,learned,rotary,rotary(rule=proportional,fraction=0.75),rotary(frequency=0.1),rotary(values=True),xpos,alibi,t5,kerple,fire(length=64),tupe,shaw,transformer_xl,deberta(distance=64),cope'
unit causal-lm --task causal-lm --encodings "$every" --seeds 1,2,3 examples=1000
more_seeds causal-lm 4,5 --task causal-lm --encodings "$every,t5(distance=64)" examples=1000
# With its default distance of 128, the last 5 of T5's 32 buckets are never trained in windows of 64 tokens.
part causal-lm t5-distance-64 --task causal-lm --encodings "t5(distance=64)" --seeds 1,2,3 examples=1000
study extrapolation "$runs/causal-lm" studies/extrapolation.py "$runs/causal-lm"
study frequency-usage "$runs/causal-lm" studies/frequency_usage.py "$runs/causal-lm"
if [[ rotary-parts == "$wanted"* && -e $runs/causal-lm/results.json ]] && ! there "$results/rotary-parts/results.json"; then
  compare "$runs/gradients" --task causal-lm --encodings "sinusoidal,integer,integer(length=512),rotary" --seeds 1,2,3 examples=300 length_multiples=1
fi
study rotary-parts "$runs/gradients" studies/rotary_parts.py "$runs/causal-lm" "$runs/gradients"

# Generated tasks. Three seeds show little there: seeds solve a task or do not.
for task in passkey copy addition reverse sort recall count; do
  unit generated/$task --task $task --preset quick --encodings "$every" --seeds 1,2,3
  more_seeds generated/$task 4,5 --task $task --preset quick --encodings "$every"
done

# Masked tokens, each encoding with its own learning rate.
unit masked-lm --task masked-lm --encodings sinusoidal,rotary,none,learned "${seeds[@]}" --sweep learning_rate=1.5e-3,3e-3,6e-3 examples=10000

# Linear attention, with rotation after and before the feature map.
linear=(--task causal-lm "${seeds[@]}" examples=4000 length_multiples=1)
unit performer "${linear[@]}" --attention performer --encodings sinusoidal,rotary,none
unit performer-before "${linear[@]}" --attention "performer(rotate=before)" --encodings sinusoidal,sinusoidal+rotary,rotary

# A head of a recall model, split by rotary pair.
if [[ heads == "$wanted"* ]] && ! there "$results/heads/results.json"; then
  compare "$runs/recall" --task recall --preset quick --encodings rotary --seeds 1
  study heads "$runs/recall" studies/heads.py "$runs/recall"
fi

# Translation of built-in phrases, as `ropewalk compare` alone trains it.
unit default

# Bases of the rope, and shares of its frequencies, on real text and contexts of 512 tokens.
text=(--task causal-lm --seeds 1,2,3 --data debian-texts train_length=512 length_multiples=1 test_examples=500 vocabulary=4000 batch_tokens=4096 epochs=0.3 layers=4)
if [[ theta == "${wanted%%/*}" || -z $wanted ]] && [[ ! -e debian-texts ]]; then "$python" studies/fetch_text.py debian-texts; fi
while read -r slug encoding; do
  part theta "$slug" "${text[@]}" --encodings "$encoding"
done <<'ENCODINGS'
rotary rotary
none none
rotary-theta-1e2 rotary(theta=1e2)
rotary-theta-1e3 rotary(theta=1e3)
rotary-theta-1e5 rotary(theta=1e5)
rotary-theta-1e6 rotary(theta=1e6)
rotary-rule-proportional-fraction-0.25 rotary(rule=proportional,fraction=0.25)
rotary-rule-proportional-fraction-0.5 rotary(rule=proportional,fraction=0.5)
rotary-rule-proportional-fraction-0.75 rotary(rule=proportional,fraction=0.75)
ENCODINGS

# The reference experiment, by results/reference/design.md: learning rates on seed 100, then the models. What is found is kept
# in results/reference after every few models, so that another machine, which has no runs, can go on.
reference=$results/reference
float32=precision=float32 # where nothing is said, a CPU with products of bfloat16 trains with them
manuals=(--task causal-lm --data manuals "${outside[@]}" $float32 length_multiples=1 test_examples=50 vocabulary=2000 batch_tokens=4096 layers=4)

kept() { # rates, costs or passkey, the encodings, a learning rate to try or "", then the arguments of `ropewalk compare`
  local what=$1 encodings=$2 rate=$3 run
  run=$runs/reference/$what$rate-${encodings%%,*}
  shift 3
  if [[ reference/$what != "$wanted"* ]] ||
    [[ -n $("$python" studies/reference.py kept "$what" "${encodings##*,}" ${rate:+"$rate"} --out "$reference") ]]; then return; fi
  echo "== reference/$what $rate"
  compare "$run" --encodings "$encodings" "$@" ${rate:+learning_rate="$rate"}
  "$python" studies/reference.py keep "$what" "$run" --out "$reference"
  ended "reference/$what $rate"
}

rate_of() { "$python" studies/reference.py rate "$1" --out "$reference"; } # NAME: its learning rate with the least loss

lacks() { # NAME SEEDS [FOLDER]: some of these models have no losses yet
  [[ -n $("$python" studies/reference.py lacks "$1" "$2" --out "${3:-$reference}") ]]
}

models() { # NAME in the results, SEEDS, encoding, then the arguments of `ropewalk compare`
  local name=$1 seeds=$2 encoding=$3 run
  run=$runs/reference/models/${name//[^a-z0-9=._()]/-}-$seeds
  shift 3
  if [[ reference/models/$name != "$wanted"* ]]; then return; fi
  if lacks "$name" "$seeds" || { [[ $name == rotary ]] && lacks "Llama3, trained further" "$seeds" "$reference/rules"; }; then
    echo "== reference/models/$name, seeds $seeds"
    compare "$run" --encodings "$encoding" --seeds "$seeds" epochs=0.91 learning_rate="$(rate_of "$name")" "$@"
    "$python" studies/reference.py score "$run" --texts manuals --out "$reference"
    if [[ $name == rotary ]]; then "$python" studies/reference_rules.py score "$run" manuals --out "$reference/rules"; fi
    ended "reference/models of $name, seeds $seeds"
  fi
}

if [[ $wanted == reference* || -z $wanted ]]; then
  if [[ ! -e manuals ]]; then "$python" studies/fetch_text.py manuals; fi
  for encodings in "rotary,none,rotary_skipping,alibi" ${SECOND_STAGE:+"rotary(theta=5e5),rotary(rotary_dim=8),sinusoidal,t5"}; do
    for rate in 0.0015 0.003 0.006 0.012; do
      kept rates "$encodings" $rate "${manuals[@]}" train_length=256 --seeds 100 epochs=0.455
    done
    if [[ reference/rates == "$wanted"* ]]; then
      still=$(for encoding in ${encodings//,/ }; do if [[ $(rate_of "$encoding") == 0.012 ]]; then echo -n ",$encoding"; fi; done)
      if [[ -n $still ]]; then kept rates "${still#,}" 0.024 "${manuals[@]}" train_length=256 --seeds 100 epochs=0.455; fi
    fi
    for seeds in 1,2 3,4 5; do
      while read -r encoding; do
        models "$encoding" "$seeds" "$encoding" "${manuals[@]}" train_length=256
      done <<<"${encodings//,/$'\n'}"
    done
    for encoding in ${encodings//,/ }; do
      kept passkey "$encoding" "" --task passkey --preset quick layers=4 "${outside[@]}" $float32 --seeds 1,2,3,4,5 test_examples=300
    done
    # One model at a time, so that they do not share the cores.
    kept costs "$encodings" "" "${manuals[@]}" train_length=256 --seeds 1,2,3 epochs=0.02 --jobs 1
  done
  # The learning rates of this baseline are tried in one run, which trains two models at once.
  at_target="rotary, trained on the longest windows" long=("${manuals[@]}" train_length=2048)
  if [[ reference/rates-at-target == "$wanted"* && -z $("$python" studies/reference.py kept rates "$at_target" --out "$reference") ]]; then
    compare "$runs/reference/rates-at-target" --encodings rotary "${long[@]}" --seeds 100 epochs=0.455 --sweep learning_rate=0.0015,0.003,0.006,0.012
    "$python" studies/reference.py keep rates "$runs/reference/rates-at-target" --name "$at_target" --out "$reference"
    ended "reference/rates of rotary on the longest windows"
  fi
  for seeds in 1,2 3,4 5; do
    models "$at_target" "$seeds" rotary "${long[@]}"
  done
  if [[ reference/page == "$wanted"* ]]; then
    "$python" studies/reference.py judge --out "$reference"
    "$python" studies/reference_rules.py judge --out "$reference/rules"
  fi
fi

# Wrong rotary code that is in circulation, in translation.
for encoding in rotary swapped_table mixed_pairing bfloat16_angles cosine_matrix; do
  part faulty $encoding --import examples/faulty_rope.py --encodings $encoding --seeds 1,2,3 --preset multi30k-cpu --data "$multi30k"
done

# Translation, each encoding with its own learning rate and length penalty.
while read -r slug encoding; do
  part multi30k-cpu "$slug" --encodings "$encoding" --seeds 1,2,3 --preset multi30k-cpu --data "$multi30k" \
    --sweep learning_rate=2e-3,4e-3,8e-3 --sweep length_penalty=0.6,1,1.4,1.8,2.2
  sharp=$results/sharpness/results.json
  if [[ -e $runs/multi30k-cpu/$slug/results.json ]] && ! grep -qF "\"$encoding\":" "$sharp" 2>/dev/null; then
    "$python" studies/sharpness.py "$runs/multi30k-cpu/$slug" --out "${sharp%/*}" --add
    ended sharpness
  fi
done <<'ENCODINGS'
sinusoidal sinusoidal
rotary rotary
none none
learned learned
rotary-cross-True rotary(cross=True)
t5 t5
alibi alibi
alibi-symmetric-False alibi(symmetric=False)
shaw shaw
ENCODINGS
study small-samples "$results/multi30k-cpu" studies/small_samples.py "$results/multi30k-cpu"

# How often the test is wrong.
study rejections "$results/multi30k-cpu" studies/rejections.py
