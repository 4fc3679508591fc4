#!/usr/bin/env bash
# Everything that only a real card can tell, on a machine with an NVIDIA one: no build, no network, under ten minutes.
#
#   scripts/gpu-check.sh pack FILE.tar.xz     here: programs, tests, data and libraries of the preset cuda-portable (built
#                                             first if it is not), to be unpacked on the machine with the card
#   scripts/gpu-check.sh run [RESULT.json]    there, in the unpacked folder (or here, where there is a card): runs all parts
#                                             and writes one JSON file and a table
#
# Parts, of which GPU_CHECK_PARTS (all of them) names some:
#   tests       the device's own tests, the contract suite, every op against the reference (products by cuBLASLt and by our
#               own kernels), golden runs, the laws (with graphs and without)
#   sanitizer   compute-sanitizer (memcheck, racecheck, initcheck) on the ops
#   benchmarks  every op's time
#   ops         products and attention in turns with PyTorch's (cuBLAS, cuDNN)
#   steps       whole steps of random 1.5B, 0.5B and 8B models, LoRA and full, beside transformers + PEFT; streamed weights
#               beside resident ones; time and memory planned beside measured
#   vulkan      contract suite, ops, golden runs and whole runs through the card's Vulkan driver, and some ops' times
# A part that cannot run says why; it counts as skipped, never as passed. RONDO_CUBLASLT names cuBLASLt's file where the
# loader and the usual folders of Python packages do not lead to it, RONDO_BENCH_PYTHON (python3) a Python that has torch,
# transformers and peft. GPU_CHECK_SECONDS (560) bounds the whole.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
programs=(cuda_test cuda_contract_test cuda_ops_test cuda_laws_test golden_test contract_test vulkan_ops_test
  vulkan_equivalence_test)
scripts=(card_ops.py card_steps.py peer_ops.py peer_train.py)

die() {
  echo "error: $*" >&2
  exit 1
}

# Libraries that belong to the system there: the C library and what goes with it.
is_of_system() { [[ $1 =~ ^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|linux-vdso) ]]; }

