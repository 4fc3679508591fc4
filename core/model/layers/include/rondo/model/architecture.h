// A model as a list of schedulable layers (embedding, attention half, MLP half, head) with the programs that they run.
// A block whose halves are in parallel is one layer: both read what comes in.
//
// Architectures are written once, as forward ops; gradients, recomputation and costs follow. An Architecture is
// immutable and may be used from any thread. Nothing here needs weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/op.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/recompute.h"

namespace rondo::model {

using ParameterId = std::uint32_t;
using LayerIndex = std::uint32_t;

/// Rows of the vocabulary that a part of the head has, about. It follows from no pool, because numbers depend on it;
/// vocabularies up to one and a half times that have one part.
inline constexpr std::uint32_t kHeadPartRows = 32768;

/// How the model is trained (or not at all).
struct MethodSpec {
  devices::DType dtype = devices::DType::kBfloat16;  // of activations and of weights on the device
  bool train_weights = false;                        // full fine-tuning, or of parts (trained_blocks)
  /// Of the model's own weights only those of the last so many blocks are trained; none: all are.
  std::optional<std::uint32_t> trained_blocks;
  std::optional<LoraConfig> lora;
  bool train_lora = false;   // false: the adapter is applied but frozen
  double noise_alpha = 0.0;  // NEFTune: noise on the embedding, OpKind::kNoise; in training alone
  double lora_b_rate = 1.0;  // LoRA+: times the learning rate, for the factors B and, as PEFT has it, magnitudes
  /// Of the matrices of the blocks, where they are frozen; embedding, head, norms and biases stay plain.
  devices::Encoding base_encoding = devices::Encoding::kPlain;
  /// Experts' frozen matrices stay in the MXFP4 that their files have them in, whatever base_encoding is.
  bool keeps_mxfp4 = false;
  /// Products of the blocks' matrices, but not of an adapter's factors, take eight bits (devices/fp8.h): forward and
  /// for the gradient of their input, not for that of their weights.
  devices::Fp8Format fp8 = devices::Fp8Format::kNone;
  /// Of activations and their gradients between layers, those on one device too; generation does without.
  devices::Encoding boundary_encoding = devices::Encoding::kPlain;
  /// About so many rows of the vocabulary are a part of the head; 0: the head is one layer. With encoded boundaries it
  /// always is. Numbers depend on it.
  std::uint32_t head_part_rows = kHeadPartRows;

