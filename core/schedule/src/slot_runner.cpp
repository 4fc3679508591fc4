#include "slot_runner.h"

#include <algorithm>
#include <numeric>

#include "absl/container/inlined_vector.h"

namespace rondo::schedule {
namespace {

using model::LayerIndex;
using model::Phase;
using partition::SlotPhase;

model::Keep to_model(partition::Keep keep) { return static_cast<model::Keep>(keep); }

class ChainBuilder {
 public:
  ChainBuilder(const model::Architecture& model, const partition::ModelShape& shape, const partition::Slot& slot,
               const std::vector<partition::Slot>& slots, partition::Keep keep)
      : model_(model), shape_(shape), slot_(slot), keep_(keep), cuts_(partition::published_cuts(slot, slots)) {}

  std::vector<ChainLink> forward(bool evaluate) {
    for (LayerIndex layer = slot_.first_layer; layer <= slot_.last_layer; ++layer) {
      const Phase phase = evaluate ? evaluation_of(layer) : Phase::kForward;
      add({layer, phase, model::Keep::kNothing, input_of(layer), {}, output_of(layer), false});
    }
    return std::move(chain_);
  }

  std::vector<ChainLink> evaluate() {
    const LayerIndex head = fused_head();
    for (LayerIndex layer = slot_.first_layer; layer < head; ++layer) {
      add({layer, evaluation_of(layer), model::Keep::kNothing, input_of(layer), {}, output_of(layer), false});
    }
    add({head, Phase::kEvaluate, model::Keep::kNothing, input_of(head), {}, {}, false});
    return std::move(chain_);
  }

  std::vector<ChainLink> weight_gradients() {
    for (LayerIndex layer = slot_.last_layer + 1; layer-- > slot_.first_layer;) {
      if (!has_weight_gradients(layer)) continue;
      const PlaceRef gradient = layer == slot_.last_layer ? PlaceRef{Place::kInputGradient, 0} : held_gradient(layer);
      add({layer, Phase::kWeightGradient, kept(layer), {}, gradient, {}, false});
    }
    return std::move(chain_);
  }

  std::vector<ChainLink> with_gradients() {
    const LayerIndex top = slot_.phase == SlotPhase::kFused ? fused_head() : slot_.last_layer;
    for (LayerIndex layer = slot_.first_layer; layer < top; ++layer) {
      if (!model_.is_head(layer)) {
        add({layer, Phase::kForward, kept(layer), input_of(layer), {}, output_of(layer), false});
      } else if (layer == model_.first_head_layer()) {
        add({layer, Phase::kForward, model::Keep::kSelective, input_of(layer), {}, output_of(layer), false});
      }
    }
    gradient_ = {Place::kInputGradient, 0};
    const LayerIndex lowest = partition::lowest_gradient_layer(shape_, slot_);
    for (LayerIndex layer = top + 1; layer-- > std::max(lowest, slot_.first_layer);) backward(layer);
    if (lowest < slot_.first_layer) backward(lowest);
    return std::move(chain_);
  }

 private:
  void add(ChainLink link) {
    const bool joint = link.phase == Phase::kFused || (link.phase == Phase::kEvaluate && model_.is_head(link.layer));
    link.last_layer = joint ? slot_.last_layer : link.layer;
    chain_.push_back(link);
  }
  /// Below the loss: a program of its own where training draws random numbers, else that of training.
  Phase evaluation_of(LayerIndex layer) const { return model_.draws(layer) ? Phase::kEvaluate : Phase::kForward; }
  /// Of a fused slot: the layer whose program has all parts of the head that are in the slot.
  LayerIndex fused_head() const { return std::max(slot_.first_layer, model_.first_head_layer()); }
  model::Keep kept(LayerIndex layer) const { return to_model(partition::keep_of(shape_, slot_, layer, keep_)); }

  bool has_weight_gradients(LayerIndex layer) const { return !shape_.layers[layer].weight_gradients.ops.empty(); }
  PlaceRef held_gradient(LayerIndex layer) const { return {Place::kHeldGradient, layer - slot_.first_layer}; }