pack() { # pack FILE
  local file=$1 build=$root/build/cuda-portable stage program name path size
  (cd "$root" && cmake --preset cuda-portable >/dev/null &&
    cmake --build --preset cuda-portable --target rondo cuda_bench rondo_vulkan_bench "${programs[@]}")
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' RETURN
  mkdir -p "$stage/rondo-gpu/bin" "$stage/rondo-gpu/lib" "$stage/rondo-gpu/scripts/bench" "$stage/rondo-gpu/tests"
  cp "$build/rondo" "$build/rondo_vulkan_bench" "$stage/rondo-gpu/bin/"
  for program in cuda_bench "${programs[@]}"; do cp "$build/tests/$program" "$stage/rondo-gpu/bin/"; done
  for program in "$stage"/rondo-gpu/bin/*; do
    while read -r name path; do
      if ! is_of_system "$name"; then cp -Ln "$path" "$stage/rondo-gpu/lib/$name"; fi
    done < <(ldd "$program" | awk '/=> \// { print $1, $3 }')
  done
  strip --strip-unneeded "$stage"/rondo-gpu/lib/* 2>/dev/null || true
  (cd "$root" && tar -cf - tests/data) | tar -xf - -C "$stage/rondo-gpu"
  cp "$root/scripts/gpu-check.sh" "$stage/rondo-gpu/scripts/"
  for program in "${scripts[@]}"; do cp "$root/scripts/bench/$program" "$stage/rondo-gpu/scripts/bench/"; done
  tar -C "$stage" -cf - rondo-gpu | xz -T0 -6 >"$file"
  size=$(stat -c %s "$file")
  echo "$file: $((size / 1024)) KiB"
  [ "$size" -le $((60 * 1024 * 1024)) ] || die "$file is larger than 60 MiB"
}

# --- the run -------------------------------------------------------------------------------------------------------

results=() # JSON objects
passed=0 failed=0 skipped=0
limit=${GPU_CHECK_SECONDS:-560}

escape() { tr -d '\000-\010\013-\037' <<<"$1" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' | tr '\n\t' '  '; }

note() { # note PART OUTCOME SECONDS DETAIL
  results+=("{\"part\": \"$1\", \"outcome\": \"$2\", \"seconds\": $3, \"detail\": \"$(escape "$4")\"}")
  printf '%-34s %-8s %4d s  %s\n' "$1" "$2" "$3" "${4:0:120}"
  case $2 in
    passed) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) ;;
    *) skipped=$((skipped + 1)) ;;
  esac
}

# check PART SECONDS COMMAND...: a GoogleTest program; that it ran no test at all is a failure.
check() {
  local part=$1 seconds=$2 begin=$SECONDS log left status=0 summary
  shift 2
  left=$((limit - SECONDS))
  if [ "$left" -lt 10 ]; then
    note "$part" skipped 0 "no time left of $limit s"
    return
  fi
  if [ "$seconds" -gt "$left" ]; then seconds=$left; fi
  log=$work/${part//[^a-z0-9]/_}.log
  timeout "$seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
  summary=$(grep -E '^\[  (PASSED|FAILED|SKIPPED) \]|^ERROR SUMMARY|ERROR SUMMARY' "$log" | head -4 | tr '\n' ';' || true)
  if [ "$status" -eq 124 ]; then
    note "$part" failed $((SECONDS - begin)) "not done after $seconds s"
  elif [ "$status" -ne 0 ]; then
    note "$part" failed $((SECONDS - begin)) "exit $status; $summary $(grep -m1 -A6 -E 'Failure|ERROR' "$log" | tr '\n' ' ' || true)"
  elif ! grep -qE '^\[  PASSED  \] [1-9]' "$log"; then
    note "$part" failed $((SECONDS - begin)) "it ran no test: $(tail -n 2 "$log" | tr '\n' ' ')"
  elif grep -q 'SKIPPED .*no card' "$log" || grep -qE '^no card' "$log"; then
    note "$part" failed $((SECONDS - begin)) "the tests saw no card"
  else
    note "$part" passed $((SECONDS - begin)) "$summary"
  fi
}

find_cublas() {
  if [ -n "${RONDO_CUBLASLT:-}" ] || ldconfig -p 2>/dev/null | grep -q 'libcublasLt\.so\.13'; then return; fi
  local found
  found=$(find /usr/local /opt /usr/lib -name 'libcublasLt.so.13' 2>/dev/null | head -n 1 || true)
  if [ -n "$found" ]; then
    export RONDO_CUBLASLT=$found
    LD_LIBRARY_PATH=$(dirname "$found"):${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
  fi
}

write_result() { # write_result FILE
  local i
  {
    printf '{\n"card": "%s",\n"driver": "%s",\n"cublas_lt": "%s",\n"passed": %d, "failed": %d, "skipped": %d, "seconds": %d,\n' \
      "$(escape "$card")" "$(escape "$driver")" "$(escape "${RONDO_CUBLASLT:-by name}")" "$passed" "$failed" "$skipped" "$SECONDS"
    printf '"parts": [\n'
    for i in "${!results[@]}"; do
      printf '  %s%s\n' "${results[$i]}" "$([ "$i" -lt $((${#results[@]} - 1)) ] && echo ,)"
    done
    printf ']'
    for i in bench ops steps vulkan; do
      if [ ! -s "$work/$i.json" ]; then echo null >"$work/$i.json"; fi
      printf ',\n"%s": %s' "$i" "$(cat "$work/$i.json")"
    done
    printf '\n}\n'
  } >"$1"
}

# measure PART FILE.json COMMAND...: a measurement that leaves a JSON file, and on the standard output a table.
measure() {
  local part=$1 file=$2 begin=$SECONDS left=$((limit - SECONDS)) log=$work/$1.log
  shift 2
  if [ "$left" -lt 20 ]; then
    note "$part" skipped 0 "no time left of $limit s"
  elif timeout "$left" "$@" >"$log" 2>"$log.errors" </dev/null; then
    cat "$log"
    note "$part" passed $((SECONDS - begin)) "$(grep -c '"name"\|"side"' "$file" || true) figures"
  else
    python3 -m json.tool "$file" >/dev/null 2>&1 || rm -f "$file" # cut off in the middle
    note "$part" failed $((SECONDS - begin)) "$(tail -n 2 "$log.errors" | tr '\n' ' ')"
  fi
}

parts="tests sanitizer benchmarks ops steps vulkan"
wants() { [[ " ${GPU_CHECK_PARTS:-$parts} " == *" $1 "* ]]; }

run_tests() {
  check "device and host logic" 60 "$bin/cuda_test" --gtest_brief=0
  check "contract" 60 "$bin/cuda_contract_test" --gtest_filter='*/cuda:*/cuda_one_queue'
  check "ops, cuBLASLt" 90 "$bin/cuda_ops_test" --gtest_filter='*OnHardware*'
  check "ops, own products" 90 env RONDO_CUDA_PRODUCTS=own "$bin/cuda_ops_test" --gtest_filter='*OnHardware*'
  check "golden" 120 env RONDO_TEST_DEVICES=cuda:0 "$bin/golden_test"
  check "laws" 90 "$bin/cuda_laws_test"
  check "laws, no graphs" 60 env RONDO_CUDA_GRAPHS=off "$bin/cuda_laws_test" --gtest_filter='*Stages*'
}

