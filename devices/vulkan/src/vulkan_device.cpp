// A Vulkan card behind the device contract: host queues in front of its hardware queues.
//
// Thread rule: execute() runs on the host queues' threads, one a logical queue. Each has lanes of its own; programs run
// one at a time under the mutex of the workspace, which they share. All waits are over before anything is submitted, so
// that it makes no difference how many hardware queues there are.
#include "rondo/devices/vulkan/vulkan_device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "context.h"
#include "imported.h"
#include "lane.h"
#include "memory.h"
#include "pipelines.h"
#include "program.h"
#include "rondo/base/file.h"
#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/host_queue.h"

namespace rondo::devices::vulkan {
namespace {

/// What programs work in beyond their arenas is not known when a card is opened.
constexpr Bytes kReserve = 512_MiB;
/// Changes when kernels sum in another order.
constexpr int kKernelSet = 11;

/// What the card may give: its free memory less a reserve, and on cards that live in the host's memory half of what the
/// host has.
Bytes usable_bytes(const Instance& instance, const Card& card, std::uint32_t heap) {
  const Bytes free = instance.available_bytes(card, heap);
  if (card.info.software || card.info.integrated) return std::min<Bytes>(free, available_memory()) / 2;
  return free - std::min(free, std::max(kReserve, free / 16));
}

/// What the environment says, else the option, else `as_found`.
bool wanted(Use use, const char* variable, bool as_found) {
  const char* const text = std::getenv(variable);
  if (text != nullptr && std::string_view(text) == "off") return false;
  if (text != nullptr && std::string_view(text) == "on") return true;
  return use == Use::kAsFound ? as_found : use == Use::kAlways;
}

class VulkanDevice final : public Device, private HostBackend {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> make(const VulkanOptions& options);
  ~VulkanDevice() override {
    for (auto& queue : queues_) queue.reset();  // they call execute()
  }

  const DeviceCaps& caps() const override { return caps_; }
  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind kind) override;
  void expect_copies(BufferView host, QueueRole direction) override {
    if (direction == QueueRole::kUp) Imported::import(context_, host);
  }
  absl::Status use_in_place(BufferView host) override {
    return caps_.weights_in_place ? Imported::import_for_kernels(context_, host) : Device::use_in_place(host);
  }
  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout) override;
  absl::StatusOr<std::unique_ptr<Timeline>> timeline() override { return std::make_unique<HostTimeline>(); }
  Queue& queue(QueueRole role) override {
    return queues_[static_cast<std::size_t>(role) % caps_.hardware_queues]->role(role);
  }
  void observe(WorkObserver* observer) override {
    for (auto& queue : queues_) {
      if (queue != nullptr) queue->observe(observer);
    }
  }
  Bytes allocated_bytes() const override { return budget_->now(); }
  Bytes peak_bytes() const override { return budget_->peak(); }

 private:
  VulkanDevice(std::shared_ptr<Context> context, const VulkanOptions& options);
  absl::Status open();
  absl::StatusOr<HostSpan> execute(const HostWork& work, Moment ready) override;
  absl::StatusOr<std::uint64_t> begin(const HostWork& work) override;
  absl::Status finish(const HostWork& work, std::uint64_t begun) override;
  absl::StatusOr<std::uint64_t> submit(const HostWork& work);
  absl::Status in_words(const absl::Status& status, const HostWork& work) const;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Pipelines> pipelines_;
  std::shared_ptr<MemoryBudget> budget_;
  DeviceCaps caps_;
  bool separate_blocks_ = false;
  const VulkanProgram::Style style_;
  std::array<std::unique_ptr<Lane>, 3> lanes_;  // by role
  Mutex submitting_;                            // held while a program is submitted
  Block workspace_ ABSL_GUARDED_BY(submitting_);
  std::array<std::unique_ptr<HostQueue>, 3> queues_;  // last: their threads use everything above
};