  PlaceRef input_of(LayerIndex layer) const {
    if (layer == 0) return {};
    if (layer == slot_.first_layer) return {Place::kInputActivation, 0};
    // On the way back the parts of a head but the first read the same.
    const bool like_part_below = slot_.phase != SlotPhase::kForward && layer > model_.first_head_layer() + 1;
    return like_part_below ? input_of(layer - 1) : output_of(layer - 1);
  }
  PlaceRef output_of(LayerIndex layer) const {
    const auto cut = std::ranges::find(cuts_, layer + 1);
    if (cut != cuts_.end()) return {Place::kOutput, static_cast<std::uint32_t>(cut - cuts_.begin())};
    return {Place::kActivation, layer + 1 - slot_.first_layer};
  }

  void backward(LayerIndex layer) {
    const bool head = slot_.phase == SlotPhase::kFused && model_.is_head(layer);
    const bool table = model_.layers()[layer].kind == model::LayerKind::kEmbedding;
    const bool defers = partition::defers_weights(shape_, slot_, layer);
    ChainLink link{layer,
                   head     ? Phase::kFused
                   : defers ? Phase::kInputGradient
                            : Phase::kBackward,
                   kept(layer),
                   table ? PlaceRef{} : input_of(layer),
                   head ? PlaceRef{} : gradient_,
                   {},
                   table};
    if (model_.layers()[layer].gives_input_gradient) {
      if (layer == slot_.first_layer && partition::sends_gradient(shape_, slot_)) {
        link.output = {Place::kOutput, 0};
      } else if (slot_.defers_weights && layer > slot_.first_layer && shape_.layers[layer - 1].holds_gradient) {
        link.output = held_gradient(layer - 1);
      } else {
        link.output = {Place::kGradient, turn_};
        turn_ = 1 - turn_;
      }
      gradient_ = link.output;
    }
    add(link);
  }

  const model::Architecture& model_;
  const partition::ModelShape& shape_;
  const partition::Slot& slot_;
  const partition::Keep keep_;
  const std::vector<partition::LayerIndex> cuts_;
  std::vector<ChainLink> chain_;
  PlaceRef gradient_;
  std::uint32_t turn_ = 0;
};

/// Sizes of a program's saved or held tensors.
class LastingTensors {
 public:
  void add(const devices::TensorDesc& tensor) {
    if (tensor.index >= sizes_.size()) sizes_.resize(tensor.index + 1, 0);
    sizes_[tensor.index] = round_up(tensor.bytes(), 64);
  }
  Bytes offset(std::uint32_t index) const { return std::accumulate(sizes_.begin(), sizes_.begin() + index, Bytes{0}); }
  Bytes all() const { return std::accumulate(sizes_.begin(), sizes_.end(), Bytes{0}); }

