// Text generation with a key/value cache on one device, weights resident.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/parameter_store.h"

namespace rondo::train {

struct SamplingOptions {
  std::uint32_t max_new_tokens = 128;
  double temperature = 0.0;  // 0: the most likely token
  std::uint32_t top_k = 0;   // 0: all
  double top_p = 1.0;
  std::uint64_t seed = 42;
  std::vector<std::int32_t> stop_ids;
  /// Once it is set the answer ends with the token under way; null: never. Outlives the call.
  const std::atomic<bool>* stop = nullptr;
};

/// The token that `options` choose from logits [V]: transformers' order (temperature, top k, top p), equal logits by
/// rising id; the random number follows from (seed, position).
std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position);

/// Compiles on the device what a generator is to do there, and lets go of it: what the device keeps for it is there,
/// and counted, before there are weights. Errors: those of Device::compile.
absl::Status try_generation(const model::Architecture& model, devices::Device& device, std::uint32_t prompt_tokens,
                            std::uint32_t capacity);

class Generator {
 public:
  /// Compiles and allocates for up to `capacity` tokens of prompt and answer; a prompt of more than `prompt_tokens` is
  /// computed in pieces. All outlive the generator, so does `lender`, whose weights of the same names on the same
  /// device serve this one too: an adapter's base beside the adapter takes no second copy. Errors: ResourceExhausted
  /// when weights and cache do not fit the device.
  static absl::StatusOr<std::unique_ptr<Generator>> make(const model::Architecture& model,
                                                         offload::ParameterStore& parameters, devices::Device& device,
                                                         std::uint32_t prompt_tokens, std::uint32_t capacity,
                                                         const Generator* lender = nullptr);
  ~Generator();

  /// The answer's ids, a stop id included when it ended the answer. `on_token` is told of each at once. Keys and values
  /// stay: the tokens that the next prompt has in common with this prompt and answer are not computed again.
  /// Errors: InvalidArgument for an empty prompt or one of more tokens than the capacity.
  absl::StatusOr<std::vector<std::int32_t>> generate(std::span<const std::int32_t> prompt,
                                                     const SamplingOptions& options,
                                                     const std::function<void(std::int32_t)>& on_token);

  /// Drops the keys and values of earlier calls: the next prompt is computed whole.
  void forget();
  /// Tokens of the last prompt whose keys and values were there already.
  std::uint32_t reused_tokens() const;

 private:
  class Impl;
  explicit Generator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::train
