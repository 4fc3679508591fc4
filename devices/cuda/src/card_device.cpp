// A CUDA card behind the device contract: one stream to compute and one for each direction of copies, one workspace.
//
// The workspace serves what ops need beside the program's arena (chunks of logits, partial sums, cuBLASLt's own). It
// lies outside the device's memory_bytes and grows in compile() only; programs share it, since one stream computes.
#include "card_device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "card_queue.h"
#include "lanes.h"
#include "lower.h"
#include "program.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

/// Of what is free on the card, left for the workspace: logits of one chunk of a large vocabulary and cuBLASLt's.
constexpr Bytes kLeastReserve = 128_MiB;
constexpr Bytes kMostReserve = 2048_MiB;
constexpr Bytes kCardPerReserve = 24;
/// Of those logits: a part of the whole card. Their gradient takes half as much again.
constexpr Bytes kMostLogits = 1280_MiB;
constexpr Bytes kCardPerLogits = 64;

/// Powers of two of products in eight bits by cuBLASLt where it has such products, unless RONDO_CUDA_FP8_SCALES says
/// "own": then by a kernel behind every product.
bool wants_fp8_scales() {
  const char* scales = std::getenv("RONDO_CUDA_FP8_SCALES");
  return scales == nullptr || std::string_view(scales) != "own";
}

/// Changes with every change of kernels or of their order that changes bits.
constexpr int kKernelSet = 6;

class CardDevice final : public Device, private StreamWork {
 public:
  CardDevice(std::shared_ptr<Context> context, std::unique_ptr<ProductEngine> engine, std::shared_ptr<Graphs> graphs)
      : context_(std::move(context)), engine_(std::move(engine)), graphs_(std::move(graphs)) {}
  ~CardDevice() override;
  CardDevice(const CardDevice&) = delete;
  CardDevice& operator=(const CardDevice&) = delete;

  absl::Status open(const CudaOptions& options);
  const DeviceCaps& caps() const override { return caps_; }
  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind kind) override;
  void expect_copies(BufferView host, QueueRole /*direction*/) override { PageLocked::lock(context_, host); }
  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout) override;
  absl::StatusOr<std::unique_ptr<Timeline>> timeline() override { return std::make_unique<HostTimeline>(); }
  Queue& queue(QueueRole role) override { return queue_of(role).role(role); }
  void observe(WorkObserver* observer) override {
    for (auto& queue : queues_) {
      if (queue != nullptr) queue->observe(observer);
    }
  }
  Bytes allocated_bytes() const override { return budget_->now(); }
  Bytes peak_bytes() const override { return budget_->peak(); }

 private:
  void describe(const CudaOptions& options);
  CardQueue& queue_of(QueueRole role) {
    return *queues_[caps_.hardware_queues == 1 ? 0 : static_cast<std::size_t>(role)];
  }
  absl::Status submit(const HostWork& work, const Turn& turn) override;
  absl::Status run(const HostWork& work, const Turn& turn);
  absl::Status copy(const HostWork& work, StreamHandle stream);
  absl::Status clear(const HostWork& work, StreamHandle stream);
  bool reports(const HostWork& work) const override;
  Context& context() override { return *context_; }
  Mutex& submit_lock() override { return submit_lock_; }
  Standing standing(const Point& point) override;
  void finished(StreamHandle stream, std::uint64_t turn) override {
    if (graphs_ != nullptr && becomes_graphs(stream)) graphs_->finished(turn);
  }
  bool becomes_graphs(StreamHandle stream) { return stream == queue_of(QueueRole::kCompute).stream(); }

  const std::shared_ptr<Context> context_;
  const std::unique_ptr<ProductEngine> engine_;  // null: our own kernels
  const bool fp8_scales_ = engine_ != nullptr && wants_fp8_scales();
  const std::shared_ptr<Graphs> graphs_;  // of runs of the computing queue; null: none
  DeviceCaps caps_;
  std::shared_ptr<MemoryBudget> budget_;
  Bytes logits_ = 0;  // see LowerOptions
  Mutex submit_lock_;
  std::unique_ptr<CardMemory> workspace_;             // under submit_lock_, which the analysis cannot see through
  std::array<std::unique_ptr<CardQueue>, 3> queues_;  // by role, or the first alone
};

