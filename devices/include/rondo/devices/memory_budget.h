// A device's bytes: what is allocated now, at most, and may be.
//
// Thread-safe. Backends hold it by shared_ptr, since a Memory gives its bytes back when it dies and may outlive its
// device (buffers of a lost card are set aside).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "rondo/base/mutex.h"
#include "rondo/base/units.h"

namespace rondo::devices {

class MemoryBudget {
 public:
  /// `name`: the device's, for messages.
  MemoryBudget(std::string name, Bytes limit);

  /// Errors: ResourceExhausted with asked, free and total bytes.
  absl::Status take(Bytes bytes);
  void give_back(Bytes bytes);
  Bytes now() const;
  Bytes peak() const;
  Bytes limit() const { return limit_; }

 private:
  const std::string name_;
  const Bytes limit_;
  mutable Mutex mutex_;
  Bytes now_ ABSL_GUARDED_BY(mutex_) = 0;
  Bytes peak_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rondo::devices
