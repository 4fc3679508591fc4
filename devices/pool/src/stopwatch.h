// Times work on a device through the contract. All memory is allocated up front.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/status.h"
#include "rondo/devices/device.h"

namespace rondo::devices {

/// How often something is run: `most` times, fewer when that takes longer than `seconds`, but at least once.
struct Tries {
  int most = 1;
  double seconds = 0;
  bool warm = true;  // one run before them is not counted: it fetches pages and code
};

class Stopwatch {
 public:
  /// Called with each tensor and its memory on the host, zeroed.
  using Fill = std::function<void(const TensorDesc& tensor, std::byte* memory)>;

  static absl::StatusOr<Stopwatch> make(Device& device) {
    RONDO_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline, device.timeline());
    Stopwatch watch(device, std::move(timeline));
    RONDO_ASSIGN_OR_RETURN(watch.errand_, device.allocate(64, MemoryKind::kDevice));
    RONDO_RETURN_IF_ERROR(watch.find_overhead({16, 50e-3, true}));
    return watch;
  }

  /// Seconds of each run of a program with every tensor bound to fresh memory, zeroed but for what `fill` writes. What
  /// it takes to hand a program over and to hear of its end is not counted: in a step it happens beside other work.
  absl::StatusOr<std::vector<double>> time_program(const OpList& list, const Tries& tries, const Fill& fill = {}) {
    RONDO_RETURN_IF_ERROR(validate(list));
    const ArenaLayout layout = plan_arena(list);
    RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, device_->compile(list, layout));
    std::vector<Buffer> buffers;
    Bindings bindings;
    for (const TensorDesc& tensor : list.tensors) {
      RONDO_ASSIGN_OR_RETURN(Buffer buffer, device_->allocate(tensor.bytes(), MemoryKind::kDevice));
      bindings.tensors.push_back(buffer.view());
      buffers.push_back(std::move(buffer));
      RONDO_RETURN_IF_ERROR(finish(clear(buffers.back().view())));
      if (fill && tensor.role == TensorRole::kBatch) RONDO_RETURN_IF_ERROR(write(tensor, buffers.back().view(), fill));
    }
    Buffer scratch;
    if (layout.size > 0) {
      RONDO_ASSIGN_OR_RETURN(scratch, device_->allocate(layout.size, MemoryKind::kDevice));
      bindings.scratch = scratch.view();
      RONDO_RETURN_IF_ERROR(finish(clear(scratch.view())));
    }
    const auto run = [&](Point done) {
      device_->queue(QueueRole::kCompute).run(*program, bindings, {}, done, {"measure"});
    };
    // Errands beside the runs: an overhead that was seen while the machine was busier than now would leave too little.
    const auto before_each = [this] { return find_overhead({1, 0, false}); };
    RONDO_ASSIGN_OR_RETURN(std::vector<double> taken, times(run, tries, before_each));
    for (double& each : taken) each = std::max(each - overhead_, kLeastShare * each);
    return taken;
  }

  absl::StatusOr<std::vector<double>> time_copy(QueueRole role, BufferView from, BufferView to, const Tries& tries) {
    return times([&](Point done) { device_->queue(role).copy(from, to, {}, done, {"measure"}); }, tries);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{60};
  static constexpr double kLeastShare = 0.1;  // of a program's time that is its own

  Stopwatch(Device& device, std::unique_ptr<Timeline> timeline) : device_(&device), timeline_(std::move(timeline)) {}

  /// By the quickest errand so far that is next to nothing.
  absl::Status find_overhead(const Tries& tries) {
    RONDO_ASSIGN_OR_RETURN(const std::vector<double> taken, times(clear(errand_.view()), tries));
    overhead_ = std::min(overhead_, *std::ranges::min_element(taken));
    return absl::OkStatus();
  }

  std::function<void(Point)> clear(BufferView view) {
    return [this, view](Point done) { device_->queue(QueueRole::kCompute).clear(view, {}, done, {"measure"}); };
  }

  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  template <typename Enqueue>
  absl::Status finish(Enqueue enqueue) {
    enqueue(Point{timeline_.get(), ++value_});
    return timeline_->wait(value_, Clock::now() + kPatience);
  }

  absl::Status write(const TensorDesc& tensor, BufferView to, const Fill& fill) {
    RONDO_ASSIGN_OR_RETURN(const Buffer home, device_->allocate(to.size, MemoryKind::kPinned));
    std::fill_n(home.view().host(), to.size, std::byte{0});
    fill(tensor, home.view().host());
    return finish([&](Point done) { device_->queue(QueueRole::kUp).copy(home.view(), to, {}, done, {"measure"}); });
  }

  static absl::Status nothing() { return absl::OkStatus(); }

  template <typename Enqueue, typename BeforeEach = absl::Status (*)()>
  absl::StatusOr<std::vector<double>> times(Enqueue enqueue, const Tries& tries, BeforeEach before_each = nothing) {
    const Clock::time_point first = Clock::now();
    if (tries.warm) RONDO_RETURN_IF_ERROR(finish(enqueue));
    std::vector<double> taken;
    for (int i = 0; i < tries.most; ++i) {
      if (i >= 1 && seconds_since(first) > tries.seconds) break;
      RONDO_RETURN_IF_ERROR(before_each());
      const Clock::time_point begin = Clock::now();
      RONDO_RETURN_IF_ERROR(finish(enqueue));
      taken.push_back(std::max(seconds_since(begin), 1e-9));
    }
    return taken;
  }

  Device* device_;
  std::unique_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
  Buffer errand_;
  double overhead_ = 1;  // seconds; more than any errand takes
};

}  // namespace rondo::devices
