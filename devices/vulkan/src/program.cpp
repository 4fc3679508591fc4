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
                            .careless = card.careless,
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
  RONDO_RETURN_IF_ERROR(place_constants(lowering));
  const Bytes table =
      (kFirstTensorSlot + list_.tensors.size() + pieces_.size() + constants_at_.size()) * sizeof(std::uint64_t);
  const std::vector<Dispatch> dispatches = in_parts(by_levels(list_, layout_, lowering.dispatches(), style_.backwards),
                                                    {style_.most_work, style_.parts, style_.backwards});
  dispatches_ = dispatches.size();
  for (Replay& replay : replays_) {
    RONDO_ASSIGN_OR_RETURN(replay.staging, Block::make_small(context_, kReport + table, Block::Kind::kStaging));
    RONDO_ASSIGN_OR_RETURN(replay.table, Block::make_small(context_, table, Block::Kind::kDevice));
    std::memset(replay.staging.host(), 0, replay.staging.size());
    RONDO_RETURN_IF_ERROR(record(dispatches, replay));
  }
  return absl::OkStatus();
}

absl::Status VulkanProgram::place_constants(const Lowering& lowering) {
  for (const std::size_t place : lowering.constant_places()) constants_at_.push_back(place * sizeof(float));
  const std::vector<float>& values = lowering.constants();
  if (values.empty()) return absl::OkStatus();
  const Bytes bytes = values.size() * sizeof(float);
  RONDO_ASSIGN_OR_RETURN(constants_, Block::make_small(context_, bytes, Block::Kind::kDevice));
  RONDO_ASSIGN_OR_RETURN(const Block source, Block::make_small(context_, bytes, Block::Kind::kStaging));
  std::memcpy(source.host(), values.data(), bytes);
  constexpr const char* kWhat = "copying a program's constants";
  const DeviceFunctions& vk = context_->functions();
  Commands once;
  RONDO_RETURN_IF_ERROR(once.make(context_, context_->compute().family(), Commands::Use::kOnce));
  RONDO_RETURN_IF_ERROR(once.begin(kWhat));
  const VkBufferCopy region{source.begin(), constants_.begin(), bytes};
  vk.CmdCopyBuffer(once.get(), source.buffer(), constants_.buffer(), 1, &region);
  RONDO_RETURN_IF_ERROR(once.end(kWhat));
  return context_->compute().run(std::array{once.get()});
}

absl::Status VulkanProgram::record(std::span<const Dispatch> dispatches, Replay& replay) {
  std::size_t done = 0;
  for (const std::size_t count : submissions_of(dispatches, style_.short_submissions ? 0 : style_.most_work)) {
    const Dispatch* const before = done == 0 ? nullptr : &dispatches[done - 1];
    RONDO_RETURN_IF_ERROR(
        record_submission(dispatches.subspan(done, count), before, done + count == dispatches.size(), replay));
    done += count;
  }
  return absl::OkStatus();
}

/// The first begins with the table. What is on both sides of a cut within a level may be under way at the same time, as
/// it may in one submission; the last lets the host see what all have written.
absl::Status VulkanProgram::record_submission(std::span<const Dispatch> dispatches, const Dispatch* before, bool last,
                                              Replay& replay) {
  constexpr const char* kWhat = "recording a program";
  const DeviceFunctions& vk = context_->functions();
  replay.recorded.push_back(std::make_unique<Commands>());
  Commands& recorded = *replay.recorded.back();
  RONDO_RETURN_IF_ERROR(recorded.make(context_, context_->compute().family(), Commands::Use::kOften));
  RONDO_RETURN_IF_ERROR(recorded.begin(kWhat));
  const VkCommandBuffer commands = recorded.get();
  replay.submitted.push_back(commands);
  if (before == nullptr) {
    const VkBufferCopy region{replay.staging.begin() + kReport, replay.table.begin(),
                              std::min(replay.staging.size() - kReport, replay.table.size())};
    vk.CmdCopyBuffer(commands, replay.staging.buffer(), replay.table.buffer(), 1, &region);
    begin_barrier(vk, commands);
  }
  pipelines_->bind_panel(commands);
  VkPipeline bound = VK_NULL_HANDLE;
  for (const Dispatch& dispatch : dispatches) {
    if (before != nullptr && before->level != dispatch.level) compute_barrier(vk, commands);
    before = &dispatch;
    RONDO_RETURN_IF_ERROR(record_dispatch(dispatch, replay, commands, bound));
  }
  if (last) end_barrier(vk, commands);
  return recorded.end(kWhat);
}

