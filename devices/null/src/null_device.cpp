// Memory of the host under a limit, one queue thread, and a refusal for every op.
//
// Thread rule: the device is used from any thread; execute() runs on the queue's thread.
#include "rondo/devices/null/null_device.h"

#include <cstring>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/devices/host_queue.h"
#include "rondo/devices/memory_budget.h"

namespace rondo::devices::null {
namespace {

/// A new backend puts its vendor's handle here; host() is null unless the host can address the memory.
class NullMemory final : public Memory {
 public:
  NullMemory(Buffer storage, std::shared_ptr<MemoryBudget> budget)
      : Memory(storage.size(), storage.view().host()), storage_(std::move(storage)), budget_(std::move(budget)) {}
  ~NullMemory() override { budget_->give_back(size()); }

 private:
  const Buffer storage_;
  const std::shared_ptr<MemoryBudget> budget_;  // shared: memory may outlive its device
};

class NullDevice final : public Device, private HostBackend {
 public:
  explicit NullDevice(const NullOptions& options)
      : budget_(std::make_shared<MemoryBudget>(options.name, options.memory_bytes)), queue_(*this) {
    caps_.name = options.name;
    caps_.backend = "null";
    caps_.description = "moves bytes, computes nothing";
    caps_.memory_bytes = options.memory_bytes;
    caps_.memory_in_process = true;
    caps_.numerics_class = "null";
  }

  const DeviceCaps& caps() const override { return caps_; }

  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind kind) override {
    if (kind == MemoryKind::kPinned) return allocate_resident_host(size, "pinned");
    RONDO_RETURN_IF_ERROR(budget_->take(size));
    absl::StatusOr<Buffer> storage = allocate_host(size, caps_.name.c_str());
    if (!storage.ok()) {
      budget_->give_back(size);
      return storage.status();
    }
    return Buffer(std::make_unique<NullMemory>(*std::move(storage), budget_));
  }

  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& /*layout*/) override {
    RONDO_RETURN_IF_ERROR(validate(list));
    if (list.ops.empty()) return unimplemented("{}: an empty program has nothing to run", caps_.name);
    return unimplemented("{}: op '{}' is not there: the null backend computes nothing; choose another device",
                         caps_.name, name_of(list.ops.front().kind));
  }

  absl::StatusOr<std::unique_ptr<Timeline>> timeline() override {
    return std::unique_ptr<Timeline>(std::make_unique<HostTimeline>());
  }
  absl::Status started() const { return with_context(queue_.started(), caps_.name); }
  Queue& queue(QueueRole role) override { return queue_.role(role); }
  void observe(WorkObserver* observer) override { queue_.observe(observer); }
  Bytes allocated_bytes() const override { return budget_->now(); }
  Bytes peak_bytes() const override { return budget_->peak(); }

 private:
  absl::StatusOr<HostSpan> execute(const HostWork& work, Moment /*ready*/) override {
    const Moment begin = std::chrono::steady_clock::now();
    switch (work.kind) {
      case HostWork::Kind::kRun:
        return unimplemented("{}: '{}' cannot run: the null backend computes nothing", caps_.name, work.tag.name);
      case HostWork::Kind::kCopy:
        if (work.from.host() == nullptr || work.to.host() == nullptr) {
          return internal_error("{}: copy '{}' names memory that the host cannot address", caps_.name, work.tag.name);
        }
        std::memcpy(work.to.host(), work.from.host(), work.to.size);
        break;
      case HostWork::Kind::kClear:
        if (work.to.host() == nullptr) {
          return internal_error("{}: clear '{}' names memory that the host cannot address", caps_.name, work.tag.name);
        }
        std::memset(work.to.host(), 0, work.to.size);
        break;
    }
    return span_since(begin);
  }

  DeviceCaps caps_;
  const std::shared_ptr<MemoryBudget> budget_;  // shared with the memory
  HostQueue queue_;                             // last: its thread calls execute()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_null(const NullOptions& options) {
  auto device = std::make_unique<NullDevice>(options);
  RONDO_RETURN_IF_ERROR(device->started());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace rondo::devices::null
