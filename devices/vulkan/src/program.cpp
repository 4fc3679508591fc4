// Behind program.h.
//
// Kernels know tensors as places in a table of addresses (lowering.h says what lies where), which the command buffer
// copies from the host at its beginning. So a run writes the table and submits; nothing is recorded again.
#include "program.h"

#include <algorithm>
#include <cstring>

#include "imported.h"
#include "lane.h"
#include "memory.h"
#include "order.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

constexpr Bytes kWidestWord = 8;  // that kernels read at once: NVIDIA's cards stop at one that lies across
constexpr Bytes kReport = 64;     // bytes at the beginning of the staging block: Fault, token, value

/// A slot of the lowering as a place in the table.
std::uint32_t place_of(std::uint32_t slot, std::size_t tensors, std::size_t pieces) {
  const auto first_piece = static_cast<std::uint32_t>(kFirstTensorSlot + tensors);
  if (slot >= kConstantMark) return first_piece + static_cast<std::uint32_t>(pieces) + (slot - kConstantMark);
  return slot >= kWorkspaceMark ? first_piece + (slot - kWorkspaceMark) : slot;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VulkanProgram>> VulkanProgram::make(std::shared_ptr<Context> context,
                                                                   std::shared_ptr<Pipelines> pipelines,
                                                                   const OpList& list, const ArenaLayout& layout,
                                                                   const Style& style) {
  RONDO_RETURN_IF_ERROR(validate(list));
  RONDO_RETURN_IF_ERROR(refuse_fp8(list));
  auto program =
      std::unique_ptr<VulkanProgram>(new VulkanProgram(std::move(context), std::move(pipelines), list, layout, style));
  RONDO_RETURN_IF_ERROR(program->prepare());
  return program;
}

absl::Status VulkanProgram::prepare() {
  const Panel* panel = pipelines_->panel();
  const Card& card = context_->card();
  Lowering lowering(list_, {.panel = panel != nullptr,
                            .fetches_all = panel != nullptr && panel->fetches_all(),
                            .doubles = card.has_doubles,
                            .units = card.matrix_units});
  RONDO_RETURN_IF_ERROR(lowering.lower_all());
  std::vector<bool> named(list_.tensors.size(), false);
  for (const Op& op : list_.ops) {
    for (const TensorId id : op.reads) named[id] = true;
    for (const TensorId id : op.writes) named[id] = true;
  }
  for (TensorId id = 0; id < named.size(); ++id) {
    if (named[id]) used_.push_back(id);
  }
  fetched_ = lowering.fetched();
  pieces_ = lowering.workspace_pieces();
  workspace_bytes_ = lowering.workspace_bytes();
  panel_bytes_ = lowering.panel_bytes();
  dispatches_ = lowering.dispatches().size();
  RONDO_RETURN_IF_ERROR(place_constants(lowering));
  const Bytes table =
      (kFirstTensorSlot + list_.tensors.size() + pieces_.size() + constants_at_.size()) * sizeof(std::uint64_t);
  RONDO_ASSIGN_OR_RETURN(staging_, Block::make(context_, kReport + table, Block::Kind::kStaging));
  RONDO_ASSIGN_OR_RETURN(table_, Block::make(context_, table, Block::Kind::kDevice));
  std::memset(staging_.host(), 0, staging_.size());
  return record(lowering);
}

absl::Status VulkanProgram::place_constants(const Lowering& lowering) {
  for (const std::size_t place : lowering.constant_places()) constants_at_.push_back(place * sizeof(float));
  const std::vector<float>& values = lowering.constants();
  if (values.empty()) return absl::OkStatus();
  const Bytes bytes = values.size() * sizeof(float);
  RONDO_ASSIGN_OR_RETURN(constants_, Block::make(context_, bytes, Block::Kind::kDevice));
  RONDO_ASSIGN_OR_RETURN(const Block source, Block::make(context_, bytes, Block::Kind::kStaging));
  std::memcpy(source.host(), values.data(), bytes);
  RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Lane> lane, Lane::make(context_, context_->compute()));
  return lane->copy_blocks(source, 0, constants_, 0, bytes);
}

absl::Status VulkanProgram::record(const Lowering& lowering) {
  const std::vector<Dispatch> dispatches = by_levels(list_, layout_, lowering.dispatches(), style_.backwards);
  std::span<const Dispatch> left = dispatches;
  for (const std::size_t count : submissions_of(left, style_.most_work)) {
    RONDO_RETURN_IF_ERROR(record_submission(left.first(count)));
    left = left.subspan(count);
  }
  return absl::OkStatus();
}

