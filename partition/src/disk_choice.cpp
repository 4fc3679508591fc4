// What goes to disk when main memory does not suffice, how much lies there, and what a step then moves.
#include "disk_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

/// Boundaries in working buffers, taken from what is read last; slots run one after another.
class BufferCourse {
 public:
  BufferCourse(const Plan& plan, const ModelShape& model, const Workload& work)
      : plan_(plan), model_(model), work_(work) {
    // Buffers that the store keeps free, and two in use.
    const std::uint32_t kept = std::min(8U, plan.boundary_buffers / 4) + 2;
    room_ = plan.boundary_buffers > kept ? plan.boundary_buffers - kept : 1;
  }

  DiskTraffic run() {
    for (std::uint32_t index = 0; index < plan_.slots.size(); ++index) visit(index);
    const double share =
        work_.microbatch_tokens > 0 && work_.mean_tokens > 0 ? work_.mean_tokens / work_.microbatch_tokens : 1.0;
    const double bytes = static_cast<double>(boundary_stride(work_)) * share;
    DiskTraffic traffic;
    traffic.boundaries_written = static_cast<Bytes>(bytes * static_cast<double>(written_));
    traffic.boundaries_read = static_cast<Bytes>(bytes * static_cast<double>(read_));
    return traffic;
  }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t>;  // slot and microbatch
  static constexpr Key kNever = {kNoSlot, 0};
  using Page = std::tuple<bool, std::uint32_t, LayerIndex, std::uint32_t>;  // gradient, round, cut, microbatch
  struct State {
    Key next = kNever;
    std::uint32_t second = kNoSlot;  // slot that reads it after that
    bool in_memory = false;
    bool on_disk = false;
  };

  void visit(std::uint32_t index) {
    const Slot& slot = plan_.slots[index];
    const bool forward = slot.phase == SlotPhase::kForward;
    const std::vector<PublishedBoundary> published = published_boundaries(model_, slot, plan_.slots);
    const Round& round = plan_.rounds[slot.round];
    std::vector<Page>& kept = kept_[stage_of(slot)];
    for (std::uint32_t m = 0; m < round.microbatches; ++m) {
      if (reads_activation(slot)) read({false, slot.round, slot.first_layer, m});
      if (reads_gradient(model_, slot)) read({true, slot.round, slot.last_layer + 1, m});
      for (const PublishedBoundary& boundary : published) {
        write({!forward, slot.round, boundary.cut, m}, boundary.readers, m);
      }
      // Inputs stay until nobody can have to run the microbatch again: with gradients, until those of its group are
      // home.
      if (reads_activation(slot)) kept.push_back({false, slot.round, slot.first_layer, m});
      if (slot.phase == SlotPhase::kBackward) kept.push_back({true, slot.round, slot.last_layer + 1, m});
      const std::uint32_t next = round.first_microbatch + m + 1;
      const bool complete = completes_group(next, work_.reduction_group, work_.microbatches);
      if (!forward && (!complete || slot.defers_weights)) continue;
      for (const Page& page : kept) release(page);
      kept.clear();
    }
  }

  void write(const Page& page, const BoundaryReaders& readers, std::uint32_t microbatch) {
    State state;
    state.next = readers.first != kNoSlot ? Key(readers.first, microbatch) : Key(readers.second, microbatch);
    if (readers.first != kNoSlot) state.second = readers.second;
    pages_[page] = state;
    bring(page, pages_[page]);
  }

  void read(const Page& page) {
    const auto found = pages_.find(page);
    if (found == pages_.end()) return;
    State& state = found->second;
    if (state.in_memory) {
      held_.erase({state.next, page});
    } else {
      ++read_;
    }
    state.in_memory = false;
    state.next = state.second == kNoSlot ? kNever : Key(state.second, std::get<3>(page));
    state.second = kNoSlot;
    bring(page, state);
  }

  void bring(const Page& page, State& state) {
    while (held_.size() >= room_) {
      const auto last = std::prev(held_.end());
      State& leaves = pages_[last->second];
      if (!std::exchange(leaves.on_disk, true)) ++written_;
      leaves.in_memory = false;
      held_.erase(last);
    }
    state.in_memory = true;
    held_.insert({state.next, page});
  }

  void release(const Page& page) {
    const auto found = pages_.find(page);
    if (found == pages_.end() || found->second.next != kNever) return;
    if (found->second.in_memory) held_.erase({kNever, page});
    pages_.erase(found);
  }

