#include "rondo/train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <system_error>

#include "rondo/base/file.h"
#include "rondo/base/float16.h"
#include "rondo/base/folder.h"
#include "rondo/base/random.h"
#include "rondo/base/status.h"
#include "rondo/devices/encoding.h"
#include "rondo/devices/random.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace rondo::train {
namespace {

/// Of the adapter alone: no weight of the model.
bool is_factor(const model::Parameter& parameter) {
  return parameter.kind == model::WeightKind::kLoraA || parameter.kind == model::WeightKind::kLoraB ||
         parameter.kind == model::WeightKind::kMagnitude;
}

/// Its tensor's name in adapter_model.safetensors.
std::string adapter_name_of(const model::Parameter& parameter) {
  return is_factor(parameter) ? parameter.name : model::saved_tensor_name(parameter.name);
}

/// Numbers from `first` on.
void init_factor(const model::Parameter& parameter, std::uint64_t seed, std::uint64_t first, std::span<float> out) {
  if (parameter.kind == model::WeightKind::kLoraB) {
    std::memset(out.data(), 0, out.size_bytes());
    return;
  }
  const float limit = 1.0F / std::sqrt(static_cast<float>(parameter.shape.back()));
  const std::uint64_t key = devices::combine_keys(seed, fnv1a64(parameter.name));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = (2.0F * devices::uniform_float(devices::combine_keys(key, first + i)) - 1.0F) * limit;
  }
}

/// DoRA's magnitudes start as the lengths of the rows of the weight that devices see: loaded, and `encoded` where it
/// is.
absl::Status init_magnitudes(const model::Architecture& model, const model::Parameter& magnitudes,
                             const offload::ParameterStore& store, std::span<float> out) {
  const auto is_weight = [&](const model::Parameter& one) {
    return one.kind == model::WeightKind::kMatrix && one.name.ends_with(".weight") &&
           model::magnitude_tensor_name(one.name.substr(0, one.name.size() - 7)) == magnitudes.name;
  };
  const auto found = std::ranges::find_if(model.parameters(), is_weight);
  if (found == model.parameters().end()) return internal_error("{} has no weight", magnitudes.name);
  const devices::BufferView view = store.published(static_cast<model::ParameterId>(found - model.parameters().begin()));
  const auto width = static_cast<std::size_t>(found->shape[1]);
  std::optional<devices::EncodedLayout> encoded;
  if (found->encoding != devices::Encoding::kPlain) {
    encoded.emplace(found->encoding, static_cast<std::int64_t>(found->elements()));
  }
  std::vector<float> row(width);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (encoded) {
      for (std::size_t k = 0; k < width; ++k) {
        row[k] =
            devices::decoded_element(found->encoding, *encoded, view.host(), static_cast<std::int64_t>(i * width + k));
      }
    } else if (store.dtype() == devices::DType::kFloat32) {
      std::memcpy(row.data(), view.host() + i * width * sizeof(float), width * sizeof(float));
    } else {
      const auto* bits = reinterpret_cast<const std::uint16_t*>(view.host()) + i * width;
      const bool half = store.dtype() == devices::DType::kFloat16;
      std::transform(bits, bits + width, row.begin(), half ? from_float16 : from_bfloat16);
    }
    double squares = 0;
    for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
    out[i] = static_cast<float>(std::sqrt(squares));
  }
  return absl::OkStatus();
}

/// Of a parameter's state on its way to a file.
constexpr Bytes kPiece = 1_MiB;

/// fp16 rounds larger numbers to infinity.
constexpr float kLeastInfiniteHalf = 65520;

bool all_fit(std::span<const float> values, devices::DType dtype) {
  if (dtype != devices::DType::kFloat16) return true;
  return std::ranges::all_of(values, [](float value) { return std::abs(value) < kLeastInfiniteHalf; });
}

