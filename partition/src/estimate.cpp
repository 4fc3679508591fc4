#include "estimate.h"

#include <algorithm>
#include <limits>

namespace rondo::partition {

StepEstimate::StepEstimate(const ModelShape& model, const Workload& work, const MachineShape& machine, What what)
    : bound_(what == What::kLowerBound),
      group_(std::max(work.reduction_group, 1U)),
      links_(machine.devices.size()),
      weights_{0},
      trained_weights_{0},
      gradients_{0},
      cuts_(model.layers.size() + 1),
      devices_(machine.devices.size()) {
  const double share =
      work.mean_tokens > 0 && work.microbatch_tokens > 0 ? work.mean_tokens / work.microbatch_tokens : 1.0;
  boundary_ = static_cast<double>(work.boundary_bytes) * share;
  batch_ = static_cast<double>(work.batch_bytes);
  double updated = 0;
  for (const LayerShape& layer : model.layers) {
    weights_.push_back(weights_.back() + static_cast<double>(layer.weight_bytes));
    trained_weights_.push_back(trained_weights_.back() + static_cast<double>(layer.trained_weight_bytes));
    gradients_.push_back(gradients_.back() + static_cast<double>(layer.gradient_bytes));
    updated += machine.host.update_seconds(static_cast<double>(layer.trained_parameters));
    updated_.push_back(layer.trained_parameters > 0 ? updated : 0);
    has_backward_.push_back(layer.has_backward);
  }
  all_updated_ = updated;
  if (machine.host.memory_bandwidth > 0) norm_per_byte_ = 1 / machine.host.memory_bandwidth;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const DeviceShape& device = machine.devices[i];
    on_host_.push_back(device.on_host);
    fetches_weights_.push_back(device.fetches_weights());
    if (device.unified_memory) continue;
    // Somewhere between everybody copying at once and nobody else; the same whoever else is in the pool.
    const double part = device.profile.root.empty() || bound_ ? 1.0 : 1.5;
    const auto pace = [&](double bandwidth) { return bandwidth > 0 ? part / bandwidth : 0; };
    Link& link = links_[i];
    link = {pace(device.profile.link_up), pace(device.profile.link_down), device.profile.link_latency_seconds};
    for (std::size_t n = 0; n < link.in.size(); ++n) {
      link.in[n] = copy(batch_ + boundary_ * static_cast<double>(n), link.up, link.latency);
    }
    link.out = copy(boundary_, link.down, link.latency);
  }
}

void StepEstimate::begin() {
  for (DeviceState& device : devices_) device = {};
  placed_.clear();
  done_ = 0;
}

const StepEstimate::Placed* StepEstimate::producer_of_activation(const Slot& slot) const {
  if (slot.first_layer == 0) return nullptr;
  return &placed_[covers_[slot.round * cuts_ + slot.first_layer]];
}

StepEstimate::VisitTerms StepEstimate::terms_of(const Slot& slot, std::uint32_t microbatches) const {
  const Link& link = links_[slot.device];
  VisitTerms terms;
  terms.count = microbatches;
  terms.seconds = slot.seconds;
  terms.in = in_seconds(slot);
  terms.out = out_seconds(slot);
  terms.pace = bound_ ? std::max(slot.seconds, terms.in) : std::max({slot.seconds, terms.in, terms.out});
  // Weights may stay on the device: then a visit brings none. What no update changes comes to the first one during the
  // step before.
  if (!bound_ && fetches_weights_[slot.device]) {
    const auto bring = [&](const std::vector<double>& sums) {
      return copy(sums[slot.last_layer + 1] - sums[slot.first_layer], link.up, link.latency);
    };
    terms.weights = {bring(trained_weights_), bring(weights_)};
  }
  terms.updated = on_host_[slot.device] ? all_updated_ : updated_[slot.last_layer];
  if (slot.phase != SlotPhase::kForward && has_backward_[slot.last_layer]) {
    terms.has_gradients = true;
    const std::uint32_t groups = (microbatches + group_ - 1) / group_;
    terms.home = groups * copy(gradients_[slot.last_layer + 1] - gradients_[slot.first_layer], link.down, link.latency);
    const double lowest = gradients_[slot.first_layer + 1] - gradients_[slot.first_layer];
    terms.behind = copy(lowest, link.down, link.latency);
    terms.norm = lowest * norm_per_byte_;
  }
  return terms;
}

