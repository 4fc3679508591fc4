// What an optimizer keeps of a parameter between updates, and how it lies in memory, on disk and in checkpoints.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/base/units.h"
#include "rondo/devices/moment_tables.h"

namespace rondo::offload {

enum class OptimizerKind : std::uint8_t { kAdamW, kAdamW8Bit, kSgd, kLion };

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.0;  // kSgd
};

enum class MomentFormat : std::uint8_t {
  kNone,
  kFloat32,
  kBlocks8,  // codes of 8 bits, padded to four bytes, then a fp32 scale for each kMomentBlock of them
};

using devices::kMomentBlock;
/// Smaller parameters (norms, biases) keep fp32 moments beside 8-bit ones.
inline constexpr std::uint64_t kLeastBlocks8 = 4096;

/// A multiple of four.
constexpr Bytes moment_bytes(MomentFormat format, std::uint64_t elements) {
  switch (format) {
    case MomentFormat::kNone:
      return 0;
    case MomentFormat::kFloat32:
      return elements * sizeof(float);
    case MomentFormat::kBlocks8:
      return round_up(elements, 4) + (elements + kMomentBlock - 1) / kMomentBlock * sizeof(float);
  }
  return 0;
}

/// Of one parameter. AdamW's first and second moment; of SGD the momentum buffer, of Lion the momentum, as the first.
struct StateLayout {
  MomentFormat first = MomentFormat::kFloat32;
  MomentFormat second = MomentFormat::kFloat32;
  Bytes moments(std::uint64_t elements) const { return moment_bytes(first, elements) + moment_bytes(second, elements); }
};
StateLayout state_layout(const OptimizerSettings& settings, std::uint64_t elements);

/// The arrays of one parameter that lie on disk, in their order there: the master where it is not the published weights
/// themselves, then the moments that there are.
std::vector<MomentFormat> disk_arrays(const StateLayout& state, bool separate_master);

}  // namespace rondo::offload
