#include "event_simulator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "packing.h"
#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

double share_of(const Workload& work) {
  return work.mean_tokens > 0 && work.microbatch_tokens > 0 ? work.mean_tokens / work.microbatch_tokens : 1.0;
}

}  // namespace

LayerSeconds::LayerSeconds(const ModelShape& model, const Workload& work, const MachineShape& machine) {
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    const auto same = std::ranges::find_if(machine.devices,
                                           [&](const DeviceShape& other) { return alike(other, machine.devices[i]); });
    const auto first = static_cast<std::size_t>(same - machine.devices.begin());
    if (first < i) {
      by_device_.push_back(std::shared_ptr(by_device_[first]));
      continue;
    }
    auto seconds = std::make_shared<std::vector<double>>();
    for (const LayerShape& layer : model.layers) {
      seconds->push_back(layer.forward.seconds(machine.devices[i], work.dtype) * share_of(work));
    }
    by_device_.push_back(std::move(seconds));
  }
}

EventSimulator::EventSimulator(const Plan& plan, const ModelShape& model, const Workload& work,
                               const MachineShape& machine, const LayerSeconds& seconds, bool keep_spans)
    : model_(model),
      work_(work),
      machine_(machine),
      seconds_(seconds),
      staleness_(work.staleness),
      keep_spans_(keep_spans),
      links_(machine),
      devices_(machine.devices.size()),
      link_versions_(2 * machine.devices.size() + 1, 0),
      versions_(model.layers.size(), 0) {
  for (LayerIndex layer = 0; layer < model.layers.size(); ++layer) {
    if (model.layers[layer].trained_parameters > 0) last_trained_ = layer;
  }
  describe(plan);
}

