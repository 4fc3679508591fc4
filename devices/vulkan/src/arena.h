// All of a card's memory as one buffer, of which blocks are pieces: where kernels fetch texels (panel.h), so that they
// can fetch any tensor. The driver's memory is taken from the host page by page as it is first written.
//
// Thread rule: take() and give_back() may be called from any thread, the rest is immutable once made.
#pragma once

#include <map>
#include <optional>

#include "rondo/base/mutex.h"
#include "rondo/base/units.h"

namespace rondo::devices::vulkan {

/// Which bytes of [0, size) are taken.
class Pieces {
 public:
  /// What each piece begins at a multiple of.
  static constexpr Bytes kGrain = 256;

  explicit Pieces(Bytes size) { free_.emplace(0, size / kGrain * kGrain); }
  /// Where `size` bytes begin: the first gap that holds them. None when there is no such gap.
  std::optional<Bytes> take(Bytes size);
  void give_back(Bytes begin, Bytes size);
  /// In whole grains.
  Bytes taken() const;

 private:
  mutable Mutex mutex_;
  std::map<Bytes, Bytes> free_ ABSL_GUARDED_BY(mutex_);  // size by beginning; no two touch
  Bytes taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rondo::devices::vulkan
