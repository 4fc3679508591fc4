// See latent_attention.h.
#include "latent_attention.h"

namespace rondo::model {

TensorId record_latent_attention(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                                 const LayerParts& parts, const ModelConfig& config,
                                 const devices::RopeAttributes& rope, const devices::AttentionAttributes& attributes,
                                 std::uint32_t capacity) {
  const LatentAttentionConfig& latent = *config.latent_attention;
  const std::int64_t tokens = recorder.tokens();
  const std::int64_t heads = config.num_heads;
  const std::int64_t width = config.head_dim;
  const auto* linear = parts.linears.data();
  const auto* norm = parts.latent_norms.data();
  const auto latent_of = [&](std::int64_t rank, const char* name) {
    const TensorId low = linears.record(*linear++, normed, {}, {tokens, rank});
    return recorder.norm(low, weights.get(*norm++), {}, {kLatentNormEps, 1.0, 0.0}, name);
  };
  const TensorId asked = latent.query_rank == 0 ? normed : latent_of(latent.query_rank, "query_latent");
  TensorId q = linears.record(*linear++, asked, {}, {tokens, heads, width});
  const TensorId known = latent_of(latent.rank, "latent");
  TensorId turned = linears.record(*linear++, normed, {}, {tokens, 1, latent.turned_size});
  const TensorId plain = linears.record(*linear++, known, {}, {tokens, heads, latent.plain_size});
  TensorId v = linears.record(*linear++, known, {}, {tokens, heads, latent.value_size});
  q = recorder.rope(q, rope, "q_rotated");
  turned = recorder.rope(turned, rope, "k_rotated");
  const TensorId k = recorder.join_heads(turned, plain, heads, width, "k");
  const bool narrower = latent.value_size < width;
  if (narrower) v = recorder.join_heads(v, {}, heads, width, "v_filled_up");
  const Recorder::Attended attended =
      capacity > 0 ? recorder.cached_attention(q, k, v, capacity, attributes) : recorder.attention(q, k, v, attributes);
  if (!narrower) return attended.o;
  return recorder.join_heads(attended.o, {}, heads, latent.value_size, "attended_cut");
}

}  // namespace rondo::model