void EventSimulator::describe(const Plan& plan) {
  first_layer_on_disk_ = plan.first_layer_on_disk;
  const double boundary = static_cast<double>(work_.boundary_bytes) * share_of(work_);
  // By device: layers that stay there. A step brings their trained weights once, its later visits nothing.
  std::vector<std::map<LayerIndex, double>> to_bring(devices_.size());
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    for (const LayerIndex layer : residents_of(plan, i)) {
      to_bring[i][layer] = static_cast<double>(model_.layers[layer].trained_weight_bytes);
    }
  }
  // A device that computes with the host's processor computes nothing while that takes norms.
  const auto norm_seconds = [this](double bytes) {
    return machine_.host.memory_bandwidth > 0 ? bytes / machine_.host.memory_bandwidth : 0;
  };
  const bool hides_norms =
      std::ranges::none_of(plan.slots, [this](const Slot& slot) { return machine_.devices[slot.device].on_host; });
  if (!hides_norms) norms_left_ = norm_seconds(4.0 * static_cast<double>(work_.trained_parameters));
  if (model_.holds_state) norms_left_ = device_update_seconds(plan);
  visits_.resize(plan.slots.size());
  for (std::uint32_t s = 0; s < plan.slots.size(); ++s) {
    const Slot& slot = plan.slots[s];
    Visit& visit = visits_[s];
    visit.slot = &slot;
    visit.microbatches = plan.rounds[slot.round].microbatches;
    visit.first_microbatch = plan.rounds[slot.round].first_microbatch;
    const bool catching_up = catches_up(slot);
    const int boundaries = (reads_activation(slot) ? 1 : 0) + (reads_gradient(model_, slot) ? 1 : 0);
    visit.in_bytes = static_cast<double>(work_.batch_bytes) + boundary * boundaries;
    visit.out_bytes = slot.phase == SlotPhase::kForward || sends_gradient(model_, slot) ? boundary : 0;
    double before = 0;
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      if (catching_up) {
        visit.weight_bytes.push_back(0);
        visit.frozen_bytes.push_back(0);
        visit.offsets.push_back(0);
        continue;
      }
      const auto resident = to_bring[slot.device].find(layer);
      const double streamed =
          machine_.devices[slot.device].fetches_weights() ? static_cast<double>(model_.layers[layer].weight_bytes) : 0;
      const bool stays = resident != to_bring[slot.device].end();
      visit.weight_bytes.push_back(stays ? std::exchange(resident->second, 0.0) : streamed);
      const double trained = static_cast<double>(model_.layers[layer].trained_weight_bytes);
      visit.frozen_bytes.push_back(stays ? 0 : std::max(streamed - trained, 0.0));
      visit.offsets.push_back(before);
      // On the way back the parts of a head are not passed through, and in a fused visit they begin together.
      if (slot.phase == SlotPhase::kForward || !model_.layers[layer].head_part) {
        before += seconds_.forward(slot.device, layer);
      }
    }
    if (before > slot.seconds) {  // times that somebody else has set
      for (double& offset : visit.offsets) offset *= slot.seconds / before;
    }
    if (slot.phase != SlotPhase::kForward) {
      const LayerIndex lowest = lowest_gradient_layer(model_, slot);
      for (LayerIndex layer = lowest; layer <= slot.last_layer; ++layer) {
        visit.has_gradients = visit.has_gradients || model_.layers[layer].has_backward;
      }
      visit.begins_groups = visit.has_gradients && !catching_up;
      visit.ends_groups = visit.has_gradients && !slot.defers_weights;
      if (lowest == 0 && !catching_up) {
        visit.out_bytes += static_cast<double>(model_.layers[0].row_gradient_bytes) * share_of(work_);
      }
    }
    const bool takes_norms = hides_norms && slot.round + 1 == plan.rounds.size();
    if (visit.ends_groups)
      visit.gradient_tail = gradient_tail(slot, catching_up ? 0.0 : std::min(before, slot.seconds));
    if (takes_norms && visit.ends_groups) visit.norm_seconds = norm_seconds(visit.gradient_tail);
    const bool looks_up = model_.layers[0].row_gradient_bytes > 0 && lowest_gradient_layer(model_, slot) == 0;
    if (takes_norms && visit.begins_groups && looks_up) {
      visit.row_norm_seconds = norm_seconds(4.0 * static_cast<double>(model_.layers[0].trained_parameters));
    }
    Device& device = devices_[slot.device];
    device.slots.push_back(s);
    device.work += slot.seconds * visit.microbatches;
    pieces_ += visit.microbatches;
    const std::uint32_t group = std::max(work_.reduction_group, 1U);
    if (visit.has_gradients && !slot.group_goes_on) pieces_ += (visit.microbatches + group - 1) / group;
  }
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].slots.empty()) {
      devices_[i].layers_ahead = static_cast<std::uint32_t>(visits_[devices_[i].slots.front()].frozen_bytes.size());
    }
    devices_[i].groups_room = groups_at_a_time(plan.slots, i);
    devices_[i].errands.items.resize(devices_[i].groups_room);
  }
  std::vector<std::vector<std::uint32_t>> by_round(plan.rounds.size());
  for (std::uint32_t s = 0; s < plan.slots.size(); ++s) by_round[plan.slots[s].round].push_back(s);
  const Turns turns{by_round, group_ends(plan.slots),
                    layout_boundaries(model_, plan.slots, plan.rounds, staleness_).rounds};
  for (std::uint32_t s = 0; s < plan.slots.size(); ++s) connect(plan, s, turns);
}

/// Norms and updates on the device that holds the state, before which it begins no other step.
double EventSimulator::device_update_seconds(const Plan& plan) const {
  const PhaseCost::OpCost update{0, static_cast<double>(model_.update_bytes),
                                 model_.update_shape.value_or(devices::OpShape{})};
  return update.seconds(machine_.devices[plan.slots.front().device], work_.dtype);
}

