#!/usr/bin/env bash
# Every fuzzer and the kill trial, two at a time: `tests/fuzz/all.sh [SECONDS] [SEED] [KILLS]`. Unless
# given, 200 kills, and ten minutes each for configs, encodings, checkpoints and corpora, whose six
# formats share them, as a vocabulary does. Prints the counts; counts.txt beside this holds those of
# the last long run. The exit status is not 0 if any found a fault.
set -uo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600} seed=${2:-1} kills=${3:-200}
share=$(((seconds + 5) / 6))
python=${PYTHON:-.venv/bin/python}

run() {
  case $1 in
    kills) "$python" tests/fuzz/kills.py "$2" "$seed" 2>/dev/null | tr -d '\n' && echo ;;
    *) "$python" tests/fuzz/mutations.py "$1" "$2" "$seed" ;;
  esac 2>&1 | sed "s/^/$1: /"
}

export -f run
export python seed
{
  echo kills "$kills"
  for target in configs encodings checkpoints; do echo "$target" "$seconds"; done
  for format in tokenizers jsonl csv tsv sides texts gzip; do echo "$format" "$share"; done
} | xargs -P 2 -L 1 bash -c 'set -o pipefail; run "$@"' run
