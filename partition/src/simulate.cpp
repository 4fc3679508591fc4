// Discrete-event prediction of consecutive steps: what the executor does, in the same order, with times from profiles.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "rondo/devices/chunk.h"
#include "rondo/partition/layout.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {
namespace {

/// Seconds of a copy of `bytes` over a link that carries it in the executor's chunks, each with the link's latency.
double copy_seconds(double bytes, double bytes_per_second, const devices::DeviceProfile& profile) {
  if (bytes <= 0 || bytes_per_second <= 0) return 0;
  const auto chunk = static_cast<double>(devices::chunk_for(profile.link_up));
  return bytes / bytes_per_second + profile.link_latency_seconds * std::max(1.0, bytes / chunk);
}

struct DeviceState {
  double compute_free = 0;
  double up_free = 0;    // weights; activations go first and push them back
  double down_free = 0;  // gradients likewise
  double busy = 0;
  std::array<double, 2> visit_ends = {0, 0};  // of the visits before: their weight buffers are free then
  std::size_t visits = 0;
  /// By layer: the step whose weights lie here, 0 none yet; nothing for layers that do not stay.
  std::vector<std::optional<std::uint32_t>> held;
};

class Simulator {
 public:
  Simulator(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine)
      : plan_(plan), model_(model), work_(work), machine_(machine), devices_(machine.devices.size()) {
    updated_.assign(model.layers.size(), 0.0);
    for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
      devices_[i].held.assign(model.layers.size(), std::nullopt);
      for (const LayerIndex layer : residents_of(plan, i)) devices_[i].held[layer] = 0;
    }
  }

