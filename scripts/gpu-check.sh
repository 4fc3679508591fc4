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
#   sanitizer   compute-sanitizer: memcheck, racecheck, initcheck on the ops, memcheck on the contract suite
#   benchmarks  every op's time
#   ops         products and attention in turns with PyTorch's (cuBLAS, cuDNN)
#   steps       whole steps of random 1.5B, 0.5B and 8B models, LoRA and full, beside transformers + PEFT; streamed weights
#               beside resident ones; time and memory planned beside measured
#   vulkan      contract suite and ops under the validation layer, golden runs and whole runs through the card's Vulkan
#               driver, and some ops' times
# A part that cannot run says why; it counts as skipped, never as passed. RONDO_CUBLASLT names cuBLASLt's file where the
# loader and the usual folders of Python packages do not lead to it, RONDO_BENCH_PYTHON (python3) a Python that has torch,
# transformers and peft. GPU_CHECK_SECONDS (560) bounds the whole.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
programs=(cuda_test cuda_contract_test cuda_ops_test cuda_laws_test golden_test contract_test vulkan_ops_test
  vulkan_update_test vulkan_equivalence_test)
scripts=(card_ops.py card_steps.py peer_ops.py peer_train.py)
loader=(libvulkan.so.1 libEGL.so.1 libGLdispatch.so.0)

die() {
  echo "error: $*" >&2
  exit 1
}

# Libraries that belong to the system there: the C library and what goes with it.
is_of_system() { [[ $1 =~ ^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|linux-vdso) ]]; }

# Where the loader finds a library of that name; nothing where it does not. All is read: under pipefail a reader that has
# seen enough and goes makes the writer, and so the whole, fail.
installed() { { ldconfig -p 2>/dev/null || true; } | awk -v name="$1" '$1 == name && !seen { print $NF; seen = 1 }'; } # installed NAME

# The first file of that name in the folders; nothing where there is none.
first_of() { find "${@:2}" -name "$1" -print -quit 2>/dev/null || true; } # first_of NAME FOLDER...

# The C++ library is the machine's own where it is new enough (find_cpp_library): drivers there may need a newer one.
folder_of() { if [[ $1 =~ ^(libstdc\+\+|libgcc_s)\. ]]; then echo older; else echo lib; fi; }

# The validation layer, and for machines that have none a loader and the dispatch libraries without which NVIDIA's driver
# starts no instance where there is no X server. The layer needs no more than the C++ library.
pack_vulkan() { # pack_vulkan FOLDER
  local folder=$1 layer=libVkLayer_khronos_validation.so library
  library=$(first_of "$layer" /usr/lib /usr/local/lib)
  [ -n "$library" ] || die "the validation layer is not here; install vulkan-validationlayers"
  mkdir -p "$folder/loader"
  cp -L "$library" "$folder/"
  sed "s|\"library_path\": *\"[^\"]*\"|\"library_path\": \"./$layer\"|" \
    /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >"$folder/VkLayer_khronos_validation.json"
  for library in "${loader[@]}"; do
    if [ -n "$(installed "$library")" ]; then cp -L "$(installed "$library")" "$folder/loader/$library"; fi
  done
  [ -e "$folder/loader/libvulkan.so.1" ] || die "Vulkan's loader is not here; install libvulkan1"
  strip --strip-unneeded "$folder/$layer" "$folder"/loader/*
}

pack() { # pack FILE
  local file=$1 build=$root/build/cuda-portable stage program name path size
  (cd "$root" && cmake --preset cuda-portable >/dev/null &&
    cmake --build --preset cuda-portable --target rondo cuda_bench rondo_vulkan_bench "${programs[@]}")
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' RETURN
  mkdir -p "$stage"/rondo-gpu/{bin,lib,older,scripts/bench,tests}
  cp "$build/rondo" "$build/rondo_vulkan_bench" "$stage/rondo-gpu/bin/"
  for program in cuda_bench "${programs[@]}"; do cp "$build/tests/$program" "$stage/rondo-gpu/bin/"; done
  for program in "$stage"/rondo-gpu/bin/*; do
    while read -r name path; do
      if ! is_of_system "$name"; then cp -Ln "$path" "$stage/rondo-gpu/$(folder_of "$name")/$name"; fi
    done < <(ldd "$program" | awk '/=> \// { print $1, $3 }')
  done
  strip --strip-unneeded "$stage"/rondo-gpu/lib/* "$stage"/rondo-gpu/older/* 2>/dev/null || true
  pack_vulkan "$stage/rondo-gpu/vulkan"
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

# Tests prove answers, not speed: programs run beside each other, and each in several processes.
pending=() judges=() # parts under way, and who waits for each
shards=$((($(nproc) + 3) / 4))

# check PART SECONDS COMMAND...: begins a GoogleTest program; that it ran no test at all is a failure. finish_checks
# waits for all that were begun.
check() {
  local part=$1 seconds=$2 left=$((limit - SECONDS))
  shift 2
  if [ "$left" -lt 10 ]; then
    note "$part" skipped 0 "no time left of $limit s"
    return
  fi
  if [ "$seconds" -gt "$left" ]; then seconds=$left; fi
  pending+=("$part")
  judge "$work/${part//[^a-z0-9]/_}" "$seconds" "$@" &
  judges+=($!)
}

finish_checks() {
  local part outcome taken detail
  [ ${#pending[@]} -gt 0 ] || return 0 # wait by itself would wait for the models too
  wait "${judges[@]}"
  for part in "${pending[@]}"; do
    { IFS= read -r outcome && IFS= read -r taken && IFS= read -r detail; } <"$work/${part//[^a-z0-9]/_}.outcome"
    note "$part" "$outcome" "$taken" "$detail"
  done
  pending=() judges=()
}

judge() { # judge STEM SECONDS COMMAND...: leaves STEM.log and in STEM.outcome what became of it, seconds and a word
  local stem=$1 seconds=$2 begin=$SECONDS log=$1.log shard pids=() status=0 worst=0 ran
  shift 2
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout "$seconds" "$@" >"$stem.$shard.log" 2>&1 </dev/null &
    pids+=($!)
  done
  for shard in "${!pids[@]}"; do
    status=0
    wait "${pids[$shard]}" || status=$?
    if [ "$worst" -eq 0 ] || { [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; }; then worst=$status; fi
    cat "$stem.$shard.log" >>"$log"
  done
  ran=$(awk '$1 == "[" && $2 == "PASSED" { sum += $4 } END { print sum + 0 }' "$log")
  {
    if [ "$worst" -eq 124 ]; then
      printf 'failed\n%d\nnot done after %d s\n' $((SECONDS - begin)) "$seconds"
    elif [ "$worst" -ne 0 ]; then
      printf 'failed\n%d\nexit %d; %s\n' $((SECONDS - begin)) "$worst" \
        "$(grep -m1 -A6 -E 'Failure|ERROR|Error' "$log" | tr '\n' ' ' || true)"
    elif grep -q 'SKIPPED .*no card' "$log" || grep -qE '^no card' "$log"; then
      printf 'failed\n%d\nthe tests saw no card\n' $((SECONDS - begin))
    elif [ "$ran" -eq 0 ] && grep -q 'compute capability' "$log"; then
      printf 'skipped\n%d\n%s\n' $((SECONDS - begin)) "$(grep -m1 'compute capability' "$log")"
    elif [ "$ran" -eq 0 ]; then
      printf 'failed\n%d\nit ran no test: %s\n' $((SECONDS - begin)) "$(tail -n 2 "$log" | tr '\n' ' ')"
    else
      printf 'passed\n%d\n%d tests%s\n' $((SECONDS - begin)) "$ran" \
        "$(grep -m1 'ERROR SUMMARY' "$log" | sed 's/^=* */, /' || true)"
    fi
  } >"$stem.outcome"
}

