// See stacked_experts.h.
#include "rondo/model/stacked_experts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "family.h"
#include "reordered.h"
#include "rondo/base/float16.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

constexpr std::uint64_t kBlock = 32;       // numbers of MXFP4 with one scale
constexpr std::uint64_t kBlockBytes = 16;  // of their codes
constexpr std::uint64_t kTile = 32;        // rows that a transposition takes at a time: neighbours in the file
constexpr std::uint64_t kMostTurns = 2;    // gate and up

using Shape = std::vector<std::uint64_t>;

/// Of one block of a model.
struct Sizes {
  std::uint64_t experts;
  std::uint64_t hidden;
  std::uint64_t width;
};

Sizes sizes_of(const ModelConfig& config) { return {config.experts->count, config.hidden_size, config.experts->width}; }

std::string experts_of_layer(const ModelConfig& config, std::uint32_t layer) {
  return fmt::format("{}layers.{}.{}experts.", name_prefix(config), layer, expert_names(config).module);
}

/// [rows, columns] whose transpose lies in a file among the columns of others: (r, c) is number `begin` + r * step + c
/// * stride.
struct Transposed {
  TensorView stored;
  std::uint64_t begin;
  std::uint64_t step;  // 1 to kMostTurns
  std::uint64_t stride;
  std::uint64_t columns;

  void read(std::uint64_t first, std::span<float> out) const {
    const std::uint64_t last = first + out.size();
    std::array<float, kMostTurns * kTile> run{};
    for (std::uint64_t row = first / columns; row * columns < last; row += kTile) {
      const std::uint64_t count = std::min(kTile, (last + columns - 1) / columns - row);
      const std::span<float> neighbours(run.data(), (count - 1) * step + 1);
      for (std::uint64_t c = 0; c < columns; ++c) {
        TensorFiles::read_as_float32(stored, begin + row * step + c * stride, neighbours);
        for (std::uint64_t r = 0; r < count; ++r) {
          const std::uint64_t place = (row + r) * columns + c;
          if (place >= first && place < last) out[place - first] = run[r * step];
        }
      }
    }
  }
};

/// Every `turns`-th number, from `turn` on.
struct Alternating {
  TensorView stored;
  std::uint64_t turn;
  std::uint64_t turns;

  void read(std::uint64_t first, std::span<float> out) const {
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      TensorFiles::read_as_float32(stored, turn + (first + i) * turns, out.subspan(i, 1));
    }
  }
};

/// Rows first_row, first_row + row_step, ... of numbers in MXFP4.
struct Microscaled {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::uint64_t columns;
  std::uint64_t first_row;
  std::uint64_t row_step;

  void read(std::uint64_t first, std::span<float> out) const {
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      const std::uint64_t row = first_row + (first + i) / columns * row_step;
      const std::uint64_t place = row * columns + (first + i) % columns;
      const auto pair = std::to_integer<unsigned>(codes[place / 2]);
      const auto scale = std::to_integer<unsigned>(scales[place / kBlock]);
      out[i] = from_mxfp4(place % 2 == 0 ? pair & 0xFU : pair >> 4U, scale);
    }
  }
  void copy(std::span<std::byte> to_codes, std::span<std::byte> to_scales) const {
    copy_rows(codes, columns / 2, to_codes);
    copy_rows(scales, columns / kBlock, to_scales);
  }
  void copy_rows(std::span<const std::byte> from, std::uint64_t width, std::span<std::byte> to) const {
    for (std::uint64_t row = 0; row * width < to.size(); ++row) {
      std::ranges::copy(from.subspan((first_row + row * row_step) * width, width), to.subspan(row * width).begin());
    }
  }
};

template <typename Reader>
TensorView decoded_by(Reader reader, TensorView view, std::string name, Shape shape) {
  view.name = std::move(name);
  view.shape = std::move(shape);
  view.decode = [reader = std::move(reader)](std::uint64_t first, std::span<float> out) { reader.read(first, out); };
  return view;
}

/// Puts views of its parts in the place of a stack.
class Unstacker {
 public:
  Unstacker(const ModelConfig& config, TensorFiles& files)
      : names_(expert_names(config)), sizes_(sizes_of(config)), files_(files) {}

