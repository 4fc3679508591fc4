// From what a device's queue did in a step to how long each of its programs took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/model/architecture.h"
#include "rondo/partition/plan.h"
#include "rondo/schedule/trace.h"

namespace rondo::schedule {

/// One run of a layer's program.
struct ProgramTime {
  partition::LayerIndex layer = 0;
  std::uint32_t program_class = 0;
  model::Phase phase = model::Phase::kForward;
  model::Keep keep = model::Keep::kNothing;  // what a backward program starts from; kNothing of others
  std::uint32_t microbatch = 0;
  double seconds = 0;
  partition::LayerIndex last_layer = 0;  // of the parts of a head that one program computes; else `layer`

  /// What the plan counts for it.
  partition::PhaseCost cost(const partition::ModelShape& shape) const;
};

/// Of the visits in step `step` that device `device` (its name) has made whole, by the spans of its trace.
std::vector<ProgramTime> program_times(const model::Architecture& model, const partition::ModelShape& shape,
                                       const partition::Plan& plan, const std::string& device,
                                       const std::vector<TraceSpan>& spans, std::uint32_t step);

}  // namespace rondo::schedule