/// Gradients come home layer by layer, the last first, from when the last microbatch of a group has come back past
/// each: what is left of them at its end, were the link free. `forward`: seconds of it that pass before it turns back.
double EventSimulator::gradient_tail(const Slot& slot, double forward) const {
  const LinkIndex link = links_.down(slot.device);
  const LayerIndex lowest = std::max(lowest_gradient_layer(model_, slot), slot.first_layer);
  double bytes_of_all = 0;
  double weights = 0;  // by which the way back takes its time
  for (LayerIndex layer = lowest; layer <= slot.last_layer; ++layer) {
    bytes_of_all += static_cast<double>(model_.layers[layer].gradient_bytes);
    weights += seconds_.forward(slot.device, layer);
  }
  const double all = links_.seconds_alone(link, bytes_of_all);
  if (all <= 0 || weights <= 0) return bytes_of_all;
  const double backward = slot.seconds - forward;
  double to_go = backward;  // until all is computed
  double home = backward;   // so long before that the link is through with the layers so far
  for (LayerIndex layer = slot.last_layer + 1; layer-- > lowest;) {
    to_go -= backward * seconds_.forward(slot.device, layer) / weights;
    const double bytes = static_cast<double>(model_.layers[layer].gradient_bytes);
    if (bytes > 0) home = std::min(home, to_go) - links_.seconds_alone(link, bytes);
  }
  return bytes_of_all * std::clamp(-home / all, 0.0, 1.0);
}

/// The places of its output are free when the last readers of the round that had them before have retired, and the
/// others of their reduction group.
void EventSimulator::connect(const Plan& plan, std::uint32_t index, const Turns& turns) {
  const std::uint32_t under_way = turns.rounds_under_way;
  const Slot& slot = plan.slots[index];
  Visit& visit = visits_[index];
  const bool forward = slot.phase == SlotPhase::kForward;
  const auto reads = [&](const Slot& other) {
    return forward ? feeds(slot, other) : other.last_layer + 1 == slot.first_layer;
  };
  for (const std::uint32_t s : turns.by_round[slot.round]) {
    const Slot& other = plan.slots[s];
    // A cut within it where a fused or backward slot begins is published behind its end.
    const bool within =
        forward && goes_back(other) && other.first_layer > slot.first_layer && other.first_layer <= slot.last_layer;
    if (within) visit.late_bytes += static_cast<double>(work_.boundary_bytes) * share_of(work_);
    if (feeds(other, slot)) visit.activation_from = static_cast<std::int32_t>(s);
    const bool above = reads_gradient(model_, slot) && goes_back(other) && other.first_layer == slot.last_layer + 1;
    if (above) visit.gradient_from = static_cast<std::int32_t>(s);
  }
  const auto freed_by = [&](std::size_t round, std::vector<std::uint32_t>& visits) {
    for (const std::uint32_t s : turns.by_round[round]) {
      if (plan.slots[s].phase != SlotPhase::kForward && reads(plan.slots[s])) visits.push_back(turns.group_ends[s]);
    }
  };
  if (slot.round >= under_way) freed_by(slot.round - under_way, visit.freed_by);
  // At staleness 1 the first rounds follow the last ones of the step before.
  const std::size_t before = slot.round + plan.rounds.size() - std::min<std::size_t>(under_way, plan.rounds.size());
  const bool follows = staleness_ > 0 && plan.rounds.size() > 1 && slot.round < under_way;
  if (follows && before < plan.rounds.size()) freed_by(before, visit.freed_by_before);
}

void EventSimulator::push(double time, Kind kind, std::uint32_t index, std::uint32_t version) {
  queue_.push({time, order_++, kind, index, version});
}

void EventSimulator::push_links() {
  for (const LinkIndex link : links_.changed()) {
    ++link_versions_[link];
    const double end = links_.end_of(link);
    if (end < kNever) push(end, Kind::kLink, link, link_versions_[link]);
  }
  links_.clear_changed();
}