  absl::Status layer(const std::string& prefix) {
    const auto [experts, hidden, width] = sizes_;
    const std::vector<std::string> inner = {names_.gate, names_.up};
    RONDO_RETURN_IF_ERROR(matrices(prefix, "gate_up_proj", inner, width, hidden));
    RONDO_RETURN_IF_ERROR(matrices(prefix, "down_proj", {names_.down}, hidden, width));
    RONDO_RETURN_IF_ERROR(biases(prefix, "gate_up_proj_bias", inner, width));
    return biases(prefix, "down_proj_bias", {names_.down}, hidden);
  }

 private:
  /// Null where there is none.
  absl::StatusOr<const TensorView*> stack(const std::string& name, const Shape& shape, bool codes) const {
    const TensorView* view = files_.find(name);
    if (view == nullptr) return nullptr;
    if (view->codes != codes) {
      return invalid_input("{}: tensor {}: expected {}", view->file, name, codes ? "U8" : "F32, BF16 or F16");
    }
    if (view->shape != shape) {
      return invalid_input("{}: tensor {}: expected [{}] as the configuration says, found [{}]", view->file, name,
                           fmt::join(shape, ", "), fmt::join(view->shape, ", "));
    }
    return view;
  }

  /// transformers 5, having expanded a model, saves numbers under the name of the codes that they were.
  std::string name_of_floats(const std::string& name) const {
    const TensorView* view = files_.find(name + "_blocks");
    return view != nullptr && !view->codes ? view->name : name;
  }

  /// Linear layers [rows, columns] of all experts, in turns of `parts`.
  absl::Status matrices(const std::string& prefix, const std::string& name, const std::vector<std::string>& parts,
                        std::uint64_t rows, std::uint64_t columns) {
    const std::uint64_t turns = parts.size();
    RONDO_ASSIGN_OR_RETURN(const TensorView* found,
                           stack(name_of_floats(prefix + name), {sizes_.experts, columns, turns * rows}, false));
    if (found == nullptr) return microscaled(prefix, name, parts, rows, columns);
    const TensorView whole = *found;
    files_.erase(whole.name);
    const std::uint64_t bytes = whole.data.size() / sizes_.experts;
    for (std::uint64_t e = 0; e < sizes_.experts; ++e) {
      TensorView of_one = whole;
      of_one.data = whole.data.subspan(e * bytes, bytes);
      for (std::uint64_t part = 0; part < turns; ++part) {
        add(of_one, fmt::format("{}{}.{}.weight", prefix, e, parts[part]), {rows, columns},
            Transposed{of_one, part, turns, turns * rows, columns});
      }
    }
    return absl::OkStatus();
  }

  absl::Status microscaled(const std::string& prefix, const std::string& name, const std::vector<std::string>& parts,
                           std::uint64_t rows, std::uint64_t columns) {
    const std::uint64_t turns = parts.size();
    const std::uint64_t groups = columns / kBlock;
    const Shape scale_shape = {sizes_.experts, turns * rows, groups};
    RONDO_ASSIGN_OR_RETURN(const TensorView* codes,
                           stack(prefix + name + "_blocks", {sizes_.experts, turns * rows, groups, kBlockBytes}, true));
    RONDO_ASSIGN_OR_RETURN(const TensorView* scales, stack(prefix + name + "_scales", scale_shape, true));
    if (codes == nullptr || scales == nullptr) return absl::OkStatus();
    if (columns % kBlock != 0) {
      return invalid_input("{}: tensor {}: MXFP4 has blocks of {} numbers, rows have {}", codes->file, codes->name,
                           kBlock, columns);
    }
    const std::uint64_t bytes = codes->data.size() / sizes_.experts;
    const std::uint64_t scale_bytes = scales->data.size() / sizes_.experts;
    const TensorView all = *codes;
    const std::span<const std::byte> all_scales = scales->data;
    files_.erase(scales->name);
    files_.erase(all.name);
    for (std::uint64_t e = 0; e < sizes_.experts; ++e) {
      TensorView of_one = all;
      of_one.data = all.data.subspan(e * bytes, bytes);
      of_one.type = WeightType::kBfloat16;  // which has all that these can be
      of_one.codes = false;
      for (std::uint64_t part = 0; part < turns; ++part) {
        const Microscaled reader{of_one.data, all_scales.subspan(e * scale_bytes, scale_bytes), columns, part, turns};
        of_one.copy_mxfp4 = [reader](std::span<std::byte> to_codes, std::span<std::byte> to_scales) {
          reader.copy(to_codes, to_scales);
        };
        add(of_one, fmt::format("{}{}.{}.weight", prefix, e, parts[part]), {rows, columns}, reader);
      }
    }
    return absl::OkStatus();
  }

