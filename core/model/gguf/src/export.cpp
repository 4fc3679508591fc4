// From a model's files to the tensors of a GGUF file, row by row.
#include "rondo/gguf/export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <system_error>
#include <vector>

#include "architectures.h"
#include "container.h"
#include "names.h"
#include "names_latent.h"
#include "names_linear.h"
#include "names_space.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/fused_linears.h"
#include "rondo/model/parameters.h"
#include "row_order.h"
#include "vocabulary.h"

namespace rondo::gguf {
namespace {

/// Where a tensor's numbers come from.
struct Source {
  // One, or in `turns` turns those of all experts or of the parts of a fused layer; none: `values`.
  std::vector<const model::TensorView*> views;
  std::uint32_t turns = 1;
  Order of_rows = {};  // of all views together
  Order of_columns = {};
  std::vector<float> values = {};
  float offset = 0;                 // added to each number of a view
  float factor = 1;                 // which these are multiplied by first
  std::vector<float> factors = {};  // of each view, likewise; empty: all 1
  bool is_decay = false;            // -exp(number)
  // Of one view, whose rows are those of so many matrices, each of which is transposed; 0: none is.
  std::uint32_t transposed = 0;
};

/// A file under construction.
struct Draft {
  Keys keys;
  std::vector<Tensor> tensors;
  std::vector<Source> sources;
  std::map<std::string, float> factors = {};  // of tensors that files have times something

  float factor_of(const std::string& name) const {
    const auto found = factors.find(name);
    return found == factors.end() ? 1.0F : found->second;
  }
};

absl::StatusOr<TensorType> chosen_type(const std::string& quantization, model::WeightType stored) {
  if (quantization == "auto") return plain_type(stored);
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBf16, TensorType::kQ8_0}) {
    if (quantization == type_name(type)) return type;
  }
  return invalid_input("quantization: expected auto, f32, f16, bf16 or q8_0, found \"{}\"", quantization);
}

/// general.file_type: the type of most tensors.
std::uint32_t file_type(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 0;
    case TensorType::kF16:
      return 1;
    case TensorType::kQ8_0:
      return 7;
    case TensorType::kBf16:
      return 32;
  }
  return 0;
}

TensorType type_for(TensorType wanted, const std::vector<std::uint64_t>& shape) {
  if (shape.size() < 2) return TensorType::kF32;
  const bool fits = wanted != TensorType::kQ8_0 || shape.back() % kBlock == 0;
  return fits ? wanted : TensorType::kF16;
}

void add_general_keys(const std::filesystem::path& origin, const model::ModelConfig& config, const char* kind,
                      TensorType type, Keys& keys) {
  constexpr std::uint32_t kQuantizationVersion = 2;
  std::error_code error;
  const std::filesystem::path place = std::filesystem::canonical(origin, error);
  std::string name = (place.extension() == ".gguf" ? place.stem() : place.filename()).string();
  // A path need not be UTF-8, a GGUF string must be.
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (error || name.empty() || !plain) name = config.model_type;
  keys.add("general.architecture", architecture_name(config));
  keys.add("general.type", kind);
  keys.add("general.name", name);
  keys.add("general.quantization_version", kQuantizationVersion);
  keys.add("general.file_type", file_type(type));
}

/// `shape`: of the model's tensor.
void add_tensor(const model::ModelConfig& config, const std::string& name, std::vector<std::uint64_t> shape,
                TensorType type, Source source, Draft& draft) {
  if (is_convolution_weight(name)) shape.erase(shape.begin() + 1);
  if (config.state_space && is_of_space(name)) shape = shape_of_space(config, name, shape.front());
  if (is_stored_as_vector(config, name)) shape = {source.views.front()->elements()};
  draft.tensors.push_back({name, shape, stays_wide(name) ? TensorType::kF32 : type_for(type, shape)});
  draft.sources.push_back(std::move(source));
}

absl::StatusOr<const model::TensorView*> checked_tensor(const model::TensorFiles& files, const std::string& name) {
  const model::TensorView* view = files.find(name);
  if (view == nullptr) return internal_error("tensor {} is not in the checked files", name);
  return view;
}