CardDevice::~CardDevice() {
  for (auto& queue : queues_) {
    if (queue != nullptr) queue->stop();  // their threads use the device and each other
  }
  if (graphs_ != nullptr) graphs_->close();  // while their stream is there
  for (auto& queue : queues_) queue.reset();
}

void CardDevice::describe(const CudaOptions& options) {
  const CardFacts& facts = context_->facts();
  const std::string products = engine_ != nullptr ? engine_->name() : "own products";
  caps_.name = options.name;
  caps_.backend = "cuda";
  caps_.description = fmt::format("{}, sm_{}{}, {} multiprocessors, {}", facts.name, facts.major, facts.minor,
                                  facts.multiprocessors, products);
  caps_.unified_memory = false;
  caps_.compute_dtypes = {DType::kFloat32, DType::kFloat16};
  // cuBLASLt multiplies bf16 from sm_80 on; our own kernels everywhere.
  if (facts.major >= 8 || engine_ == nullptr) caps_.compute_dtypes.push_back(DType::kBfloat16);
  if (engine_ != nullptr) caps_.matrix_dtypes = {DType::kBfloat16, DType::kFloat16};
  caps_.updates = true;
  caps_.sets_gradients = true;
  caps_.fp8 = std::pair(facts.major, facts.minor) >= std::pair(8, 9);
  caps_.copy_engines = static_cast<std::uint32_t>(std::max(facts.copy_engines, 0));
  caps_.hardware_queues = options.single_queue ? 1 : 3;
  // The number of multiprocessors decides which algorithm cuBLASLt takes, the room for logits the order of the sums
  // over tokens.
  caps_.numerics_class = fmt::format("cuda-sm{}{}-{}mp-{}-l{}-k{}", facts.major, facts.minor, facts.multiprocessors,
                                     engine_ != nullptr ? engine_->name() : "own", logits_ / 1_MiB, kKernelSet);
  if (fp8_scales_) caps_.numerics_class += "-s";
}