/// `bound`: the pipeline that is, and is then.
absl::Status VulkanProgram::record_dispatch(const Dispatch& dispatch, const Replay& replay, VkCommandBuffer commands,
                                            VkPipeline& bound) {
  const DeviceFunctions& vk = context_->functions();
  RONDO_ASSIGN_OR_RETURN(const VkPipeline pipeline,
                         pipelines_->get(dispatch.shader, dispatch.constants, dispatch.part));
  if (pipeline != bound) vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  bound = pipeline;
  Push push = dispatch.push;
  push.table = replay.table.address();
  push.fetched = pipelines_->panel() == nullptr ? 0 : pipelines_->panel()->first_fetched();
  for (std::uint32_t& slot : push.slots) slot = place_of(slot, list_.tensors.size(), pieces_.size());
  vk.CmdPushConstants(commands, pipelines_->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
  const auto& [x, y, z] = dispatch.groups;
  if (dispatch.part) {
    vk.CmdDispatchBase(commands, dispatch.begin[0], dispatch.begin[1], dispatch.begin[2], x, y, z);
  } else {
    vk.CmdDispatch(commands, x, y, z);
  }
  return absl::OkStatus();
}

/// Where kernels find a tensor; 0 when they do not.
VkDeviceAddress VulkanProgram::address_of(const TensorDesc& tensor, const BufferView& view) const {
  if (const Block* block = block_of(view, *context_); block != nullptr) return block->address() + view.offset;
  if (tensor.role != TensorRole::kWeight || view.memory == nullptr) return 0;
  const Imported* const imported = Imported::of(*view.memory, *context_);
  return imported == nullptr || !imported->for_kernels() ? 0 : imported->address_of(view.host());
}

absl::Status VulkanProgram::bind(const Bindings& bindings, VkDeviceAddress workspace, const Replay& replay) const {
  if (bindings.tensors.size() < list_.tensors.size()) {
    return internal_error("{} tensors bound, the program has {}", bindings.tensors.size(), list_.tensors.size());
  }
  const Block* scratch = block_of(bindings.scratch, *context_);
  if (layout_.size > 0 && (scratch == nullptr || bindings.scratch.size < layout_.size)) {
    return internal_error("the scratch is bound to {} bytes, not {} of this card's memory", bindings.scratch.size,
                          layout_.size);
  }
  auto* table = reinterpret_cast<std::uint64_t*>(replay.staging.host() + kReport);
  table[0] = bindings.layer;
  table[1] = replay.staging.address();
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

absl::StatusOr<std::uint64_t> VulkanProgram::begin(const Bindings& bindings, VkDeviceAddress workspace) const {
  Replay& replay = replays_[next_];
  RONDO_RETURN_IF_ERROR(bind(bindings, workspace, replay));
  RONDO_ASSIGN_OR_RETURN(replay.value, context_->compute().submit(replay.submitted));
  next_ = (next_ + 1) % replays_.size();
  return replay.value;
}

absl::Status VulkanProgram::finish(std::uint64_t begun) const {
  RONDO_RETURN_IF_ERROR(context_->compute().wait(begun));
  return report(replays_[replays_[0].value == begun ? 0 : 1]);
}

absl::Status VulkanProgram::report(const Replay& replay) {
  auto* words = reinterpret_cast<volatile std::int32_t*>(replay.staging.host());
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
