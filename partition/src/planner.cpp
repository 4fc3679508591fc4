// The search for a plan: which devices, how many microbatches a round, which slots in which order.
//
// For a set of devices and a number of rounds slots are dealt under many time limits (search.h) and ranked by an
// estimate; the best ones are improved slot by slot; the simulation decides between what is left, with links, the
// optimizer and unlike devices counted in. Small models are searched completely. What is tried for a set of devices
// does not depend on the rest of the pool, so that a pool offers all that a smaller one does.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "bound_stages.h"
#include "explain.h"
#include "packing.h"
#include "plan_memory.h"
#include "rondo/base/status.h"
#include "rondo/partition/layout.h"
#include "rondo/partition/schedules.h"
#include "rounds.h"
#include "runs.h"
#include "search.h"
#include "simulate.h"

namespace rondo::partition {
namespace {

constexpr std::size_t kLimits = 196;     // times of a slot tried for one set of devices, where a step is one round
constexpr std::size_t kSomeLimits = 96;  // where it is several, of like devices
constexpr std::size_t kFewLimits = 24;   // and of others
/// Shares of a device's budget that one slot may take. Forward slots, the longest, give way first.
constexpr MemoryShares kMemoryShares[] = {{1, 1},      {0.7, 1},    {0.5, 1},    {0.35, 1},  {0.5, 0.7},
                                          {0.35, 0.7}, {0.25, 0.7}, {0.25, 0.5}, {0.15, 0.5}};
/// Where none of these makes a plan that fits: shares of the backward and fused slots in twentieths of the budget, each
/// with some of the forward slots beside it, and at last slots of single layers.
constexpr std::size_t kCloseBackward = 13;
constexpr double kCloseForward[] = {1, 0.85, 0.7, 0.55, 0.4, 0.25};
constexpr std::size_t kRungs = std::size(kMemoryShares) + kCloseBackward * std::size(kCloseForward) + 1;
constexpr std::size_t kMostSets = 256;       // of devices, tried one by one
constexpr std::size_t kImproved = 6;         // candidates of a set and a Keep that are improved and simulated
constexpr std::size_t kImprovedOfLike = 32;  // and of a set of like devices, of which a pool has few
constexpr std::size_t kTrials = 8000;        // changes tried on each of them
constexpr std::size_t kMostInterleaved = 8;  // stages a device
constexpr std::size_t kMostPieces = 2048;    // visits of a step of a published schedule
constexpr double kMostPlans = 6e5;           // that are all looked at
constexpr std::size_t kMostInVain = 1000;    // of them simulated one after another, none better than the best
constexpr double kSame = 1e-6;               // share by which step times differ if at all
constexpr double kWorthKeeping = 0.01;       // share of a step that a device by itself must save to keep more
constexpr double kWorthLongRounds = 0.1;     // and that a schedule of short rounds must save with longer ones
constexpr std::uint32_t kRoundCounts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr std::size_t kQuickRoundCounts = 6;  // the later ones only where host memory asks for them

class Planner {
 public:
  Planner(const ModelShape& model, const Workload& work, const MachineShape& machine, const PlanRequest& request)
      : model_(model),
        work_(work),
        machine_(machine),
        request_(request),
        memory_(model, work, machine),
        layer_seconds_(model, work, machine),
        estimate_(model, work, machine, StepEstimate::What::kEstimate),
        lower_bound_(model, work, machine, StepEstimate::What::kLowerBound) {}

  absl::StatusOr<Plan> run() {
    RONDO_RETURN_IF_ERROR(memory_.refuse_host());
    find_kinds();
    std::vector<Keep> keeps = {Keep::kSelective, Keep::kAll, Keep::kNothing};
    if (request_.keep) keeps = {*request_.keep};
    for (const Keep keep : keeps) search(keep);
    if (!best_) {
      RONDO_RETURN_IF_ERROR(memory_.refuse_largest_layer(keeps.back()));
      RONDO_RETURN_IF_ERROR(refusal_);
      return resource_exhausted("no {} plan deals these layers to the devices", name_of(request_.schedule));
    }
    finish(*best_);
    return *std::move(best_);
  }

 private:
  /// Devices that are alike, and how many of them a set takes: which ones makes no difference.
  using Kind = std::vector<DeviceIndex>;
  using Counts = std::vector<std::size_t>;

