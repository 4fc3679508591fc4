// Rows and columns of tensors that lie in files in another order than in models.
//
// llama's readers (those of chatglm, arcee, ernie4_5, glm4, mistral3, smollm3, granite and granitemoe too) rotate
// neighbouring rows (2i, 2i + 1) of a head where devices rotate (i, i + turned / 2). Qwen3.5's readers repeat the heads
// of keys one after the other where there are more of values, so that value heads (key head, number) lie as (number,
// key head). Beside a latent readers rotate neighbours too, and a head's channels that turn are its last.
#pragma once

#include <cstdint>
#include <string>

#include "rondo/model/config.h"

namespace rondo::gguf {

/// Behind the first `kept` places follow `stretches` of one length (0: all lies as it is). The first outer * inner *
/// width places of each, in models [outer][inner][width], are [inner][outer][width] in files, and there the last of
/// their stretch if `come_last`.
struct Order {
  std::uint64_t kept = 0;
  std::uint64_t stretches = 0;
  std::uint64_t outer = 1;
  std::uint64_t inner = 1;
  std::uint64_t width = 1;
  bool come_last = false;

  bool changes() const { return stretches != 0; }
  std::uint64_t moved() const { return outer * inner * width; }
};

/// Of the tensor that models have as `name`, of a part of it, or of an adapter's factor B for it.
Order order_of_rows(const model::ModelConfig& config, const std::string& name);

/// Likewise, or of an adapter's factor A.
Order order_of_columns(const model::ModelConfig& config, const std::string& name);

/// Whether there may be so many places.
bool suits(const Order& order, std::uint64_t places);

/// The place in a model of what goes to `place`. REQUIRES: suits().
std::uint64_t source_place(std::uint64_t place, std::uint64_t places, const Order& order);

/// The place in a file of what a model has at `place`. REQUIRES: suits().
std::uint64_t stored_place(std::uint64_t place, std::uint64_t places, const Order& order);

}  // namespace rondo::gguf