VulkanDevice::VulkanDevice(std::shared_ptr<Context> context, const VulkanOptions& options)
    : context_(std::move(context)),
      pipelines_(std::make_shared<Pipelines>(context_, user_cache_folder(), options.backwards)),
      style_{.short_submissions = options.short_submissions, .parts = options.parts, .backwards = options.backwards} {
  const Card& card = context_->card();
  caps_.name = options.name;
  caps_.backend = "vulkan";
  caps_.description = fmt::format("{}, {}", card.info.name, card.info.driver);
  const Bytes usable = usable_bytes(context_->instance(), card, context_->device_heap()) / options.sharers;
  caps_.memory_bytes = options.memory_limit > 0 ? std::min(options.memory_limit, usable) : usable;
  caps_.most_block_bytes = std::min<Bytes>(card.most_bytes_at_once, options.most_block_bytes);
  budget_ = std::make_shared<MemoryBudget>(caps_.name, caps_.memory_bytes);
  caps_.compute_dtypes = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
  caps_.updates = true;
  caps_.memory_in_process = context_->memory_in_process();
  caps_.copy_engines = static_cast<std::uint32_t>(context_->hardware_queues() - 1);
  caps_.hardware_queues = options.single_queue ? 1 : 3;
  // For drivers that compile late in spite of Pipelines::translate(): a minute. lavapipe's compiler takes over ten
  // seconds on a machine that has much else to do.
  caps_.first_use_seconds = 60;
  if (card.matrix_units.bfloat16.there()) caps_.matrix_dtypes.push_back(DType::kBfloat16);
  if (card.matrix_units.float16.there()) caps_.matrix_dtypes.push_back(DType::kFloat16);
  caps_.weights_in_place = wanted(options.weights_in_place, "RONDO_VULKAN_WEIGHTS_IN_PLACE", card.info.integrated) &&
                           Imported::kernels_reach(context_);
  separate_blocks_ = options.separate_blocks || caps_.weights_in_place;
  caps_.numerics_class = fmt::format("vulkan{}{}-{}", kKernelSet,
                                     caps_.matrix_dtypes.empty()                   ? ""
                                     : caps_.multiplies_by_units(DType::kBfloat16) ? "-matrix"
                                                                                   : "-matrix-fp16",
                                     card.numerics_name);
}

absl::StatusOr<std::unique_ptr<Device>> VulkanDevice::make(const VulkanOptions& options) {
  RONDO_ASSIGN_OR_RETURN(std::shared_ptr<Instance> instance, Instance::make(options.on_complaint));
  RONDO_ASSIGN_OR_RETURN(const std::vector<Card> cards, instance->cards());
  if (options.index >= cards.size()) {
    return invalid_input("{}: no such card; this machine has {} Vulkan device(s), from vulkan:0 to vulkan:{}",
                         options.name, cards.size(), cards.size() - 1);
  }
  Card card = cards[options.index];
  if (!card.info.unsuitable.empty()) {
    return unimplemented("{}: {} ({}) cannot be used: {}", options.name, card.info.name, card.info.driver,
                         card.info.unsuitable);
  }
  if (!wanted(options.matrix_units, "RONDO_VULKAN_MATRIX_UNITS", !card.info.software)) card.matrix_units = {};
  if (options.no_doubles) card.has_doubles = false;
  card.careless = options.careless;
  if (options.no_bfloat16_units && card.matrix_units.float16.there()) card.matrix_units.bfloat16 = {};
  RONDO_ASSIGN_OR_RETURN(std::shared_ptr<Context> context,
                         Context::make(std::move(instance), std::move(card), options.name,
                                       {options.host_reaches, options.card_copies_from}));
  auto device = std::unique_ptr<VulkanDevice>(new VulkanDevice(std::move(context), options));
  RONDO_RETURN_IF_ERROR(device->open());
  return std::unique_ptr<Device>(std::move(device));
}

