// config.json of a Hugging Face model directory, in either spelling (transformers 4 and 5), as one plain struct.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rondo::model {

enum class Family {
  kLlama,
  kInternLm3,
  kIQuestCoder,
  kArcee,
  kCwm,
  kMistral,
  kMinistral,
  kMinistral3,
  kQwen2,
  kQwen3,
  kHunYuan,
  kSeedOss,
  kSmolLm3,
  kMiniCpm3,
  kNanoChat,
  kExaone4,
  kErnie45,
  kGlm,
  kGlm4,
  kHelium,
  kGranite,
  kGraniteSwa,
  kHyperClovaX,
  kGraniteMoeHybrid,
  kGraniteMoeShared,
  kBamba,
  kCohere,
  kCohere2,
  kStarcoder2,
  kStableLm,
  kNemotron,
  kJais2,
  kGptNeoX,
  kOlmo,
  kOlmo2,
  kOlmo3,
  kGemma,
  kGemma2,
  kVaultGemma,
  kGemma3,
  kGemma4,
  kMixtral,
  kQwen2Moe,
  kGraniteMoe,
  kGlm4Moe,
  kGlm4MoeLite,
  kDeepseekV3,
  kDeepseekV2,
  kYoutu,
  kDots1,
  kSolarOpen,
  kExaoneMoe,
  kHunYuanMoe,
  kMiniMaxM2,
  kMellum,
  kAfmoe,
  kErnie45Moe,
  kQwen3Moe,
  kOlmoe,
  kFlexOlmo,
  kGptOss,
  kPhi3,
  kQwen35,
  kQwen35Moe,
  kQwen3Next,
  kLfm2,
  kLfm2Moe,
  kNemotronH,
  kFalconH1
};
enum class Activation { kSilu, kGelu, kGeluTanh, kReluSquared };
/// kProportional: of the frequencies of whole heads so many stay as turned_share says, from the fastest on; the others
/// are 0.
enum class RopeKind { kDefault, kLinear, kDynamic, kYarn, kLlama3, kLongRope, kProportional };
/// Where a half of a block (attention, MLP) is normed: its input, its output before the residual is added, or both.
/// kAround, kNumbered, kBeside: both, by other names. kOperator, kFeedForward, kBefore: its input, by other names.
/// kShared: the input of attention, and what that gives is the input of the MLP too (ModelConfig::parallel).
/// kMixer: the input of a block that is one half alone.
enum class NormPlace {
  kInput,
  kOutput,
  kBoth,
  kAround,
  kNumbered,
  kBeside,
  kOperator,
  kFeedForward,
  kBefore,
  kShared,
  kMixer
};
/// Norms of queries and keys: none, of each head, or of all heads as one vector.
enum class QkNorm { kNone, kHead, kAllHeads };
enum class WeightType { kFloat32, kBfloat16, kFloat16 };

/// Bytes of one number.
std::size_t weight_type_size(WeightType type);

/// `word`: float32, bfloat16, float16 or fp32, bf16, fp16. Errors: InvalidArgument naming the word.
absl::StatusOr<WeightType> parse_weight_type(std::string_view word);

/// Queries grow with their positions: times 1 + rate * ln(1 + floor(position / from)).
struct QueryGrowth {
  double rate = 0.1;
  std::uint32_t from = 0;  // tokens
  bool operator==(const QueryGrowth&) const = default;
};

/// Rotary embedding, as transformers' modeling_rope_utils reads it.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_frequency_factor = 1.0;   // llama3
  double high_frequency_factor = 4.0;  // llama3
  std::uint32_t original_max_positions = 0;
  std::optional<double> alpha;  // dynamic: stretches theta once and for all, and factor does nothing. HunYuan
  std::optional<double> attention_factor;   // yarn, longrope
  double beta_fast = 32.0;                  // yarn
  double beta_slow = 1.0;                   // yarn
  std::optional<double> mscale;             // yarn
  std::optional<double> mscale_all_dim;     // yarn
  bool truncate = true;                     // yarn
  std::vector<double> short_factors;        // longrope: of each frequency, up to original_max_positions
  std::vector<double> long_factors;         // longrope: past these
  double turned_share = 1.0;                // partial_rotary_factor: of a head's channels. Phi-3, Qwen3.5, Gemma 4
  std::optional<QueryGrowth> query_growth;  // Ministral 3
};

/// Of GPT-OSS's experts, whatever the activation is: see devices::ActivationKind.
struct ClampedSwiglu {
  double alpha = 1.702;
  double limit = 7.0;
  bool operator==(const ClampedSwiglu&) const = default;
};

