// Greedy packing. For one limit the forward stages before any fused stage are the beginning of one greedy list, and the
// backward stages below a layer depend only on that layer and on whose turn it is: both are worked out once and shared
// by all places where the fused stage might begin.
#include "packing.h"

#include <algorithm>
#include <limits>

#include "rondo/partition/layout.h"
#include "rondo/partition/slots.h"

namespace rondo::partition {
namespace {

class Packer {
 public:
  Packer(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit)
      : times_(times), order_(order), limit_(limit * kSlack), below_((times.layers() + 1) * order.size()) {}

  std::optional<std::vector<Slot>> best() {
    pack_forward();
    std::optional<Choice> best;
    for (LayerIndex first = 0; first < times_.layers(); ++first) {
      // A forward stage of the lookup table alone would be a visit without FLOPs.
      if (first == 1) continue;
      const auto choice = try_fused(first);
      if (choice && (!best || choice->stages < best->stages ||
                     (choice->stages == best->stages && choice->seconds < best->seconds))) {
        best = choice;
      }
    }
    if (!best) return std::nullopt;
    return build(*best);
  }

 private:
  struct ForwardStage {
    Slot slot;
    std::size_t cursor = 0;  // behind it
    double before = 0;       // seconds of the stages before it
  };
  /// The backward stages below a layer, when it is a given device's turn.
  struct Below {
    bool known = false;
    bool possible = false;
    LayerIndex first = 0;  // of the uppermost
    DeviceIndex device = 0;
    std::size_t cursor = 0;  // behind the uppermost
    std::size_t stages = 0;
    double seconds = 0;
  };
  struct Choice {
    LayerIndex first = 0;
    DeviceIndex device = 0;
    std::size_t forward_stages = 0;
    std::size_t cursor = 0;  // behind the fused stage
    std::size_t stages = 0;
    double seconds = 0;
  };