  void step(std::uint32_t number) {
    arrived_ = 0;
    for (const Round& round : plan_.rounds) {
      const auto index = static_cast<std::uint32_t>(&round - plan_.rounds.data());
      forward_ready_.assign(model_.layers.size() + 1, std::vector<double>(round.microbatches, commit_));
      backward_ready_.assign(model_.layers.size() + 1, std::vector<double>(round.microbatches, commit_));
      for (std::uint32_t s = 0; s < plan_.slots.size(); ++s) {
        if (plan_.slots[s].round == index) visit(number, s, round);
      }
    }
    const double gradients = 4.0 * static_cast<double>(work_.trained_parameters);
    const double norm = machine_.host.memory_bandwidth > 0 ? gradients / machine_.host.memory_bandwidth : 0;
    commit_ = arrived_ + norm;
    double end = commit_;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      double seconds = machine_.host.update_seconds(static_cast<double>(model_.layers[i].trained_parameters));
      if (i >= plan_.first_layer_on_disk && machine_.host.disk_bandwidth > 0) {  // read and written
        seconds = std::max(seconds,
                           2.0 * static_cast<double>(model_.layers[i].state_disk_bytes) / machine_.host.disk_bandwidth);
      }
      end += seconds;
      updated_[i] = model_.layers[i].trained_parameters > 0 ? end : commit_;
    }
  }

  double commit() const { return commit_; }
  double last_compute() const { return last_compute_; }
  double first_compute() const { return first_compute_; }
  const std::vector<DeviceState>& devices() const { return devices_; }
  std::vector<Span> take_spans() { return std::move(spans_); }
  void reset_counts() {
    for (DeviceState& device : devices_) device.busy = 0;
    first_compute_ = -1;
  }

 private:
  double up(const DeviceShape& device, double bytes) const {
    if (device.unified_memory) return 0;
    return copy_seconds(bytes, device.profile.link_up, device.profile);
  }
  double down(const DeviceShape& device, double bytes) const {
    if (device.unified_memory) return 0;
    return copy_seconds(bytes, device.profile.link_down, device.profile);
  }

  /// Bytes of a layer's weights that a visit brings: of one that stays those that have changed.
  Bytes bytes_to_bring(LayerIndex layer, std::uint32_t step, DeviceState& state) const {
    const LayerShape& shape = model_.layers[layer];
    std::optional<std::uint32_t>& held = state.held[layer];
    if (!held) return shape.weight_bytes;
    const std::uint32_t before = std::exchange(*held, step);
    if (before == 0) return shape.weight_bytes;
    return before == step ? 0 : shape.trained_weight_bytes;
  }

  /// When each layer's weights are on the device.
  std::vector<double> bring_weights(std::uint32_t step, const Slot& slot, DeviceState& state) {
    const DeviceShape& device = machine_.devices[slot.device];
    std::vector<double> ready;
    double time = std::max(state.up_free, state.visits >= 2 ? state.visit_ends[state.visits % 2] : 0.0);
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      const Bytes bytes = bytes_to_bring(layer, step, state);
      if (bytes > 0) time = std::max(time, updated_[layer]) + up(device, static_cast<double>(bytes));
      ready.push_back(time);
    }
    state.up_free = time;
    return ready;
  }

  void visit(std::uint32_t number, std::uint32_t index, const Round& round) {
    const Slot& slot = plan_.slots[index];
    const DeviceShape& device = machine_.devices[slot.device];
    DeviceState& state = devices_[slot.device];
    const std::vector<double> weights = bring_weights(number, slot, state);
    const double share = work_.mean_tokens > 0 ? work_.mean_tokens / work_.microbatch_tokens : 1.0;
    const double boundary = static_cast<double>(work_.boundary_bytes) * share;
    const bool backward = slot.phase == SlotPhase::kBackward;
    const double input = (slot.first_layer > 0 ? boundary : 0) + (backward ? boundary : 0);
    const double in_seconds = up(device, input + static_cast<double>(work_.batch_bytes));
    const std::vector<LayerIndex> cuts = published_cuts(slot, plan_.slots);
    const bool sends = sends_gradient(model_, slot);
    const double out_seconds = down(device, boundary * static_cast<double>(cuts.size() + (sends ? 1 : 0)));
    for (std::uint32_t m = 0; m < round.microbatches; ++m) {
      double ready =
          std::max(forward_ready_[slot.first_layer][m], backward ? backward_ready_[slot.last_layer + 1][m] : 0.0);
      ready += in_seconds;
      state.up_free += in_seconds;
      const double start = begin_compute(slot, state, weights, m, ready);
      const double end = start + slot.seconds;
      state.compute_free = end;
      state.busy += slot.seconds;
      if (first_compute_ < 0) first_compute_ = start;
      last_compute_ = std::max(last_compute_, end);
      spans_.push_back({slot.device, number, index, m, start, end});
      for (const LayerIndex cut : cuts) forward_ready_[cut][m] = end + out_seconds;
      if (sends) backward_ready_[slot.first_layer][m] = end + out_seconds;
      state.down_free = std::max(state.down_free, end) + out_seconds;
    }
    state.visit_ends[state.visits % 2] = state.compute_free;
    ++state.visits;
    bring_gradients(slot, device, state);
  }

  /// The first microbatch waits for weights piece by piece: compute may run until the piece it needs has not come.
  double begin_compute(const Slot& slot, const DeviceState& state, const std::vector<double>& weights, std::uint32_t m,
                       double ready) const {
    double start = std::max(ready, state.compute_free);
    if (m > 0) return start;
    const double per_layer = slot.seconds / static_cast<double>(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      start = std::max(
          start, weights[i] - per_layer * static_cast<double>(i) * (slot.phase == SlotPhase::kForward ? 1.0 : 0.25));
    }
    return start;
  }

  void bring_gradients(const Slot& slot, const DeviceShape& device, DeviceState& state) {
    if (slot.phase == SlotPhase::kForward) return;
    double bytes = 0;
    for (LayerIndex layer = lowest_gradient_layer(model_, slot); layer <= slot.last_layer; ++layer) {
      bytes += static_cast<double>(model_.layers[layer].gradient_bytes);
    }
    const double seconds = down(device, bytes);
    state.down_free = std::max(state.down_free, state.compute_free) + seconds;
    arrived_ = std::max({arrived_, state.down_free, state.compute_free});
  }

  const Plan& plan_;
  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
  std::vector<DeviceState> devices_;
  std::vector<std::vector<double>> forward_ready_;  // [cut][microbatch]
  std::vector<std::vector<double>> backward_ready_;
  std::vector<double> updated_;  // by layer: its last update is published
  std::vector<Span> spans_;
  double arrived_ = 0;
  double commit_ = 0;
  double first_compute_ = -1;
  double last_compute_ = 0;
};

}  // namespace

Simulation simulate(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine,
                    std::uint32_t steps) {
  Simulator simulator(plan, model, work, machine);
  for (std::uint32_t step = 1; step < steps; ++step) simulator.step(step);
  const double previous_commit = simulator.commit();
  const double previous_compute = simulator.last_compute();
  simulator.reset_counts();
  simulator.step(steps);
  Simulation result;
  Prediction& prediction = result.prediction;
  prediction.step_seconds = simulator.commit() - previous_commit;
  prediction.commit_seconds = std::max(0.0, simulator.first_compute() - previous_compute);
  if (prediction.step_seconds > 0) {
    prediction.tokens_per_second = work.mean_tokens * work.microbatches / prediction.step_seconds;
  }
  double speeds = 0;
  double working = 0;
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const double busy = prediction.step_seconds > 0 ? simulator.devices()[i].busy / prediction.step_seconds : 0;
    result.busy.push_back(busy);
    if (simulator.devices()[i].visits == 0) continue;
    const double speed = machine.devices[i].profile.speed(work.dtype);
    speeds += speed;
    working += speed * busy;
  }
  prediction.bubble = speeds > 0 ? 1.0 - working / speeds : 0;
  result.compute = simulator.take_spans();
  return result;
}

}  // namespace rondo::partition