 private:
  absl::InlinedVector<Bytes, 64> sizes_;  // beyond these they take memory of their own
};

devices::BufferView view_of(PlaceRef ref, const partition::WorkspaceLayout& layout, const VisitMemory& memory,
                            Bytes offset, Bytes size) {
  switch (ref.place) {
    case Place::kNone:
      return {};
    case Place::kInputActivation:
      return memory.input_activation.part(offset, size);
    case Place::kInputGradient:
      return memory.input_gradient.part(offset, size);
    case Place::kActivation:
      return memory.workspace.part(layout.activations[ref.index] + offset, size);
    case Place::kGradient:
      return memory.workspace.part(layout.gradients[ref.index] + offset, size);
    case Place::kHeldGradient:
      return memory.held.part(layout.held_gradients[ref.index] + offset, size);
    case Place::kOutput:
      return memory.outputs[ref.index].part(offset, size);
  }
  return {};
}

/// Of a layer, or behind its own the only one of a layer above: Architecture::weight_place().
devices::BufferView weight_of(const std::vector<std::vector<devices::BufferView>>& layers, std::size_t place,
                              std::uint32_t index) {
  const std::size_t own = layers[place].size();
  return index < own ? layers[place][index] : layers[place + index - own + 1][0];
}

}  // namespace

std::vector<ChainLink> make_chain(const model::Architecture& model, const partition::ModelShape& shape,
                                  const partition::Slot& slot, const std::vector<partition::Slot>& slots,
                                  partition::Keep keep, bool evaluate) {
  ChainBuilder builder(model, shape, slot, slots, keep);
  if (slot.phase == SlotPhase::kForward) return builder.forward(evaluate);
  if (slot.phase == SlotPhase::kWeightGradient) return builder.weight_gradients();
  return evaluate ? builder.evaluate() : builder.with_gradients();
}

RowViews row_views(devices::BufferView place, std::uint32_t bucket, std::uint64_t width) {
  const Bytes ids = (Bytes{bucket} + 1) * sizeof(std::int32_t);
  return {place.part(0, ids), place.part(round_up(ids, 64), Bytes{bucket} * width * sizeof(float))};
}

RowViews row_views(const partition::WorkspaceLayout& layout, devices::BufferView workspace, std::uint32_t bucket,
                   std::uint64_t width) {
  return row_views(workspace.part(layout.rows, workspace.size - layout.rows), bucket, width);
}

void bind(const model::Architecture& model, const ChainLink& link, const devices::Program& program,
          const partition::Slot& slot, const partition::WorkspaceLayout& layout, const VisitMemory& memory,
          std::uint32_t bucket, devices::Bindings& bindings) {
  const devices::OpList& list = program.ops();
  const BatchLayout batch(model, bucket);
  const std::size_t place = link.layer >= slot.first_layer ? link.layer - slot.first_layer : 0;
  // Saved tensors lie one after another by index, and so do those held: beside these, or where they stay for longer.
  LastingTensors saved;
  LastingTensors held;
  // Where what passes between parts of a head lies: behind the activation or gradient that it comes or leaves with.
  Bytes behind_activation = 0;
  Bytes behind_gradient = 0;
  Bytes behind_output = 0;
  for (const auto& tensor : list.tensors) {
    const Bytes behind = round_up(tensor.bytes(), partition::kAlignment);
    if (tensor.role == devices::TensorRole::kInput && tensor.index == 0) behind_activation = behind;
    if (tensor.role == devices::TensorRole::kInput && tensor.index == 1) behind_gradient = behind;
    if (tensor.role == devices::TensorRole::kOutput && tensor.index == 0) behind_output = behind;
    if (tensor.role == devices::TensorRole::kSaved) saved.add(tensor);
    if (tensor.role == devices::TensorRole::kHeld) held.add(tensor);
  }
  bindings.tensors.resize(list.tensors.size());
  for (std::size_t id = 0; id < list.tensors.size(); ++id) {
    const devices::TensorDesc& tensor = list.tensors[id];
    devices::BufferView& view = bindings.tensors[id];
    switch (tensor.role) {
      case devices::TensorRole::kWeight:
        view = weight_of(*memory.weights, place, tensor.index).part(0, tensor.bytes());
        break;
      case devices::TensorRole::kGradient:
        view = weight_of(*memory.gradients, place, tensor.index).part(0, tensor.bytes());
        break;
      case devices::TensorRole::kRows: {
        const std::uint64_t width = tensor.index == 0 ? 0 : static_cast<std::uint64_t>(tensor.shape[1]);
        const RowViews rows =
            memory.rows.ids.memory != nullptr ? memory.rows : row_views(layout, memory.workspace, bucket, width);
        view = tensor.index == 0 ? rows.ids : rows.rows;
        break;
      }
      case devices::TensorRole::kInput:
        view = tensor.index % 2 == 0
                   ? view_of(link.input, layout, memory, tensor.index < 2 ? 0 : behind_activation, tensor.bytes())
                   : view_of(link.gradient, layout, memory, tensor.index < 2 ? 0 : behind_gradient, tensor.bytes());
        break;
      case devices::TensorRole::kOutput:
        view = view_of(link.output, layout, memory, tensor.index == 0 ? 0 : behind_output, tensor.bytes());
        break;
      case devices::TensorRole::kSaved:
        view = memory.workspace.part(layout.saved[place] + saved.offset(tensor.index), tensor.bytes());
        break;
      case devices::TensorRole::kHeld: {
        const Bytes offset = held.offset(tensor.index);
        view = layout.held.empty() ? memory.workspace.part(layout.saved[place] + saved.all() + offset, tensor.bytes())
                                   : memory.held.part(layout.held[place] + offset, tensor.bytes());
        break;
      }
      case devices::TensorRole::kBatch: {
        const auto which = static_cast<devices::BatchTensor>(tensor.index);
        view = memory.batch.part(batch.offset(which, model.layers()[link.layer].block), batch.size(which));
        break;
      }
      case devices::TensorRole::kLoss:
        view = memory.loss;
        break;
      case devices::TensorRole::kState:
      case devices::TensorRole::kLogits:
      case devices::TensorRole::kScratch:
        view = {};
        break;
    }
  }
  bindings.scratch = memory.workspace.part(layout.scratch, layout.size - layout.scratch);
  bindings.layer = link.layer;
}

}  // namespace rondo::schedule