find_cpp_library() {
  local own
  [ -d "$root/older" ] || return 0
  own=$(installed libstdc++.so.6)
  if [ -n "$own" ] && grep -q GLIBCXX_3.4.30 "$own"; then return; fi # of GCC 12
  export LD_LIBRARY_PATH=$root/older:${LD_LIBRARY_PATH:-}
}

find_cublas() {
  if [ -n "${RONDO_CUBLASLT:-}" ] || [ -n "$(installed libcublasLt.so.13)" ]; then return; fi
  local found
  found=$(first_of libcublasLt.so.13 /usr/local /opt /usr/lib)
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
  check "device and host logic" 60 "$bin/cuda_test"
  check "contract" 60 "$bin/cuda_contract_test" --gtest_filter='*/cuda:*/cuda_one_queue'
  check "ops, cuBLASLt" 120 "$bin/cuda_ops_test" --gtest_filter='*OnHardware*'
  check "ops, own products" 120 env RONDO_CUDA_PRODUCTS=own "$bin/cuda_ops_test" --gtest_filter='*OnHardware*'
  check "ops in fp8, own scales" 60 env RONDO_CUDA_FP8_SCALES=own "$bin/cuda_ops_test" \
    --gtest_filter='CudaFp8OnHardware*'
  check "golden" 120 env RONDO_TEST_DEVICES=cuda:0 "$bin/golden_test"
  check "laws" 120 "$bin/cuda_laws_test"
  check "laws, no graphs" 120 env RONDO_CUDA_GRAPHS=off "$bin/cuda_laws_test" --gtest_filter='*Stages*'
  finish_checks
}

run_sanitizer() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    note "compute-sanitizer" skipped 0 "the tool is not on this machine"
    return
  fi
  # Odd sizes: a model's would take minutes, and go through the same code.
  for tool in memcheck racecheck initcheck; do
    check "compute-sanitizer $tool" 100 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/cuda_ops_test" \
      --gtest_filter='*HeadsOnHardware*:*OddSizes*_bf16'
  done
  check "memcheck, contract" 100 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/cuda_contract_test" \
    --gtest_filter='*/cuda'
  finish_checks
}