run_sanitizer() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    note "compute-sanitizer" skipped 0 "the tool is not on this machine"
    return
  fi
  for tool in memcheck racecheck initcheck; do
    check "compute-sanitizer $tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/cuda_ops_test" \
      --gtest_filter='*OnHardware*_bf16'
  done
}

run_vulkan() {
  # Asked by name: a card that CUDA has is not listed twice.
  if ! "$rondo" devices --devices vulkan:0 --json 2>/dev/null | grep '"vulkan' | grep -qv llvmpipe; then
    note "vulkan" skipped 0 "no card shows itself through a Vulkan driver"
    return
  fi
  check "vulkan contract" 60 "$bin/contract_test" --gtest_filter='*/vulkan*'
  check "vulkan ops" 90 "$bin/vulkan_ops_test"
  check "vulkan golden" 90 "$bin/golden_test" --gtest_filter='*vulkan*'
  check "vulkan whole runs" 120 "$bin/vulkan_equivalence_test"
  measure vulkan "$work/vulkan.json" "$(dirname "$rondo")/rondo_vulkan_bench" --benchmark_min_time=0.05 \
    --benchmark_filter='VulkanOp/(MatMul|RmsNorm|Attention|GatedActivation_Silu)/.*|VulkanDispatches' \
    --benchmark_out="$work/vulkan.json" --benchmark_out_format=json
}

run() { # run RESULT
  local bin=$root/bin rondo=$root/bin/rondo python=${RONDO_BENCH_PYTHON:-python3} part peak=()
  for part in ${GPU_CHECK_PARTS:-}; do
    [[ " $parts " == *" $part "* ]] || die "GPU_CHECK_PARTS: unknown part '$part'; there are $parts"
  done
  if [ ! -d "$bin" ]; then
    bin=$root/build/cuda-portable/tests
    rondo=$root/build/cuda-portable/rondo
  fi
  [ -x "$bin/cuda_test" ] || die "no programs in $bin: unpack what 'gpu-check.sh pack' has made, or build the preset cuda-portable"
  cd "$root" # tests/data
  work=$(mktemp -d)
  find_cublas
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  echo "card: ${card:-none that nvidia-smi shows}; driver ${driver:-unknown}; cuBLASLt: ${RONDO_CUBLASLT:-by name}"
  if wants tests; then run_tests; fi
  if wants sanitizer; then run_sanitizer; fi
  # shellcheck disable=SC2016 # the inner shell expands
  if wants benchmarks; then measure benchmarks "$work/bench.json" sh -c '"$1" >"$2"' sh "$bin/cuda_bench" "$work/bench.json"; fi
  if wants ops && ! "$python" -c 'import importlib.util as u; raise SystemExit(not u.find_spec("torch"))' 2>/dev/null; then
    note ops skipped 0 "$python has no torch"
  elif wants ops; then
    measure ops "$work/ops.json" "$python" "$root/scripts/bench/card_ops.py" --bench "$bin/cuda_bench" --peer "$python" \
      --seconds 60 --json "$work/ops.json"
  fi
  if wants vulkan; then run_vulkan; fi
  if wants steps; then
    [ ! -s "$work/ops.json" ] || peak=(--peak-of "$work/ops.json")
    measure steps "$work/steps.json" python3 "$root/scripts/bench/card_steps.py" --rondo "$rondo" --peer "$python" "${peak[@]}" \
      --seconds $((limit - SECONDS > 15 ? limit - SECONDS - 15 : 1)) --json "$work/steps.json"
  fi
  write_result "$1"
  echo "$passed passed, $failed failed, $skipped skipped; $1; logs in $work"
  [ "$failed" -eq 0 ]
}

case ${1:-} in
  pack) [ $# -eq 2 ] || die "usage: gpu-check.sh pack FILE.tar.xz" && pack "$2" ;;
  run) run "${2:-$PWD/gpu-check.json}" ;;
  *) die "usage: gpu-check.sh pack FILE.tar.xz | run [RESULT.json]" ;;
esac