absl::Status CardDevice::open(const CudaOptions& options) {
  RONDO_ASSIGN_OR_RETURN(const Context::FreeMemory memory, context_->free_memory());
  const Bytes reserve = std::clamp(memory.free / kCardPerReserve, kLeastReserve, kMostReserve);
  logits_ = std::min(memory.total / kCardPerLogits, kMostLogits);
  describe(options);
  const Bytes share = memory.free / options.sharers;
  const Bytes usable = share > reserve ? share - reserve : 0;
  caps_.memory_bytes = options.memory_limit > 0 ? std::min(options.memory_limit, usable) : usable;
  if (caps_.memory_bytes == 0) {
    return resource_exhausted("{} has {} bytes free of {}, less than the workspace's {}", context_->facts().name, share,
                              memory.total, reserve);
  }
  budget_ = std::make_shared<MemoryBudget>(caps_.name, caps_.memory_bytes);
  for (std::size_t i = 0; i < caps_.hardware_queues; ++i) {
    RONDO_ASSIGN_OR_RETURN(queues_[i], CardQueue::make(*this));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> CardDevice::allocate(Bytes size, MemoryKind kind) {
  if (kind == MemoryKind::kPinned) {
    RONDO_ASSIGN_OR_RETURN(std::unique_ptr<PinnedMemory> pinned, PinnedMemory::make(context_, size));
    return Buffer(std::move(pinned));
  }
  RONDO_ASSIGN_OR_RETURN(std::unique_ptr<CardMemory> memory, CardMemory::make(context_, budget_, size));
  return Buffer(std::move(memory));
}

absl::StatusOr<std::unique_ptr<Program>> CardDevice::compile(const OpList& list, const ArenaLayout& layout) {
  RONDO_RETURN_IF_ERROR(validate(list));
  for (const Op& op : list.ops) {
    for (const TensorId id : op.reads) {
      const TensorDesc& tensor = list.tensors[id];
      if (tensor.dtype != DType::kBfloat16 || std::ranges::count(caps_.compute_dtypes, DType::kBfloat16) > 0) continue;
      return unimplemented("op {} has '{}' in bf16, which {} computes from sm_80 on; use fp32 or fp16",
                           name_of(op.kind), tensor.name, context_->facts().name);
    }
  }
  RONDO_RETURN_IF_ERROR(context_->lost());
  RONDO_RETURN_IF_ERROR(context_->enter());
  const CardFacts& facts = context_->facts();
  RONDO_ASSIGN_OR_RETURN(Steps steps, lower(list, {.engine = engine_.get(),
                                                   .float16_units = true,
                                                   .bfloat16_units = facts.major >= 8,
                                                   .warpgroups = facts.warpgroups,
                                                   .fp8 = caps_.fp8,
                                                   .fp8_scales = fp8_scales_,
                                                   .multiprocessors = facts.multiprocessors,
                                                   .most_shared = static_cast<Bytes>(facts.most_shared),
                                                   .logits = logits_}));
  const Bytes needed = round_up(steps.workspace, 256);
  const MutexLock submitting(submit_lock_);
  if (workspace_ == nullptr || workspace_->size() < needed) {
    // Runs of other programs may still be using the old one. Before the run, so a wait does no harm.
    RONDO_RETURN_IF_ERROR(context_->check(context_->driver().stream_synchronize(queue_of(QueueRole::kCompute).stream()),
                                          "cuStreamSynchronize"));
    workspace_.reset();  // first: the two need not fit side by side; submit() notices when the new one failed
    absl::StatusOr<std::unique_ptr<CardMemory>> memory = CardMemory::make(context_, nullptr, needed);
    if (!memory.ok()) return with_context(memory.status(), "workspace");
    workspace_ = *std::move(memory);
  }
  return std::unique_ptr<Program>(std::make_unique<CardProgram>(list, layout, std::move(steps), graphs_));
}

StreamWork::Standing CardDevice::standing(const Point& point) {
  using Kind = Standing::Kind;
  if (point.timeline == nullptr || point.value == 0) return {Kind::kReached, nullptr, {}};
  auto* timeline = dynamic_cast<HostTimeline*>(point.timeline);
  for (int look = 0; look < 2; ++look) {
    if (point.timeline->completed() >= point.value) return {Kind::kReached, nullptr, {}};
    // Poisoned and not reached: wait() has its error at once.
    if (timeline != nullptr && timeline->poisoned()) {
      const absl::Status status = timeline->wait(point.value, Moment::max());
      return status.ok() ? Standing{Kind::kReached, nullptr, {}} : Standing{Kind::kFailed, nullptr, status};
    }
    Standing best;
    std::uint64_t best_value = ~std::uint64_t{0};
    for (auto& queue : queues_) {
      if (queue != nullptr) queue->find(point, best_value, best);
    }
    if (best.kind != Kind::kUnknown) return best;
    // It may have been retired between the two looks: then the timeline knows.
  }
  return {};
}

absl::Status CardDevice::submit(const HostWork& work, const Turn& turn) {
  absl::Status status;
  switch (work.kind) {
    case HostWork::Kind::kRun:
      status = run(work, turn);
      break;
    case HostWork::Kind::kCopy:
      status = copy(work, turn.stream);
      break;
    case HostWork::Kind::kClear:
      status = clear(work, turn.stream);
      break;
  }
  if (status.ok()) return status;
  return with_context(status, fmt::format("{}: '{}'", caps_.name, work.tag.name));
}

bool CardDevice::reports(const HostWork& work) const {
  const auto* program = dynamic_cast<const CardProgram*>(work.program);
  return work.kind == HostWork::Kind::kRun && program != nullptr && program->may_fault();
}

absl::Status CardDevice::run(const HostWork& work, const Turn& turn) {
  const auto* program = dynamic_cast<const CardProgram*>(work.program);
  if (program == nullptr) return internal_error("the program was compiled by another backend");
  if (workspace_ == nullptr || workspace_->size() < program->workspace_bytes()) {
    return internal_error("the workspace is too small: it could not grow when a program was compiled");
  }
  RONDO_RETURN_IF_ERROR(program->enqueue(
      *work.bindings, {*context_, engine_.get(), turn, becomes_graphs(turn.stream), workspace_->address()}));
  if (!reports(work)) return absl::OkStatus();
  // The next run that may fault clears the record: in the stream, behind this.
  return context_->check(context_->driver().copy_down(turn.reported, turn.fault, sizeof(Fault), turn.stream),
                         "cuMemcpyDtoHAsync");
}

absl::Status CardDevice::copy(const HostWork& work, StreamHandle stream) {
  const BufferView& from = work.from;
  const BufferView& to = work.to;
  if (from.size == 0) return absl::OkStatus();
  const Driver& driver = context_->driver();
  if (from.host() == nullptr && to.host() == nullptr) {
    RONDO_ASSIGN_OR_RETURN(const DevicePointer source, address_of(from, *context_));
    RONDO_ASSIGN_OR_RETURN(const DevicePointer target, address_of(to, *context_));
    return context_->check(driver.copy_within(target, source, from.size, stream), "cuMemcpyDtoDAsync");
  }
  if (from.host() != nullptr && to.host() != nullptr) {
    return internal_error("neither side is this card's memory");
  }
  if (from.host() != nullptr) {
    RONDO_ASSIGN_OR_RETURN(const DevicePointer target, address_of(to, *context_));
    return context_->check(driver.copy_up(target, from.host(), from.size, stream), "cuMemcpyHtoDAsync");
  }
  RONDO_ASSIGN_OR_RETURN(const DevicePointer source, address_of(from, *context_));
  return context_->check(driver.copy_down(to.host(), source, from.size, stream), "cuMemcpyDtoHAsync");
}

absl::Status CardDevice::clear(const HostWork& work, StreamHandle stream) {
  RONDO_ASSIGN_OR_RETURN(const DevicePointer target, address_of(work.to, *context_));
  if (work.to.size == 0) return absl::OkStatus();
  return context_->check(context_->driver().set_bytes(target, 0, work.to.size, stream), "cuMemsetD8Async");
}

}  // namespace

DeviceProfile estimate_profile(const CardFacts& facts, Bytes memory_bytes) {
  const int architecture = facts.major * 10 + facts.minor;
  // Dense FLOPs of a multiprocessor in a clock, with fp32 sums.
  const double wide = architecture == 75 || architecture == 80 ? 128 : 256;
  const double narrow = architecture == 80 ? 2048 : facts.major == 9 ? 4096 : facts.major == 10 ? 8192 : 512;
  const double clocks = 1e3 * facts.clock_khz * facts.multiprocessors;
  DeviceProfile profile;
  profile.name = facts.name;
  profile.flops = {{DType::kFloat32, 0.6 * wide * clocks}, {DType::kFloat16, 0.6 * narrow * clocks}};
  if (facts.major >= 8) profile.flops[DType::kBfloat16] = 0.6 * narrow * clocks;
  if (std::pair(facts.major, facts.minor) >= std::pair(8, 9)) profile.fp8_flops = 2 * 0.6 * narrow * clocks;
  profile.memory_bytes = memory_bytes;
  profile.memory_bandwidth = 0.8 * 2 * 1e3 * facts.memory_clock_khz * facts.memory_bus_bits / 8;
  // PCIe 4.0 x16 as cards before Hopper have it, 5.0 from there on; a slot may have less.
  profile.link_up = facts.major >= 9 ? 40e9 : 20e9;
  profile.link_down = profile.link_up;
  profile.jitter = 0;
  profile.source = "an estimate from what the driver tells";
  return profile;
}

std::optional<GraphLimits> wanted_graphs() {
  const char* graphs = std::getenv("RONDO_CUDA_GRAPHS");
  if (graphs != nullptr && std::string_view(graphs) == "off") return std::nullopt;
  GraphLimits limits;
  const char* lanes = std::getenv("RONDO_CUDA_LANES");
  if (lanes != nullptr) limits.lanes = std::clamp<std::size_t>(std::strtoul(lanes, nullptr, 10), 1, kMostLanes);
  return limits;
}

absl::StatusOr<std::unique_ptr<Device>> open_card(const Driver& driver, const KernelImage& image,
                                                  const CardSetup& setup, const CudaOptions& options,
                                                  DeviceProfile* estimate) {
  RONDO_ASSIGN_OR_RETURN(std::shared_ptr<Context> context, Context::open(driver, image, options.ordinal));
  std::unique_ptr<ProductEngine> engine;
  if (setup.make_engine != nullptr) {
    RONDO_ASSIGN_OR_RETURN(engine, setup.make_engine());
  }
  std::shared_ptr<Graphs> graphs;
  if (setup.graphs.has_value() && driver.has_graphs()) graphs = std::make_shared<Graphs>(context, *setup.graphs);
  auto device = std::make_unique<CardDevice>(context, std::move(engine), std::move(graphs));
  RONDO_RETURN_IF_ERROR(device->open(options));
  if (estimate != nullptr) *estimate = estimate_profile(context->facts(), device->caps().memory_bytes);
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace rondo::devices::cuda
