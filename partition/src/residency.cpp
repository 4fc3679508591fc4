// Which weights stay on a device: the memory that a plan leaves free holds what then need not be carried again.
//
// A layer that n slots of the device visit is carried n times a step when it is streamed; when it stays, only its
// trained weights are, once. A layer that stays takes its bytes, but the two streaming buffers may shrink by it.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

struct Candidate {
  LayerIndex layer = 0;
  Bytes bytes = 0;
  double saved = 0;                // bytes a step not carried, for each byte kept
  std::vector<std::size_t> slots;  // that visit it
};

class Chooser {
 public:
  Chooser(const ModelShape& model, const std::vector<Slot>& slots, DeviceIndex index) {
    std::vector<std::vector<std::size_t>> visits(model.layers.size());
    for (const Slot& slot : slots) {
      // Gradients of weights need none.
      if (slot.device != index || catches_up(slot)) continue;
      Bytes streamed = 0;
      for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
        visits[layer].push_back(streamed_.size());
        streamed += model.layers[layer].weight_bytes;
      }
      streamed_.push_back(streamed);
    }
    for (LayerIndex layer = 0; layer < model.layers.size(); ++layer) {
      const LayerShape& shape = model.layers[layer];
      const Bytes carried = shape.weight_bytes * visits[layer].size();
      if (carried <= shape.trained_weight_bytes) continue;
      candidates_.push_back(
          {layer, shape.weight_bytes,
           static_cast<double>(carried - shape.trained_weight_bytes) / static_cast<double>(shape.weight_bytes),
           std::move(visits[layer])});
    }
  }

  /// `room`: for resident weights and both streaming buffers.
  std::vector<LayerIndex> choose(Bytes room) {
    std::vector<LayerIndex> chosen;
    std::vector<Candidate> refused;
    while (!candidates_.empty()) {
      const auto best = std::ranges::max_element(candidates_, std::ranges::less(), [this](const Candidate& one) {
        Bytes largest = 0;
        for (const std::size_t slot : one.slots) largest = std::max(largest, streamed_[slot]);
        return std::tuple(one.saved, largest, ~one.layer);
      });
      keep(*best);
      if (needed() <= room) {
        chosen.push_back(best->layer);
        candidates_.erase(best);
        // The buffers may have shrunk.
        std::ranges::move(refused, std::back_inserter(candidates_));
        refused.clear();
      } else {
        stream(*best);
        refused.push_back(std::move(*best));
        candidates_.erase(best);
      }
    }
    std::ranges::sort(chosen);
    return chosen;
  }

  bool all_fit(Bytes room) {
    for (const Candidate& one : candidates_) keep(one);
    const bool fit = needed() <= room;
    for (const Candidate& one : candidates_) stream(one);
    return fit;
  }
  std::vector<LayerIndex> all() const {
    std::vector<LayerIndex> layers;
    for (const Candidate& one : candidates_) layers.push_back(one.layer);
    return layers;
  }

 private:
  void keep(const Candidate& one) {
    for (const std::size_t slot : one.slots) streamed_[slot] -= one.bytes;
    resident_ += round_up(one.bytes, kAlignment);
  }
  void stream(const Candidate& one) {
    for (const std::size_t slot : one.slots) streamed_[slot] += one.bytes;
    resident_ -= round_up(one.bytes, kAlignment);
  }
  Bytes needed() const { return resident_ + 2 * round_up(std::ranges::max(streamed_), kAlignment); }

  std::vector<Candidate> candidates_;
  std::vector<Bytes> streamed_;  // by slot of the device
  Bytes resident_ = 0;
};

}  // namespace

std::vector<LayerIndex> choose_residents(const ModelShape& model, const Workload& work, const DeviceShape& device,
                                         DeviceIndex index, const std::vector<Slot>& slots, Keep keep) {
  if (!work.resident_weights || !device.fetches_weights()) return {};
  const DeviceLayout layout = layout_device(model, work, device, index, slots, keep);
  const Bytes others = layout.total() - layout.weights * layout.weight_buffers + device.fixed_bytes;
  if (layout.total() == 0 || others >= device.budget_bytes) return {};
  const Bytes room = device.budget_bytes - others;
  Chooser chooser(model, slots, index);
  // Layer by layer the streaming buffers shrink late; all together they vanish at once.
  return chooser.all_fit(room) ? chooser.all() : chooser.choose(room);
}

}  // namespace rondo::partition
