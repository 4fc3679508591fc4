// Merging row by row: one row of a weight is in fp32 at a time, beside the two factors of its layer.
#include "rondo/model/merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

absl::Status not_finite(const TensorView& tensor) {
  return invalid_input("{}: tensor {} holds a number that is not finite", tensor.file, tensor.name);
}

/// Numbers of one type as they will be read back.
bool stored_finite(std::span<const std::byte> bytes, WeightType type, std::vector<float>& scratch) {
  TensorView stored;
  stored.type = type;
  stored.shape = {bytes.size() / weight_type_size(type)};
  stored.data = bytes;
  scratch.resize(stored.shape.front());
  TensorFiles::read_as_float32(stored, scratch);
  return all_finite(scratch);
}

/// Where an adapter has the factors of one linear layer: rows of two tensors.
struct AdaptedAs {
  std::string module;  // whose magnitudes are DoRA's
  std::string a, b;
  std::uint64_t first_of_a = 0, first_of_b = 0;  // numbers before its own
  std::uint64_t rows = 0;                        // of b
  std::uint32_t rank = 0;
  double scale = 0;
};

/// By the name of the weight.
std::map<std::string, AdaptedAs> adapted_weights(const ModelConfig& config, const LoraConfig& lora) {
  std::map<std::string, AdaptedAs> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (!lora.adapts(linear)) continue;
    for (const LinearModule& part : parts_or_self(linear)) {
      out[part.path + ".weight"] = {part.path,
                                    adapter_tensor_name(linear.path, 'A'),
                                    adapter_tensor_name(part.path, 'B'),
                                    0,
                                    0,
                                    part.out,
                                    lora.rank_of(linear.path),
                                    lora.scale_of(linear.path)};
    }
  }
  for (const ExpertFactors& factors : expert_factors(config, lora)) {
    for (std::uint64_t expert = 0; expert < factors.experts; ++expert) {
      for (std::size_t part = 0; part < factors.parts.size(); ++part) {
        const ExpertFactors::Part& own = factors.parts[part];
        out[weight_of_expert(config, factors.tensor, expert, part)] = {
            "",      factors.a,    own.b,        expert * factors.rank * factors.in, expert * own.out * factors.rank,
            own.out, factors.rank, factors.scale};
      }
    }
  }
  return out;
}

/// What an adapter has of one linear layer, in fp32.
struct Factors {
  std::vector<float> a;  // [r, in]
  std::vector<float> b;  // [out, r]
  std::vector<float> m;  // [out], DoRA's magnitudes
};

class Merger {
 public:
  Merger(const ModelConfig& config, const LoraConfig& lora, const TensorFiles& base, const TensorFiles& adapter)
      : base_(base), adapter_(adapter), lora_(lora), adapted_as_(adapted_weights(config, lora)) {}

  /// Puts the merged tensor `name` into `out`, in its own type.
  absl::Status put(const std::string& name, std::span<std::byte> out) {
    const TensorView* tensor = base_.find(name);
    if (tensor == nullptr) return internal_error("tensor {} is not in the checked files", name);
    const auto known = adapted_as_.find(name);
    const bool adapted = known != adapted_as_.end();
    if (adapted) {
      const AdaptedAs& as = known->second;
      rank_ = as.rank;
      scale_ = static_cast<float>(as.scale);
      RONDO_RETURN_IF_ERROR(read_factor(as.a, as.first_of_a, as.rank * tensor->shape.back(), factors_.a));
      RONDO_RETURN_IF_ERROR(read_factor(as.b, as.first_of_b, as.rows * as.rank, factors_.b));
      if (lora_.use_dora) RONDO_RETURN_IF_ERROR(read_magnitudes(as.module));
    }
    // Of modules_to_save the adapter has the whole weight.
    const TensorView* saved = adapter_.find(saved_tensor_name(name));
    const TensorView& source = saved != nullptr ? *saved : *tensor;
    const bool changed = adapted || saved != nullptr;
    const std::uint64_t width = tensor->shape.back();
    const std::uint64_t rows = tensor->elements() / width;
    const std::size_t row_bytes = out.size() / rows;
    row_.resize(width);
    for (std::uint64_t r = 0; r < rows; ++r) {
      TensorFiles::read_as_float32(source, r * width, row_);
      if (!all_finite(row_)) return not_finite(source);
      if (adapted) add_product(r);
      const std::span<std::byte> place = out.subspan(r * row_bytes, row_bytes);
      store_float32(row_, tensor->type, place);
      if (changed && !stored_finite(place, tensor->type, scratch_)) {
        return invalid_input("{}: tensor {}: merging gives a number that its type cannot hold; convert the base first",
                             tensor->file, tensor->name);
      }
    }
    base_.release(*tensor);
    return absl::OkStatus();
  }