bool all_finite(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

/// A frozen parameter in bf16 has no fp32 copy: its bits are checked in place.
bool all_finite(std::span<const std::uint16_t> values) {
  for (const std::uint16_t bits : values) {
    if ((bits & 0x7F80U) == 0x7F80U) return false;
  }
  return true;
}

/// Codes as the file has them. Other numbers would not stay what they are.
absl::Status fill_mxfp4(const model::TensorView& tensor, devices::DType dtype, const devices::BufferView& to) {
  constexpr unsigned kLargestScale = 252;  // 6 times 2^125 is in fp32's range
  if (!tensor.copy_mxfp4) {
    return invalid_input("{}: tensor {}: expected MXFP4, as config.json says", tensor.file, tensor.name);
  }
  const auto elements = static_cast<std::int64_t>(tensor.elements());
  const devices::EncodedLayout layout(devices::Encoding::kMxfp4, elements);
  const std::span<std::byte> all(to.host(), to.size);
  const auto count = static_cast<std::size_t>(elements);
  const std::span<std::byte> scales = all.subspan(layout.scales, count / devices::kMxfp4Block);
  tensor.copy_mxfp4(all.first(count / 2), scales);
  unsigned most = 0;
  for (const std::byte scale : scales) most = std::max(most, std::to_integer<unsigned>(scale));
  const unsigned limit = dtype == devices::DType::kFloat16 ? 127 + 13 : kLargestScale;  // 6 times 2^13
  if (most <= limit) return absl::OkStatus();
  return invalid_input("{}: tensor {} has a scale of 2^{}, more than dtype {} holds the numbers of", tensor.file,
                       tensor.name, static_cast<int>(most) - 127, devices::name_of(dtype));
}

absl::Status fill(const model::Parameter& parameter, const model::TensorView& tensor, model::ParameterId id,
                  offload::ParameterStore& store) {
  const auto bad = [&] {
    return invalid_input("{}: tensor {} holds a number that is not finite", tensor.file, tensor.name);
  };
  const devices::DType dtype = store.dtype_of(id);
  const auto check = [&](std::span<const float> values) {
    if (!all_finite(values)) return bad();
    if (all_fit(values, dtype)) return absl::OkStatus();
    return invalid_input("{}: tensor {} holds a number that is too large for dtype fp16, set dtype: bf16 or fp32",
                         tensor.file, tensor.name);
  };
  if (parameter.encoding == devices::Encoding::kMxfp4) return fill_mxfp4(tensor, dtype, store.published(id));
  if (parameter.encoding != devices::Encoding::kPlain) {
    // Codes are made of the file's numbers, not of rounded ones.
    const devices::BufferView to = store.published(id);
    devices::BlockEncoder encoder(parameter.encoding, static_cast<std::int64_t>(tensor.elements()),
                                  {to.host(), to.size});
    const auto encode = [&](std::uint64_t, std::span<const float> values) {
      const absl::Status fits = check(values);
      if (fits.ok()) encoder.append(values);
      return fits;
    };
    RONDO_RETURN_IF_ERROR(for_pieces(tensor, encode));
    encoder.finish();
    return absl::OkStatus();
  }
  if (parameter.trained || dtype == devices::DType::kFloat32) {
    return for_pieces(tensor, [&](std::uint64_t first, std::span<const float> values) {
      RONDO_RETURN_IF_ERROR(check(values));
      return store.write(id, offload::StateArray::kMaster, first, values);
    });
  }
  if (dtype == devices::DType::kFloat16) {
    std::byte* to = store.published(id).host();
    return for_pieces(tensor, [&](std::uint64_t first, std::span<const float> values) {
      RONDO_RETURN_IF_ERROR(check(values));
      model::store_float32(values, model::WeightType::kFloat16, {to + first * size_of(dtype), values.size() * 2});
      return absl::OkStatus();
    });
  }
  const std::span<std::uint16_t> bits(reinterpret_cast<std::uint16_t*>(store.published(id).host()),
                                      parameter.elements());
  model::TensorFiles::read_as_bfloat16(tensor, bits);
  return all_finite(std::span<const std::uint16_t>(bits)) ? absl::OkStatus() : bad();
}

std::vector<std::uint64_t> file_shape(const devices::Shape& shape) { return {shape.begin(), shape.end()}; }

/// The parameters of a result, each as a tensor.
struct Result {
  std::vector<model::TensorToWrite> tensors;
  std::vector<model::ParameterId> ids;
};

Result adapter_tensors(const model::Architecture& model) {
  Result result;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (!is_factor(parameter) && !parameter.of_adapter) continue;
    result.tensors.push_back({adapter_name_of(parameter), model::WeightType::kFloat32, file_shape(parameter.shape)});
    result.ids.push_back(id);
  }
  return result;
}

/// What experts are chosen by is fp32 in the files of transformers too.
model::WeightType type_in_files(const model::Parameter& parameter, devices::DType dtype) {
  return file_type(parameter.kind == model::WeightKind::kChoiceBias ? devices::DType::kFloat32 : dtype);
}

