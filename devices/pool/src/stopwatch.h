// Times work on a device through the contract. All memory is allocated up front.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/float16.h"
#include "rondo/base/status.h"
#include "rondo/base/units.h"
#include "rondo/devices/device.h"
#include "rondo/devices/random.h"

namespace rondo::devices {

/// How often something is timed: `most` times, fewer when that takes longer than `seconds`, but at least once; twice
/// where the first takes much longer than `expected`, as on a machine that had to see to something else.
struct Tries {
  int most = 1;
  double seconds = 0;
  double expected = 0;
};

class Stopwatch {
 public:
  /// Called with each tensor of a batch and of integers, one of the list's, and its memory on the host, zeroed.
  using Fill = std::function<void(const TensorDesc& tensor, std::byte* memory)>;

  static absl::StatusOr<Stopwatch> make(Device& device) {
    RONDO_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline, device.timeline());
    return Stopwatch(device, std::move(timeline));
  }

  /// Seconds of a run of a program, with numbers bound to random ones, since zeros take a card less power, and so less
  /// time, than what a step multiplies; all else is bound to memory that is zero but for what `fill` writes. Short runs
  /// come in a row: what it takes to hand a program over and to hear of its end happens beside other work in a
  /// step. Between two runs with the same weights others read and write weights and gradients of `apart` bytes, as far
  /// as caches reach: no cache holds more of them than in a step.
  absl::StatusOr<std::vector<double>> time_program(const OpList& list, const Tries& tries, const Fill& fill = {},
                                                   Bytes apart = 0) {
    RONDO_RETURN_IF_ERROR(validate(list));
    const ArenaLayout layout = plan_arena(list);
    RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, device_->compile(list, layout));
    std::vector<Buffer> buffers;
    Bindings bindings;
    Bytes weights = 0;
    for (const TensorDesc& tensor : list.tensors) {
      if (is_of_weights(tensor)) {
        bindings.tensors.push_back({nullptr, weights, tensor.bytes()});
        weights += round_up(tensor.bytes(), kWeightAlignment);
        continue;
      }
      RONDO_ASSIGN_OR_RETURN(Buffer buffer, device_->allocate(tensor.bytes(), MemoryKind::kDevice));
      bindings.tensors.push_back(buffer.view());
      buffers.push_back(std::move(buffer));
      const BufferView view = buffers.back().view();
      RONDO_RETURN_IF_ERROR(is_floating(tensor.dtype) ? draw(view) : finish(clear(view)));
      const bool is_filled = tensor.role == TensorRole::kBatch || tensor.dtype == DType::kInt32;
      if (fill && is_filled) RONDO_RETURN_IF_ERROR(write(tensor, view, fill));
    }
    Buffer scratch;
    if (layout.size > 0) {
      RONDO_ASSIGN_OR_RETURN(scratch, device_->allocate(layout.size, MemoryKind::kDevice));
      bindings.scratch = scratch.view();
      RONDO_RETURN_IF_ERROR(draw(scratch.view()));
    }
    RONDO_ASSIGN_OR_RETURN(const std::vector<Bindings> turns, place_weights(bindings, weights, apart));
    std::size_t turn = 0;
    const auto run = [&](Point done) {
      device_->queue(QueueRole::kCompute).run(*program, turns[turn], {}, done, {"measure"});
      turn = (turn + 1) % turns.size();
    };
    return times(run, tries, kMostInARow);
  }

  /// What first runs have taken so far on a device whose driver compiles late; they are on no account of time.
  double first_use_seconds() const { return first_use_seconds_; }

  /// Seconds of a copy, each by itself: with its latency.
  absl::StatusOr<std::vector<double>> time_copy(QueueRole role, BufferView from, BufferView to, const Tries& tries) {
    return times(copy(role, from, to), tries, 1);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{60};
  static constexpr double kRowSeconds = 2e-3;
  static constexpr int kMostInARow = 256;
  static constexpr double kUnlikely = 8;
  static constexpr Bytes kWeightAlignment = 256;
  static constexpr Bytes kMostApart = 64_MiB;  // more than a core has cache
  static constexpr Bytes kMostSets = 64;

  Stopwatch(Device& device, std::unique_ptr<Timeline> timeline) : device_(&device), timeline_(std::move(timeline)) {}

  static bool is_of_weights(const TensorDesc& tensor) {
    return tensor.role == TensorRole::kWeight || tensor.role == TensorRole::kGradient;
  }

  /// `bindings`, whose tensors without memory lie in `bytes` of weights, to sets of weights that take turns. They lie
  /// in memory that all programs share, since filling it takes longer than a short run.
  absl::StatusOr<std::vector<Bindings>> place_weights(const Bindings& bindings, Bytes bytes, Bytes apart) {
    if (bytes == 0) return std::vector<Bindings>{bindings};
    const Bytes sets = std::clamp<Bytes>(std::min(apart, kMostApart) / bytes, 1, kMostSets);
    if (weights_.size() < sets * bytes) {
      weights_ = Buffer();
      RONDO_ASSIGN_OR_RETURN(weights_, device_->allocate(sets * bytes, MemoryKind::kDevice));
      RONDO_RETURN_IF_ERROR(draw(weights_.view()));
    }
    std::vector<Bindings> turns(sets, bindings);
    for (Bytes set = 0; set < sets; ++set) {
      for (BufferView& view : turns[set].tensors) {
        if (view.memory == nullptr) view = weights_.view().part(set * bytes + view.offset, view.size);
      }
    }
    return turns;
  }

  std::function<void(Point)> clear(BufferView view) {
    return [this, view](Point done) { device_->queue(QueueRole::kCompute).clear(view, {}, done, {"measure"}); };
  }

  std::function<void(Point)> copy(QueueRole role, BufferView from, BufferView to) {
    return [this, role, from, to](Point done) { device_->queue(role).copy(from, to, {}, done, {"measure"}); };
  }

  /// Fills memory with numbers: copies of one piece of the device's memory, as quick as clearing it.
  absl::Status draw(BufferView to) {
    if (to.size == 0) return absl::OkStatus();
    if (numbers_.size() == 0) RONDO_RETURN_IF_ERROR(make_numbers());
    Bytes done = 0;
    for (; done + numbers_.size() < to.size; done += numbers_.size()) {
      copy(QueueRole::kUp, numbers_.view(), to.part(done, numbers_.size()))(Point{timeline_.get(), ++value_});
    }
    return finish(copy(QueueRole::kUp, numbers_.view().part(0, to.size - done), to.part(done, to.size - done)));
  }

  /// They are normally distributed in bf16; two of them make one of fp32 that is much the same, and as fp16 they lie
  /// between -2 and 2. A few come from the host, and fill the rest by doubling.
  absl::Status make_numbers() {
    constexpr Bytes kFew = 256_KiB;
    constexpr Bytes kMost = 64_MiB;
    constexpr Bytes kPartOfMemory = 64;
    Bytes size = kFew;
    while (2 * size <= std::min(kMost, device_->caps().memory_bytes / kPartOfMemory)) size *= 2;
    RONDO_ASSIGN_OR_RETURN(const Buffer few, device_->allocate(kFew, MemoryKind::kPinned));
    std::byte* const host = few.view().host();  // none of devices that only take time
    for (std::uint64_t i = 0; host != nullptr && i < kFew / sizeof(std::uint16_t); ++i) {
      float sum = 0;  // of twelve, each of a variance of 1 / 12
      for (std::uint64_t k = 0; k < 12; ++k) sum += uniform_float(12 * i + k) - 0.5F;
      const std::uint16_t number = to_bfloat16(sum);
      std::memcpy(host + i * sizeof(number), &number, sizeof(number));
    }
    RONDO_ASSIGN_OR_RETURN(numbers_, device_->allocate(size, MemoryKind::kDevice));
    RONDO_RETURN_IF_ERROR(finish(copy(QueueRole::kUp, few.view(), numbers_.view().part(0, kFew))));
    for (Bytes done = kFew; done < size; done *= 2) {
      RONDO_RETURN_IF_ERROR(
          finish(copy(QueueRole::kUp, numbers_.view().part(0, done), numbers_.view().part(done, done))));
    }
    return absl::OkStatus();
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
    return finish(copy(QueueRole::kUp, home.view(), to));
  }

  /// Seconds of one of `runs` that follow one another.
  template <typename Enqueue>
  absl::StatusOr<double> time_row(Enqueue enqueue, int runs) {
    const Clock::time_point begin = Clock::now();
    for (int i = 1; i < runs; ++i) enqueue(Point{timeline_.get(), ++value_});
    RONDO_RETURN_IF_ERROR(finish(enqueue));
    return std::max(seconds_since(begin), 1e-9) / runs;
  }

  template <typename Enqueue>
  absl::StatusOr<std::vector<double>> times(Enqueue enqueue, const Tries& tries, int most_in_a_row) {
    Clock::time_point first = Clock::now();
    // The first fetches pages and code: it counts only where it has taken all the time there was.
    RONDO_ASSIGN_OR_RETURN(double each, time_row(enqueue, 1));
    if (device_->caps().first_use_seconds > 0) {
      // Most of it may have been the driver's compiler, which says nothing of the runs that follow.
      first_use_seconds_ += each;
      first = Clock::now();
      RONDO_ASSIGN_OR_RETURN(each, time_row(enqueue, 1));
    }
    std::vector<double> taken = {each};
    const bool unlikely = tries.expected > 0 && each > kUnlikely * tries.expected;
    if (seconds_since(first) > tries.seconds && unlikely) {
      RONDO_ASSIGN_OR_RETURN(each, time_row(enqueue, 1));
      taken = {std::min(taken[0], each)};
    }
    if (seconds_since(first) > tries.seconds) return taken;
    int runs = 1;
    bool counts = false;
    do {
      RONDO_ASSIGN_OR_RETURN(each, time_row(enqueue, runs));
      const double row = runs * each;
      if (!counts) taken.clear();
      taken.push_back(each);
      counts = row >= kRowSeconds || runs >= most_in_a_row;
      if (!counts) runs = std::min(most_in_a_row, runs * std::clamp(static_cast<int>(2 * kRowSeconds / row), 2, 16));
    } while (static_cast<int>(taken.size()) < tries.most && seconds_since(first) + runs * each <= tries.seconds);
    return taken;
  }

  Device* device_;
  std::unique_ptr<Timeline> timeline_;
  Buffer weights_;
  Buffer numbers_;
  std::uint64_t value_ = 0;
  double first_use_seconds_ = 0;
};

}  // namespace rondo::devices
