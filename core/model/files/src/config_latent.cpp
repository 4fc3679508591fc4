// See config_latent.h; the words are those of transformers 5.23.
#include "config_latent.h"

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMostRank = 1U << 20U;
constexpr std::uint32_t kMostChannels = 1U << 13U;  // of a part of a head
constexpr std::uint32_t kMostWidth = 1U << 24U;     // of all heads

}  // namespace

void parse_latent_attention(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  const LatentAttentionConfig& own = *traits.latent_attention;
  LatentAttentionConfig& latent = config.latent_attention.emplace();
  const bool no_query_latent = fields.present("q_lora_rank") && !fields.has("q_lora_rank");
  if (!no_query_latent) latent.query_rank = fields.integer("q_lora_rank", 1, kMostRank, own.query_rank);
  latent.rank = fields.integer("kv_lora_rank", 1, kMostRank, own.rank);
  latent.plain_size = fields.integer("qk_nope_head_dim", 1, kMostChannels, own.plain_size);
  latent.turned_size = fields.integer("qk_rope_head_dim", 2, kMostChannels, own.turned_size);
  const std::uint32_t usual = own.value_size != 0 ? own.value_size : config.hidden_size / config.num_heads;
  latent.value_size = fields.integer("v_head_dim", 1, kMostChannels, usual);
  config.head_dim = latent.plain_size + latent.turned_size;
  if (!fields.status().ok()) return;
  if (config.num_kv_heads != config.num_heads) {
    fields.refuse("num_key_value_heads",
                  fmt::format("expected as many as num_attention_heads ({}), found {}{}", config.num_heads,
                              config.num_kv_heads, fields.present("num_key_value_heads") ? "" : ", the default"));
  }
  if (latent.turned_size % 2 != 0) {
    fields.refuse("qk_rope_head_dim",
                  fmt::format("expected an even number (rotary embedding turns pairs), found {}", latent.turned_size));
  }
  // To transformers it is another name of the same.
  if (fields.has("head_dim") && fields.at("head_dim") != latent.turned_size) {
    fields.refuse("head_dim", fmt::format("expected qk_rope_head_dim ({}), found {}", latent.turned_size,
                                          excerpt(fields.at("head_dim"))));
  }
  if (latent.value_size > config.head_dim) {
    fields.refuse("v_head_dim", fmt::format("expected at most qk_nope_head_dim + qk_rope_head_dim ({}), found {}",
                                            config.head_dim, latent.value_size));
  }
  if (config.head_dim > kMostWidth / config.num_heads) {
    fields.refuse("qk_nope_head_dim", fmt::format("expected heads of at most {} channels together, found {} of {}",
                                                  kMostWidth, config.num_heads, config.head_dim));
  }
}

}  // namespace rondo::model