Result model_tensors(const model::Architecture& model) {
  Result result;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (is_factor(parameter)) continue;
    result.tensors.push_back({model::name_in_text_model(parameter.name), type_in_files(parameter, model.method().dtype),
                              file_shape(parameter.shape)});
    result.ids.push_back(id);
  }
  return result;
}

absl::Status write_adapter(const model::Architecture& model, offload::ParameterStore& store, const Documents& base,
                           const std::filesystem::path& folder) {
  Result result = adapter_tensors(model);
  const auto produce = [&](std::size_t i, const model::TensorSink& sink) {
    return read_pieces(store, result.ids[i], offload::StateArray::kMaster, sink);
  };
  model::LoraConfig config = *model.method().lora;
  const model::WritePlan plan = model::stored_factors(model.config(), config, {std::move(result.tensors), produce});
  RONDO_RETURN_IF_ERROR(
      model::write_safetensors(folder / "adapter_model.safetensors", plan.tensors, {{"format", "pt"}}, plan.produce));
  config.base_model = base.origin().string();
  config.exclude_modules = model.config().text_part ? model::kPicturesExcluded : "";
  return write_file_atomically(folder / "adapter_config.json", model::format_adapter_config(config));
}

/// The numbers of a parameter as `type`. Of a trained one the master's to nearest: what is published has been rounded
/// with chance.
absl::Status read_rounded(offload::ParameterStore& store, model::ParameterId id, model::WeightType type,
                          const model::TensorSink& sink) {
  std::vector<std::byte> rounded;
  const auto round = [&](std::span<const std::byte> piece) {
    const std::span values(reinterpret_cast<const float*>(piece.data()), piece.size() / sizeof(float));
    rounded.resize(values.size() * 2);
    model::store_float32(values, type, rounded);
    return sink(rounded);
  };
  if (store.specs()[id].trained && type != model::WeightType::kFloat32) {
    return read_pieces(store, id, offload::StateArray::kMaster, round);
  }
  const devices::BufferView weights = store.published(id);
  const std::span<const std::byte> bytes(weights.host(), weights.size);
  return file_type(store.dtype_of(id)) == type ? sink(bytes) : round(bytes);
}

absl::Status write_model(const model::Architecture& model, offload::ParameterStore& store, const Documents& base,
                         const std::filesystem::path& folder) {
  Result result = model_tensors(model);
  const auto produce = [&](std::size_t i, const model::TensorSink& sink) {
    const model::ParameterId id = result.ids[i];
    return read_rounded(store, id, type_in_files(model.parameters()[id], store.dtype()), sink);
  };
  const model::WritePlan plan = model::stored_weights(model.config(), {std::move(result.tensors), produce});
  RONDO_RETURN_IF_ERROR(model::write_sharded_safetensors(folder, plan.tensors, plan.produce));
  model::ModelConfig config = model.config();
  config.weight_type = file_type(store.dtype());
  if (config.experts) config.experts->mxfp4 = false;
  RONDO_RETURN_IF_ERROR(write_file_atomically(folder / "config.json", model::format_config(config)));
  const std::string generation = "generation_config.json";
  if (!base.has(generation)) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(const std::string text, base.read(generation));
  return write_file_atomically(folder / generation, text);
}

}  // namespace

model::WeightType file_type(devices::DType dtype) {
  if (dtype == devices::DType::kFloat32) return model::WeightType::kFloat32;
  return dtype == devices::DType::kFloat16 ? model::WeightType::kFloat16 : model::WeightType::kBfloat16;
}

absl::Status for_pieces(const model::TensorView& tensor,
                        const std::function<absl::Status(std::uint64_t, std::span<const float>)>& take) {
  const std::uint64_t elements = tensor.elements();
  std::vector<float> values;
  for (std::uint64_t first = 0; first < elements; first += kPieceElements) {
    values.resize(std::min<std::size_t>(kPieceElements, elements - first));
    model::TensorFiles::read_as_float32(tensor, first, values);
    RONDO_RETURN_IF_ERROR(take(first, values));
  }
  return absl::OkStatus();
}

Bytes written_at_once(const model::Architecture& model) {
  Bytes piece = 0;
  for (const model::Parameter& parameter : model.parameters()) {
    if (parameter.trained) piece = std::max<Bytes>(piece, parameter.elements() * sizeof(float));
  }
  if (piece == 0) return 0;
  piece = std::min(piece, kPiece);
  const model::MethodSpec& method = model.method();
  if (method.lora)
    return piece + model::stored_factors(model.config(), *method.lora, {adapter_tensors(model).tensors, {}}).held;
  const Bytes rounded = method.dtype == devices::DType::kFloat32 ? 0 : piece / 2;
  return piece + rounded + model::stored_weights(model.config(), {model_tensors(model).tensors, {}}).held;
}

