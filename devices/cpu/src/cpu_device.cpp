// The CPU behind the device contract: host queues in front of a CpuExecutor, memory from the host's account.
//
// Thread rule: the queues' threads only execute.
#include "rondo/devices/cpu/cpu_device.h"

#include <array>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/host_queue.h"
#include "rondo/devices/memory_budget.h"
#include "tile_engine.h"

namespace rondo::devices::cpu {
namespace {

class CpuMemory final : public Memory {
 public:
  CpuMemory(Buffer buffer, Bytes size, std::shared_ptr<MemoryBudget> budget)
      : Memory(size, buffer.view().host()), buffer_(std::move(buffer)), budget_(std::move(budget)) {}
  ~CpuMemory() override { budget_->give_back(size()); }

 private:
  const Buffer buffer_;
  const std::shared_ptr<MemoryBudget> budget_;  // shared: a buffer may outlive its device
};

class CpuDevice final : public Device, private HostBackend {
 public:
  CpuDevice(const CpuOptions& options, ThreadPool& threads) : executor_(threads) {
    caps_.name = options.name;
    caps_.backend = "cpu";
    caps_.description = executor_.description();
    caps_.memory_bytes = options.memory_limit > 0 ? options.memory_limit : available_memory();
    budget_ = std::make_shared<MemoryBudget>(caps_.name, caps_.memory_bytes);
    caps_.unified_memory = true;
    caps_.memory_in_process = true;
    caps_.compute_dtypes = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
    if (arithmetic_for_bfloat16() == TileArithmetic::kBfloat16) {
      caps_.matrix_dtypes = {DType::kBfloat16};
      caps_.product_code_bytes = product_code_bytes();
      caps_.more_product_code_bytes = more_product_code_bytes();
    }
    caps_.fp8 = true;
    caps_.library_bytes = CpuExecutor::library_bytes();
    caps_.hardware_queues = options.single_queue ? 1 : 3;
    caps_.numerics_class = executor_.numerics_class();
    for (std::size_t i = 0; i < caps_.hardware_queues; ++i)
      queues_[i] = std::make_unique<HostQueue>(static_cast<HostBackend&>(*this));
  }
  ~CpuDevice() override {
    for (auto& queue : queues_) queue.reset();  // they call execute()
  }

  absl::Status started() const {
    absl::Status status;
    for (std::size_t i = 0; i < caps_.hardware_queues; ++i) status.Update(queues_[i]->started());
    return with_context(status, caps_.name);
  }

  const DeviceCaps& caps() const override { return caps_; }

  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind kind) override {
    if (kind == MemoryKind::kPinned) return allocate_resident_host(size, "pinned");
    RONDO_RETURN_IF_ERROR(budget_->take(size));
    absl::StatusOr<Buffer> buffer = allocate_host(size, caps_.name.c_str());
    if (!buffer.ok()) {
      budget_->give_back(size);
      return with_context(buffer.status(), caps_.name);
    }
    return Buffer(std::make_unique<CpuMemory>(*std::move(buffer), size, budget_));
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
  Bytes allocated_bytes() const override { return budget_->now(); }
  Bytes peak_bytes() const override { return budget_->peak(); }

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
  std::shared_ptr<MemoryBudget> budget_;
  CpuExecutor executor_;
  std::array<std::unique_ptr<HostQueue>, 3> queues_;  // by role, or the first alone
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_cpu(const CpuOptions& options, ThreadPool& threads) {
  if (__builtin_cpu_supports("avx2") == 0) {
    return unimplemented("device '{}': this processor has no AVX2, which the CPU's kernels need", options.name);
  }
  auto device = std::make_unique<CpuDevice>(options, threads);
  RONDO_RETURN_IF_ERROR(device->started());
  return device;
}

}  // namespace rondo::devices::cpu