/// Mixture of experts: each token goes through `choices` of `count` MLPs of width `width`.
struct ExpertsConfig {
  std::uint32_t count = 0;
  std::uint32_t choices = 0;
  std::uint32_t width = 0;
  bool normalised = false;         // the shares of those that are chosen sum to 1
  std::vector<bool> dense_blocks;  // [num_layers] one MLP of intermediate_size there, or none; empty: nowhere
  bool biases = false;             // on router and experts
  std::optional<ClampedSwiglu> clamped = std::nullopt;
  bool mxfp4 = false;  // their matrices were published in MXFP4, and files have them so
  /// Of an MLP that every token goes through besides; 0: there is none.
  std::uint32_t shared_width = 0;
  bool gates_shared = false;  // what that gives is times the sigmoid of a gate
  /// That MLP's layers may have adapters; else PEFT takes their names for those of the experts.
  bool adapts_shared = false;
  /// Those are chosen whose scores, with a bias that nothing else reads and nothing trains, are the largest.
  bool choice_bias = false;
  bool sigmoid = false;             // scores are sigmoids of logits, else softmax of all
  double factor = 1.0;              // of the shares
  double added = 0.0;               // to the sum of scores that normalised ones are divided by
  std::uint32_t groups = 1;         // of experts
  std::uint32_t chosen_groups = 1;  // whose experts alone may be chosen
  /// Gemma 4: beside an MLP of intermediate_size, each normed by itself before and behind. The router has a norm of its
  /// own of the residual stream, and what a token gets from an expert is times a number of that expert.
  bool beside_mlp = false;
  /// Hunyuan: the router is a linear layer to transformers too, and with it to adapters.
  bool linear_router = false;
  /// So it is beside an MLP.
  bool has_linear_router() const { return linear_router || beside_mlp; }
};

/// Attention by the gated delta rule (devices::OpKind::kDeltaRule), whose state has one size however long a sequence
/// is, in some of the blocks.
struct LinearAttentionConfig {
  std::uint32_t key_heads = 0;
  std::uint32_t value_heads = 0;
  std::uint32_t key_size = 0;  // of a head
  std::uint32_t value_size = 0;
  std::uint32_t convolution = 0;  // tokens that it spans
  std::vector<bool> blocks;       // [num_layers]
  bool joined_by_heads = false;   // Qwen3-Next: q, k, v and z are one linear layer in files, b and a another

  std::uint32_t key_width() const { return key_heads * key_size; }
  std::uint32_t value_width() const { return value_heads * value_size; }
};

/// A state space in the place of attention or beside it, in some of the blocks (Mamba 2, arXiv 2405.21060): what the
/// heads of a group write to their states and read from them by is one row of `state_size` numbers each, and what they
/// give is normed together.
struct StateSpaceConfig {
  std::uint32_t heads = 0;
  std::uint32_t head_size = 0;
  std::uint32_t state_size = 0;
  std::uint32_t convolution = 0;  // tokens that it spans
  bool convolution_bias = false;
  bool linear_bias = false;  // on in_proj and out_proj
  double least_step = 0.0;   // of time, what a step may be
  double most_step = std::numeric_limits<double>::infinity();
  std::vector<bool> blocks;       // [num_layers]
  std::uint32_t groups = 1;       // of heads, as many in each
  bool beside_attention = false;  // Falcon-H1: both read the block's input, and what they give is added to it
  bool normed = true;             // what heads give, once it is gated
  bool normed_first = false;      // before it is gated

  std::uint32_t width() const { return heads * head_size; }
  std::uint32_t row_width() const { return groups * state_size; }
};

/// What linear layers read or give is times these.
struct LinearFactors {
  double attention_input = 1.0;
  double key = 1.0;
  double attention_output = 1.0;
  double space_input = 1.0;                                 // of a state space
  std::array<double, 5> space = {1.0, 1.0, 1.0, 1.0, 1.0};  // likewise: z, x, b, c and dt
  double space_output = 1.0;
  double gate = 1.0;
  double down = 1.0;
};

/// Gated convolution over the last tokens in the place of attention, in some of the blocks (LFM2, arXiv 2511.23404):
/// out(c * convolution(b * x)), channel by channel, where b, c and x are linear in the block's input.
struct ShortConvolutionConfig {
  std::uint32_t width = 0;   // tokens that it spans
  std::vector<bool> blocks;  // [num_layers]
};

/// Heads of keys and values of a block's attention, and their channels, as queries have them too.
struct HeadShape {
  std::uint32_t kv_heads = 0;
  std::uint32_t size = 0;
  bool keys_are_values =
      false;  // there is no v_proj: values are what k_proj gives, neither normed nor turned as keys are
};

/// Attention whose keys and values are linear in a latent of few channels (DeepSeek, arXiv 2405.04434), but for the
/// channels of keys that turn, which all heads share. Of a query's and a key's head_dim channels these come first here,
/// and last in files.
struct LatentAttentionConfig {
  std::uint32_t query_rank = 0;   // of the latent that queries are linear in; 0: in the block's input
  std::uint32_t rank = 0;         // of keys' and values' latent
  std::uint32_t plain_size = 0;   // channels of a head that do not turn
  std::uint32_t turned_size = 0;  // channels that do
  std::uint32_t value_size = 0;   // of a head of values, at most head_dim
};