/// Rows of the parts of a fused layer.
absl::Status add_joined(const model::ModelConfig& config, const model::JoinedTensor& joined, const std::string& name,
                        const model::TensorFiles& files, TensorType type, Source source, Draft& draft) {
  source.turns = joined.turns;
  for (const model::JoinedTensor::Part& part : joined.parts) {
    RONDO_ASSIGN_OR_RETURN(const model::TensorView* view, checked_tensor(files, part.name));
    source.views.push_back(view);
    source.factors.push_back(draft.factor_of(part.name));
  }
  std::vector<std::uint64_t> shape = model::shape_of(joined, source.views.front()->shape);
  add_tensor(config, name, std::move(shape), type, std::move(source), draft);
  return absl::OkStatus();
}

/// Of a tied model whose head is times another number than its embedding: a head of its own.
absl::Status add_untied_head(const model::ModelConfig& config, const model::TensorFiles& files, TensorType type,
                             Draft& draft) {
  const std::string embedding = model::embedding_path(config) + ".weight";
  const float factor = draft.factor_of("lm_head.weight");
  if (!config.tie_word_embeddings || factor == draft.factor_of(embedding)) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(const model::TensorView* view, checked_tensor(files, embedding));
  add_tensor(config, tensor_name(config, "lm_head.weight"), view->shape, type, {.views = {view}, .factor = factor},
             draft);
  return absl::OkStatus();
}

/// A matrix a head.
void add_by_heads(const model::ModelConfig& config, const model::TensorView& view, TensorType type, Draft& draft) {
  const bool transposed = is_transposed(config, view.name);
  const std::uint64_t heads = config.num_heads;
  std::vector<std::uint64_t> shape = {heads, view.shape.front() / heads, view.shape.back()};
  if (transposed) std::swap(shape[1], shape[2]);
  draft.tensors.push_back({tensor_name(config, view.name), shape, type_for(type, shape)});
  draft.sources.push_back({.views = {&view}, .transposed = transposed ? config.num_heads : 0});
}

void add_numbers(const std::string& name, std::vector<float> values, Draft& draft) {
  draft.tensors.push_back({name, {values.size()}, TensorType::kF32});
  draft.sources.push_back({.views = {}, .values = std::move(values)});
}

/// One more expert's matrix; they come in order.
void add_to_stack(const Stacked& place, const model::TensorView& view, TensorType type, Draft& draft) {
  if (place.expert == 0 && place.part == 0) {
    const std::vector<std::uint64_t> shape = {0, place.parts * view.shape.front(), view.shape.back()};
    draft.tensors.push_back({place.name, shape, type_for(type, view.shape)});
    draft.sources.emplace_back();
  }
  // The three matrices of an expert come in turns.
  const auto found = std::find_if(draft.tensors.rbegin(), draft.tensors.rend(),
                                  [&](const Tensor& tensor) { return tensor.name == place.name; });
  const auto index = static_cast<std::size_t>(draft.tensors.rend() - found) - 1;
  if (place.part == 0) ++draft.tensors[index].shape[0];
  draft.sources[index].views.push_back(&view);
}

/// The rows of a tensor's views as one list.
class SourceRows {
 public:
  explicit SourceRows(const Source& source) : source_(source) {
    std::uint64_t of_turn = 0;
    for (const model::TensorView* view : source.views) ends_.push_back(of_turn += view->shape.front() / source.turns);
    // The numbers of a vector are rows of one: a bias moves number by number.
    width_ = source.views.front()->elements() / source.views.front()->shape.front();
  }
  std::uint64_t count() const { return ends_.back() * source_.turns; }
  std::uint64_t width() const { return width_; }

  /// Numbers that go to place `row`, into `values` [width()]; the view that they are from, as a place in the source's.
  std::size_t read(std::uint64_t row, std::span<float> values) const {
    const std::uint64_t place = source_place(row, count(), source_.of_rows);
    const std::uint64_t within = place % ends_.back();
    const auto part = static_cast<std::size_t>(std::ranges::upper_bound(ends_, within) - ends_.begin());
    const std::uint64_t before = part == 0 ? 0 : ends_[part - 1];
    const std::uint64_t first = place / ends_.back() * (ends_[part] - before) + within - before;
    model::TensorFiles::read_as_float32(*source_.views[part], first * width_, values);
    return part;
  }

 private:
  const Source& source_;
  std::vector<std::uint64_t> ends_;  // of the views' rows within a turn
  std::uint64_t width_ = 0;
};

