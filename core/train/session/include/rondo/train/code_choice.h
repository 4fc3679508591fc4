// quantization_tokens: the codes of a frozen base, chosen for the data that the run trains on.
//
// Layer by layer: its inputs are those that the layers below give with their codes, the sums of squares of what its
// matrices read are collected, the codes are chosen (ErrorFeedback), and the layer's outputs with them are the next
// one's inputs. The processor computes it whatever the pool, so that the codes do not depend on it. An adapter is left
// out.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/model/architecture.h"
#include "rondo/model/safetensors.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/schedule/batch.h"
#include "rondo/train/loader.h"
#include "rondo/train/progress.h"

namespace rondo::train {

/// The first microbatches of the run that hold `tokens` tokens together; of less data all of it, once.
std::vector<schedule::Microbatch> first_microbatches(Loader& loader, std::uint64_t tokens);

/// What choose_codes() takes of main memory beside the store, about: for `tokens` tokens in microbatches of `lengths`.
Bytes choice_bytes(const model::Architecture& model, const Loader::Lengths& lengths, std::uint64_t tokens,
                   devices::ThreadPool& threads);

/// Chooses the codes of every encoded matrix of `model` anew, in `store`, where load_weights() has left the nearest
/// ones. `files`: the plain weights. Errors: InvalidArgument naming a layer whose inputs are not finite;
/// ResourceExhausted.
absl::Status choose_codes(const model::Architecture& model, const model::TensorFiles& files,
                          const std::vector<schedule::Microbatch>& batches, devices::ThreadPool& threads,
                          offload::ParameterStore& store, const Progress& progress);

}  // namespace rondo::train