  const Plan& plan_;
  const ModelShape& model_;
  const Workload& work_;
  std::size_t room_ = 1;
  std::map<Page, State> pages_;
  std::map<SlotStage, std::vector<Page>> kept_;  // by stage: inputs of its group under way
  std::set<std::pair<Key, Page>> held_;          // in memory, by when they are read
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace

Bytes disk_bytes_from(const ModelShape& model, LayerIndex first) {
  Bytes bytes = 0;
  for (LayerIndex i = first; i < model.layers.size(); ++i) bytes += model.layers[i].state_disk_bytes;
  return bytes;
}

MemoryTable least_host_memory(const ModelShape& model, const Workload& work, const MachineShape& machine,
                              Bytes disk_budget_bytes) {
  MemoryTable whole(model.host_bytes.begin(), model.host_bytes.end());
  whole.emplace_back("batches", work.batch_bytes * work.microbatches * (1 + work.staleness));
  whole.insert(whole.end(), machine.host_taken.begin(), machine.host_taken.end());
  MemoryTable least = whole;
  for (LayerIndex first = 0; disk_budget_bytes > 0 && first < model.layers.size(); ++first) {
    if (disk_bytes_from(model, first) > disk_budget_bytes) continue;
    MemoryTable table = whole;
    move_to_disk(model, first, table);
    if (total_of(table) < total_of(least)) least = std::move(table);
  }
  return least;
}

LayerIndex choose_disk_layers(const ModelShape& model, const MachineShape& machine, const MemoryTable& host) {
  if (total_of(host) <= machine.host_budget_bytes || machine.disk_budget_bytes == 0) return kNoLayer;
  for (auto first = static_cast<LayerIndex>(model.layers.size()); first-- > 0;) {
    if (disk_bytes_from(model, first) > machine.disk_budget_bytes) return 0;
    MemoryTable table = host;
    move_to_disk(model, first, table);
    if (total_of(table) <= machine.host_budget_bytes) return first;
  }
  return 0;
}

DiskChoice choose_disk(const ModelShape& model, const Workload& work, const MachineShape& machine,
                       const std::vector<Slot>& slots, const std::vector<Round>& rounds, const MemoryTable& host) {
  if (total_of(host) <= machine.host_budget_bytes || machine.disk_budget_bytes == 0) return {};
  const auto moved = [&](LayerIndex first) {
    MemoryTable table = host;
    move_to_disk(model, first, table);
    return total_of(table);
  };
  const LayerIndex state = choose_disk_layers(model, machine, host);
  if (disk_bytes_from(model, state) <= machine.disk_budget_bytes && moved(state) <= machine.host_budget_bytes) {
    return {state, 0};
  }
  const BoundaryLayout layout = layout_boundaries(model, slots, rounds, work.staleness);
  const Bytes on_disk = layout.disk_bytes(work);
  if (on_disk == 0 || on_disk > machine.disk_budget_bytes) return {};
  const std::uint64_t least = least_boundary_buffers(machine, model, slots);
  // Buffers would fill the budget to the last byte; what the process takes beside the plan is not known so well, of a
  // small run by up to 1.4 MiB.
  constexpr Bytes kLeastFree = 1536_KiB;
  const Bytes stays_free = std::max(machine.host_budget_bytes / 32, kLeastFree);
  DiskChoice best;
  for (LayerIndex i = 0; i <= model.layers.size(); ++i) {
    const LayerIndex first = i < model.layers.size() ? i : kNoLayer;
    if (model.holds_state && first != kNoLayer) continue;  // a device does
    if (disk_bytes_from(model, first) + on_disk > machine.disk_budget_bytes) continue;
    const Bytes others = moved(first) - layout.bytes(work) + BoundaryLayout::buffer_bytes(work, 0);
    if (others >= machine.host_budget_bytes) continue;
    const Bytes room = machine.host_budget_bytes - others;
    if (room / boundary_stride(work) < least) continue;
    const Bytes used = room > stays_free ? room - stays_free : 0;
    const std::uint64_t buffers =
        std::clamp<std::uint64_t>(used / boundary_stride(work), least, std::max<std::uint64_t>(layout.places(), least));
    if (buffers <= best.boundary_buffers) continue;
    best = {first, static_cast<std::uint32_t>(buffers)};
  }
  return best;
}

Bytes least_host_bytes(const ModelShape& model, const Workload& work, const MachineShape& machine,
                       const std::vector<Slot>& slots, const std::vector<Round>& rounds, const MemoryTable& host) {
  const BoundaryLayout layout = layout_boundaries(model, slots, rounds, work.staleness);
  const Bytes on_disk = layout.disk_bytes(work);
  const Bytes buffers = BoundaryLayout::buffer_bytes(work, least_boundary_buffers(machine, model, slots));
  Bytes least = total_of(host);
  for (LayerIndex i = 0; i <= model.layers.size(); ++i) {
    const LayerIndex first = i < model.layers.size() ? i : kNoLayer;
    if (model.holds_state && first != kNoLayer) continue;
    const Bytes state = disk_bytes_from(model, first);
    if (state > machine.disk_budget_bytes) continue;
    MemoryTable table = host;
    move_to_disk(model, first, table);
    const Bytes moved = total_of(table);
    least = std::min(least, moved);
    if (on_disk > 0 && state + on_disk <= machine.disk_budget_bytes) {
      least = std::min(least, moved - layout.bytes(work) + buffers);
    }
  }
  return least;
}

MemoryTable disk_memory(const Plan& plan, const ModelShape& model, const Workload& work) {
  MemoryTable table;
  const Bytes state = disk_bytes_from(model, plan.first_layer_on_disk);
  if (state > 0) table.emplace_back("masters and moments", state);
  if (plan.boundary_buffers > 0) {
    table.emplace_back(kBoundaries, layout_boundaries(model, plan.slots, plan.rounds, work.staleness).disk_bytes(work));
  }
  return table;
}

DiskTraffic disk_traffic(const Plan& plan, const ModelShape& model, const Workload& work) {
  DiskTraffic traffic;
  if (plan.boundary_buffers > 0) traffic = BufferCourse(plan, model, work).run();
  traffic.state_bytes = disk_bytes_from(model, plan.first_layer_on_disk);
  return traffic;
}

}  // namespace rondo::partition