void StepEstimate::place(const Slot& slot, std::uint32_t microbatches) {
  DeviceState& device = devices_[slot.device];
  Placed placed{slot.device, 0, 0, device, done_};
  double in_first = 0;
  double in_last = 0;
  if (const Placed* below = producer_of_activation(slot); below != nullptr) {
    in_first = below->out_first;
    in_last = below->out_last;
  }
  if (slot.phase == SlotPhase::kBackward) {
    in_first = std::max(in_first, placed_.back().out_first);
    in_last = std::max(in_last, placed_.back().out_last);
  }
  const VisitTerms terms = terms_of(slot, microbatches);
  const double weights = terms.weights[device.visited ? 1 : 0];
  device.visited = true;
  const double arrived = std::max(std::max(device.up_free, device.before) + weights, terms.updated);
  device.up_free = arrived + (bound_ ? 0 : terms.count * terms.in);
  device.up_load += weights + terms.count * terms.in;
  const double start = std::max(device.free, in_first + terms.in);
  const double first = bound_ ? std::max(start + terms.seconds, arrived)
                              : std::max(start, arrived - terms.seconds * kOverlap) + terms.seconds;
  const double last = std::max(first + (terms.count - 1) * terms.pace, in_last + terms.in + terms.seconds);
  device.before = device.free;
  device.free = last;
  placed.out_first = first + terms.out;
  placed.out_last = last + terms.out;
  if (terms.has_gradients) {
    device.down_free = std::max(device.down_free + (bound_ ? 0 : terms.home), last + terms.behind);
  }
  device.down_load += terms.count * terms.out + terms.home;
  done_ = std::max(
      {done_, last + terms.behind + terms.norm, device.down_free + terms.norm, device.up_load, device.down_load});
  if (slot.phase == SlotPhase::kForward) {
    covers_.resize(std::max(covers_.size(), (slot.round + 1) * cuts_));
    const auto covered = covers_.begin() + static_cast<std::ptrdiff_t>(slot.round * cuts_ + slot.first_layer + 1);
    std::fill_n(covered, slot.last_layer + 1 - slot.first_layer, static_cast<std::uint32_t>(placed_.size()));
  }
  placed_.push_back(placed);
}

void StepEstimate::take_back() {
  const Placed& placed = placed_.back();
  devices_[placed.device] = placed.state_before;
  done_ = placed.done_before;
  placed_.pop_back();
}

double StepEstimate::seconds_of(const std::vector<Slot>& slots, const std::vector<Round>& rounds) {
  return seconds_below(slots, rounds, std::numeric_limits<double>::infinity());
}

double StepEstimate::period_of(const std::vector<Slot>& slots, const std::vector<Round>& rounds) {
  begin();
  std::vector<double> begun(devices_.size(), -1.0);
  for (const Slot& slot : slots) {
    place(slot, rounds[slot.round].microbatches);
    double& begin = begun[slot.device];
    if (begin < 0) begin = std::max(0.0, placed_.back().out_first - out_seconds(slot) - slot.seconds);
  }
  double period = 0;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (begun[i] < 0) continue;
    period = std::max({period, devices_[i].free - begun[i], devices_[i].up_load, devices_[i].down_load});
  }
  return period;
}

double StepEstimate::seconds_below(const std::vector<Slot>& slots, const std::vector<Round>& rounds, double most) {
  begin();
  for (const Slot& slot : slots) {
    place(slot, rounds[slot.round].microbatches);
    if (done_ >= most) break;
  }
  return seconds();
}

}  // namespace rondo::partition
