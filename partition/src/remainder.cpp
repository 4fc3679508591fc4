#include "remainder.h"

#include <algorithm>
#include <limits>

namespace rondo::partition {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

}  // namespace

void Remainder::look_back(const StepEstimate& estimate, const std::vector<Slot>& slots,
                          const std::vector<Round>& rounds, std::size_t begin, std::size_t devices) {
  visits_.resize(slots.size());
  first_of_.assign(devices, slots.size());
  double updates = 0;
  for (std::size_t i = slots.size(); i-- > begin;) {
    const Slot& slot = slots[i];
    const StepEstimate::VisitTerms terms = estimate.terms_of(slot, rounds[slot.round].microbatches);
    Visit& visit = visits_[i];
    visit.next = first_of_[slot.device];
    first_of_[slot.device] = i;
    const Visit* const next = visit.next < slots.size() ? &visits_[visit.next] : nullptr;
    const bool passes_on = i + 1 < slots.size() && slots[i + 1].round == slot.round;
    visit.begins_round = i == 0 || slots[i - 1].round != slot.round;
    // Behind its last microbatch, behind its first, and behind the arrival of its weights.
    const double uploads = next != nullptr ? next->uploads + next->weights[1] : kNothing;
    double last = terms.behind + terms.norm;
    if (next != nullptr) last = std::max(last, next->free);
    if (next != nullptr && terms.has_gradients) last = std::max(last, terms.behind + next->down_free);
    if (passes_on) last = std::max(last, terms.out + visits_[i + 1].last_in);
    double first = (terms.count - 1) * terms.pace + last;
    if (passes_on) first = std::max(first, terms.out + visits_[i + 1].first_in);
    const double arrived = std::max((1 - kOverlap) * terms.seconds + first, terms.count * terms.in + uploads);
    visit.free = std::max(terms.seconds + first, uploads);
    visit.uploads = arrived;
    visit.weights = terms.weights;
    visit.up_load = terms.count * terms.in + (next != nullptr ? std::max(next->up_load + next->weights[1], 0.0) : 0.0);
    visit.down_free =
        std::max(next != nullptr ? next->down_free : 0.0, terms.norm) + (terms.has_gradients ? terms.home : 0);
    visit.down_load = terms.count * terms.out + terms.home + (next != nullptr ? next->down_load : 0);
    visit.first_in = terms.in + terms.seconds + first;
    visit.last_in = terms.in + terms.seconds + last;
    updates = visit.updates = std::max(updates, terms.updated + arrived);
  }
}

double Remainder::end_of_device(const StepEstimate::DeviceState& state, std::size_t next) const {
  if (next >= visits_.size()) return 0;
  const Visit& visit = visits_[next];
  const double weights = visit.weights[state.visited ? 1 : 0];
  return std::max({state.free + visit.free, std::max(state.up_free, state.before) + weights + visit.uploads,
                   state.up_load + weights + visit.up_load, state.down_free + visit.down_free,
                   state.down_load + visit.down_load});
}

double Remainder::end_of_boundary(double first_out, double last_out, std::size_t at) const {
  if (at >= visits_.size() || visits_[at].begins_round) return 0;
  return std::max(first_out + visits_[at].first_in, last_out + visits_[at].last_in);
}

}  // namespace rondo::partition
