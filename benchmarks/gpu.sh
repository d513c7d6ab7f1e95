#!/usr/bin/env bash
# Everything that needs a GPU: the Triton kernel's tests, its speed compared with a copy, and `ropewalk bench`.
#
#     OUT=folder bash benchmarks/gpu.sh          # about 8 minutes; from the repository's root, nothing installed
#
# Logs and numbers go to $OUT (default: gpu-results). Wheels in .whl/ are installed first (for packages that the
# machine lacks: typer and rich for `bench`). Ends with 1 if a step failed, after all have run.
#
# Open questions that it measures:
#   * whether computing angles in the kernel, from 64-bit phases, would be faster than reading tables. In gpu_kernel.py
#     the row "half, one row of tables" is the most it could save; unless that is 5% somewhere, tables stay.
#   * PAIRS_PER_PROGRAM, PAIRS_PER_THREAD and HEADS_PER_PROGRAM in gpu.py, chosen by reading the machine code
#     (16-byte loads, 32 registers), not yet by timing.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu-results}
mkdir -p "$OUT"
export PYTHONPATH=src PYTHONUNBUFFERED=1 TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-/tmp/ropewalk-triton}
if compgen -G ".whl/*.whl" >/dev/null; then
  python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target /tmp/ropewalk-site .whl/*.whl
  PYTHONPATH+=:/tmp/ropewalk-site
fi

failed=0
step() { # step LIMIT_IN_SECONDS LOG COMMAND...
  local limit=$1 log=$OUT/$2
  shift 2
  printf '\n== %s\n' "$*"
  timeout "$limit" "$@" 2>&1 | tee "$log" | tail -n 45
  local status=${PIPESTATUS[0]}
  [[ $status == 0 ]] || { failed=1; printf '== ended with %s\n' "$status"; }
}

step 60 machine.log python3 -c '
import torch, triton
print("torch", torch.__version__, "triton", triton.__version__, torch.cuda.get_device_properties(0))'
workers=()
python3 -c "import xdist" 2>/dev/null && workers=(-n 12)
# Versions of Hypothesis and pytest other than those in constraints.txt may warn; that is no failure here.
options="--import-mode=importlib --hypothesis-profile=ci" # pyproject.toml's options need xdist, which may be absent
step 270 tests.log python3 -m pytest -q -o addopts="$options" -p no:cacheprovider -W default "${workers[@]}" \
  tests/support/triton_cases.py tests/rotary/kernels/test_triton.py \
  --deselect tests/rotary/kernels/test_triton.py::test_every_case_passes_on_the_gpu_or_in_the_interpreter
step 150 kernel.log python3 benchmarks/gpu_kernel.py --out "$OUT/kernel.json"
step 100 bench.log python3 -m ropewalk.cli bench --device cuda --out "$OUT/bench.json" --figure "$OUT/bench.png"
exit "$failed"
