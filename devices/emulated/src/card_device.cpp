// The device of a described card: memory under its limit, the time of its work, and failures on demand.
//
// Thread rule: execute() runs on the queues' threads, up to three at a time; what they share is const or locks itself.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "card_program.h"
#include "failure_switch.h"
#include "rondo/base/status.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/emulated/emulated_device.h"
#include "rondo/devices/host_queue.h"
#include "rondo/devices/memory_budget.h"
#include "rondo/devices/random.h"
#include "shared_link.h"

namespace rondo::devices::emulated {

class RootComplex {
 public:
  SharedLink up;
  SharedLink down;
};

std::shared_ptr<RootComplex> make_root_complex() { return std::make_shared<RootComplex>(); }

namespace {

using std::chrono::steady_clock;

std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e9)));
}

/// Gives its bytes back to the card when it dies. `storage` is empty on timed cards.
class OwnMemory final : public CardMemory {
 public:
  OwnMemory(Bytes size, Buffer storage, const void* owner, std::shared_ptr<MemoryBudget> budget)
      : CardMemory(size, storage.view().host(), owner), storage_(std::move(storage)), budget_(std::move(budget)) {}
  ~OwnMemory() override { budget_->give_back(size()); }

 private:
  const Buffer storage_;
  const std::shared_ptr<MemoryBudget> budget_;  // shared: memory may outlive its card
};

class CardDevice final : public Device, private HostBackend {
 public:
  CardDevice(CardOptions options, FailurePlan failure, Slowdown slowdown, std::unique_ptr<cpu::CpuExecutor> executor);
  ~CardDevice() override { failure_.release(); }  // before the queues end

  const DeviceCaps& caps() const override { return caps_; }
  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind kind) override;
  absl::Status use_in_place(BufferView host) override;
  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout) override;
  absl::StatusOr<std::unique_ptr<Timeline>> timeline() override {
    return std::unique_ptr<Timeline>(std::make_unique<HostTimeline>());
  }
  absl::Status started() const {
    absl::Status status;
    for (const auto& queue : queues_) status.Update(queue->started());
    return with_context(status, caps_.name);
  }
  Queue& queue(QueueRole role) override { return queues_[static_cast<std::size_t>(role) % queues_.size()]->role(role); }
  void observe(WorkObserver* observer) override {
    for (const auto& queue : queues_) queue->observe(observer);
  }
  Bytes allocated_bytes() const override { return budget_->now(); }
  Bytes peak_bytes() const override { return budget_->peak(); }

 private:
  bool timed() const { return executor_ == nullptr; }
  absl::StatusOr<HostSpan> execute(const HostWork& work, Moment ready) override;
  absl::StatusOr<Moment> run(const HostWork& work, Moment ready, bool corrupt);
  absl::StatusOr<Moment> copy(const HostWork& work, Moment ready, bool corrupt);
  absl::StatusOr<Moment> clear(const HostWork& work, Moment ready, bool corrupt);
  /// Sleeps until `ready` + `seconds`; the end is later when the host needed longer.
  Moment wait_out(Moment ready, double seconds) const;
  /// 1 on emulated cards; on timed ones about 1, within the profile's jitter.
  double jitter(QueueRole role);

  const CardOptions options_;
  const std::unique_ptr<cpu::CpuExecutor> executor_;  // null: timed
  const std::shared_ptr<MemoryBudget> budget_;        // shared with the memory
  const std::shared_ptr<RootComplex> root_;           // shared by the cards on it
  DeviceCaps caps_;
  FailureSwitch failure_;
  const Slowdown slowdown_;
  std::atomic<std::uint64_t> computed_ = 0;  // programs begun; relaxed: only the compute queue's thread counts
  std::array<std::atomic<std::uint64_t>, 3> drawn_{};  // jitters drawn by role; relaxed: each is only its own counter
  std::vector<std::unique_ptr<HostQueue>> queues_;     // last: their threads use everything above
};

