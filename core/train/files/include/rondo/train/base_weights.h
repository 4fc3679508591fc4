// Which weights a run trains over: told from a sample of their numbers, not from where they lie.
#pragma once

#include <cstdint>
#include <string>

#include "rondo/model/architecture.h"
#include "rondo/model/safetensors.h"

namespace rondo::train {

/// Stretches of a tensor that are looked at, evenly spread, its first and its last numbers among them, and numbers of
/// each. Shorter tensors are looked at whole.
inline constexpr std::uint64_t kSampledStretches = 8;
inline constexpr std::uint64_t kStretchNumbers = 256;

/// A hash of names, shapes and sampled numbers of the weights that `model` reads from `files` and leaves as they are;
/// of experts one in each block. Empty where all weights are trained. The numbers count, not how they are stored: in
/// other shards, in a wider dtype or in a GGUF file that holds the same ones it is the same. It asks for 8 KiB of fp32
/// a tensor, of 70B parameters' some 6 MiB, of which a disk reads whole pages. REQUIRES: `files` are checked.
std::string base_fingerprint(const model::Architecture& model, const model::TensorFiles& files);

}  // namespace rondo::train