bool EventSimulator::ahead_is_done() const {
  return std::ranges::all_of(devices_, [this](const Device& device) {
    if (device.slots.empty()) return true;
    const std::vector<double>& frozen = visits_[slot_of(device, device.prefetch_visit)].frozen_bytes;
    return std::all_of(frozen.begin() + device.layers_ahead, frozen.end(), [](double bytes) { return bytes <= 0; });
  });
}

void EventSimulator::run(std::uint32_t steps) {
  wanted_steps_ = steps;
  steps_.resize(steps);
  pieces_left_.resize(steps, pieces_);
  steps_begun_ = std::min(steps_committed_ + 1 + staleness_, steps);
  update();
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    prefetch(i);
    feed(i);
  }
  push_links();
  while (!queue_.empty() && steps_committed_ < steps) {
    const Event event = queue_.top();
    queue_.pop();
    if (event.kind == Kind::kLink && event.version != link_versions_[event.index]) continue;
    ++events_;
    now_ = event.time;
    switch (event.kind) {
      case Kind::kLink:
        on_link(event.index);
        break;
      case Kind::kCompute:
        on_compute_end(event.index);
        break;
      case Kind::kCommit:
        on_commit(event.index);
        break;
    }
    push_links();
  }
}

void EventSimulator::on_link(LinkIndex link) {
  const FluidLinks::Lane lane = links_.finish(link, now_);
  if (link == links_.optimizer()) {
    ++versions_[update_layer_];
    ++update_layer_;
    updating_ = false;
    update();
    for (DeviceIndex i = 0; i < devices_.size(); ++i) prefetch(i);
    return;
  }
  const DeviceIndex device = link / 2;
  const bool up = link % 2 == 0;
  if (up && lane == FluidLinks::kUrgent) return on_inputs(device);
  if (up) return on_weights(device);
  if (lane == FluidLinks::kUrgent) return on_retired(device);
  on_gradients(device);
}

bool EventSimulator::may_feed(const Device& device, const Visit& visit, std::uint32_t step) const {
  const std::uint64_t wanted = std::uint64_t{step} * visit.microbatches + device.next.microbatch;
  const auto has_come = [&](std::int32_t from) {
    return from < 0 || visits_[static_cast<std::size_t>(from)].published > wanted;
  };
  if (!has_come(visit.activation_from) || !has_come(visit.gradient_from)) return false;
  return std::ranges::all_of(visit.freed_by, [&](std::uint32_t s) { return visits_[s].retired > step; }) &&
         std::ranges::all_of(visit.freed_by_before, [&](std::uint32_t s) { return visits_[s].retired >= step; });
}

void EventSimulator::feed(DeviceIndex index) {
  Device& device = devices_[index];
  while (!device.slots.empty() && !device.bringing) {
    const std::uint32_t step = step_of(device, device.next.visit);
    if (step >= steps_begun_ || device.fed - device.retired > 1) return;
    Visit& visit = visits_[slot_of(device, device.next.visit)];
    const std::uint32_t microbatch = visit.first_microbatch + device.next.microbatch;
    const bool begins_group = visit.begins_groups && microbatch % std::max(work_.reduction_group, 1U) == 0;
    if (begins_group && !device.group_taken) {
      if (device.groups == device.groups_room) return;
      ++device.groups;
      device.group_taken = true;
    }
    if (!may_feed(device, visit, step)) return;
    device.bringing = true;
    if (links_.seconds_alone(links_.up(index), visit.in_bytes) > 0) {
      return links_.begin(links_.up(index), FluidLinks::kUrgent, visit.in_bytes, now_);
    }
    on_inputs(index);
    return;
  }
}

void EventSimulator::on_inputs(DeviceIndex index) {
  Device& device = devices_[index];
  const Visit& visit = visits_[slot_of(device, device.next.visit)];
  device.bringing = false;
  device.group_taken = false;
  device.compute.push(device.next);
  ++device.fed;
  if (++device.next.microbatch == visit.microbatches) device.next = {device.next.visit + 1, 0};
  compute(index);
  feed(index);
}