CardDevice::CardDevice(CardOptions options, FailurePlan failure, Slowdown slowdown,
                       std::unique_ptr<cpu::CpuExecutor> executor)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      budget_(std::make_shared<MemoryBudget>(
          options_.name, options_.memory_limit > 0 ? std::min(options_.memory_limit, options_.profile.memory_bytes)
                                                   : options_.profile.memory_bytes)),
      root_(options_.root != nullptr ? options_.root : make_root_complex()),
      failure_(std::move(failure)),
      slowdown_(slowdown) {
  const DeviceProfile& profile = options_.profile;
  root_->up.attach(profile.link_up);
  root_->down.attach(profile.link_down);
  caps_.name = options_.name;
  caps_.backend = timed() ? "timed" : "emulated";
  caps_.description = timed() ? fmt::format("{}, its time only", profile.name)
                              : fmt::format("{}, computed by {}", profile.name, executor_->description());
  caps_.memory_bytes = budget_->limit();
  caps_.weights_in_place = profile.weights_in_place;
  caps_.memory_in_process = !timed();
  caps_.does_arithmetic = !timed();
  caps_.compute_dtypes = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
  caps_.updates = true;
  caps_.sets_gradients = timed();  // as CUDA's cards do: clearing is no op of a plan
  caps_.fp8 = profile.fp8_flops > 0;
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16}) {
    if (profile.speed(dtype) > 1.5 * profile.speed(DType::kFloat32)) caps_.matrix_dtypes.push_back(dtype);
  }
  caps_.copy_engines = 2;
  caps_.hardware_queues = options_.single_queue ? 1 : 3;
  caps_.numerics_class = timed() ? "timed" : executor_->numerics_class();
  caps_.library_bytes = timed() ? 0 : cpu::CpuExecutor::library_bytes();
  for (std::uint32_t i = 0; i < caps_.hardware_queues; ++i)
    queues_.push_back(std::make_unique<HostQueue>(static_cast<HostBackend&>(*this)));
}

absl::StatusOr<Buffer> CardDevice::allocate(Bytes size, MemoryKind kind) {
  if (kind == MemoryKind::kPinned) return timed() ? phantom_host(size) : allocate_resident_host(size, "pinned");
  RONDO_RETURN_IF_ERROR(budget_->take(size));
  Buffer storage;
  if (!timed()) {
    absl::StatusOr<Buffer> host = allocate_resident_host(size, caps_.name.c_str());
    if (!host.ok()) {
      budget_->give_back(size);
      return host.status();
    }
    storage = *std::move(host);
  }
  return Buffer(std::make_unique<OwnMemory>(size, std::move(storage), this, budget_));
}