  /// From the fastest on. The order is that of the kinds, not of the pool: so a pool offers all that a smaller one
  /// does.
  void find_kinds() {
    for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
      const auto kind = std::ranges::find_if(
          kinds_, [&](const Kind& other) { return alike(machine_.devices[other[0]], machine_.devices[i]); });
      like_.push_back(kind == kinds_.end() ? i : (*kind)[0]);
      if (kind == kinds_.end()) {
        kinds_.push_back({i});
      } else {
        kind->push_back(i);
      }
    }
    const auto rank = [&](const Kind& kind) {
      const DeviceShape& device = machine_.devices[kind[0]];
      return std::tuple(device.profile.speed(work_.dtype), device.profile.memory_bandwidth, device.profile.link_up,
                        device.profile.link_down, device.budget_bytes);
    };
    std::ranges::stable_sort(kinds_, std::ranges::greater(), rank);
  }

  /// Every choice of devices, the largest first; of very mixed pools the fastest ones and all but one.
  std::vector<Counts> sets() const {
    std::size_t choices = 1;
    for (const Kind& kind : kinds_) choices = std::min(choices * (kind.size() + 1), kMostSets + 1);
    std::vector<Counts> sets;
    Counts counts(kinds_.size(), 0);
    if (choices <= kMostSets) {
      for (std::size_t i = 1; i < choices; ++i) {
        for (std::size_t kind = 0; ++counts[kind] > kinds_[kind].size(); ++kind) counts[kind] = 0;
        sets.push_back(counts);
      }
    } else {
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        Counts others(kinds_.size());
        for (std::size_t i = 0; i < others.size(); ++i) others[i] = kinds_[i].size() - (i == kind ? 1 : 0);
        sets.push_back(std::move(others));
        for (; counts[kind] < kinds_[kind].size(); sets.push_back(counts)) ++counts[kind];
      }
    }
    std::ranges::stable_sort(sets, std::ranges::greater(),
                             [](const Counts& set) { return std::accumulate(set.begin(), set.end(), std::size_t{0}); });
    return sets;
  }