void EventSimulator::prefetch(DeviceIndex index) {
  Device& device = devices_[index];
  if (device.slots.empty() || device.prefetching) return;
  const std::uint32_t step = step_of(device, device.prefetch_visit);
  if (device.visits_retired + 1 < device.prefetch_visit) return;
  const Visit& visit = visits_[slot_of(device, device.prefetch_visit)];
  if (step >= steps_begun_) {
    if (device.layers_ahead == visit.frozen_bytes.size()) return;
    device.going_ahead = true;
    return bring_weights(index, visit.frozen_bytes[device.layers_ahead]);
  }
  const LayerIndex layer = visit.slot->first_layer + device.prefetch_layer;
  const bool on_host = machine_.devices[index].on_host;
  const LayerIndex updated = on_host ? last_trained_ : layer;
  const bool trained = model_.layers[updated].trained_parameters > 0;
  if (trained && versions_[updated] + staleness_ < step + 1) return;
  const bool came_ahead = device.prefetch_layer < device.layers_ahead;
  const double there = came_ahead ? visit.frozen_bytes[device.prefetch_layer] : 0;
  bring_weights(index, visit.weight_bytes[device.prefetch_layer] - there);
}

void EventSimulator::bring_weights(DeviceIndex index, double bytes) {
  devices_[index].prefetching = true;
  if (links_.seconds_alone(links_.up(index), bytes) > 0) {
    return links_.begin(links_.up(index), FluidLinks::kBulk, bytes, now_);
  }
  on_weights(index);
}

void EventSimulator::on_weights(DeviceIndex index) {
  Device& device = devices_[index];
  device.prefetching = false;
  if (std::exchange(device.going_ahead, false)) {
    ++device.layers_ahead;
    return prefetch(index);
  }
  const Visit& visit = visits_[slot_of(device, device.prefetch_visit)];
  double& slack = device.weights_slack[device.prefetch_visit % 2];
  const double arrival = now_ - visit.offsets[device.prefetch_layer];
  slack = device.prefetch_layer == 0 ? arrival : std::max(slack, arrival);
  if (++device.prefetch_layer == visit.weight_bytes.size()) {
    device.prefetch_layer = 0;
    device.layers_ahead = 0;
    ++device.prefetch_visit;
  }
  compute(index);
  prefetch(index);
}

void EventSimulator::compute(DeviceIndex index) {
  Device& device = devices_[index];
  if (device.compute.count == 0 || device.end_known) return;
  const Item item = device.compute.front();
  const bool whole = device.prefetch_visit > item.visit;
  const bool some = device.prefetch_visit == item.visit && device.prefetch_layer > 0;
  if (!device.computing) {
    if (!whole && !some) return;
    device.computing = true;
    device.began = now_;
  }
  if (!whole) return;
  const Visit& visit = visits_[slot_of(device, item.visit)];
  const double begin =
      item.microbatch == 0 ? std::max(device.began, device.weights_slack[item.visit % 2]) : device.began;
  device.end_known = true;
  push(begin + visit.slot->seconds, Kind::kCompute, index);
}

void EventSimulator::on_compute_end(DeviceIndex index) {
  Device& device = devices_[index];
  const Item item = device.compute.front();
  device.compute.pop();
  device.computing = device.end_known = false;
  const Visit& visit = visits_[slot_of(device, item.visit)];
  const std::uint32_t step = step_of(device, item.visit);
  const double begin = now_ - visit.slot->seconds;
  steps_[step].first_compute = std::min(steps_[step].first_compute, begin);
  steps_[step].last_compute = std::max(steps_[step].last_compute, now_);
  if (keep_spans_) {
    spans_.push_back({index, step + 1, slot_of(device, item.visit), item.microbatch, begin, now_});
  }
  const std::uint32_t group = std::max(work_.reduction_group, 1U);
  const std::uint32_t next = visit.first_microbatch + item.microbatch + 1;
  const bool ends_group = completes_group(next, group, work_.microbatches);
  if (visit.ends_groups && ends_group) {
    device.errands.push(item);
    send_gradients(index);
  }
  device.retire.push(item);
  retire(index);
  compute(index);
}