absl::Status CardDevice::use_in_place(BufferView host) {
  if (!caps_.weights_in_place) return Device::use_in_place(host);
  host.memory->tie(this, std::make_unique<Memory::Tie>());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Program>> CardDevice::compile(const OpList& list, const ArenaLayout& layout) {
  RONDO_RETURN_IF_ERROR(validate(list));
  if (!caps_.fp8) RONDO_RETURN_IF_ERROR(refuse_fp8(list));
  std::unique_ptr<Program> inner;
  if (!timed()) {
    RONDO_ASSIGN_OR_RETURN(inner, executor_->compile(list, layout));
  }
  return std::unique_ptr<Program>(std::make_unique<CardProgram>(list, layout, options_.profile, std::move(inner)));
}

absl::StatusOr<HostSpan> CardDevice::execute(const HostWork& work, Moment ready) {
  const FailurePlan::Kind failure = failure_.next(work.role, ready);
  if (failure == FailurePlan::Kind::kError) {
    return internal_error("{}: '{}' failed, as fail_at says", caps_.name, work.tag.name);
  }
  if (failure == FailurePlan::Kind::kHang) {
    failure_.hang();
    return absl::CancelledError(fmt::format("{}: closed while '{}' hung, as fail_at says", caps_.name, work.tag.name));
  }
  const bool corrupt = failure == FailurePlan::Kind::kCorrupt;
  absl::StatusOr<Moment> end = Moment{};
  switch (work.kind) {
    case HostWork::Kind::kRun:
      end = run(work, ready, corrupt);
      break;
    case HostWork::Kind::kCopy:
      end = copy(work, ready, corrupt);
      break;
    case HostWork::Kind::kClear:
      end = clear(work, ready, corrupt);
      break;
  }
  if (!end.ok()) return with_context(end.status(), fmt::format("{}: '{}'", caps_.name, work.tag.name));
  return HostSpan{ready, *end};
}

/// All ones are no number in every floating-point dtype.
void spoil(BufferView view) { std::memset(view.host(), 0xFF, std::min<Bytes>(view.size, 64)); }

absl::StatusOr<Moment> CardDevice::run(const HostWork& work, Moment ready, bool corrupt) {
  const auto* program = dynamic_cast<const CardProgram*>(work.program);
  if (program == nullptr) return internal_error("the program was compiled by another backend");
  RONDO_RETURN_IF_ERROR(program->check(*work.bindings, this));
  const double slower = slowdown_.at(1 + computed_.fetch_add(1, std::memory_order_relaxed));
  const double seconds = program->seconds(*work.bindings) * jitter(work.role) * slower;
  if (!timed()) {
    RONDO_RETURN_IF_ERROR(executor_->execute(*program->inner(), *work.bindings));
    if (corrupt) spoil(work.bindings->tensors[program->first_written()]);
  }
  return wait_out(ready, seconds);
}

/// Flips the lowest bit of every sixteenth word: wrong, but ids and bounds stay near what they were.
void flip_bits(BufferView view) {
  for (Bytes i = 0; i < view.size; i += 64) view.host()[i] ^= std::byte{1};
}

absl::StatusOr<Moment> CardDevice::copy(const HostWork& work, Moment ready, bool corrupt) {
  const bool from_here = is_own(work.from, this);
  const bool to_here = is_own(work.to, this);
  if (!from_here && !to_here) return internal_error("neither side of the copy is memory of this card");
  const bool foreign = (!from_here && dynamic_cast<const CardMemory*>(work.from.memory) != nullptr) ||
                       (!to_here && dynamic_cast<const CardMemory*>(work.to.memory) != nullptr);
  if (foreign) return internal_error("the other side of the copy is memory of another card, or not within it");
  if (work.from.host() != nullptr && work.to.host() != nullptr) {
    std::memmove(work.to.host(), work.from.host(), work.to.size);
    if (corrupt) flip_bits(work.to);
  }
  const auto bytes = static_cast<double>(work.to.size) * jitter(work.role);
  if (from_here && to_here) return wait_out(ready, 2 * bytes / options_.profile.memory_bandwidth);
  const Moment begin = ready + duration_of(options_.profile.link_latency_seconds);
  const Moment moved = steady_clock::now();
  const Moment end = to_here ? root_->up.transfer(bytes, options_.profile.link_up, begin)
                             : root_->down.transfer(bytes, options_.profile.link_down, begin);
  return timed() ? end : std::max(end, moved);
}

absl::StatusOr<Moment> CardDevice::clear(const HostWork& work, Moment ready, bool corrupt) {
  if (!is_own(work.to, this)) return internal_error("what is to be cleared is not memory of this card");
  if (!timed()) std::memset(work.to.host(), 0, work.to.size);
  if (!timed() && corrupt) spoil(work.to);
  return wait_out(ready, static_cast<double>(work.to.size) / options_.profile.memory_bandwidth);
}

Moment CardDevice::wait_out(Moment ready, double seconds) const {
  const Moment end = ready + duration_of(seconds);
  const Moment now = steady_clock::now();
  if (now < end) {
    sleep_to(end);
    return end;
  }
  // A timed card was only late to look; an emulated one is through when the CPU is.
  return timed() ? end : now;
}

double CardDevice::jitter(QueueRole role) {
  if (!timed() || options_.profile.jitter <= 0) return 1;
  const auto index = static_cast<std::size_t>(role);
  const std::uint64_t count = drawn_[index].fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t key = combine_keys(combine_keys(options_.seed, index), count);
  return 1 + options_.profile.jitter * (2 * static_cast<double>(uniform_float(key)) - 1);
}

absl::StatusOr<FailurePlan> check_options(const CardOptions& options) {
  const DeviceProfile& profile = options.profile;
  const bool complete = !profile.flops.empty() && profile.memory_bytes > 0 && profile.memory_bandwidth > 0 &&
                        profile.link_up > 0 && profile.link_down > 0 && profile.efficiency > 0;
  if (!complete) {
    return invalid_input("{}: card '{}' needs flops, memory_bytes, memory_bandwidth, link_up, link_down and efficiency",
                         options.name, profile.name);
  }
  absl::StatusOr<FailurePlan> failure = parse_failure(profile.fail_at);
  if (!failure.ok()) return with_context(failure.status(), options.name + ": fail_at");
  return failure;
}

absl::StatusOr<std::unique_ptr<Device>> open_card(const CardOptions& options,
                                                  std::unique_ptr<cpu::CpuExecutor> executor) {
  RONDO_ASSIGN_OR_RETURN(FailurePlan failure, check_options(options));
  RONDO_ASSIGN_OR_RETURN(const Slowdown slowdown, parse_slowdown(options.profile.slow_at));
  auto device = std::make_unique<CardDevice>(options, std::move(failure), slowdown, std::move(executor));
  RONDO_RETURN_IF_ERROR(device->started());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_emulated(const CardOptions& options, ThreadPool& threads) {
  return open_card(options, std::make_unique<cpu::CpuExecutor>(threads));
}

absl::StatusOr<std::unique_ptr<Device>> open_timed(const CardOptions& options) { return open_card(options, nullptr); }

}  // namespace rondo::devices::emulated