  bool fits(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const {
    return times_.seconds(device, phase, first, last) <= limit_ && times_.fits_memory(device, phase, first, last);
  }

  /// The next device in turn for which `fits` holds; moves `cursor` behind it.
  template <typename Fits>
  std::optional<DeviceIndex> deal(std::size_t& cursor, Fits can) const {
    for (std::size_t tried = 0; tried < order_.size(); ++tried) {
      const DeviceIndex device = order_[cursor];
      cursor = (cursor + 1) % order_.size();
      if (can(device)) return device;
    }
    return std::nullopt;
  }

  void pack_forward() {
    std::size_t cursor = 0;
    double seconds = 0;
    const LayerIndex end = times_.layers() - 1;
    for (LayerIndex first = 0; first < end;) {
      const auto device = deal(cursor, [&](DeviceIndex d) { return fits(d, SlotPhase::kForward, first, first); });
      if (!device) return;
      LayerIndex last = first;
      while (last + 1 < end && fits(*device, SlotPhase::kForward, first, last + 1)) ++last;
      forward_.push_back({{SlotPhase::kForward, first, last, *device, 0, 0}, cursor, seconds});
      seconds += times_.seconds(*device, SlotPhase::kForward, first, last);
      first = last + 1;
    }
  }

  std::optional<Choice> try_fused(LayerIndex first) {
    Choice choice;
    choice.first = first;
    if (first > 0) {
      const auto behind = std::ranges::upper_bound(forward_, first - 1, {},
                                                   [](const ForwardStage& stage) { return stage.slot.first_layer; });
      if (behind == forward_.begin()) return std::nullopt;
      const ForwardStage& stage = *(behind - 1);
      if (stage.slot.last_layer + 1 < first) return std::nullopt;  // the greedy list ended before
      choice.forward_stages = static_cast<std::size_t>(behind - forward_.begin());
      choice.cursor = stage.cursor;
      choice.seconds =
          stage.before + times_.seconds(stage.slot.device, SlotPhase::kForward, stage.slot.first_layer, first - 1);
    }
    const LayerIndex last = times_.layers() - 1;
    const auto device = deal(choice.cursor, [&](DeviceIndex d) { return fits(d, SlotPhase::kFused, first, last); });
    if (!device) return std::nullopt;
    choice.device = *device;
    const Below& rest = below(first, choice.cursor);
    if (!rest.possible) return std::nullopt;
    choice.stages = choice.forward_stages + 1 + rest.stages;
    choice.seconds += times_.seconds(*device, SlotPhase::kFused, first, last) + rest.seconds;
    return choice;
  }

  const Below& below(LayerIndex end, std::size_t cursor) {
    Below& entry = below_[end * order_.size() + cursor];
    if (entry.known) return entry;
    entry.known = true;
    entry.possible = true;
    if (end <= times_.lowest_backward()) return entry;
    LayerIndex first = end - 1;
    std::size_t next = cursor;
    const auto device = deal(next, [&](DeviceIndex d) { return fits(d, SlotPhase::kBackward, first, end - 1); });
    entry.possible = device.has_value();
    if (!device) return entry;
    while (first > times_.lowest_backward() && fits(*device, SlotPhase::kBackward, first - 1, end - 1)) --first;
    const Below& rest = below(first, next);
    entry.first = first;
    entry.device = *device;
    entry.cursor = next;
    entry.possible = rest.possible;
    entry.stages = rest.stages + 1;
    entry.seconds = rest.seconds + times_.seconds(*device, SlotPhase::kBackward, first, end - 1);
    return entry;
  }

  std::vector<Slot> build(const Choice& choice) {
    std::vector<Slot> slots;
    const auto add = [&](SlotPhase phase, LayerIndex first, LayerIndex last, DeviceIndex device) {
      slots.push_back({phase, first, last, device, 0, times_.seconds(device, phase, first, last)});
    };
    for (std::size_t i = 0; i < choice.forward_stages; ++i) {
      const Slot& slot = forward_[i].slot;
      add(slot.phase, slot.first_layer, std::min(slot.last_layer, choice.first - 1), slot.device);
    }
    add(SlotPhase::kFused, choice.first, times_.layers() - 1, choice.device);
    std::size_t cursor = choice.cursor;
    for (LayerIndex end = choice.first; end > times_.lowest_backward();) {
      const Below& stage = below(end, cursor);
      add(SlotPhase::kBackward, stage.first, end - 1, stage.device);
      end = stage.first;
      cursor = stage.cursor;
    }
    return slots;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const double limit_;
  std::vector<ForwardStage> forward_;
  std::vector<Below> below_;  // [end][cursor]
};

}  // namespace

bool alike(const DeviceShape& a, const DeviceShape& b) {
  const devices::DeviceProfile& one = a.profile;
  const devices::DeviceProfile& other = b.profile;
  return one.flops == other.flops && one.fp8_flops == other.fp8_flops && one.efficiency == other.efficiency &&
         one.memory_bandwidth == other.memory_bandwidth && one.link_up == other.link_up &&
         one.link_down == other.link_down && one.link_latency_seconds == other.link_latency_seconds &&
         a.budget_bytes == b.budget_bytes && a.most_block_bytes == b.most_block_bytes &&
         a.unified_memory == b.unified_memory && a.weights_in_place == b.weights_in_place && a.on_host == b.on_host &&
         a.fixed_bytes == b.fixed_bytes && a.rates == b.rates;
}

TimeTable::TimeTable(const ModelShape& model, const Workload& work, const MachineShape& machine, Keep keep,
                     MemoryShares shares)
    : layers_(static_cast<LayerIndex>(model.layers.size())), first_head_(model.first_head_layer()) {
  for (const LayerShape& layer : model.layers) has_backward_.push_back(layer.has_backward);
  while (lowest_backward_ < layers_ && !has_backward_[lowest_backward_]) ++lowest_backward_;
  lowest_backward_ = std::max<LayerIndex>(lowest_backward_, 1);
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const auto same = std::ranges::find_if(machine.devices,
                                           [&](const DeviceShape& other) { return alike(other, machine.devices[i]); });
    const auto first = static_cast<std::size_t>(same - machine.devices.begin());
    like_.push_back(first);
    if (first < i) {
      sums_.push_back(Sums(sums_[first]));
      reach_.push_back(Reach(reach_[first]));
    } else {
      sums_.push_back(sum_up(model, work, machine.devices[i], keep));
      reach_.push_back(reach(model, work, machine.devices[i], keep, shares));
    }
  }
}

TimeTable::Sums TimeTable::sum_up(const ModelShape& model, const Workload& work, const DeviceShape& device,
                                  Keep keep) const {
  const double share = work.microbatch_tokens > 0 && work.mean_tokens > 0
                           ? work.mean_tokens / static_cast<double>(work.microbatch_tokens)
                           : 1.0;
  Sums sums;
  sums.forward = {0};
  sums.backward = {0};
  sums.weights = {0};
  sums.inside = {0};
  sums.fused = {0};
  for (LayerIndex i = 0; i < layers_; ++i) {
    const LayerShape& layer = model.layers[i];
    const bool head = i >= first_head_;
    const auto seconds = [&](const PhaseCost& cost) { return cost.seconds(device, work.dtype) * share; };
    const Keep kept = head ? Keep::kNothing : keep;
    const double backward = layer.has_backward ? seconds(layer.backward[static_cast<std::size_t>(kept)]) : 0;
    sums.forward.push_back(sums.forward.back() + seconds(layer.forward));
    sums.backward.push_back(sums.backward.back() + backward);
    sums.weights.push_back(sums.weights.back() + seconds(layer.weight_gradients));
    sums.whole.push_back(layer.has_backward ? seconds(layer.backward[0]) : seconds(layer.forward));
    sums.inside.push_back(sums.inside.back() + (head ? 0 : seconds(layer.forward)));
    sums.fused.push_back(sums.fused.back() + (layer.head_part ? seconds(layer.fused) : backward));
  }
  sums.table = has_backward_[0] ? sums.whole[0] : 0;
  return sums;
}

TimeTable::Reach TimeTable::reach(const ModelShape& model, const Workload& work, const DeviceShape& device, Keep keep,
                                  MemoryShares shares) const {
  const auto fits = [&](SlotPhase phase, LayerIndex first, LayerIndex last) {
    const DeviceLayout layout = layout_device(model, work, device, 0, {{phase, first, last, 0, 0, 0}}, keep);
    double share = phase == SlotPhase::kForward ? shares.forward : shares.backward;
    // Forward the lookup table is no slot without the next layer.
    if (share == 0 && (first == last || (phase == SlotPhase::kForward && last == 1))) share = 1;
    return blocks_fit(layout, device) && total_of(device_memory(layout, device)) <=
                                             static_cast<Bytes>(static_cast<double>(device.budget_bytes) * share);
  };
  Reach reach;
  LayerIndex end = 0;
  for (LayerIndex first = 0; first < layers_; ++first) {
    end = std::max(end, first);
    while (end < layers_ && fits(SlotPhase::kForward, first, end)) ++end;
    reach.forward_end.push_back(end);
  }
  LayerIndex begin = 0;
  for (LayerIndex last = 0; last < layers_; ++last) {
    while (begin <= last && !fits(SlotPhase::kBackward, begin, last)) ++begin;
    reach.backward_begin.push_back(begin);
  }
  reach.fused_begin = layers_;
  while (reach.fused_begin > 0 && fits(SlotPhase::kFused, reach.fused_begin - 1, layers_ - 1)) --reach.fused_begin;
  return reach;
}

double TimeTable::least_seconds(const std::vector<DeviceIndex>& devices, double visit_seconds) const {
  // Measured on the first device: every other is at most so many times as fast as it is on its best layer.
  const Sums& reference = sums_[devices[0]];
  // Only in the fused visit does a layer's backward start from what its only forward has kept.
  LayerIndex fused = layers_ - 1;
  for (const DeviceIndex device : devices) {
    while (fused > 0 && seconds(device, SlotPhase::kFused, fused - 1, layers_ - 1) <= visit_seconds) --fused;
  }
  const auto cost = [&](LayerIndex i) {
    if (i + 1 == layers_) return reference.whole[i];
    if (i >= first_head_ && i >= fused) return reference.fused[i + 1] - reference.fused[i];
    const double forward = reference.forward[i + 1] - reference.forward[i];
    if (!has_backward_[i]) return forward;
    const double backward = reference.backward[i + 1] - reference.backward[i];
    return forward + std::min(reference.whole[i], backward + (i < fused ? forward : 0));
  };
  double whole = 0;
  for (LayerIndex i = 1; i < layers_; ++i) whole += cost(i);
  double speed = 0;
  for (const DeviceIndex device : devices) {
    double quickest = 0;
    for (LayerIndex i = 1; i < layers_; ++i) {
      const Sums& own = sums_[device];
      const auto forward = [i](const Sums& sums) { return sums.forward[i + 1] - sums.forward[i]; };
      const auto backward = [i](const Sums& sums) { return sums.backward[i + 1] - sums.backward[i]; };
      const auto ratio = [&](double here, double there) {
        if (here > 0) quickest = std::max(quickest, there / here);
      };
      ratio(forward(own), forward(reference));
      ratio(backward(own), backward(reference));
      ratio(own.whole[i], reference.whole[i]);
      ratio(own.fused[i + 1] - own.fused[i], reference.fused[i + 1] - reference.fused[i]);
    }
    speed += quickest;
  }
  return speed > 0 ? whole / speed * (1 - 1e-9) : 0;
}

double TimeTable::least_forbidden_seconds(const std::vector<DeviceIndex>& devices) const {
  const LayerIndex last = layers_ - 1;
  double least = std::numeric_limits<double>::infinity();
  // Looked at are the smallest ranges that do not fit.
  for (const DeviceIndex device : devices) {
    const auto forbid = [&](SlotPhase phase, LayerIndex first, LayerIndex end) {
      least = std::min(least, seconds(device, phase, first, end));
    };
    const Reach& reach = reach_[device];
    if (reach.fused_begin > 0) forbid(SlotPhase::kFused, reach.fused_begin - 1, last);
    for (LayerIndex i = 0; i < last; ++i) {
      if (reach.forward_end[i] < last) forbid(SlotPhase::kForward, i, reach.forward_end[i]);
      const LayerIndex begin = reach.backward_begin[i];
      if (i >= lowest_backward_ && begin > lowest_backward_) forbid(SlotPhase::kBackward, begin - 1, i);
    }
  }
  return least;
}

std::optional<std::vector<Slot>> pack_best(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                           double limit) {
  return Packer(times, order, limit).best();
}

}  // namespace rondo::partition