  void search(Keep keep) {
    ladder_.clear();
    packed_of_like_.clear();
    const TimeTable& times = table(keep, 0);
    for (const Counts& counts : sets()) {
      std::vector<DeviceIndex> order;
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        order.insert(order.end(), kinds_[kind].begin(),
                     kinds_[kind].begin() + static_cast<std::ptrdiff_t>(counts[kind]));
      }
      if (best_) {
        const double bound = bound_of(order, times);
        if (bound >= best_->predicted.step_seconds) {
          remember(counts, bound);
          continue;
        }
      }
      if (request_.schedule == Schedule::kRoundPipe) search_set(order, keep);
      search_bound(order, keep);
    }
    if (!best_) return;
    std::vector<DeviceIndex> all;
    for (const Kind& kind : kinds_) all.insert(all.end(), kind.begin(), kind.end());
    least_seconds_ = std::min(least_seconds_, bound_of(all, times));
  }

  /// What no plan over these devices can beat that is better than the best so far.
  double bound_of(const std::vector<DeviceIndex>& order, const TimeTable& times) const {
    // A round may be as short as a group, and the last one as what is left of it.
    const std::uint32_t rest = work_.microbatches % work_.reduction_group;
    const std::uint32_t shortest = holds_parts_of_groups() ? 1 : rest == 0 ? work_.reduction_group : rest;
    return work_.microbatches * times.least_seconds(order, best_->predicted.step_seconds / shortest);
  }

  /// What candidates are ranked by: how long a step takes by itself, or how long until the next one ends.
  enum class Objective : std::uint8_t { kStep, kPeriod };

  struct Candidate {
    double seconds = 0;
    std::uint32_t per_round = 0;
    std::size_t rung = 0;
    std::vector<Slot> slots;
  };

  /// The best candidates of a set of devices, and all plans of it when there are few.
  void search_set(const std::vector<DeviceIndex>& order, Keep keep) {
    std::vector<Candidate> candidates;  // the best of them, the quickest first
    host_refused_ = false;
    packed_.clear();
    forbidden_.clear();
    std::size_t tried = 0;
    for (const std::uint32_t per_round : round_sizes()) {
      if (tried++ >= kQuickRoundCounts && !(host_refused_ && candidates.empty())) break;
      collect(order, keep, per_round, candidates);
    }
    std::uint32_t largest = 0;
    if (work_.staleness > 0) search_steady(order, keep);
    for (Candidate& candidate : candidates) {
      largest = std::max(largest, candidate.per_round);
      const std::vector<Round> rounds = rounds_of(work_, candidate.per_round);
      std::vector<Slot> improved = candidate.slots;
      improve(table(keep, candidate.rung), order, rounds, estimate_, kTrials, improved);
      consider(std::move(improved), rounds, keep);
      consider(std::move(candidate.slots), rounds, keep);
    }
    const TimeTable& times = table(keep, 0);
    if (largest == 0 || work_.staleness > 0 || number_of_plans(times, order.size()) > kMostPlans) return;
    std::vector<DeviceIndex> alike_as;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool like = i > 0 && like_[order[i - 1]] == like_[order[i]];
      alike_as.push_back(like ? order[i - 1] : order[i]);
    }
    const auto best_step = [&] { return best_ ? best_->predicted.step_seconds : kNever; };
    std::size_t in_vain = 0;
    const auto take = [&](const std::vector<Slot>& slots) {
      const double before = best_step();
      consider(slots, rounds_of(work_, work_.microbatches), keep);
      in_vain = best_step() < before ? 0 : in_vain + 1;
      // Beyond this the bound says too little and the search ends as if nothing could be better.
      return in_vain < kMostInVain ? best_step() : 0.0;
    };
    every_plan(times, order, alike_as, work_.microbatches, lower_bound_, take, best_step());
  }

  /// Where steps overlap, what takes long to pass through is no worse than what does not.
  void search_steady(const std::vector<DeviceIndex>& order, Keep keep) {
    std::vector<Candidate> candidates;
    std::size_t tried = 0;
    for (const std::uint32_t per_round : round_sizes()) {
      if (tried++ >= kQuickRoundCounts) break;
      const std::vector<Round> rounds = rounds_of(work_, per_round);
      collect(order, keep, rounds, Objective::kPeriod, rounds.size() == 1 ? kSomeLimits : kFewLimits,
              {0, std::size(kMemoryShares)}, candidates);
    }
    for (Candidate& candidate : candidates)
      consider(std::move(candidate.slots), rounds_of(work_, candidate.per_round), keep);
  }

  /// Microbatches a round: whole groups, the largest first.
  std::vector<std::uint32_t> round_sizes() const {
    const std::uint32_t group = work_.reduction_group;
    if (request_.microbatches_per_round != 0) {
      const auto wanted = static_cast<std::uint32_t>(round_up(request_.microbatches_per_round, group));
      return {std::min(wanted, work_.microbatches)};
    }
    std::vector<std::uint32_t> sizes;
    const std::uint32_t groups = groups_of(work_);
    for (const std::uint32_t rounds : kRoundCounts) {
      const std::uint32_t size = std::min((groups + rounds - 1) / rounds * group, work_.microbatches);
      if (sizes.empty() || size < sizes.back()) sizes.push_back(size);
    }
    return sizes;
  }

  /// For every time limit the best way to deal that fits the devices, if it is among the best of all.
  void collect(const std::vector<DeviceIndex>& order, Keep keep, std::uint32_t per_round,
               std::vector<Candidate>& candidates) {
    const std::vector<Round> rounds = rounds_of(work_, per_round);
    const std::size_t several = are_alike(order) ? kSomeLimits : kFewLimits;
    const std::size_t limits = rounds.size() == 1 ? kLimits : several;
    const Fit fit = collect(order, keep, rounds, Objective::kStep, limits, {0, std::size(kMemoryShares)}, candidates);
    if (fit != Fit::kOverfull || !candidates.empty()) return;
    collect(order, keep, rounds, Objective::kStep, kFewLimits, {std::size(kMemoryShares), kRungs}, candidates);
  }

  /// What became of the plans that could be dealt.
  enum class Fit : std::uint8_t { kNothingDealt, kOverfull, kFits };

  /// With the shares of `rungs`, from the first to before the second.
  Fit collect(const std::vector<DeviceIndex>& order, Keep keep, const std::vector<Round>& rounds, Objective objective,
              std::size_t limits, std::pair<std::size_t, std::size_t> rungs, std::vector<Candidate>& candidates) {
    const std::size_t wanted = are_alike(order) && objective == Objective::kStep ? kImprovedOfLike : kImproved;
    std::set<std::vector<std::pair<LayerIndex, DeviceIndex>>> seen;
    Fit found = Fit::kNothingDealt;
    for (const double limit : candidate_limits(table(keep, 0), order, limits)) {
      for (std::size_t rung = rungs.first; rung < rungs.second; ++rung) {
        if (rung > 0 && limit * kSlack < forbidden_seconds(order, keep, rung)) continue;  // dealt as above it
        // What is no quicker than those found would be dropped again.
        const double most = candidates.size() < wanted ? kNever : candidates.back().seconds;
        Candidate candidate{most, rounds[0].microbatches, rung, {}};
        deal_all_ways(table(keep, rung), order, rounds, objective, limit, candidate);
        std::vector<std::pair<LayerIndex, DeviceIndex>> key;
        for (const Slot& slot : candidate.slots) key.emplace_back(slot.first_layer, slot.device);
        if (key.empty() && rung == 0 && most == kNever) break;
        if (key.empty() || !seen.insert(std::move(key)).second) continue;
        Plan plan = plan_of(candidate.slots, rounds, keep);
        const PlanMemory::Lack lack = memory_.fill(plan);
        const bool fits = lack.why.ok();
        if (fits) {
          if (plan.boundary_buffers > 0) candidate.seconds = std::max(candidate.seconds, memory_.disk_seconds(plan));
          const auto place = std::ranges::upper_bound(candidates, candidate.seconds, {}, &Candidate::seconds);
          candidates.insert(place, std::move(candidate));
          if (candidates.size() > wanted) candidates.pop_back();
        } else {
          refuse(plan, lack);
        }
        // A device's memory is the sum of what its most demanding slots need by purpose: when slots that fit one by one
        // do not fit together, smaller ones are tried.
        const bool by_host = fits_devices(plan);
        host_refused_ = host_refused_ || (!fits && by_host);
        found = std::max(found, by_host ? Fit::kFits : Fit::kOverfull);
        if (by_host) break;
      }
    }
    return found;
  }

  void deal_all_ways(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<Round>& rounds,
                     Objective objective, double limit, Candidate& best) {
    const bool steady = objective == Objective::kPeriod;
    const auto take = [&](std::vector<Slot> slots) {
      const double seconds =
          steady ? estimate_.period_of(slots, rounds) : estimate_.seconds_below(slots, rounds, best.seconds);
      if (seconds < best.seconds) {
        best.seconds = seconds;
        best.slots = std::move(slots);
      }
    };
    // Among like devices it makes no difference whose turn it is: stages are packed for one of them, once for all sets.
    const bool like = are_alike(order);
    auto& known = like ? packed_of_like_[order[0]] : packed_;
    const auto [packed, fresh] = known.try_emplace({best.rung, limit});
    if (fresh) packed->second = pack_best(times, like ? std::vector<DeviceIndex>{order[0]} : order, limit);
    if (packed->second) take(deal_rounds(*packed->second, order, rounds));
    if (steady && rounds.size() == 1) {
      for (std::vector<Slot>& slots : deal_in_runs(times, order, limit)) take(std::move(slots));
    }
    for (const LayerIndex fused : fused_beginnings(times, order, limit)) {
      const double most_path = steady ? kNever : best.seconds;
      if (auto slots = deal_by_load(times, order, rounds, limit, fused, best.seconds, most_path))
        take(*std::move(slots));
    }
  }

  /// Stages that stay on one device: k contiguous, even ones each. Slots that may be dealt to whoever is best may be
  /// dealt so too, which spares weights a second way to a device.
  void search_bound(const std::vector<DeviceIndex>& order, Keep keep) {
    if (has_halves()) return search_halves(order, keep);
    const bool single = request_.schedule == Schedule::kGPipe || request_.schedule == Schedule::kOneFOneB;
    const bool interleaves = request_.schedule == Schedule::kInterleaved;
    const std::size_t least = interleaves ? 2 : 1;
    const std::size_t most = single        ? 1
                             : interleaves ? kMostInterleaved
                                           : std::max<std::size_t>(model_.layers.size() / order.size(), 1);
    for (std::size_t loops = least; loops <= most; ++loops) {
      std::vector<DeviceIndex> devices;
      for (std::size_t i = 0; i < loops; ++i) devices.insert(devices.end(), order.begin(), order.end());
      const auto stages = BoundStages::make(model_, table(keep, 0), devices);
      if (!stages) break;
      if (holds_parts_of_groups()) {
        search_short_rounds(*stages, order.size(), loops, keep);
        continue;
      }
      for (const std::uint32_t per_round : round_sizes()) {
        const std::vector<Round> rounds = rounds_of(work_, per_round);
        if (consider(stages->breadth_first(rounds.size()), rounds, keep)) break;
      }
    }
  }

  /// Longer rounds than the shortest as long as they help.
  void search_short_rounds(const BoundStages& stages, std::size_t devices, std::size_t loops, Keep keep) {
    std::size_t in_vain = 0;
    const std::size_t whole = request_.schedule == Schedule::kInterleaved ? devices : 1;
    for (const std::vector<Round>& rounds : short_rounds(work_, request_.microbatches_per_round, whole)) {
      if (2 * devices * loops * rounds.size() > kMostPieces) continue;
      const auto device_count = static_cast<std::uint32_t>(devices);
      const auto round_count = static_cast<std::uint32_t>(rounds.size());
      const PipelineSchedule pieces = request_.schedule == Schedule::kOneFOneB
                                          ? one_f_one_b(device_count, round_count)
                                          : interleaved(device_count, round_count, static_cast<std::uint32_t>(loops));
      const double before = best_ ? best_->predicted.step_seconds : kNever;
      consider(stages.following(pieces, rounds, work_), rounds, keep);
      in_vain = best_ && best_->predicted.step_seconds < before ? 0 : in_vain + 1;
      if (in_vain == 2) break;
    }
  }

  /// Backwards in halves, a microbatch a round: in the published order, where all pieces take the same, and in the one
  /// that these stages' own times make.
  void search_halves(const std::vector<DeviceIndex>& order, Keep keep) {
    const auto count = static_cast<std::uint32_t>(order.size());
    const auto pieces = [&](const std::vector<StageSeconds>& seconds) {
      return request_.schedule == Schedule::kZeroBubbleH1 ? zb_h1(count, work_.microbatches, seconds)
                                                          : zb_v(count, work_.microbatches, seconds);
    };
    const PipelineSchedule published = pieces({});
    std::vector<DeviceIndex> devices;
    for (const DeviceIndex place : published.device_of_stage) devices.push_back(order[place]);
    const std::vector<Round> rounds = rounds_of(work_, 1);
    const auto stages = BoundStages::make(model_, table(keep, 0), devices);
    if (!stages) return;
    consider(stages->following(published, rounds, work_), rounds, keep);
    consider(stages->following(pieces(stages->seconds()), rounds, work_), rounds, keep);
  }

  bool has_halves() const {
    return request_.schedule == Schedule::kZeroBubbleH1 || request_.schedule == Schedule::kZeroBubbleV;
  }
  bool holds_parts_of_groups() const {
    return has_halves() || request_.schedule == Schedule::kOneFOneB || request_.schedule == Schedule::kInterleaved;
  }

  const TimeTable& table(Keep keep, std::size_t rung) {
    while (ladder_.size() <= rung) ladder_.emplace_back(model_, work_, machine_, keep, shares_of(ladder_.size()));
    return ladder_[rung];
  }
  static MemoryShares shares_of(std::size_t rung) {
    if (rung < std::size(kMemoryShares)) return kMemoryShares[rung];
    if (rung + 1 == kRungs) return {0, 0};
    const std::size_t close = rung - std::size(kMemoryShares);
    const std::size_t step = close / std::size(kCloseForward);
    const double backward = 0.95 - 0.05 * static_cast<double>(step);
    return {backward * kCloseForward[close % std::size(kCloseForward)], backward};
  }

  double forbidden_seconds(const std::vector<DeviceIndex>& order, Keep keep, std::size_t rung) {
    while (forbidden_.size() <= rung) {
      forbidden_.push_back(table(keep, forbidden_.size()).least_forbidden_seconds(order));
    }
    return forbidden_[rung];
  }

  /// From the time of the longest single visit to that of the whole model in one.
  std::vector<double> candidate_limits(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                       std::size_t count) const {
    double least = 0;
    const LayerIndex last = times.layers() - 1;
    const auto quickest = [&](SlotPhase phase, LayerIndex first, LayerIndex end) {
      double seconds = times.seconds(order[0], phase, first, end);
      for (const DeviceIndex device : order) seconds = std::min(seconds, times.seconds(device, phase, first, end));
      return seconds;
    };
    for (LayerIndex i = 0; i < last; ++i) {
      least = std::max(least, quickest(SlotPhase::kForward, i, i));
      if (i >= times.lowest_backward()) least = std::max(least, quickest(SlotPhase::kBackward, i, i));
    }
    least = std::max(least, quickest(SlotPhase::kFused, last, last));
    const double most = times.seconds(order[0], SlotPhase::kFused, 0, last) * 1.000001;
    std::vector<double> limits;
    for (std::size_t i = 0; i < count; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(count - 1);
      limits.push_back(least * std::pow(std::max(most / least, 1.0), exponent));
    }
    return limits;
  }

  Plan plan_of(std::vector<Slot> slots, const std::vector<Round>& rounds, Keep keep) const {
    Plan plan;
    plan.schedule = request_.schedule;
    plan.keep = keep;
    plan.reduction_group = work_.reduction_group;
    plan.rounds = rounds;
    plan.slots = std::move(slots);
    return plan;
  }

  /// Simulates what might be better than the best so far and fits. False when it does not fit.
  bool consider(std::vector<Slot> slots, const std::vector<Round>& rounds, Keep keep) {
    Plan plan = plan_of(std::move(slots), rounds, keep);
    const Counts used = used_by(plan);
    const double at_least = work_.staleness == 0 && !holds_parts_of_groups()
                                ? lower_bound_.seconds_of(plan.slots, plan.rounds)
                                : longest_work(plan);
    if (best_ && at_least >= best_->predicted.step_seconds * (1 + kSame)) {
      remember(used, at_least);
      return true;
    }
    if (const PlanMemory::Lack lack = memory_.fill(plan); !lack.why.ok()) {
      refuse(plan, lack);
      return false;
    }
    memory_.keep_resident(plan);
    predict(layer_seconds_, model_, work_, machine_, plan);
    remember(used, plan.predicted.step_seconds);
    // A device that is of no use stays unused.
    const bool fewer = best_ && devices_of(used) < devices_of(used_by(*best_));
    // Memory is worth something too. Of pools this does not hold: adding a device must never make a step longer.
    const bool keeps_more = best_ && plan.keep > best_->keep && devices_of(used) == 1 && used == used_by(*best_);
    // Short rounds are what such a schedule is asked for. Longer ones bring streamed weights less often.
    const bool longer_rounds = best_ && holds_parts_of_groups() && plan.rounds.size() < best_->rounds.size();
    const double saves = longer_rounds ? kWorthLongRounds : keeps_more ? kWorthKeeping : kSame;
    const double enough = fewer ? 1.0 + kSame : 1.0 - saves;
    if (!best_ || plan.predicted.step_seconds < best_->predicted.step_seconds * enough) best_ = std::move(plan);
    return true;
  }

  /// What no step can beat though nothing drains: the compute time of the device that has most to do.
  double longest_work(const Plan& plan) const {
    std::vector<double> seconds(machine_.devices.size(), 0.0);
    for (const Slot& slot : plan.slots) seconds[slot.device] += slot.seconds * plan.rounds[slot.round].microbatches;
    return std::ranges::max(seconds);
  }

  Counts used_by(const Plan& plan) const {
    std::vector<bool> used(machine_.devices.size(), false);
    for (const Slot& slot : plan.slots) used[slot.device] = true;
    Counts counts;
    for (const Kind& kind : kinds_) {
      counts.push_back(static_cast<std::size_t>(std::ranges::count_if(kind, [&](DeviceIndex i) { return used[i]; })));
    }
    return counts;
  }
  static std::size_t devices_of(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  void remember(const Counts& used, double seconds) {
    const auto [entry, added] = quickest_.try_emplace(used, seconds);
    if (!added) entry->second = std::min(entry->second, seconds);
  }

  bool are_alike(const std::vector<DeviceIndex>& order) const {
    return std::ranges::all_of(order, [&](DeviceIndex i) { return like_[i] == like_[order[0]]; });
  }

  /// Every round gets all stages; among like devices the rotation's cursor carries on from round to round.
  std::vector<Slot> deal_rounds(const std::vector<Slot>& stages, const std::vector<DeviceIndex>& order,
                                const std::vector<Round>& rounds) const {
    std::vector<Slot> slots;
    const bool carries = are_alike(order);
    std::size_t cursor = 0;
    for (std::uint32_t round = 0; round < rounds.size(); ++round) {
      for (Slot slot : stages) {
        slot.round = round;
        if (carries) slot.device = order[cursor++ % order.size()];
        slots.push_back(slot);
      }
    }
    return slots;
  }

  /// After memory_.fill().
  bool fits_devices(const Plan& plan) const { return plan.devices.size() == machine_.devices.size(); }

  /// What is said when no plan fits: that of the plan which the devices have room for and which asks least of the host;
  /// without one, of the plan that lacks least room on a device.
  void refuse(const Plan& plan, const PlanMemory::Lack& lack) {
    const Bytes host = fits_devices(plan) ? plan.host_peak_bytes : std::numeric_limits<Bytes>::max();
    if (!refusal_.ok() && std::pair(host, lack.overfull) >= refused_) return;
    refusal_ = lack.why;
    refused_ = {host, lack.overfull};
  }

  void finish(Plan& plan) const {
    plan.predicted.least_step_seconds = std::min(least_seconds_, plan.predicted.step_seconds);
    explain_limits(layer_seconds_, model_, work_, machine_, plan);
    const Counts used = used_by(plan);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      double with = 0;
      for (const auto& [counts, seconds] : quickest_) {
        if (counts[kind] > used[kind]) with = with > 0 ? std::min(with, seconds) : seconds;
      }
      for (const DeviceIndex i : kinds_[kind]) {
        if (std::ranges::any_of(plan.slots, [&](const Slot& slot) { return slot.device == i; })) continue;
        plan.devices[i].unused_because =
            with > 0 ? fmt::format("a step with it takes {:.4g} s or more, without it {:.4g} s",
                                   std::max(with, plan.predicted.step_seconds), plan.predicted.step_seconds)
            : request_.schedule == Schedule::kRoundPipe
                ? fmt::format("no plan that uses it fits its memory of {}",
                              format_bytes(machine_.devices[i].budget_bytes))
                : fmt::format(
                      "no {} plan has a place for it: too few microbatches or layers, or too little memory ({})",
                      name_of(request_.schedule), format_bytes(machine_.devices[i].budget_bytes));
      }
    }
  }

  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
  const PlanRequest& request_;
  const PlanMemory memory_;
  std::vector<Kind> kinds_;
  std::vector<DeviceIndex> like_;  // by device: the first of its kind
  const LayerSeconds layer_seconds_;
  StepEstimate estimate_;
  StepEstimate lower_bound_;
  std::map<Counts, double> quickest_;  // by devices used: no step with these is shorter
  std::deque<TimeTable> ladder_;       // by rung of shares_of(), of the Keep under search
  /// Of the set under search: stages of a round by rung and limit.
  using Packed = std::map<std::pair<std::size_t, double>, std::optional<std::vector<Slot>>>;
  Packed packed_;
  std::map<DeviceIndex, Packed> packed_of_like_;  // of the Keep under search: by the first of some like devices
  std::vector<double> forbidden_;                 // likewise by rung: the shortest visit that memory forbids
  std::optional<Plan> best_;
  double least_seconds_ = kNever;  // no plan over the pool takes less
  absl::Status refusal_;
  std::pair<Bytes, double> refused_;  // of it: the host's bytes and how full it would make a device
  bool host_refused_ = false;         // some candidate of the set under search
};

}  // namespace

absl::StatusOr<Plan> make_plan(const ModelShape& model, const Workload& work, const MachineShape& machine,
                               const PlanRequest& request) {
  if (machine.devices.empty()) return invalid_input("devices: the pool is empty");
  auto plan = Planner(model, work, machine, request).run();
  if (plan.ok()) RONDO_RETURN_IF_ERROR(validate(*plan, model, work, machine));
  return plan;
}

}  // namespace rondo::partition
