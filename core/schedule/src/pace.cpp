#include "pace.h"

#include <algorithm>
#include <limits>

namespace rondo::schedule {

void PaceWatch::forget() {
  in_a_row_ = 0;
  std::ranges::fill(sums_, 0.0);
}

bool PaceWatch::step(const std::vector<double>& measured, const std::vector<double>& by_profile) {
  double quickest = std::numeric_limits<double>::max();
  std::size_t used = 0;
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    now_[i] = by_profile[i] > 0 ? measured[i] / by_profile[i] : 0;
    if (now_[i] <= 0) continue;
    quickest = std::min(quickest, now_[i]);
    ++used;
  }
  if (used < 2 || quickest > kDescribed) {
    forget();
    return false;
  }
  bool off = false;
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    now_[i] /= quickest;
    sums_[i] += now_[i];
    if (now_[i] <= 0) continue;
    const double change = now_[i] / factors_[i];
    off = off || change >= kOff || change <= 1 / kOff;
  }
  if (!off) {
    forget();
    return false;
  }
  if (++in_a_row_ < kSteps) return false;
  before_ = factors_;
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    if (now_[i] > 0) factors_[i] = sums_[i] / kSteps;
  }
  forget();
  return true;
}

}  // namespace rondo::schedule