/// Into the order and the numbers that files have, of a row of a view.
void convert(const Source& source, std::size_t view, std::span<const float> row, std::span<float> out) {
  const float factor = source.factor * (source.factors.empty() ? 1.0F : source.factors[view]);
  const bool moves = source.of_columns.changes();
  for (std::size_t place = 0; place < out.size(); ++place) {
    const float value = row[moves ? source_place(place, row.size(), source.of_columns) : place];
    out[place] = source.is_decay ? -std::exp(value) : value * factor + source.offset;
  }
}

/// Matrix by matrix, each held for a moment. False when a number does not fit the type.
bool put_transposed(const Source& source, TensorType type, std::span<std::byte> out) {
  const model::TensorView& view = *source.views.front();
  const std::uint64_t rows = view.shape.front() / source.transposed;
  const std::uint64_t columns = view.shape.back();
  const std::size_t row_bytes = out.size() / (source.transposed * columns);
  std::vector<float> matrix(rows * columns);
  std::vector<float> column(rows);
  for (std::uint64_t m = 0; m < source.transposed; ++m) {
    model::TensorFiles::read_as_float32(view, m * matrix.size(), matrix);
    for (std::uint64_t c = 0; c < columns; ++c) {
      for (std::uint64_t r = 0; r < rows; ++r) column[r] = matrix[r * columns + c];
      if (!put_row(column, type, out.subspan((m * columns + c) * row_bytes, row_bytes))) return false;
    }
  }
  return true;
}

absl::Status put_tensor(const Source& source, const Tensor& tensor, std::span<std::byte> out) {
  const auto refuse = [&](const std::string& where) {
    return invalid_input("{}: holds a number that is not finite or too large for {}; choose another quantization",
                         where, type_name(tensor.type));
  };
  if (source.views.empty()) return put_row(source.values, tensor.type, out) ? absl::OkStatus() : refuse(tensor.name);
  if (source.transposed != 0) {
    const model::TensorView& view = *source.views.front();
    const bool fits = put_transposed(source, tensor.type, out);
    return fits ? absl::OkStatus() : refuse(fmt::format("{}: tensor {}", view.file, view.name));
  }
  const SourceRows rows(source);
  const std::size_t row_bytes = out.size() / rows.count();
  std::vector<float> values(rows.width());
  std::vector<float> converted(rows.width());
  for (std::uint64_t row = 0; row < rows.count(); ++row) {
    const std::size_t part = rows.read(row, values);
    const model::TensorView& view = *source.views[part];
    convert(source, part, values, converted);
    if (!put_row(converted, tensor.type, out.subspan(row * row_bytes, row_bytes))) {
      return refuse(fmt::format("{}: tensor {}", view.file, view.name));
    }
  }
  return absl::OkStatus();
}

absl::Status write_draft(const Draft& draft, const model::TensorFiles& files, const std::filesystem::path& output) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(output, error))) {
    return invalid_input("output: {} exists; name another file", output.string());
  }
  if (!output.has_filename()) return invalid_input("output: \"{}\" names no file", output.string());
  if (output.has_parent_path()) {
    std::filesystem::create_directories(output.parent_path(), error);
    if (error) return invalid_input("output: {} cannot be made: {}", output.string(), error.message());
  }
  RONDO_RETURN_IF_ERROR(with_context(check_writable(output), "output"));
  return write_container(output, draft.keys, draft.tensors, [&](std::size_t index, std::span<std::byte> out) {
    const Source& source = draft.sources[index];
    RONDO_RETURN_IF_ERROR(put_tensor(source, draft.tensors[index], out));
    for (const model::TensorView* view : source.views) files.release(*view);
    return absl::OkStatus();
  });
}

absl::Status check_adapter_expressible(const model::ModelConfig& config, const model::LoraConfig& lora) {
  if (lora.use_dora) return invalid_input("use_dora: the format has no place for magnitudes; merge the adapter first");
  if (!lora.modules_to_save.empty()) {
    return invalid_input("modules_to_save: the format has no place for them in an adapter; merge it first");
  }
  if (!config.latent_attention) return absl::OkStatus();
  for (const model::LinearModule& linear : model::linear_modules(config)) {
    if (!lora.adapts(linear) || applies_adapters(linear.name)) continue;
    return invalid_input(
        "{}: GGUF's readers apply no adapter to {} of this architecture; merge the adapter and export the model, or "
        "train one of o_proj, gate_proj, up_proj and down_proj alone",
        linear.path, linear.name);
  }
  return absl::OkStatus();
}