/// Of the norms of latents, whatever the others have.
inline constexpr double kLatentNormEps = 1e-6;

/// Gemma 4 E2B and E4B: what each block reads of every token beside the residual stream, `width` channels, made of the
/// embedding and of a row of a table that all blocks together have (parameters.h, BlockInputNames).
struct BlockInputsConfig {
  std::uint32_t width = 0;
  std::uint32_t vocab_size = 0;  // of that table, at least that of the embedding
};

/// Of Qwen's VL, whose positions of pictures have three coordinates. In text all three are a token's position, so that
/// nothing here depends on it: readers of files that see pictures want to know.
struct PictureTurns {
  std::array<std::uint32_t, 3> pairs = {};  // of channels that turn by time, height and width
  std::uint32_t deep_blocks = 0;            // Qwen3-VL: behind so many of the first what pictures give is added again
};

/// Limits of what devices have: of experts and of those that a token goes to, of sizes of heads and tokens of a
/// convolution.
inline constexpr std::uint32_t kMaxExperts = 512;
inline constexpr std::uint32_t kMaxChoices = 16;
inline constexpr std::uint32_t kMaxDeltaSize = 128;
inline constexpr std::uint32_t kMaxStateSize = 256;  // of a state space, which is two beyond kMaxDeltaSize
inline constexpr std::uint32_t kMaxConvolution = 8;

struct ModelConfig {
  Family family = Family::kLlama;
  std::string model_type;
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;  // 0: no block has an MLP alone
  std::uint32_t num_layers = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::optional<HeadShape> global_heads;  // of layers that see all, where others have a window: Gemma 4
  std::uint32_t vocab_size = 0;
  std::uint32_t max_positions = 0;
  double rms_norm_eps = 1e-6;  // of LayerNorm too
  Activation activation = Activation::kSilu;
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // of layers with a sliding window, where it differs: Gemma 3, OLMo 3
  std::vector<bool> without_rope;         // [num_layers] no rotary embedding there; empty: everywhere has it. SmolLM3
  bool tie_word_embeddings = false;
  bool trains_padding = false;         // GPT-NeoX: the embedding's row of pad_token_id has a gradient too
  bool attention_bias = false;         // on q, k and v
  bool attention_output_bias = false;  // on o
  bool mlp_bias = false;
  bool gated_mlp = true;        // else an MLP is down(activation(up)); kReluSquared is an activation of such ones alone
  bool fused_linears = false;   // q, k and v are one linear layer: fused_linears.h. Phi-3
  bool fused_by_heads = false;  // GPT-NeoX: its parts take turns head by head
  bool fused_mlp = false;       // so are gate and up. Phi-3, GLM 4
  /// Granite 4: MLPs, those too that all tokens share, are shared_mlp, of two linear layers (gate and up are one).
  bool shared_mlp = false;
  bool gates_attention = false;  // Qwen3.5: what it gives is times the sigmoid of a gate, which q_proj gives as well
  bool gates_apart = false;      // AFMoE: likewise, but a linear layer of its own gives the gate
  bool attention_sinks = false;  // GPT-OSS, Granite with windows: a trained score more in each head's softmax
  NormPlace norm_place = NormPlace::kInput;
  /// [num_layers] A block is one half alone: its MLP there, its attention elsewhere; empty: all are both. Nemotron-H.
  std::vector<bool> lone_mlps;
  bool parallel = false;       // attention and MLP both read the block's input, and what they give is added to it
  bool centred_norms = false;  // LayerNorm: norms take the mean off first
  bool norm_weight = true;     // OLMo, nanochat: false, norms multiply by nothing, those of queries and keys neither
  bool norm_bias = false;      // norms have biases too
  QkNorm qk_norm = QkNorm::kNone;
  bool turns_neighbours = false;  // ERNIE 4.5, GLM 4: files have pairs of channels side by side, see paired_rows.h
  bool turns_backwards = false;   // nanochat: rotary embedding turns the other way
  bool norms_embedding = false;   // nanochat: the first block reads normed embeddings
  bool norms_turned = false;      // HunYuan: queries and keys are normed after they are turned
  bool norms_add_one = false;     // Gemma, Qwen3.5: norms multiply by 1 + weight
  bool norms_values = false;      // Gemma 4: values are normed too, head by head, without a weight
  bool scales_blocks = false;     // Gemma 4: what a block gives is times a number of its own, which nothing trains
  bool scales_embedding_by_width = false;                   // Gemma: by sqrt(hidden_size), rounded to the dtype
  double embedding_multiplier = 1.0;                        // Granite, AFMoE, MiniCPM
  double residual_multiplier = 1.0;                         // Granite: of what a half of a block adds, once normed
  double logits_scaling = 1.0;                              // Granite: logits are divided by it
  std::optional<double> attention_scale;                    // see scale_of_scores(). Granite, Gemma 2 and 3
  double attention_cap = 0.0;                               // Gemma 2: scores are cap * tanh(score / cap); 0: not so
  double logits_cap = 0.0;                                  // Gemma 2: likewise
  std::vector<std::uint32_t> sliding_window;                // [num_layers] tokens a query sees, itself included; 0: all
  std::optional<ExpertsConfig> experts;                     // see ExpertTraits
  std::optional<LinearAttentionConfig> linear_attention;    // Qwen3.5, Qwen3-Next
  std::optional<ShortConvolutionConfig> short_convolution;  // LFM2
  std::optional<StateSpaceConfig> state_space;              // Granite 4, Bamba, Nemotron-H, Falcon-H1
  LinearFactors linear_factors;                             // Falcon-H1
  std::optional<LatentAttentionConfig> latent_attention;    // GLM-4.7-Flash, DeepSeek
  std::optional<BlockInputsConfig> block_inputs;            // Gemma 4 E2B, E4B
  std::uint32_t sharing_blocks = 0;  // likewise: the last ones, which have no keys and values of their own
  bool widens_sharing = false;       // whose MLPs are twice as wide
  double initializer_range = 0.02;
  WeightType weight_type = WeightType::kFloat32;  // as config.json states it
  std::optional<PictureTurns> picture_turns;      // Qwen's VL, also where the text part is all that is there
  bool text_part = false;  // of a model that reads pictures too, whose other parts are passed over
  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;
  std::optional<std::int32_t> pad_token_id;
};