  absl::Status biases(const std::string& prefix, const std::string& name, const std::vector<std::string>& parts,
                      std::uint64_t width) {
    const std::uint64_t turns = parts.size();
    RONDO_ASSIGN_OR_RETURN(const TensorView* found, stack(prefix + name, {sizes_.experts, turns * width}, false));
    if (found == nullptr) return absl::OkStatus();
    const TensorView whole = *found;
    files_.erase(whole.name);
    for (std::uint64_t part = 0; part < turns; ++part) {
      add(whole, prefix + parts[part] + ".bias", {sizes_.experts, width}, Alternating{whole, part, turns});
    }
    return absl::OkStatus();
  }

  template <typename Reader>
  void add(const TensorView& like, std::string name, Shape shape, Reader reader) {
    files_.add(decoded_by(std::move(reader), like, std::move(name), std::move(shape)));
  }

  const ExpertNames names_;
  const Sizes sizes_;
  TensorFiles& files_;
};

/// A stack's name in the files, and as transformers has it: Granite's are others.
struct StackName {
  std::string stored;
  std::string inner;  // what names of its parts begin with
};
StackName name_of_stack(const ModelConfig& config, std::uint32_t layer, const char* name, const char* granites) {
  const std::string experts = experts_of_layer(config, layer);
  if (!traits_of(config.family).experts->in_linears) return {experts + name, experts};
  return {fmt::format("{}layers.{}.{}{}.weight", name_prefix(config), layer, expert_names(config).module, granites),
          experts};
}
StackName inner_stack(const ModelConfig& config, std::uint32_t layer) {
  return name_of_stack(config, layer, config.gated_mlp ? "gate_up_proj" : "up_proj", "input_linear");
}
StackName down_stack(const ModelConfig& config, std::uint32_t layer) {
  return name_of_stack(config, layer, "down_proj", "output_linear");
}

/// Puts views of its parts, experts' matrices [rows, columns] of the names in `parts`, in the place of a stack that
/// lies as these do, or whose experts' transposes do, if there is one.
absl::Status split_stack(const Sizes& sizes, const StackName& name, const std::vector<std::string>& parts,
                         const Shape& shape, bool may_be_transposed, TensorFiles& files) {
  const TensorView* found = files.find(name.stored);
  if (found == nullptr) return absl::OkStatus();
  const Shape expected = {sizes.experts, parts.size() * shape[0], shape[1]};
  const bool transposed = may_be_transposed && found->shape != expected;  // a square one lies as the matrices do
  if ((transposed ? Shape{expected[0], expected[2], expected[1]} : expected) != found->shape || found->codes ||
      found->decode) {
    return invalid_input("{}: tensor {}: expected numbers [{}] as the configuration says, found {}[{}]", found->file,
                         found->name, fmt::join(expected, ", "), found->codes ? "U8 " : "",
                         fmt::join(found->shape, ", "));
  }
  const TensorView whole = *found;
  files.erase(whole.name);
  const std::size_t bytes = whole.data.size() / sizes.experts;
  for (std::size_t i = 0; i < sizes.experts * parts.size(); ++i) {
    const std::size_t part = i % parts.size();
    TensorView view = whole;
    view.data = whole.data.subspan(i / parts.size() * bytes, bytes);
    std::string inner = fmt::format("{}{}.{}.weight", name.inner, i / parts.size(), parts[part]);
    if (files.find(inner) != nullptr) {
      return invalid_input("{}: tensor {}: is there both by itself and in {}", whole.file, inner, name.stored);
    }
    if (transposed) {
      const Transposed reader{view, part * shape[0], 1, parts.size() * shape[0], shape[1]};
      files.add(decoded_by(reader, view, std::move(inner), shape));
      continue;
    }
    view.data = view.data.subspan(part * bytes / parts.size(), bytes / parts.size());
    view.shape = shape;
    view.name = std::move(inner);
    files.add(std::move(view));
  }
  return absl::OkStatus();
}

