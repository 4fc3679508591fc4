#include "ledger.h"

#include <algorithm>

#include "rondo/partition/slots.h"

namespace rondo::schedule {

partition::Round round_within(const partition::Round& round, std::uint32_t microbatches) {
  partition::Round within = round;
  const std::uint32_t end = std::min(round.first_microbatch + round.microbatches, microbatches);
  within.microbatches = end > round.first_microbatch ? end - round.first_microbatch : 0;
  return within;
}

Ledger::Ledger(const partition::Plan& plan, std::uint32_t group, std::size_t contributions)
    : plan_(plan), group_(group), sharers_(partition::group_ends(plan.slots)), sharing_(plan.slots.size()) {
  for (std::uint32_t i = 0; i < sharers_.size(); ++i) sharing_[sharers_[i]].push_back(i);
  const MutexLock lock(mutex_);
  visits_.resize(plan.slots.size());
  groups_added_.resize(contributions);
}

void Ledger::begin(std::uint32_t microbatches, const std::vector<bool>& with_gradients) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < visits_.size(); ++i) {
    const partition::Round round = round_within(plan_.rounds[plan_.slots[i].round], microbatches);
    Visit& visit = visits_[i];
    visit.first_microbatch = round.first_microbatch;
    visit.microbatches = round.microbatches;
    visit.first_group = round.first_microbatch / group_;
    visit.retired.assign(round.microbatches, false);
    visit.home.assign(with_gradients[i] ? (round.microbatches + group_ - 1) / group_ : 0, false);
    visit.ended = round.microbatches == 0;
  }
  std::ranges::fill(groups_added_, 0);
  rows_added_ = 0;
}

bool Ledger::retired(std::uint32_t slot, std::uint32_t microbatch) const {
  const MutexLock lock(mutex_);
  return visits_[slot].retired[microbatch - visits_[slot].first_microbatch];
}

void Ledger::set_retired(std::uint32_t slot, std::uint32_t microbatch) {
  const MutexLock lock(mutex_);
  visits_[slot].retired[microbatch - visits_[slot].first_microbatch] = true;
}

bool Ledger::home(std::uint32_t slot, std::uint32_t group) const {
  const MutexLock lock(mutex_);
  return visits_[slot].home[group - visits_[slot].first_group];
}

void Ledger::set_home(std::uint32_t slot, std::uint32_t group) {
  const MutexLock lock(mutex_);
  for (const std::uint32_t i : sharing(slot)) {
    Visit& visit = visits_[i];
    if (visit.microbatches == 0) continue;
    visit.home[group - visit.first_group] = true;
    if (partition::catches_up(plan_.slots[i])) visit.retired.assign(visit.microbatches, true);
  }
}

bool Ledger::done(std::uint32_t slot, std::uint32_t microbatch) const {
  const MutexLock lock(mutex_);
  const Visit& visit = visits_[slot];
  return visit.retired[microbatch - visit.first_microbatch] &&
         (visit.home.empty() || visit.home[microbatch / group_ - visit.first_group]);
}

bool Ledger::end_visit(std::uint32_t slot) {
  const MutexLock lock(mutex_);
  Visit& visit = visits_[slot];
  const bool done = std::ranges::count(visit.retired, false) == 0 && std::ranges::count(visit.home, false) == 0;
  if (!done || visit.ended) return false;
  visit.ended = true;
  return true;
}

bool Ledger::ended(std::uint32_t slot) const {
  const MutexLock lock(mutex_);
  return visits_[slot].ended;
}

bool Ledger::added(std::uint32_t contribution, std::uint32_t group) const {
  const MutexLock lock(mutex_);
  return groups_added_[contribution] > group;
}

bool Ledger::rows_added(std::uint32_t microbatch) const {
  const MutexLock lock(mutex_);
  return rows_added_ > microbatch;
}

bool Ledger::wait_for_turn(std::uint32_t contribution, std::uint32_t group, const std::atomic<bool>& stopped) {
  const MutexLock lock(mutex_);
  while (groups_added_[contribution] < group && !stopped.load(std::memory_order_acquire)) changed_.wait(mutex_);
  return !stopped.load(std::memory_order_acquire);
}

bool Ledger::wait_for_rows_turn(std::uint32_t microbatch, const std::atomic<bool>& stopped) {
  const MutexLock lock(mutex_);
  while (rows_added_ < microbatch && !stopped.load(std::memory_order_acquire)) changed_.wait(mutex_);
  return !stopped.load(std::memory_order_acquire);
}

void Ledger::set_added(std::uint32_t contribution) {
  const MutexLock lock(mutex_);
  ++groups_added_[contribution];
  changed_.notify_all();
}

void Ledger::set_rows_added() {
  const MutexLock lock(mutex_);
  ++rows_added_;
  changed_.notify_all();
}

void Ledger::wake() {
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

}  // namespace rondo::schedule
