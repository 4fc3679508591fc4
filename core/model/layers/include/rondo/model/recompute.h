// Cuts programs out of a recorded graph: forward, forward that saves, backward from what was saved, and the two halves
// of that, the second of which may run much later.
//
// A backward program contains just those forward ops whose results the gradients need and that were not saved, so
// recomputing never runs an op in vain; ops are deterministic, so a recomputed tensor has the bits of the first one.
#pragma once

#include <vector>

#include "rondo/model/recorder.h"

namespace rondo::model {

/// What a forward program leaves for its backward program, beyond the layer's input.
enum class Keep : std::uint8_t {
  kNothing,    // recompute: full
  kSelective,  // results of products and attention; norms, gates, sums and dropout are computed again
  kAll,        // recompute: none, but for copies of the layer's input and what it or a weight expands to
};

/// Forward ops that lead to the layer's outputs and, with `keep`, to the tensors saved (role kSaved, index by
/// position; kHeld where gradients of weights read them).
devices::OpList forward_program(const Graph& graph, Keep keep);

/// Recomputation of what `keep` did not save, then the gradients.
devices::OpList backward_program(const Graph& graph, Keep keep);

/// The same without gradients of matrices and biases: they lead to nothing else. What they read is left behind: as
/// kHeld, but for what the layer is given.
devices::OpList input_gradient_program(const Graph& graph, Keep keep);
/// Those gradients, from what the program above has left. No ops where there are none.
devices::OpList weight_gradient_program(const Graph& graph, Keep keep);

/// Forward and backward in one visit, nothing saved or recomputed.
devices::OpList whole_program(const Graph& graph);

/// The tensors saved under `keep`, by role and index.
std::vector<devices::TensorDesc> saved_tensors(const Graph& graph, Keep keep);
/// All that is held from one half of a backward to the other, by index: what is saved as well comes first.
std::vector<devices::TensorDesc> held_tensors(const Graph& graph, Keep keep);

}  // namespace rondo::model
