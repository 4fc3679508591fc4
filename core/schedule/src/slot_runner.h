// One slot's visit of one microbatch as a chain of programs, and their bindings.
#pragma once

#include <cstdint>
#include <vector>

#include "program_cache.h"
#include "rondo/devices/device.h"
#include "rondo/model/architecture.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/batch.h"

namespace rondo::schedule {

/// Where the activations and gradients of a link in the chain lie.
enum class Place : std::uint8_t {
  kNone,
  kInputActivation,  // the slot's, from the boundary below
  kInputGradient,    // from the boundary above
  kActivation,       // of the workspace, by layer
  kGradient,         // of the workspace, two in turn
  kHeldGradient,     // of what is held for weight gradients, by layer
  kOutput,           // the slot's, by published cut
};
struct PlaceRef {
  Place place = Place::kNone;
  std::uint32_t index = 0;
};

/// One program of a visit.
struct ChainLink {
  model::LayerIndex layer = 0;
  model::Phase phase = model::Phase::kForward;
  model::Keep keep = model::Keep::kNothing;
  PlaceRef input;                    // activation
  PlaceRef gradient;                 // from above
  PlaceRef output;                   // activation or gradient
  bool writes_rows = false;          // that are taken home
  bool adds_rows = false;            // to a sum on the device, instead
  model::LayerIndex last_layer = 0;  // whose weights it reads: the same but of a head in parts
};

/// The chain of a slot; in evaluation a fused slot ends with the loss alone.
std::vector<ChainLink> make_chain(const model::Architecture& model, const partition::ModelShape& shape,
                                  const partition::Slot& slot, const std::vector<partition::Slot>& slots,
                                  partition::Keep keep, bool evaluate);

/// Row ids and rows of a lookup table's gradient, for a bucket.
struct RowViews {
  devices::BufferView ids;
  devices::BufferView rows;
};
/// `place`: memory that begins with them.
RowViews row_views(devices::BufferView place, std::uint32_t bucket, std::uint64_t width);
/// Where they lie in the workspace.
RowViews row_views(const partition::WorkspaceLayout& layout, devices::BufferView workspace, std::uint32_t bucket,
                   std::uint64_t width);

/// Memory of one visit of one microbatch. All views are of the device's (or, where it is unified, of the host's)
/// memory.
struct VisitMemory {
  devices::BufferView input_activation;
  devices::BufferView input_gradient;
  std::vector<devices::BufferView> outputs;
  devices::BufferView batch;
  devices::BufferView loss;
  devices::BufferView workspace;
  devices::BufferView held;  // of slots that defer weight gradients or catch up with them
  RowViews rows;             // where they do not lie in the workspace
  const std::vector<std::vector<devices::BufferView>>* weights = nullptr;    // [layer - first][parameter]
  const std::vector<std::vector<devices::BufferView>>* gradients = nullptr;  // likewise; null where none are computed
};

/// Fills `bindings` for one link. Does not allocate when `bindings` has the capacity.
void bind(const model::Architecture& model, const ChainLink& link, const devices::Program& program,
          const partition::Slot& slot, const partition::WorkspaceLayout& layout, const VisitMemory& memory,
          std::uint32_t bucket, devices::Bindings& bindings);

}  // namespace rondo::schedule
