#!/usr/bin/env bash
# Run the C kernels' tests under the address and undefined-behavior sanitizers:
#   bash tests/sanitize.sh [python] [pytest's arguments]
# A copy of the package is built for it, so that nothing installed changes. It takes minutes.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python}
shift || true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$here/src" "$here/tests" "$here/pyproject.toml" "$work"
find "$work/src" -name '*.so' -delete
include=$("$python" -c "import sysconfig; print(sysconfig.get_path('include'))")
build() { # a kernel's path without its ending, and flags
  ${CC:-gcc} -O1 -g -fno-trapping-math -fno-omit-frame-pointer \
    -fsanitize=address,undefined -fno-sanitize-recover=all \
    -shared -fPIC -pthread "-I$include" "${@:2}" "$1.c" -o "$1.abi3.so" -ldl
}
build "$work/src/ropewalk/rotary/kernels/_rotate" -ffp-contract=off
build "$work/src/ropewalk/model/_attend" -ffp-contract=fast

cd "$work"
# Python itself keeps memory to its end; torch's threads were not built for the sanitizer's stacks.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$work/src PYTHONMALLOC=malloc
LD_PRELOAD="$(${CC:-gcc} -print-file-name=libasan.so) $(${CC:-gcc} -print-file-name=libubsan.so)" \
    "$python" -m pytest -q -n 0 -p no:cacheprovider tests/rotary/kernels/test_cpu.py \
    tests/rotary/kernels/test_instruction_sets.py tests/model/test_short_attention.py "$@"
