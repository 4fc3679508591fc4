// Between model directories and the parameter store: loading weights and adapters, writing results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "rondo/base/documents.h"
#include "rondo/base/units.h"
#include "rondo/model/adapter.h"
#include "rondo/model/architecture.h"
#include "rondo/model/safetensors.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/train/progress.h"

namespace rondo::train {

/// Numbers that for_pieces() passes on at a time, at most.
inline constexpr std::size_t kPieceElements = 1U << 20U;

/// Calls `take(first, values)` for a tensor's numbers as fp32, some at a time, in order: no second copy of it exists.
/// All pieces but the last hold whole blocks of any encoding.
absl::Status for_pieces(const model::TensorView& tensor,
                        const std::function<absl::Status(std::uint64_t first, std::span<const float> values)>& take);

/// Passes a trained parameter's state on to `sink`, wherever it lies, some at a time. Errors: those of the disk and of
/// `sink`.
absl::Status read_pieces(offload::ParameterStore& store, model::ParameterId id, offload::StateArray which,
                         const model::TensorSink& sink);

/// What write_result() and the state beside it in a checkpoint hold of main memory at once, at most: pieces on their
/// way, and tensors that files have in another order.
Bytes written_at_once(const model::Architecture& model);

/// Fills every base weight of the store from `files` and, where given, the adapter's factors from `adapter`. Errors:
/// InvalidArgument naming file and tensor of a number that is not finite, or that fp16 cannot hold.
absl::Status load_weights(const model::Architecture& model, const model::TensorFiles& files,
                          const model::TensorFiles* adapter, offload::ParameterStore& store,
                          const Progress& progress = {});

/// Factors without an adapter start as PEFT's: A Kaiming-uniform with a = sqrt 5, i.e. uniform within 1 / sqrt(in), by
/// counter-based numbers of (seed, name, element); B zero; magnitudes the lengths of the weight's rows as the store has
/// them.
absl::Status init_factors(const model::Architecture& model, std::uint64_t seed, offload::ParameterStore& store);

/// As which weights of `dtype` are written.
model::WeightType file_type(devices::DType dtype);

/// Writes what the method trains into `folder`: a whole model, or an adapter in PEFT's layout with its configuration.
absl::Status write_result(const model::Architecture& model, offload::ParameterStore& store, const Documents& base,
                          const std::filesystem::path& folder);

/// Copies every tokenizer file of the base model that is there, unchanged.
absl::Status copy_tokenizer_files(const Documents& from, const std::filesystem::path& to);

}  // namespace rondo::train