# What the machine has of loader, manifest of NVIDIA's driver and validation layer is used, what it lacks comes from the
# archive. Containers often have the driver without its manifest. `layer`, the caller's, is the layer's manifest.
find_vulkan() {
  local manifests=(/usr/share/vulkan /etc/vulkan /usr/local/share/vulkan) ours=$root/vulkan library
  for library in "${loader[@]}"; do
    if [ -e "$ours/loader/$library" ] && [ -z "$(installed "$library")" ]; then
      export LD_LIBRARY_PATH=$ours/loader:${LD_LIBRARY_PATH:-}
    fi
  done
  if [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] && [ -n "$(installed libGLX_nvidia.so.0)" ] &&
    [ -z "$(find "${manifests[@]}" -path '*icd.d*nvidia*' 2>/dev/null)" ]; then
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.3.0"}}\n' \
      >"$work/nvidia_icd.json"
    export VK_DRIVER_FILES=$work/nvidia_icd.json VK_ICD_FILENAMES=$work/nvidia_icd.json # by newer and by older loaders
  fi
  layer=$(find "${manifests[@]}" -name '*khronos_validation*.json' 2>/dev/null | head -n 1 || true)
  if [ -z "$layer" ] && [ -e "$ours/VkLayer_khronos_validation.json" ]; then
    layer=$ours/VkLayer_khronos_validation.json
    export VK_LAYER_PATH=$ours
  fi
}

# Cooperative matrices are known to the layer from 1.3.255 on; an older one complains of every use.
knows_matrix_units() { # knows_matrix_units LAYER
  local version
  version=$(sed -n '/"api_version"/{s/.*: *"\([^"]*\)".*/\1/p;q}' "$1")
  printf '1.3.255\n%s\n' "$version" | sort -V -C
}

run_vulkan() {
  local layer="" without=()
  find_vulkan
  # Asked by name: a card that CUDA has is not listed twice.
  if ! "$rondo" devices --devices vulkan:0 --json 2>/dev/null | grep '"vulkan' | grep -v llvmpipe >/dev/null; then
    note "vulkan" skipped 0 "no card shows itself through a Vulkan driver"
    return
  fi
  if [ -z "$layer" ]; then
    check "vulkan contract, without validation" 90 "$bin/contract_test" --gtest_filter='*/vulkan*-*validated*'
    note "vulkan ops" skipped 0 "the validation layer is not on this machine"
  else
    knows_matrix_units "$layer" || without=(env RONDO_VULKAN_MATRIX_UNITS=off)
    check "vulkan contract" 90 "${without[@]}" "$bin/contract_test" \
      --gtest_filter="*/vulkan*${without:+-*matrix_units*}"
    check "vulkan ops" 120 "${without[@]}" "$bin/vulkan_ops_test" --gtest_filter="*${without:+-*ByMatrixUnits*}"
    check "vulkan updates" 60 "${without[@]}" "$bin/vulkan_update_test"
  fi
  check "vulkan golden" 120 "$bin/golden_test" --gtest_filter='*vulkan*'
  check "vulkan whole runs" 120 "$bin/vulkan_equivalence_test"
  finish_checks
  measure vulkan "$work/vulkan.json" env RONDO_VULKAN_STATISTICS="$work/pipelines" "$(dirname "$rondo")/rondo_vulkan_bench" \
    --benchmark_min_time=0.05 \
    --benchmark_filter='VulkanOp/(MatMul|Norm|Attention|GatedActivation_Silu|Update|CodedUpdate)/.*|VulkanDispatches|Paired(MatrixUnits|Upload)' \
    --benchmark_out="$work/vulkan.json" --benchmark_out_format=json
}

run() { # run RESULT
  local bin=$root/bin rondo=$root/bin/rondo python=${RONDO_BENCH_PYTHON:-python3} part peak=() models
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
  find_cpp_library
  find_cublas
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  echo "card: ${card:-none that nvidia-smi shows}; driver ${driver:-unknown}; cuBLASLt: ${RONDO_CUBLASLT:-by name}"
  if wants steps; then # meanwhile
    python3 "$root/scripts/bench/card_steps.py" --rondo "$rondo" --folder "$work/models" --make-models >"$work/models.log" 2>&1 &
    models=$!
  fi
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
    wait "$models" || true
    [ ! -s "$work/ops.json" ] || peak=(--peak-of "$work/ops.json")
    measure steps "$work/steps.json" python3 "$root/scripts/bench/card_steps.py" --rondo "$rondo" --peer "$python" "${peak[@]}" \
      --folder "$work/models" --seconds $((limit - SECONDS > 15 ? limit - SECONDS - 15 : 1)) --json "$work/steps.json"
  fi
  rm -rf "$work/models"
  write_result "$1"
  echo "$passed passed, $failed failed, $skipped skipped; $1; logs in $work"
  [ "$failed" -eq 0 ]
}

case ${1:-} in
  pack) [ $# -eq 2 ] || die "usage: gpu-check.sh pack FILE.tar.xz" && pack "$2" ;;
  run) run "${2:-$PWD/gpu-check.json}" ;;
  *) die "usage: gpu-check.sh pack FILE.tar.xz | run [RESULT.json]" ;;
esac