absl::Status split_stacks(const ModelConfig& config, TensorFiles& files) {
  const ExpertNames names = expert_names(config);
  const Sizes sizes = sizes_of(config);
  std::vector<std::string> inner = {names.up};
  if (config.gated_mlp) inner.insert(inner.begin(), names.gate);
  const bool transposed = config.text_part && config.family == Family::kQwen3Moe;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    RONDO_RETURN_IF_ERROR(
        split_stack(sizes, inner_stack(config, layer), inner, {sizes.width, sizes.hidden}, transposed, files));
    RONDO_RETURN_IF_ERROR(
        split_stack(sizes, down_stack(config, layer), {names.down}, {sizes.hidden, sizes.width}, transposed, files));
  }
  return absl::OkStatus();
}

/// One part of a stack: parameters [rows, columns] whose rows, or columns where they are transposed, take turns.
struct Turned {
  std::vector<std::size_t> parts;  // indices of the parameters that take turns
  std::uint64_t rows;
  std::uint64_t columns;
  bool transposed;

  /// What write() holds: all parts, and one of them once more.
  Bytes held(std::uint64_t element) const { return (parts.size() + 1) * rows * columns * element; }

  absl::Status write(const TensorProducer& produce, std::uint64_t element, const TensorSink& sink) const {
    const std::uint64_t turns = parts.size();
    const std::uint64_t row_step = transposed ? turns : columns * turns;
    const std::uint64_t column_step = transposed ? rows * turns : turns;
    std::vector<std::byte> out(turns * rows * columns * element);
    std::vector<std::byte> in;
    for (std::uint64_t part = 0; part < turns; ++part) {
      RONDO_RETURN_IF_ERROR(collect(produce, parts[part], rows * columns * element, in));
      if (in.size() * turns != out.size()) return internal_error("a part of a stack has {} bytes", in.size());
      for (std::uint64_t row = 0; row < rows; row += kTile) {
        for (std::uint64_t c = 0; c < columns; ++c) {
          for (std::uint64_t r = row; r < std::min(rows, row + kTile); ++r) {
            std::memcpy(out.data() + (r * row_step + c * column_step + part) * element,
                        in.data() + (r * columns + c) * element, element);
          }
        }
      }
    }
    return sink(out);
  }
};

/// A tensor of the files: turned parts behind one another, or one parameter as it is.
struct Stored {
  TensorToWrite tensor;
  std::vector<Turned> parts;
  std::size_t plain = 0;
};

