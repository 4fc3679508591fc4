// The CPU behind the device contract: host queues in front of a CpuExecutor, memory from the host's account.
//
// Thread rule: the queues' threads only execute; counters of memory are atomic.
#include "rondo/devices/cpu/cpu_device.h"

#include <array>
#include <atomic>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/host_queue.h"
#include "tile_engine.h"

namespace rondo::devices::cpu {
namespace {

/// Bytes of one device, now and at most. Relaxed: figures, nothing is ordered by them.
struct MemoryCount {
  std::atomic<Bytes> now{0};
  std::atomic<Bytes> peak{0};

  /// False when it would pass `limit`.
  bool take(Bytes size, Bytes limit) {
    Bytes used = now.load(std::memory_order_relaxed);
    do {
      if (size > limit || used > limit - size) return false;
    } while (!now.compare_exchange_weak(used, used + size, std::memory_order_relaxed));
    Bytes most = peak.load(std::memory_order_relaxed);
    while (most < used + size && !peak.compare_exchange_weak(most, used + size, std::memory_order_relaxed)) {
    }
    return true;
  }
};

class CpuMemory final : public Memory {
 public:
  CpuMemory(Buffer buffer, Bytes size, std::shared_ptr<MemoryCount> count)
      : Memory(size, buffer.view().host()), buffer_(std::move(buffer)), count_(std::move(count)) {}
  ~CpuMemory() override { count_->now.fetch_sub(size(), std::memory_order_relaxed); }

 private:
  const Buffer buffer_;
  const std::shared_ptr<MemoryCount> count_;  // shared: a buffer may outlive its device
};

class CpuDevice final : public Device, private HostBackend {
 public:
  CpuDevice(const CpuOptions& options, ThreadPool& threads) : executor_(threads) {
    caps_.name = options.name;
    caps_.backend = "cpu";
    caps_.description = executor_.description();
    caps_.memory_bytes = options.memory_limit > 0 ? options.memory_limit : available_memory();
    caps_.unified_memory = true;
    caps_.compute_dtypes = {DType::kFloat32, DType::kBfloat16};
    caps_.matrix_units = arithmetic_for_bfloat16() == TileArithmetic::kBfloat16;
    caps_.hardware_queues = options.single_queue ? 1 : 3;
    caps_.numerics_class = executor_.numerics_class();
    for (std::size_t i = 0; i < caps_.hardware_queues; ++i)
      queues_[i] = std::make_unique<HostQueue>(static_cast<HostBackend&>(*this));
  }
  ~CpuDevice() override {
    for (auto& queue : queues_) queue.reset();  // they call execute()
  }

  const DeviceCaps& caps() const override { return caps_; }

  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind) override {
    if (!count_->take(size, caps_.memory_bytes)) {
      const Bytes used = count_->now.load(std::memory_order_relaxed);
      return resource_exhausted("device '{}': {} bytes asked, {} free of {}; lower the need or raise its memory limit",
                                caps_.name, size, caps_.memory_bytes - std::min(used, caps_.memory_bytes),
                                caps_.memory_bytes);
    }
    absl::StatusOr<Buffer> buffer = allocate_host(size, caps_.name.c_str());
    if (!buffer.ok()) {
      count_->now.fetch_sub(size, std::memory_order_relaxed);
      return with_context(buffer.status(), caps_.name);
    }
    return Buffer(std::make_unique<CpuMemory>(*std::move(buffer), size, count_));
  }

  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout) override {
    return executor_.compile(list, layout);
  }
  absl::StatusOr<std::unique_ptr<Timeline>> timeline() override { return std::make_unique<HostTimeline>(); }
  Queue& queue(QueueRole role) override {
    const std::size_t index = caps_.hardware_queues == 1 ? 0 : static_cast<std::size_t>(role);
    return queues_[index]->role(role);
  }
  void observe(WorkObserver* observer) override {
    for (auto& queue : queues_) {
      if (queue != nullptr) queue->observe(observer);
    }
  }
  Bytes allocated_bytes() const override { return count_->now.load(std::memory_order_relaxed); }
  Bytes peak_bytes() const override { return count_->peak.load(std::memory_order_relaxed); }

 private:
  absl::StatusOr<HostSpan> execute(const HostWork& work, Moment) override {
    const Moment begin = std::chrono::steady_clock::now();
    switch (work.kind) {
      case HostWork::Kind::kRun:
        RONDO_RETURN_IF_ERROR(executor_.execute(*work.program, *work.bindings));
        break;
      case HostWork::Kind::kCopy:
        if (work.from.host() == nullptr || work.to.host() == nullptr) {
          return internal_error("copy '{}': memory that the host cannot address", work.tag.name);
        }
        // memmove: in unified memory a copy onto itself is allowed.
        std::memmove(work.to.host(), work.from.host(), work.from.size);
        break;
      case HostWork::Kind::kClear:
        if (work.to.host() == nullptr) {
          return internal_error("clear '{}': memory that the host cannot address", work.tag.name);
        }
        std::memset(work.to.host(), 0, work.to.size);
        break;
    }
    return span_since(begin);
  }

  DeviceCaps caps_;
  std::shared_ptr<MemoryCount> count_ = std::make_shared<MemoryCount>();
  CpuExecutor executor_;
  std::array<std::unique_ptr<HostQueue>, 3> queues_;  // by role, or the first alone
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_cpu(const CpuOptions& options, ThreadPool& threads) {
  if (__builtin_cpu_supports("avx2") == 0) {
    return unimplemented("device '{}': this processor has no AVX2, which the CPU's kernels need", options.name);
  }
  return std::make_unique<CpuDevice>(options, threads);
}

}  // namespace rondo::devices::cpu