/// Scales times ranks. The file has one alpha for all modules, by which readers divide each one's rank: that of the
/// first; what others have more is in their B.
class Alpha {
 public:
  explicit Alpha(double absent) : absent_(absent) {}
  float factor_of(double scale, double rank) {
    if (alpha_ == 0) alpha_ = scale * rank;
    return static_cast<float>(scale * rank / alpha_);
  }
  float value() const { return static_cast<float>(alpha_ == 0 ? absent_ : alpha_); }

 private:
  double absent_;
  double alpha_ = 0;  // of none yet
};

absl::Status add_linear_factors(const model::ModelConfig& config, const model::LoraConfig& lora,
                                const model::TensorFiles& files, TensorType type, Alpha& alpha, Draft& draft) {
  const std::vector<model::JoinedTensor> joined = joined_as_in_files(model::joined_factors(config, lora));
  for (const model::LinearModule& linear : model::linear_modules(config)) {
    if (!lora.adapts(linear)) continue;
    RONDO_ASSIGN_OR_RETURN(const model::TensorView* a,
                           checked_tensor(files, model::adapter_tensor_name(linear.path, 'A')));
    const float factor = alpha.factor_of(lora.scale_of(linear.path), lora.rank_of(linear.path));
    for (const model::LinearModule& layer : layers_in_files(linear)) {
      const std::string weight = layer.path + ".weight";
      const std::string name = tensor_name(config, weight);
      const std::string name_of_b = model::adapter_tensor_name(layer.path, 'B');
      add_tensor(config, name + ".lora_a", a->shape, type,
                 {.views = {a}, .of_columns = order_of_columns(config, weight)}, draft);
      Source b{.views = {}, .of_rows = order_of_rows(config, weight), .factor = factor};
      const auto found = std::ranges::find(joined, name_of_b, &model::JoinedTensor::name);
      if (found != joined.end()) {
        RONDO_RETURN_IF_ERROR(add_joined(config, *found, name + ".lora_b", files, type, std::move(b), draft));
        continue;
      }
      RONDO_ASSIGN_OR_RETURN(const model::TensorView* view, checked_tensor(files, name_of_b));
      b.views = {view};
      b.factor *= draft.factor_of(name_of_b);
      add_tensor(config, name + ".lora_b", view->shape, type, std::move(b), draft);
    }
  }
  return absl::OkStatus();
}

