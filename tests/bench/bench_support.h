// Timing of one op on the CPU: runs per second as FLOP/s and as bytes that must move.
#pragma once

#include <benchmark/benchmark.h>

#include <string>

#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"

namespace rondo::devices::testing {

/// Times op `place` of the case alone, on as many threads as the process may use.
inline void time_op(benchmark::State& state, const OpCase& op_case, std::size_t place) {
  ThreadPool threads(0);
  cpu::CpuExecutor executor(threads);
  const OpList list = single_op(op_case.list, place);
  auto memory = CaseMemory::make(op_case, 1);
  auto program = executor.compile(list, plan_arena(list));
  if (!memory.ok() || !program.ok()) return state.SkipWithError("the case cannot be made");
  absl::Status status;
  for (auto _ : state) {
    status = executor.execute(**program, memory->bindings());
    benchmark::ClobberMemory();
  }
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  const OpCost cost = cost_of(list, list.ops[0], list.tokens);
  const auto runs = static_cast<double>(state.iterations());
  if (cost.flops > 0) state.counters["FLOP/s"] = benchmark::Counter(cost.flops * runs, benchmark::Counter::kIsRate);
  state.counters["bytes/s"] = benchmark::Counter(cost.bytes * runs, benchmark::Counter::kIsRate);
}

}  // namespace rondo::devices::testing