  bool trains_block(std::uint32_t block, std::uint32_t blocks) const;
  /// An adapter is of experts too, whose factors are most of what is trained.
  bool trains_expert_factors() const { return lora && train_lora && !lora->parameters.empty(); }
  /// `module`: embed_tokens, norm or lm_head, outside the blocks.
  bool trains_end(const char* module) const;
};

/// kConvolution, kRate, kRateBias: conv1d, A_log and dt_bias of linear attention. kHeadScale: D of a state space.
/// kGroupGain: by which what its groups of heads give is multiplied once it is normed.
/// kChoiceBias: by which experts are chosen, never trained. kFactor: of channels that a router reads. kExpertScale: of
/// what experts give. kBlockScale: of a block, never trained.
enum class WeightKind : std::uint8_t {
  kMatrix,
  kEmbedding,
  kNorm,
  kBias,
  kSink,
  kLoraA,
  kLoraB,
  kMagnitude,
  kConvolution,
  kRate,
  kRateBias,
  kHeadScale,
  kGroupGain,
  kChoiceBias,
  kFactor,
  kExpertScale,
  kBlockScale
};

struct Parameter {
  std::string name;  // Hugging Face's, or PEFT's tensor name for factors of an adapter
  devices::Shape shape;
  WeightKind kind = WeightKind::kMatrix;
  bool trained = false;
  devices::Encoding encoding = devices::Encoding::kPlain;  // on the host, on the wire and on devices
  double rate_factor = 1.0;                                // of the learning rate
  bool of_adapter = false;                                 // its numbers are saved in the adapter: modules_to_save
  bool named_as_norm = true;  // of a norm: transformers' Trainer knows it as one by its name, unlike norm_f
  /// Weight decay applies to matrices and, as in transformers, to magnitudes, sinks and rates; not to biases and norm
  /// weights.
  bool decays() const {
    return (kind != WeightKind::kNorm || !named_as_norm) && kind != WeightKind::kBias &&
           kind != WeightKind::kRateBias && kind != WeightKind::kGroupGain;
  }
  /// In fp32 whatever the others are in: a magnitude scales a whole row, a rate all that a head remembers, and their
  /// errors would not cancel out; by small differences of a bias experts are chosen; what scales all that an expert or
  /// a block gives is one number; kColumnScale takes a gain so.
  bool wide() const {
    return kind == WeightKind::kMagnitude || kind == WeightKind::kRate || kind == WeightKind::kRateBias ||
           kind == WeightKind::kHeadScale || kind == WeightKind::kGroupGain || kind == WeightKind::kChoiceBias ||
           kind == WeightKind::kExpertScale || kind == WeightKind::kBlockScale;
  }
  std::uint64_t elements() const { return static_cast<std::uint64_t>(devices::elements_of(shape)); }
  Bytes bytes(devices::DType dtype) const {
    if (encoding != devices::Encoding::kPlain) return devices::encoded_bytes(encoding, devices::elements_of(shape));
    return elements() * devices::size_of(wide() ? devices::DType::kFloat32 : dtype);
  }
};

/// What a layer uses of a parameter: rows of its first dimension.
struct ParameterUse {
  ParameterId id = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::uint32_t piece = 0;         // of the dense sums that make up the parameter's gradient, in order of rows
  std::uint32_t contribution = 0;  // counts the uses of all layers
};

enum class LayerKind : std::uint8_t { kEmbedding, kAttention, kMlp, kBlock, kHead };

struct Layer {
  // "model.embed_tokens", "model.layers.3.self_attn" (or .linear_attn), "model.layers.3.mlp" (in parallel
  // "model.layers.3"), "lm_head" (of parts: "lm_head.0" ...)
  std::string name;
  LayerKind kind = LayerKind::kEmbedding;
  std::uint32_t block = 0;  // of attention and MLP halves, and of both together
  std::uint32_t part = 0;   // of a head in parts; the last one ends with the loss
  std::vector<ParameterUse>
      parameters;                     // weight i of the layer's programs (TensorDesc::index of kWeight and kGradient)
  std::uint32_t program_class = 0;    // layers of one class run the same programs
  bool has_backward = false;          // something in this layer or below it is trained
  bool gives_input_gradient = false;  // something below it is trained

  bool has_attention() const { return kind == LayerKind::kAttention || kind == LayerKind::kBlock; }
  bool has_mlp() const { return kind == LayerKind::kMlp || kind == LayerKind::kBlock; }
};

enum class Phase : std::uint8_t {
  kForward,         // activation in, activation out; last part of the head: not possible
  kBackward,        // recompute as `keep` says, gradients
  kInputGradient,   // the same but for gradients of matrices and biases: the first half of kBackward, not of the head
  kWeightGradient,  // these, from what the first half holds; no ops where a layer has none
  kFused,           // head: loss and gradients in one visit, of all its parts from the layer's on
  kEvaluate,        // head: loss alone, likewise; other layers: as kForward, without dropout and noise
  kDecode,          // with a key/value cache; first part of the head: logits of the last token, over all parts
};
const char* name_of(Phase phase);

class Architecture {
 public:
  /// Errors: InvalidArgument when `method` does not fit the model (an unknown LoRA target, a hidden size that is no
  /// whole number of encoded blocks).
  static absl::StatusOr<Architecture> make(const ModelConfig& config, const MethodSpec& method);

