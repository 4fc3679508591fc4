// Compute pipelines by shader and specialisation constants, each made once a device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "commands.h"
#include "context.h"
#include "panel.h"
#include "pipeline_cache.h"
#include "rondo/base/mutex.h"
#include "statistics.h"

namespace rondo::devices::vulkan {

/// In the order of the table in shaders.cpp.
enum class Shader : std::uint8_t {
  kElementwise,
  kNorm,
  kNormBackward,
  kNormEights,
  kNormBackwardEights,
  kNoise,
  kColumnSums,
  kColumnTotal,
  kRope,
  kEmbedding,
  kEmbeddingChain,
  kEmbeddingChainEights,
  kEmbeddingRank,
  kEmbeddingRankEights,
  kEmbeddingRows,
  kSelectLast,
  kMatMul,
  kMatMulCooperative,
  kMatMulPanels,
  kMatMulNarrow,
  kMatMulFew,
  kMatMulGrouped,
  kPanel,
  kAttention,
  kAttentionDelta,
  kAttentionSink,
  kJoinHeads,
  kHeadPart,
  kAttentionQueryGradient,
  kAttentionKeyGradient,
  kAttentionPanels,
  kAttentionQueryPanels,
  kAttentionKeyPanels,
  kAttentionUnits,
  kAttentionQueryUnits,
  kAttentionKeyUnits,
  kPanelRows,
  kPanelStats,
  kCacheStore,
  kTargets,
  kLossSum,
  kLargest,
  kExpand,
  kHadamardEncode,
  kHadamardEncodeEights,
  kHadamardExpand,
  kMagnitude,
  kColumnScale,
  kVocabulary,
  kRoute,
  kRouteEights,
  kRouteRows,
  kRouteRowsEights,
  kRouteBackward,
  kRouteBackwardEights,
  kShareScale,
  kShareScaleGradient,
  kExpertDispatch,
  kExpertCombine,
  kExpertCombineBackward,
  kGroupedBias,
  kGroupedBiasGradient,
  kAddRows,
  kSumOfSquares,
  kSumOfSquaresDoubles,
  kAdamW,
  kAdamWEights,
  kConvolution,
  kConvolutionBackward,
  kDecay,
  kDeltaRule,
  kDeltaRuleEights,
  kDeltaStep,
  kDeltaValueGradient,
  kDeltaValueGradientEights,
  kDeltaKeyGradient,
  kDeltaGateGradient,
  kCount,
};
const char* name_of(Shader shader);
std::span<const std::uint32_t> code_of(Shader shader);
/// Constants of the kernels that multiply cooperative matrices.
struct UnitConstants {
  std::size_t type = 0;    // how operands are stored
  std::size_t scaled = 0;  // 1: as fp16, see shaders/scaled.glsl
};
inline constexpr UnitConstants kProductConstants = {1, 22};
inline constexpr UnitConstants kAttentionConstants = {0, 10};
/// Whether a kernel multiplies cooperative matrices: it is compiled for NV's extension and needs subgroups of one size.
bool uses_matrix_units(Shader shader);

/// What a dispatch is told, see shaders/common.glsl: places in the run's table of addresses, sizes, factors.
struct Push {
  std::uint64_t table = 0;
  std::uint32_t slots[12] = {};
  std::uint32_t sizes[13] = {};
  std::uint32_t grid =
      0;  // of a part: how many workgroups the whole has, in its first dimension and 2^16 times in its last
  float factors[2] = {};
  std::uint64_t fetched = 0;  // the address of what the view of all memory begins with
};
static_assert(sizeof(Push) <= 128, "what every card takes");

/// Values of constant_id 0, 1, ...
using Constants = std::vector<std::uint32_t>;

/// How a tensor is stored, for constants: as in shaders/common.glsl.
inline constexpr std::uint32_t kFloat32Storage = 0;
inline constexpr std::uint32_t kBfloat16Storage = 1;
inline constexpr std::uint32_t kFloat16Storage = 2;

class Pipelines {
 public:
  /// `folder`: where compiled pipelines are kept, empty for nowhere. `backwards`: see kBackwards in
  /// shaders/common.glsl.
  Pipelines(std::shared_ptr<Context> context, std::filesystem::path folder, bool backwards = false)
      : context_(std::move(context)), folder_(std::move(folder)), backwards_(backwards) {}
  /// Keeps what was compiled.
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  absl::Status prepare();
  VkPipelineLayout layout() const { return layout_; }
  /// Null where products do without.
  const Panel* panel() const { return panel_.get(); }
  Panel* panel() { return panel_.get(); }
  /// Records that kernels fetch from the panel, where there is one.
  void bind_panel(VkCommandBuffer commands) const;
  const PipelineCache& cache() const { return *cache_; }
  /// What the driver makes of a pipeline, and holds for it, is there when this returns. `part`: it is dispatched with a
  /// base, as a part of a larger grid (kPart in shaders/common.glsl). Thread-safe.
  absl::StatusOr<VkPipeline> get(Shader shader, const Constants& constants, bool part = false);

 private:
  using Key = std::tuple<Shader, Constants, bool>;
  absl::StatusOr<VkPipeline> make(Shader shader, const Constants& constants, bool part);
  absl::Status translate(VkPipeline pipeline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Context> context_;
  const std::filesystem::path folder_;
  const bool backwards_;
  std::unique_ptr<PipelineCache> cache_;
  std::unique_ptr<Panel> panel_;
  std::unique_ptr<Statistics> statistics_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  Mutex mutex_;
  Commands translating_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, VkPipeline> made_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rondo::devices::vulkan