/// The first begins with the table.
absl::Status VulkanProgram::record_submission(std::span<const Dispatch> dispatches) {
  constexpr const char* kWhat = "recording a program";
  const DeviceFunctions& vk = context_->functions();
  const bool begins = recorded_.empty();
  recorded_.push_back(std::make_unique<Commands>());
  RONDO_RETURN_IF_ERROR(recorded_.back()->make(context_, context_->compute().family(), Commands::Use::kOften));
  RONDO_RETURN_IF_ERROR(recorded_.back()->begin(kWhat));
  const VkCommandBuffer commands = recorded_.back()->get();
  submitted_.push_back(commands);
  if (begins) {
    const VkBufferCopy region{staging_.begin() + kReport, table_.begin(),
                              std::min(staging_.size() - kReport, table_.size())};
    vk.CmdCopyBuffer(commands, staging_.buffer(), table_.buffer(), 1, &region);
  }
  begin_barrier(vk, commands);
  pipelines_->bind_panel(commands);
  VkPipeline bound = VK_NULL_HANDLE;
  const Dispatch* before = nullptr;
  for (const Dispatch& dispatch : dispatches) {
    RONDO_ASSIGN_OR_RETURN(const VkPipeline pipeline, pipelines_->get(dispatch.shader, dispatch.constants));
    if (before != nullptr && before->level != dispatch.level) compute_barrier(vk, commands);
    before = &dispatch;
    if (pipeline != bound) vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    bound = pipeline;
    Push push = dispatch.push;
    push.table = table_.address();
    push.fetched = pipelines_->panel() == nullptr ? 0 : pipelines_->panel()->first_fetched();
    for (std::uint32_t& slot : push.slots) slot = place_of(slot, list_.tensors.size(), pieces_.size());
    vk.CmdPushConstants(commands, pipelines_->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
    vk.CmdDispatch(commands, dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
  }
  end_barrier(vk, commands);
  return recorded_.back()->end(kWhat);
}

/// Where kernels find a tensor; 0 when they do not.
VkDeviceAddress VulkanProgram::address_of(const TensorDesc& tensor, const BufferView& view) const {
  if (const Block* block = block_of(view, *context_); block != nullptr) return block->address() + view.offset;
  if (tensor.role != TensorRole::kWeight || view.memory == nullptr) return 0;
  const Imported* const imported = Imported::of(*view.memory, *context_);
  return imported == nullptr || !imported->for_kernels() ? 0 : imported->address_of(view.host());
}

absl::Status VulkanProgram::bind(const Bindings& bindings, VkDeviceAddress workspace) const {
  if (bindings.tensors.size() < list_.tensors.size()) {
    return internal_error("{} tensors bound, the program has {}", bindings.tensors.size(), list_.tensors.size());
  }
  const Block* scratch = block_of(bindings.scratch, *context_);
  if (layout_.size > 0 && (scratch == nullptr || bindings.scratch.size < layout_.size)) {
    return internal_error("the scratch is bound to {} bytes, not {} of this card's memory", bindings.scratch.size,
                          layout_.size);
  }
  auto* table = reinterpret_cast<std::uint64_t*>(staging_.host() + kReport);
  table[0] = bindings.layer;
  table[1] = staging_.address();
  table[kPanelSlot] = pipelines_->panel() == nullptr ? 0 : pipelines_->panel()->address();
  for (const TensorId id : used_) {
    const TensorDesc& tensor = list_.tensors[id];
    std::uint64_t& entry = table[kFirstTensorSlot + id];
    if (tensor.role == TensorRole::kScratch) {
      entry = scratch->address() + bindings.scratch.offset + layout_.offsets[id];
      continue;
    }
    const BufferView& view = bindings.tensors[id];
    entry = address_of(tensor, view);
    if (entry == 0 || view.size < tensor.bytes()) {
      return internal_error("tensor '{}' is bound to {} bytes, not {} of this card's memory", tensor.name, view.size,
                            tensor.bytes());
    }
    Bytes grain = tensor.encoding == Encoding::kPlain ? size_of(tensor.dtype) : 4;  // codes are read in words
    if (is_floating(tensor.dtype)) grain = kWidestWord;
    if (fetched_[id]) grain = kTexelBytes;
    if (entry % grain != 0) {
      return internal_error("tensor '{}' is bound at {}, expected a multiple of {}", tensor.name, view.offset, grain);
    }
  }
  std::size_t next = kFirstTensorSlot + list_.tensors.size();
  for (const Bytes piece : pieces_) table[next++] = workspace + piece;
  for (const Bytes place : constants_at_) table[next++] = constants_.address() + place;
  return absl::OkStatus();
}

absl::Status VulkanProgram::run(const Bindings& bindings, VkDeviceAddress workspace) const {
  RONDO_RETURN_IF_ERROR(bind(bindings, workspace));
  RONDO_RETURN_IF_ERROR(context_->compute().run(submitted_));
  return report();
}

absl::Status VulkanProgram::report() const {
  auto* words = reinterpret_cast<volatile std::int32_t*>(staging_.host());
  const auto fault = static_cast<Fault>(words[0]);
  if (fault == Fault::kNone) return absl::OkStatus();
  const std::int32_t token = words[1];
  const std::int32_t value = words[2];
  words[0] = 0;
  switch (fault) {
    case Fault::kId:
      return internal_error("token {} has id {}, which the table does not have", token, value);
    case Fault::kTarget:
      return internal_error("token {} has target {}, which the vocabulary does not have", token, value);
    default:
      return internal_error("token {} has position {}, which the cache does not have", token, value);
  }
}

}  // namespace rondo::devices::vulkan