absl::Status read_pieces(offload::ParameterStore& store, model::ParameterId id, offload::StateArray which,
                         const model::TensorSink& sink) {
  const Bytes size =
      which == offload::StateArray::kMaster ? store.specs()[id].elements * sizeof(float) : store.moment_size(id, which);
  std::vector<std::byte> piece;
  for (Bytes first = 0; first < size; first += kPiece) {
    piece.resize(std::min(kPiece, size - first));
    RONDO_RETURN_IF_ERROR(store.read(id, which, first, piece));
    RONDO_RETURN_IF_ERROR(sink(piece));
  }
  return absl::OkStatus();
}

absl::Status load_weights(const model::Architecture& model, const model::TensorFiles& files,
                          const model::TensorFiles* adapter, offload::ParameterStore& store, const Progress& progress) {
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    tell(progress, "loading weights", id, model.parameters().size());
    const model::Parameter& parameter = model.parameters()[id];
    if (is_factor(parameter) && adapter == nullptr) continue;
    const bool from_adapter = adapter != nullptr && (is_factor(parameter) || parameter.of_adapter);
    const model::TensorFiles& source = from_adapter ? *adapter : files;
    const model::TensorView* tensor = source.find(from_adapter ? adapter_name_of(parameter) : parameter.name);
    if (tensor == nullptr) return internal_error("tensor {} is not in the checked files", parameter.name);
    RONDO_RETURN_IF_ERROR(fill(parameter, *tensor, id, store));
    source.release(*tensor);
  }
  return absl::OkStatus();
}

absl::Status init_factors(const model::Architecture& model, std::uint64_t seed, offload::ParameterStore& store) {
  std::vector<float> values;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (!is_factor(parameter) || !parameter.trained) continue;
    const std::uint64_t elements = parameter.elements();
    if (parameter.kind == model::WeightKind::kMagnitude) {
      values.resize(elements);
      RONDO_RETURN_IF_ERROR(init_magnitudes(model, parameter, store, values));
      RONDO_RETURN_IF_ERROR(store.write(id, offload::StateArray::kMaster, 0, values));
      continue;
    }
    for (std::uint64_t first = 0; first < elements; first += kPieceElements) {
      values.resize(std::min<std::size_t>(kPieceElements, elements - first));
      init_factor(parameter, seed, first, values);
      RONDO_RETURN_IF_ERROR(store.write(id, offload::StateArray::kMaster, first, values));
    }
  }
  return absl::OkStatus();
}

absl::Status write_result(const model::Architecture& model, offload::ParameterStore& store, const Documents& base,
                          const std::filesystem::path& folder) {
  if (model.method().lora) return write_adapter(model, store, base, folder);
  return write_model(model, store, base, folder);
}

namespace {

/// The templates beside the first one: tool_use and whatever else a folder has.
absl::Status copy_named_templates(const Documents& from, const std::filesystem::path& to) {
  const std::filesystem::path part = "additional_chat_templates";
  std::vector<std::filesystem::path> files = {"tool_use.jinja"};
  std::error_code error;
  if (!from.made()) files = entries_of(from.origin() / part, error);
  for (const std::filesystem::path& file : files) {
    const std::filesystem::path name = part / file.filename();
    if (file.extension() != ".jinja" || !from.has(name.string())) continue;
    RONDO_ASSIGN_OR_RETURN(const std::string text, from.read(name.string()));
    std::filesystem::create_directories(to / part, error);
    if (error) return internal_error("{}: cannot be made: {}", (to / part).string(), error.message());
    RONDO_RETURN_IF_ERROR(write_file_atomically(to / name, text));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status copy_tokenizer_files(const Documents& from, const std::filesystem::path& to) {
  constexpr std::array kNames = {
      "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
      "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "chat_template.json"};
  for (const char* name : kNames) {
    if (!from.has(name)) continue;
    RONDO_ASSIGN_OR_RETURN(const std::string text, from.read(name));
    RONDO_RETURN_IF_ERROR(write_file_atomically(to / name, text));
  }
  return copy_named_templates(from, to);
}

}  // namespace rondo::train