/// Of one block: which halves it has. What stands in the place of attention counts as such.
bool has_attention(const ModelConfig& config, std::uint32_t block);
bool has_mlp(const ModelConfig& config, std::uint32_t block);

/// Of one block.
bool has_experts(const ModelConfig& config, std::uint32_t block);

/// Of one block's attention, where that is not linear.
HeadShape heads_of(const ModelConfig& config, std::uint32_t block);

/// Of one block: it attends to keys and values of a block below, the last of its kind (with a window or without) that
/// has some.
bool shares_keys(const ModelConfig& config, std::uint32_t block);
/// Of one block: those that it attends to are its own, and others attend to them too.
bool lends_keys(const ModelConfig& config, std::uint32_t block);

/// Of one block's MLP that is no expert.
std::uint32_t mlp_width(const ModelConfig& config, std::uint32_t block);

/// Of one block: its attention is linear.
bool is_linear(const ModelConfig& config, std::uint32_t block);

/// Of one block: a short convolution stands in the place of its attention.
bool is_convolution(const ModelConfig& config, std::uint32_t block);

/// Of one block: a state space stands in the place of its attention or beside it.
bool is_state_space(const ModelConfig& config, std::uint32_t block);

/// What some blocks keep of the tokens before is a state, from which none of these can be taken back.
bool keeps_states(const ModelConfig& config);

/// Channels of a head that turn. Not of global_heads.
std::uint32_t turned_channels(const ModelConfig& config, const RopeConfig& rope);

/// How many times longer sequences may be than those that the model was first trained on.
double stretch_of(const ModelConfig& config, const RopeConfig& rope);

/// By NTK's alpha where there is one: theta * alpha^(d / (d - 2)), d being the channels of a head.
double stretched_theta(const ModelConfig& config, const RopeConfig& rope);

/// What longrope multiplies cosines and sines by.
double long_rope_amplitude(const RopeConfig& rope);

/// What scores of attention are multiplied by: `attention_scale`, else 1 / sqrt(head_dim), beside a latent times the
/// square of what mscale_all_dim makes of a stretched rotary embedding.
double scale_of_scores(const ModelConfig& config);

/// Reads and checks `folder`/config.json. Errors: InvalidArgument naming file, key, what was expected and found; a
/// family or a feature that is not supported is refused by name with those that are.
absl::StatusOr<ModelConfig> load_config(const std::filesystem::path& folder);

/// `text` is the contents of a config.json; `origin` names it in errors.
absl::StatusOr<ModelConfig> parse_config(std::string_view text, const std::string& origin);

/// A config.json that transformers 4 and 5 load.
std::string format_config(const ModelConfig& config);

/// Tokens that end a generated answer: generation_config.json's eos_token_id (one or a list), else config.json's where
/// there is no such file or it names none. Errors: InvalidArgument naming file and key of a file that cannot be read:
/// without its tokens answers would not end.
absl::StatusOr<std::vector<std::int32_t>> load_stop_ids(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace rondo::model