 private:
  absl::Status read_factor(const std::string& name, std::uint64_t first, std::uint64_t count, std::vector<float>& out) {
    const TensorView* factor = adapter_.find(name);
    if (factor == nullptr) return internal_error("tensor {} is not in the checked files", name);
    out.resize(count);
    TensorFiles::read_as_float32(*factor, first, out);
    return all_finite(out) ? absl::OkStatus() : not_finite(*factor);
  }

  absl::Status read_magnitudes(const std::string& module) {
    const TensorView* m = adapter_.find(magnitude_tensor_name(module));
    if (m == nullptr) return internal_error("tensor {} is not in the checked files", magnitude_tensor_name(module));
    factors_.m.resize(m->elements());
    TensorFiles::read_as_float32(*m, factors_.m);
    return all_finite(factors_.m) ? absl::OkStatus() : not_finite(*m);
  }

  /// DoRA: the row's direction with the length that was trained.
  void set_length(std::uint64_t row) {
    double squares = 0;
    for (const float value : row_) squares += static_cast<double>(value) * static_cast<double>(value);
    const double length = std::sqrt(squares);
    const auto factor = static_cast<float>(length == 0 ? 0.0 : static_cast<double>(factors_.m[row]) / length);
    for (float& value : row_) value *= factor;
  }

  void add_product(std::uint64_t row) {
    scratch_.assign(row_.size(), 0.0F);
    for (std::size_t k = 0; k < rank_; ++k) {
      const float factor = factors_.b[row * rank_ + k];
      const float* a = factors_.a.data() + k * row_.size();
      for (std::size_t i = 0; i < row_.size(); ++i) scratch_[i] += factor * a[i];
    }
    for (std::size_t i = 0; i < row_.size(); ++i) row_[i] += scale_ * scratch_[i];
    if (lora_.use_dora) set_length(row);
  }

  const TensorFiles& base_;
  const TensorFiles& adapter_;
  const LoraConfig& lora_;
  const std::map<std::string, AdaptedAs> adapted_as_;
  std::size_t rank_ = 0;
  float scale_ = 0;
  Factors factors_;
  std::vector<float> row_;
  std::vector<float> scratch_;
};

}  // namespace

absl::Status write_merged_weights(const ModelConfig& config, const TensorFiles& base, const LoraConfig& lora,
                                  const TensorFiles& adapter, const std::filesystem::path& folder,
                                  Bytes max_shard_bytes) {
  std::vector<TensorToWrite> tensors;
  std::vector<std::string> names;
  for (const ParameterSpec& spec : model_parameters(config)) {
    const TensorView* tensor = base.find(spec.name);
    if (tensor == nullptr) return internal_error("tensor {} is not in the checked files", spec.name);
    tensors.push_back({name_in_text_model(spec.name), tensor->type, spec.shape});
    names.push_back(spec.name);
  }
  Merger merger(config, lora, base, adapter);
  const auto fill = [&](std::size_t index, std::span<std::byte> out) { return merger.put(names[index], out); };
  const WritePlan plan = stored_weights(config, {tensors, produce_whole(tensors, fill)});
  return write_sharded_safetensors(folder, plan.tensors, plan.produce, max_shard_bytes);
}

}  // namespace rondo::model
