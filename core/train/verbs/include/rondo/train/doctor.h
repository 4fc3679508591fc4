// Whether this machine can train, and what would help: drivers, processor, memory, disks, permissions.
#pragma once

#include <string>
#include <vector>

#include "rondo/train/config.h"

namespace rondo::train {

enum class Health { kOk, kAdvice, kProblem };

struct Finding {
  Health health = Health::kOk;
  std::string subject;  // "processor", "vulkan", "disk", ...
  std::string text;     // one line: what was found and, unless it is ok, what to do
};

/// Training is possible unless one finding is a problem. The keys devices, output_dir and nvme_path say what to look
/// at. A file of 64 MiB is written for a moment where the disk is measured; nothing stays.
std::vector<Finding> diagnose(const Config& config);

/// "ok", "advice", "problem".
const char* name_of(Health health);

}  // namespace rondo::train