/// Sorts a plan's tensors into stacks.
class Stacker {
 public:
  Stacker(const ModelConfig& config, const WritePlan& plan) : names_(expert_names(config)), sizes_(sizes_of(config)) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) places_[plan.tensors[i].name] = i;
    for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
      if (has_experts_in_turn(config)) {
        add_layer(experts_of_layer(config, layer), plan);
      } else {
        add_plain(inner_stack(config, layer), {names_.gate, names_.up}, sizes_.width, sizes_.hidden, plan);
        add_plain(down_stack(config, layer), {names_.down}, sizes_.hidden, sizes_.width, plan);
      }
    }
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      if (places_.contains(plan.tensors[i].name)) stored_.push_back({plan.tensors[i], {}, i});
    }
  }
  std::vector<Stored> take() { return std::move(stored_); }

 private:
  void add_layer(const std::string& prefix, const WritePlan& plan) {
    const auto [experts, hidden, width] = sizes_;
    const std::vector<std::string> inner = {names_.gate, names_.up};
    add_matrices(prefix, "gate_up_proj", inner, width, hidden, plan);
    add_bias(prefix, "gate_up_proj_bias", inner, width, plan);
    add_matrices(prefix, "down_proj", {names_.down}, hidden, width, plan);
    add_bias(prefix, "down_proj_bias", {names_.down}, hidden, plan);
  }

  void add_matrices(const std::string& prefix, const char* name, const std::vector<std::string>& parts,
                    std::uint64_t rows, std::uint64_t columns, const WritePlan& plan) {
    Stored stored{{prefix + name, {}, {sizes_.experts, columns, parts.size() * rows}}, {}};
    for (std::uint64_t e = 0; e < sizes_.experts; ++e) {
      Turned& turned = stored.parts.emplace_back(Turned{{}, rows, columns, true});
      for (const std::string& part : parts) {
        turned.parts.push_back(taken(fmt::format("{}{}.{}.weight", prefix, e, part)));
      }
    }
    put(std::move(stored), plan);
  }

  /// One matrix as it is behind another: of an expert's all parts, then of the next one's.
  void add_plain(const StackName& name, const std::vector<std::string>& parts, std::uint64_t rows,
                 std::uint64_t columns, const WritePlan& plan) {
    Stored stored{{name.stored, {}, {sizes_.experts, parts.size() * rows, columns}}, {}};
    for (std::uint64_t e = 0; e < sizes_.experts; ++e) {
      for (const std::string& part : parts) {
        stored.parts.push_back({{taken(fmt::format("{}{}.{}.weight", name.inner, e, part))}, rows, columns, false});
      }
    }
    put(std::move(stored), plan);
  }

  void add_bias(const std::string& prefix, const char* name, const std::vector<std::string>& parts, std::uint64_t width,
                const WritePlan& plan) {
    Stored stored{{prefix + name, {}, {sizes_.experts, parts.size() * width}}, {}};
    Turned& turned = stored.parts.emplace_back(Turned{{}, sizes_.experts, width, false});
    for (const std::string& part : parts) turned.parts.push_back(taken(prefix + part + ".bias"));
    put(std::move(stored), plan);
  }

  void put(Stored stored, const WritePlan& plan) {
    stored.tensor.type = plan.tensors[stored.parts[0].parts[0]].type;
    stored_.push_back(std::move(stored));
  }

  std::size_t taken(const std::string& name) {
    const auto found = places_.find(name);
    const std::size_t place = found->second;
    places_.erase(found);
    return place;
  }

  const ExpertNames names_;
  const Sizes sizes_;
  std::map<std::string, std::size_t> places_;  // of what is not in a stack
  std::vector<Stored> stored_;
};

}  // namespace

bool has_experts_in_turn(const ModelConfig& config) {
  return config.experts && traits_of(config.family).experts->stacked;
}

bool has_stacked_experts(const ModelConfig& config) {
  if (!config.experts) return false;
  return has_experts_in_turn(config) || traits_of(config.family).experts->in_linears || config.experts->beside_mlp;
}

absl::Status unstack_experts(const ModelConfig& config, TensorFiles& files) {
  if (!config.experts) return absl::OkStatus();
  if (!has_experts_in_turn(config)) return split_stacks(config, files);
  Unstacker unstacker(config, files);
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    RONDO_RETURN_IF_ERROR(unstacker.layer(experts_of_layer(config, layer)));
  }
  return absl::OkStatus();
}

WritePlan stack_experts(const ModelConfig& config, WritePlan plan) {
  if (!has_stacked_experts(config)) return plan;
  const auto stored = std::make_shared<std::vector<Stored>>(Stacker(config, plan).take());
  WritePlan out;
  out.held = plan.held;
  for (const Stored& one : *stored) {
    out.tensors.push_back(one.tensor);
    for (const Turned& part : one.parts) {
      out.held = std::max(out.held, plan.held + part.held(weight_type_size(one.tensor.type)));
    }
  }
  out.produce = [stored, produce = std::move(plan.produce)](std::size_t index, const TensorSink& sink) -> absl::Status {
    const Stored& one = (*stored)[index];
    if (one.parts.empty()) return produce(one.plain, sink);
    for (const Turned& part : one.parts) {
      RONDO_RETURN_IF_ERROR(part.write(produce, weight_type_size(one.tensor.type), sink));
    }
    return absl::OkStatus();
  };
  return out;
}

}  // namespace rondo::model