void EventSimulator::retire(DeviceIndex index) {
  Device& device = devices_[index];
  if (device.retiring || device.retire.count == 0) return;
  const Visit& visit = visits_[slot_of(device, device.retire.front().visit)];
  const double bytes = device.published ? visit.late_bytes : visit.out_bytes;
  device.retiring = true;
  if (links_.seconds_alone(links_.down(index), bytes) > 0) {
    return links_.begin(links_.down(index), FluidLinks::kUrgent, bytes, now_);
  }
  on_retired(index);
}

void EventSimulator::on_retired(DeviceIndex index) {
  Device& device = devices_[index];
  const Item item = device.retire.front();
  device.retiring = false;
  Visit& visit = visits_[slot_of(device, item.visit)];
  if (!device.published) ++visit.published;
  if (!device.published && visit.late_bytes > 0) {
    device.published = true;
    retire(index);
    wake_feeders();
    return;
  }
  device.published = false;
  device.retire.pop();
  ++device.retired;
  if (item.microbatch + 1 == visit.microbatches) {
    ++visit.retired;
    ++device.visits_retired;
    take_norm(visit.row_norm_seconds);
    prefetch(index);
  }
  after_piece(step_of(device, item.visit));
  retire(index);
  wake_feeders();
}

void EventSimulator::wake_feeders() {
  for (DeviceIndex i = 0; i < devices_.size(); ++i) feed(i);
}

void EventSimulator::send_gradients(DeviceIndex index) {
  Device& device = devices_[index];
  if (device.sending || device.errands.count == 0) return;
  const double bytes = visits_[slot_of(device, device.errands.front().visit)].gradient_tail;
  device.sending = true;
  if (links_.seconds_alone(links_.down(index), bytes) > 0) {
    return links_.begin(links_.down(index), FluidLinks::kBulk, bytes, now_);
  }
  on_gradients(index);
}

void EventSimulator::on_gradients(DeviceIndex index) {
  Device& device = devices_[index];
  const Item item = device.errands.front();
  const std::uint32_t step = step_of(device, item.visit);
  const Visit& visit = visits_[slot_of(device, item.visit)];
  if (item.microbatch + 1 == visit.microbatches) take_norm(visit.norm_seconds);
  device.errands.pop();
  device.sending = false;
  --device.groups;
  after_piece(step);
  send_gradients(index);
  feed(index);
}

void EventSimulator::after_piece(std::uint32_t step) {
  if (--pieces_left_[step] == 0) push(std::max(now_, norms_taken_) + norms_left_, Kind::kCommit, step);
}

void EventSimulator::on_commit(std::uint32_t step) {
  steps_[step].committed = now_;
  ++steps_committed_;
  ++updates_allowed_;
  steps_begun_ = std::min(steps_committed_ + 1 + staleness_, wanted_steps_);
  if (!updating_) update();
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    prefetch(i);
    feed(i);
  }
}

/// Goes on with the updates that are due, layer by layer. Who waits for them is woken by the caller.
void EventSimulator::update() {
  while (update_ < updates_allowed_ && !updating_) {
    if (update_layer_ == versions_.size()) {
      update_layer_ = 0;
      ++update_;
      continue;
    }
    const double parameters = static_cast<double>(model_.layers[update_layer_].trained_parameters);
    const double seconds =
        update_seconds(model_, machine_.host, static_cast<LayerIndex>(update_layer_), first_layer_on_disk_);
    if (parameters <= 0 || seconds <= 0) {
      ++versions_[update_layer_++];
      continue;
    }
    updating_ = true;
    constexpr double kBytesPerParameter = 28;
    links_.begin(links_.optimizer(), FluidLinks::kBulk, kBytesPerParameter * parameters, seconds, now_);
  }
}

}  // namespace rondo::partition