/// Of experts, each factor one behind the other; layers that share A have it each, unless they are one tensor. Of the
/// router as of a linear layer.
absl::Status add_expert_factors(const model::ModelConfig& config, const model::LoraConfig& lora,
                                const model::TensorFiles& files, TensorType type, Alpha& alpha, Draft& draft) {
  for (const model::ExpertFactors& factors : model::expert_factors(config, lora)) {
    if (config.experts->beside_mlp && factors.tensor.kind == model::ExpertTensor::Kind::kDown) {
      return invalid_input(
          "{}: GGUF's readers do not multiply what an adapter adds there by the expert's number (per_expert_scale); "
          "merge the adapter first",
          factors.tensor.path);
    }
    RONDO_ASSIGN_OR_RETURN(const model::TensorView* a, checked_tensor(files, factors.a));
    for (std::size_t part = 0; part < factors.parts.size(); ++part) {
      RONDO_ASSIGN_OR_RETURN(const model::TensorView* b, checked_tensor(files, factors.parts[part].b));
      const std::string weight = model::weight_of_expert(config, factors.tensor, 0, part);
      const auto place = stacked(config, weight);
      const std::string name = place ? place->name : tensor_name(config, weight);
      if (place && place->part > 0) {  // B is that of the part before it
        draft.tensors.back().shape[1] += factors.parts[part].out;
        draft.sources.back().views.push_back(b);
        continue;
      }
      const auto add = [&](const char* ending, const model::TensorView& view, std::uint64_t rows, float factor) {
        std::vector<std::uint64_t> shape = view.shape;
        if (place) shape = {factors.experts, rows, view.shape.back()};
        draft.tensors.push_back({name + ending, shape, type_for(type, shape)});
        draft.sources.push_back(
            {.views = {&view}, .turns = static_cast<std::uint32_t>(factors.experts), .factor = factor});
      };
      add(".lora_a", *a, factors.rank, 1);
      add(".lora_b", *b, factors.parts[part].out, alpha.factor_of(factors.scale, factors.rank));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status export_model(const Documents& base, const model::ModelConfig& config, const model::TensorFiles& files,
                          const std::string& quantization, const std::filesystem::path& output) {
  RONDO_RETURN_IF_ERROR(check_expressible(config, base.place("config.json")));
  const std::vector<model::ParameterSpec> parameters = model::model_parameters(config);
  RONDO_ASSIGN_OR_RETURN(const model::TensorView* first, checked_tensor(files, parameters.front().name));
  RONDO_ASSIGN_OR_RETURN(const TensorType type, chosen_type(quantization, first->type));
  Draft draft;
  for (const auto& [path, factor] : stored_factors(config))
    draft.factors[path + ".weight"] = static_cast<float>(factor);
  add_general_keys(base.origin(), config, "model", type, draft.keys);
  add_architecture_keys(config, draft.keys);
  RONDO_RETURN_IF_ERROR(add_tokenizer_keys(base, config, draft.keys));
  if (std::vector<float> divisors = frequency_divisors(config); !divisors.empty()) {
    add_numbers("rope_freqs.weight", std::move(divisors), draft);
  }
  if (config.rope.kind == model::RopeKind::kLongRope) {
    const model::RopeConfig& rope = config.rope;
    add_numbers(kShortFactors, {rope.short_factors.begin(), rope.short_factors.end()}, draft);
    add_numbers(kLongFactors, {rope.long_factors.begin(), rope.long_factors.end()}, draft);
  }
  const std::vector<model::JoinedTensor> joined = joined_as_in_files(model::joined_weights(config));
  const std::map<std::string, const model::JoinedTensor*> whole_of = model::by_part(joined);
  const auto source_of = [&](const std::string& name) {
    return Source{.views = {},
                  .of_rows = order_of_rows(config, name),
                  .of_columns = order_of_columns(config, name),
                  .offset = stored_offset(config, name),
                  .is_decay = is_decay(name)};
  };
  for (const model::ParameterSpec& spec : parameters) {
    if (const auto whole = whole_of.find(spec.name); whole != whole_of.end()) {
      const model::JoinedTensor& tensor = *whole->second;
      if (spec.name != tensor.parts.front().name) continue;  // is there with the first
      RONDO_RETURN_IF_ERROR(
          add_joined(config, tensor, tensor_name(config, tensor.name), files, type, source_of(tensor.name), draft));
      continue;
    }
    RONDO_ASSIGN_OR_RETURN(const model::TensorView* view, checked_tensor(files, spec.name));
    if (const auto place = stacked(config, spec.name)) {
      add_to_stack(*place, *view, type, draft);
      continue;
    }
    if (is_by_heads(config, spec.name)) {
      add_by_heads(config, *view, type, draft);
      continue;
    }
    Source source = source_of(spec.name);
    source.views = {view};
    source.factor = draft.factor_of(spec.name);
    add_tensor(config, tensor_name(config, spec.name), view->shape, type, std::move(source), draft);
  }
  RONDO_RETURN_IF_ERROR(add_untied_head(config, files, type, draft));
  return write_draft(draft, files, output);
}

absl::Status export_adapter(const Documents& base, const model::ModelConfig& config, const model::LoraConfig& lora,
                            const model::TensorFiles& files, const std::string& quantization,
                            const std::filesystem::path& output) {
  RONDO_RETURN_IF_ERROR(check_expressible(config, base.place("config.json")));
  RONDO_RETURN_IF_ERROR(check_adapter_expressible(config, lora));
  if (files.tensors().empty()) return invalid_input("{}: expected tensors, found none", files.origin());
  RONDO_ASSIGN_OR_RETURN(const TensorType type, chosen_type(quantization, files.tensors().begin()->second.type));
  Draft draft;
  for (const auto& [path, factor] : stored_factors(config)) {
    draft.factors[model::adapter_tensor_name(path, 'B')] = static_cast<float>(factor);
  }
  add_general_keys(base.origin(), config, "adapter", type, draft.keys);
  draft.keys.add("adapter.type", "lora");
  Alpha alpha(lora.alpha);
  RONDO_RETURN_IF_ERROR(add_linear_factors(config, lora, files, type, alpha, draft));
  RONDO_RETURN_IF_ERROR(add_expert_factors(config, lora, files, type, alpha, draft));
  draft.keys.add("adapter.lora.alpha", alpha.value());
  return write_draft(draft, files, output);
}

}  // namespace rondo::gguf
