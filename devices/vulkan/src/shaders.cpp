// The kernels, compiled when the program is built (shaders.cmake), in the order of enum Shader.
#include <array>

#include "pipelines.h"

namespace rondo::devices::vulkan {
namespace {

#define RONDO_VULKAN_SHADERS(X)  \
  X(elementwise)                 \
  X(norm)                        \
  X(norm_backward)               \
  X(norm_eights)                 \
  X(norm_backward_eights)        \
  X(noise)                       \
  X(column_sums)                 \
  X(column_total)                \
  X(rope)                        \
  X(embedding)                   \
  X(embedding_chain)             \
  X(embedding_chain_eights)      \
  X(embedding_rank)              \
  X(embedding_rank_eights)       \
  X(embedding_rows)              \
  X(select_last)                 \
  X(matmul)                      \
  X(matmul_cooperative)          \
  X(matmul_panels)               \
  X(matmul_narrow)               \
  X(matmul_few)                  \
  X(matmul_grouped)              \
  X(panel)                       \
  X(attention)                   \
  X(attention_delta)             \
  X(attention_sink)              \
  X(join_heads)                  \
  X(head_part)                   \
  X(attention_query_gradient)    \
  X(attention_key_gradient)      \
  X(attention_panels)            \
  X(attention_query_panels)      \
  X(attention_key_panels)        \
  X(attention_units)             \
  X(attention_query_units)       \
  X(attention_key_units)         \
  X(panel_rows)                  \
  X(panel_stats)                 \
  X(cache_store)                 \
  X(targets)                     \
  X(loss_sum)                    \
  X(largest)                     \
  X(expand)                      \
  X(hadamard_encode)             \
  X(hadamard_encode_eights)      \
  X(hadamard_expand)             \
  X(magnitude)                   \
  X(column_scale)                \
  X(vocabulary)                  \
  X(route)                       \
  X(route_eights)                \
  X(route_rows)                  \
  X(route_rows_eights)           \
  X(route_backward)              \
  X(route_backward_eights)       \
  X(share_scale)                 \
  X(share_scale_gradient)        \
  X(expert_dispatch)             \
  X(expert_combine)              \
  X(expert_combine_backward)     \
  X(grouped_bias)                \
  X(grouped_bias_gradient)       \
  X(add_rows)                    \
  X(sum_of_squares)              \
  X(sum_of_squares_doubles)      \
  X(adamw)                       \
  X(adamw_eights)                \
  X(convolution)                 \
  X(convolution_backward)        \
  X(decay)                       \
  X(delta_rule)                  \
  X(delta_rule_eights)           \
  X(delta_step)                  \
  X(delta_value_gradient)        \
  X(delta_value_gradient_eights) \
  X(delta_key_gradient)          \
  X(delta_gate_gradient)

// Each file is one array of words: `constexpr std::uint32_t NAME_words[] = {...};`
#include "all_shaders.inc"

struct Entry {
  const char* name;
  std::span<const std::uint32_t> code;
};
#define RONDO_VULKAN_ENTRY(name) Entry{#name, name##_words},
constexpr std::array kEntries = {RONDO_VULKAN_SHADERS(RONDO_VULKAN_ENTRY)};
static_assert(kEntries.size() == static_cast<std::size_t>(Shader::kCount));

}  // namespace

const char* name_of(Shader shader) { return kEntries[static_cast<std::size_t>(shader)].name; }
std::span<const std::uint32_t> code_of(Shader shader) { return kEntries[static_cast<std::size_t>(shader)].code; }

}  // namespace rondo::devices::vulkan
