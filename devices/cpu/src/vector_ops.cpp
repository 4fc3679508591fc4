// The ops that are one kernel of kernels.h each.
#include <algorithm>

#include "kernels.h"
#include "kernels/tile_units.h"
#include "rondo/base/status.h"
#include "tile_engine.h"
#include "vector_op.h"

namespace rondo::devices::cpu {
namespace {

/// What attention multiplies with: null where it does so in vectors.
const TileUnits* tile_units_for(Storage storage) {
  if (storage != Storage::kBfloat16 || arithmetic_for_bfloat16() != TileArithmetic::kBfloat16) return nullptr;
  return multiplies_in_tiles() ? &amx_units() : &dot_units();
}

AttentionShape attention_shape(const TensorDesc& q, const TensorDesc& k) {
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2]};
}

class Norm final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    const NormOperands operands(list_, op_);
    const auto at = [&](std::size_t place) { return place == 0 ? nullptr : in(context, place); };
    norm_forward(context.pool, storage_, in(context, 0), at(operands.weight), at(operands.bias), out(context, 0),
                 operands.rows, operands.width, attributes<NormAttributes>());
    return absl::OkStatus();
  }
};

class NormBackward final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t) const override {
    const NormOperands operands(list_, op_);
    return norm_backward_scratch(operands.rows, operands.width);
  }
  absl::Status run(const RunContext& context) const override {
    const auto& norm = attributes<NormAttributes>();
    const NormOperands operands(list_, op_);
    const auto at = [&](std::size_t place) { return place == 0 ? nullptr : in(context, place); };
    norm_backward(context.pool, storage_, in(context, 0), at(operands.weight), in(context, operands.gradient),
                  at(operands.addend), out(context, 0), norm.has_weight_gradient ? out_floats(context, 1) : nullptr,
                  operands.rows, operands.width, norm, context.scratch);
    return absl::OkStatus();
  }
};

class BiasGradient final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t) const override {
    return bias_gradient_scratch(rows_of(read(0)), columns_of(read(0)));
  }
  absl::Status run(const RunContext& context) const override {
    bias_gradient(context.pool, storage_, in(context, 0), out_floats(context, 0), rows_of(read(0)), columns_of(read(0)),
                  context.scratch);
    return absl::OkStatus();
  }
};

class Rope final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t) const override {
    return static_cast<Bytes>(read(0).shape[0] * read(0).shape[2]) * sizeof(float);
  }
  absl::Status run(const RunContext& context) const override {
    const Shape& shape = read(0).shape;
    rope(context.pool, storage_, in(context, 0), in_as<std::int32_t>(context, 1), in_as<std::int32_t>(context, 2),
         out(context, 0), shape[0], shape[1], shape[2], attributes<RopeAttributes>(), context.scratch);
    return absl::OkStatus();
  }
};

class Attention final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t members) const override {
    return attention_scratch(attention_shape(read(0), read(1)), tile_units_for(storage_), members);
  }
  absl::Status run(const RunContext& context) const override {
    attention(context.pool, storage_, tile_units_for(storage_), attention_shape(read(0), read(1)),
              attributes<AttentionAttributes>(), in(context, 0), in(context, 1), in(context, 2),
              in_as<std::int32_t>(context, 3), out(context, 0), out_floats(context, 1), context.scratch);
    return absl::OkStatus();
  }
};

class AttentionBackward final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t members) const override {
    return attention_backward_scratch(attention_shape(read(0), read(1)), tile_units_for(storage_), members);
  }
  absl::Status run(const RunContext& context) const override {
    attention_backward(context.pool, storage_, tile_units_for(storage_), attention_shape(read(0), read(1)),
                       attributes<AttentionAttributes>(), in(context, 0), in(context, 1), in(context, 2),
                       in(context, 3), in_as<float>(context, 4), in(context, 5), in_as<std::int32_t>(context, 6),
                       out(context, 0), out(context, 1), out(context, 2), context.scratch);
    return absl::OkStatus();
  }
};

class CachedAttention final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t members) const override {
    return cached_attention_scratch(attention_shape(read(0), read(1)), tile_units_for(storage_), read(5).shape[0],
                                    members);
  }
  absl::Status run(const RunContext& context) const override {
    const auto* positions = in_as<std::int32_t>(context, 3);
    const auto* bounds = in_as<std::int32_t>(context, 4);
    const std::int32_t real = bounds[bounds[0] + 1];
    const std::int64_t capacity = read(5).shape[0];
    for (std::int32_t t = 0; t < real; ++t) {
      if (positions[t] < 0 || positions[t] >= capacity) {
        return internal_error("token {} stands at position {}, but the cache '{}' holds {}", t, positions[t],
                              read(5).name, capacity);
      }
    }
    cached_attention(context.pool, storage_, tile_units_for(storage_), attention_shape(read(0), read(1)),
                     attributes<AttentionAttributes>(), in(context, 0), in(context, 1), in(context, 2), positions,
                     bounds, context.at(op_.reads[5]), context.at(op_.reads[6]), out(context, 0),
                     out_floats(context, 1), context.scratch);
    return absl::OkStatus();
  }
};

class GatedActivation final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    gated_activation(context.pool, storage_, attributes<GatedActivationAttributes>(), in(context, 0),
                     op_.reads.size() == 1 ? nullptr : in(context, 1), out(context, 0), read(0).elements());
    return absl::OkStatus();
  }
};