absl::Status VulkanDevice::open() {
  if (!separate_blocks_) context_->gather(caps_.memory_bytes);
  if (context_->gathered() != nullptr) caps_.most_block_bytes = caps_.memory_bytes;
  RONDO_RETURN_IF_ERROR(pipelines_->prepare());
  const std::array<HardwareQueue*, 3> hardware = {&context_->compute(), &context_->transfer(true),
                                                  &context_->transfer(false)};
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    RONDO_ASSIGN_OR_RETURN(lanes_[i], Lane::make(context_, *hardware[i]));
  }
  for (std::size_t i = 0; i < caps_.hardware_queues; ++i) {
    queues_[i] = std::make_unique<HostQueue>(static_cast<HostBackend&>(*this));
    RONDO_RETURN_IF_ERROR(with_context(queues_[i]->started(), caps_.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> VulkanDevice::allocate(Bytes size, MemoryKind kind) {
  if (kind == MemoryKind::kPinned) {
    // Where the host copies by itself, any of its memory is as good.
    if (context_->host_writes_device() && context_->host_reads_device()) return allocate_resident_host(size, "pinned");
    RONDO_ASSIGN_OR_RETURN(Block block, Block::make(context_, size, Block::Kind::kStaging));
    return Buffer(std::make_unique<VulkanMemory>(size, std::move(block), context_.get(), nullptr));
  }
  RONDO_RETURN_IF_ERROR(context_->check_at_once(size, caps_.most_block_bytes));
  RONDO_RETURN_IF_ERROR(budget_->take(size));
  absl::StatusOr<Block> block = Block::make(context_, size, Block::Kind::kDevice);
  if (!block.ok()) {
    budget_->give_back(size);
    return block.status();
  }
  return Buffer(std::make_unique<VulkanMemory>(size, *std::move(block), context_.get(), budget_));
}

absl::StatusOr<std::unique_ptr<Program>> VulkanDevice::compile(const OpList& list, const ArenaLayout& layout) {
  absl::StatusOr<std::unique_ptr<VulkanProgram>> program =
      VulkanProgram::make(context_, pipelines_, list, layout, style_);
  if (!program.ok()) return with_context(program.status(), caps_.name);
  const MutexLock lock(submitting_);
  if (Panel* panel = pipelines_->panel(); panel != nullptr) panel->hold((*program)->panel_bytes());
  if ((*program)->workspace_bytes() > workspace_.size()) {
    RONDO_RETURN_IF_ERROR(context_->compute().settle());
    workspace_ = Block();  // first: the two need not fit side by side
    RONDO_ASSIGN_OR_RETURN(workspace_, Block::make(context_, (*program)->workspace_bytes(), Block::Kind::kDevice));
  }
  return std::unique_ptr<Program>(*std::move(program));
}

absl::Status VulkanDevice::in_words(const absl::Status& status, const HostWork& work) const {
  return status.ok() ? status : with_context(status, fmt::format("{}: '{}'", caps_.name, work.tag.name));
}

absl::StatusOr<HostSpan> VulkanDevice::execute(const HostWork& work, Moment /*ready*/) {
  const Moment begin = std::chrono::steady_clock::now();
  Lane& lane = *lanes_[static_cast<std::size_t>(work.role)];
  const bool copies = work.kind == HostWork::Kind::kCopy;
  RONDO_RETURN_IF_ERROR(in_words(copies ? lane.copy(work.from, work.to) : lane.clear(work.to), work));
  return span_since(begin);
}

absl::StatusOr<std::uint64_t> VulkanDevice::begin(const HostWork& work) {
  if (work.kind != HostWork::Kind::kRun) return 0;
  const absl::StatusOr<std::uint64_t> submitted = submit(work);
  RONDO_RETURN_IF_ERROR(in_words(submitted.status(), work));
  return *submitted;
}

absl::Status VulkanDevice::finish(const HostWork& work, std::uint64_t begun) {
  return in_words(dynamic_cast<const VulkanProgram&>(*work.program).finish(begun), work);
}

absl::StatusOr<std::uint64_t> VulkanDevice::submit(const HostWork& work) {
  const auto* program = dynamic_cast<const VulkanProgram*>(work.program);
  if (program == nullptr || program->owner() != context_.get()) {
    return internal_error("the program was compiled by another device");
  }
  const MutexLock lock(submitting_);
  if (workspace_.size() < program->workspace_bytes()) {
    return internal_error(
        "the workspace of {} bytes is too small, {} needed: it could not grow when a program was "
        "compiled",
        workspace_.size(), program->workspace_bytes());
  }
  return program->begin(*work.bindings, workspace_.address());
}

}  // namespace

absl::StatusOr<std::vector<CardInfo>> list_cards() {
  RONDO_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance, Instance::make(nullptr));
  RONDO_ASSIGN_OR_RETURN(const std::vector<Card> cards, instance->cards());
  std::vector<CardInfo> infos;
  for (const Card& card : cards) infos.push_back(card.info);
  return infos;
}

absl::StatusOr<std::unique_ptr<Device>> open_vulkan(const VulkanOptions& options) {
  return VulkanDevice::make(options);
}

}  // namespace rondo::devices::vulkan
