// The CPU as a device of the pool: oneDNN for matrix products, own vector kernels for the rest, memory in place.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::cpu {

struct CpuOptions {
  std::string name = "cpu:0";
  Bytes memory_limit = 0;  // 0: what the machine has available
  /// One hardware queue instead of three: compute, up and down share a thread. The contract suite runs with both.
  bool single_queue = false;
};

/// `threads` outlives the device. Errors: Unimplemented when the processor lacks AVX2.
absl::StatusOr<std::unique_ptr<Device>> open_cpu(const CpuOptions& options, ThreadPool& threads);

/// Computes programs synchronously: what the CPU device and the emulated cards share.
/// compile: the Program; execute: runs it on the calling thread and the pool, one program at a time over all devices.
class CpuExecutor {
 public:
  explicit CpuExecutor(ThreadPool& threads);
  ~CpuExecutor();
  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout);
  /// `program` came from compile(). All bound views are addressable by the host. Does not allocate.
  absl::Status execute(const Program& program, const Bindings& bindings);
  /// Memory beyond the arenas that ops work in, shared by all programs: of those that were there when the last one was
  /// compiled, the neediest's. In the host's account as kProcessorScratch.
  Bytes scratch_bytes() const;
  /// "cpu3-avx2-onednn2.6.3": the kernels' number, the instruction set, what multiplies
  std::string numerics_class() const;
  /// DeviceCaps::library_bytes.
  static Bytes library_bytes();
  /// "AMD EPYC, 2 threads, AVX2"
  std::string description() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::devices::cpu