class GatedActivationBackward final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    const bool alone = op_.reads.size() == 2;
    gated_activation_backward(context.pool, storage_, attributes<GatedActivationAttributes>(), in(context, 0),
                              alone ? nullptr : in(context, 1), in(context, alone ? 1 : 2), out(context, 0),
                              alone ? nullptr : out(context, 1), read(0).elements());
    return absl::OkStatus();
  }
};

class Add final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    add(context.pool, storage_, in(context, 0), op_.reads.size() > 1 ? in(context, 1) : nullptr, out(context, 0),
        read(0).elements());
    return absl::OkStatus();
  }
};

class SoftCap final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    soft_cap(context.pool, storage_, attributes<SoftCapAttributes>().cap, in(context, 0), out(context, 0),
             read(0).elements());
    return absl::OkStatus();
  }
};

class Dropout final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    dropout(context.pool, storage_, in(context, 0), in_as<std::uint64_t>(context, 1), out(context, 0), rows_of(read(0)),
            columns_of(read(0)), context.bindings.layer, attributes<DropoutAttributes>());
    return absl::OkStatus();
  }
};

class Noise final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    noise(context.pool, storage_, in(context, 0), in_as<std::uint64_t>(context, 1), in_as<std::int32_t>(context, 2),
          out(context, 0), rows_of(read(0)), columns_of(read(0)), context.bindings.layer,
          attributes<NoiseAttributes>());
    return absl::OkStatus();
  }
};

class MagnitudeScale final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t members) const override { return magnitude_scratch(read(1).shape[0], members); }
  absl::Status run(const RunContext& context) const override {
    const Shape& shape = read(0).shape;
    magnitude_scale(context.pool, storage_, in(context, 0), in(context, 1), in(context, 2), in_as<float>(context, 3),
                    attributes<MagnitudeAttributes>().alpha, out_floats(context, 0), out_floats(context, 1), shape[0],
                    shape[1], read(1).shape[0], context.scratch);
    return absl::OkStatus();
  }
};

class ColumnScale final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    const auto& scale = attributes<ColumnScaleAttributes>();
    column_scale(context.pool, storage_, in(context, 0), in_as<float>(context, 1),
                 columns_of(read(0)) / std::max<std::int64_t>(read(1).elements(), 1),
                 scale.has_bias ? in(context, 2) : nullptr,
                 scale.has_addend ? in(context, op_.reads.size() - 1) : nullptr, out(context, 0), rows_of(read(0)),
                 columns_of(read(0)));
    return absl::OkStatus();
  }
};

class ColumnScaleBackward final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  Bytes scratch_bytes(std::uint32_t) const override {
    return bias_gradient_scratch(rows_of(read(0)), columns_of(read(0)));
  }
  absl::Status run(const RunContext& context) const override {
    const bool has_inverse = op_.reads.size() > 3;
    column_scale_backward(context.pool, storage_, in(context, 0), in_as<float>(context, 1),
                          has_inverse ? in_as<float>(context, 2) : nullptr, in(context, has_inverse ? 3 : 2),
                          out(context, 0), out_floats(context, 1), rows_of(read(0)), columns_of(read(0)),
                          context.scratch);
    return absl::OkStatus();
  }
};

class Expand final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    expand(context.pool, read(0).encoding, storage_, context.as<std::byte>(op_.reads[0]), out(context, 0),
           read(0).elements());
    return absl::OkStatus();
  }
};

class Encode final : public VectorOp {
 public:
  using VectorOp::VectorOp;
  absl::Status run(const RunContext& context) const override {
    encode(context.pool, list_.tensors[op_.writes[0]].encoding, storage_, in(context, 0),
           context.as<std::byte>(op_.writes[0]), read(0).elements());
    return absl::OkStatus();
  }
};

}  // namespace

PreparedOr prepare_vector_op(const Preparation& preparation) {
  switch (preparation.op.kind) {
    case OpKind::kNorm:
      return std::make_unique<Norm>(preparation);
    case OpKind::kNormBackward:
      return std::make_unique<NormBackward>(preparation);
    case OpKind::kBiasGradient:
      return std::make_unique<BiasGradient>(preparation);
    case OpKind::kRope:
      return std::make_unique<Rope>(preparation);
    case OpKind::kAttention:
      return std::make_unique<Attention>(preparation);
    case OpKind::kAttentionBackward:
      return std::make_unique<AttentionBackward>(preparation);
    case OpKind::kCachedAttention:
      return std::make_unique<CachedAttention>(preparation);
    case OpKind::kGatedActivation:
      return std::make_unique<GatedActivation>(preparation);
    case OpKind::kGatedActivationBackward:
      return std::make_unique<GatedActivationBackward>(preparation);
    case OpKind::kAdd:
      return std::make_unique<Add>(preparation);
    case OpKind::kSoftCap:
      return std::make_unique<SoftCap>(preparation);
    case OpKind::kDropout:
      return std::make_unique<Dropout>(preparation);
    case OpKind::kNoise:
      return std::make_unique<Noise>(preparation);
    case OpKind::kMagnitudeScale:
      return std::make_unique<MagnitudeScale>(preparation);
    case OpKind::kColumnScale:
      return std::make_unique<ColumnScale>(preparation);
    case OpKind::kColumnScaleBackward:
      return std::make_unique<ColumnScaleBackward>(preparation);
    case OpKind::kExpand:
      return std::make_unique<Expand>(preparation);
    case OpKind::kEncode:
      return std::make_unique<Encode>(preparation);
    default:
      return internal_error("op {} is no vector op", name_of(preparation.op.kind));
  }
}

}  // namespace rondo::devices::cpu