  const ModelConfig& config() const { return config_; }
  const MethodSpec& method() const { return method_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Layer>& layers() const { return layers_; }
  /// Lowest layer with a backward pass; layers().size() when nothing is trained.
  LayerIndex first_backward_layer() const;
  std::uint32_t program_classes() const { return program_classes_; }
  std::uint32_t contributions() const { return contributions_; }
  /// The head's only layer, or its first part.
  LayerIndex first_head_layer() const { return first_head_layer_; }
  bool is_head(LayerIndex layer) const { return layer >= first_head_layer_; }
  /// kForward draws random numbers, as training does and evaluation does not: kEvaluate is another program there.
  bool draws(LayerIndex layer) const;

  /// Of a use: a parameter with its rows alone.
  Parameter part_of(const ParameterUse& use) const;
  /// Where a program of a layer finds its weight `index`: kFused and kEvaluate of a head in parts read those of the
  /// layers above as well.
  struct WeightPlace {
    LayerIndex layer = 0;
    std::uint32_t index = 0;
  };
  WeightPlace weight_place(LayerIndex layer, std::uint32_t index) const;

  /// The program of a layer for a bucket of `tokens`. `keep`: kForward saves, kBackward starts from what it saved.
  /// Of the first of several parts of a head kForward that saves gives the normed activation alone, as backward visits
  /// need it. `capacity`: rows of the key/value cache, kDecode only.
  devices::OpList record(LayerIndex layer, Phase phase, Keep keep, std::uint32_t tokens,
                         std::uint32_t capacity = 0) const;

  /// What kForward with `keep` saves for a bucket of `tokens`.
  std::vector<devices::TensorDesc> saved(LayerIndex layer, Keep keep, std::uint32_t tokens) const;
  /// What lasts from kInputGradient to kWeightGradient; of this, what is saved already comes first.
  std::vector<devices::TensorDesc> held(LayerIndex layer, Keep keep, std::uint32_t tokens) const;

  /// Of ModelConfig::block_inputs: the host looks every token's row up, of which each block has `width` columns, times
  /// `scale`. No layer has the table, and nothing trains it.
  struct BlockTable {
    ParameterId table = 0;
    std::uint32_t blocks = 0;
    std::uint32_t width = 0;
    double scale = 1.0;
  };
  const std::optional<BlockTable>& block_table() const { return block_table_; }

  /// Bytes of the activation between two layers for `tokens`. Between parts of a head they hold statistics as well (or
  /// on the way back normalisers), behind head_offset() bytes.
  Bytes boundary_bytes(std::uint32_t tokens, Phase phase = Phase::kForward) const;
  Bytes head_offset(std::uint32_t tokens) const;

 private:
  Architecture() = default;
  Graph record_graph(LayerIndex layer, Phase phase, std::uint32_t tokens, std::uint32_t capacity) const;
  Graph record_head(LayerIndex layer, Phase phase, std::uint32_t tokens) const;
  Graph record_logits(std::uint32_t tokens) const;
  Graph record_head_norm(std::uint32_t tokens) const;
  /// By the first weights of a layer of the head.
  TensorId record_last_norm(Recorder& recorder, TensorId x, LayerIndex layer) const;
  /// Null for a block without rotary embedding.
  const devices::RopeAttributes* rope_of(std::uint32_t block) const;
  /// What the embedding's rows are multiplied by.
  double embedding_scale() const;
  devices::Encoding encoding_between(Phase phase) const {
    return phase == Phase::kDecode ? devices::Encoding::kPlain : method_.boundary_encoding;
  }

  /// Of what lies between two layers: carried.h.
  Shape boundary_shape(std::uint32_t tokens) const;

  ModelConfig config_;
  MethodSpec method_;
  devices::RopeAttributes rope_;
  std::optional<devices::RopeAttributes> window_rope_;  // of blocks with a sliding window, where it differs
  std::vector<Parameter> parameters_;
  std::vector<Layer> layers_;
  std::uint32_t program_classes_ = 0;
  LayerIndex first_head_layer_ = 0;
  std::uint32_t contributions_ = 0;
  std::optional<BlockTable> block_table_;
};

}  // namespace rondo::model
