// Behind arena.h.
#include "arena.h"

#include <algorithm>
#include <iterator>

namespace rondo::devices::vulkan {

std::optional<Bytes> Pieces::take(Bytes size) {
  const Bytes wanted = round_up(std::max<Bytes>(size, 1), kGrain);
  const MutexLock lock(mutex_);
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    const auto [begin, room] = *gap;
    if (room < wanted) continue;
    free_.erase(gap);
    taken_ += wanted;
    if (room > wanted) free_.emplace(begin + wanted, room - wanted);
    return begin;
  }
  return std::nullopt;
}

void Pieces::give_back(Bytes begin, Bytes size) {
  Bytes end = begin + round_up(std::max<Bytes>(size, 1), kGrain);
  const MutexLock lock(mutex_);
  taken_ -= end - begin;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second = end - before->first;
      return;
    }
  }
  free_.emplace(begin, end - begin);
}

Bytes Pieces::taken() const {
  const MutexLock lock(mutex_);
  return taken_;
}

}  // namespace rondo::devices::vulkan
