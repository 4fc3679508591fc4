// What the laws ask of two ways to run the same job.
#pragma once

#include <gtest/gtest.h>

#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {

/// `job`, placed so, gives the bits of `reference`: losses, norms and parameters. Names the first that differs.
inline void expect_trace(const model::Architecture& model, const Job& job, const Placement& placement,
                         const Trace& reference) {
  SCOPED_TRACE(placement.name);
  const Trace trace = trace_of(model, job, placement);
  EXPECT_EQ(trace.loss_sums, reference.loss_sums);
  EXPECT_EQ(trace.norms, reference.norms);
  if (trace.bytes == reference.bytes) return;
  auto run = TinyRun::make(model, job, {"names"});
  ADD_FAILURE() << "bytes differ from " << first_difference(model, (*run)->store(), trace.bytes, reference.bytes)
                << " on";
}

}  // namespace rondo::tiny
