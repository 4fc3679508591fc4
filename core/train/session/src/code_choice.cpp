#include "rondo/train/code_choice.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/schedule/shape.h"
#include "rondo/train/error_feedback.h"
#include "rondo/train/session.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

using devices::TensorRole;

/// The model alone: frozen, without an adapter, its boundaries plain.
absl::StatusOr<model::Architecture> bare(const model::Architecture& model, devices::Encoding encoding) {
  model::MethodSpec method;
  method.dtype = model.method().dtype;
  method.base_encoding = encoding;
  method.keeps_mxfp4 = model.method().keeps_mxfp4;
  return model::Architecture::make(model.config(), method);
}

/// A matrix product's input that matrices with codes are multiplied with.
struct Reading {
  devices::TensorId input = 0;
  std::int64_t width = 0;
  std::vector<std::uint32_t> weights;  // of the layer's parameters
  devices::Buffer moments;             // fp32 [width, width]

  Bytes moment_bytes() const { return static_cast<Bytes>(width) * static_cast<Bytes>(width) * sizeof(float); }
};

const model::Parameter& parameter_of(const model::Architecture& model, model::LayerIndex layer, std::uint32_t index) {
  return model.parameters()[model.layers()[layer].parameters[index].id];
}

/// Of the plain layer's program, without moments. `coded`: which of its matrices have codes.
std::vector<Reading> readings_of(const model::Architecture& coded, model::LayerIndex layer,
                                 const devices::OpList& list) {
  std::vector<Reading> readings;
  for (const devices::Op& op : list.ops) {
    if (op.kind != devices::OpKind::kMatMul) continue;
    const devices::TensorDesc& weight = list.tensors[op.reads[1]];
    if (weight.role != TensorRole::kWeight) continue;
    if (parameter_of(coded, layer, weight.index).encoding == devices::Encoding::kPlain) continue;
    auto found = std::ranges::find(readings, op.reads[0], &Reading::input);
    if (found == readings.end()) found = readings.insert(readings.end(), {op.reads[0], weight.shape[1], {}, {}});
    found->weights.push_back(weight.index);
  }
  return readings;
}

/// Adds to the list what adds to sum `index` of x x^T over the tokens, x being tensor `input`.
void add_moments(devices::TensorId input, std::size_t index, devices::OpList& list) {
  const devices::Shape& shape = list.tensors[input].shape;
  const std::int64_t width = devices::elements_of(shape) / shape[0];
  const auto sums = static_cast<devices::TensorId>(list.tensors.size());
  list.tensors.push_back(
      {"moments", {width, width}, devices::DType::kFloat32, TensorRole::kGradient, static_cast<std::uint32_t>(index)});
  list.ops.push_back({devices::OpKind::kMatMulWeightGradient, devices::MatMulAttributes{}, {input, input}, {sums}});
}

class CodeChoice {
 public:
  CodeChoice(const model::Architecture& plain, const model::Architecture& coded, const model::TensorFiles& files,
             devices::ThreadPool& threads, offload::ParameterStore& store)
      : plain_(plain), coded_(coded), files_(files), threads_(threads), executor_(threads), store_(store) {}

  /// `names`: of the store's parameters.
  absl::Status open(const std::vector<model::Parameter>& names, const std::vector<schedule::Microbatch>& batches) {
    for (std::size_t i = 0; i < names.size(); ++i) home_[names[i].name] = static_cast<model::ParameterId>(i);
    for (const schedule::Microbatch& batch : batches) {
      Piece& piece = pieces_.emplace_back();
      piece.real = static_cast<std::uint32_t>(batch.ids.size());
      piece.tokens = devices::token_bucket(piece.real);
      RONDO_ASSIGN_OR_RETURN(
          piece.batch, devices::allocate_host(schedule::BatchLayout(plain_, piece.tokens).total(), kChoosingCodes));
      const auto& table = plain_.block_table();
      const devices::BufferView rows =
          table ? store_.published(home_.at(plain_.parameters()[table->table].name)) : devices::BufferView();
      schedule::pack_batch(plain_, rows, batch, piece.tokens, &threads_, piece.batch.view().host());
      RONDO_ASSIGN_OR_RETURN(piece.activation,
                             devices::allocate_host(plain_.boundary_bytes(piece.tokens), kChoosingCodes));
      if (piece.activation.size() <= next_.size()) continue;
      RONDO_ASSIGN_OR_RETURN(next_, devices::allocate_host(piece.activation.size(), kChoosingCodes));
    }
    return absl::OkStatus();
  }

  absl::Status run(const Progress& progress) {
    RONDO_RETURN_IF_ERROR(go_on(0));
    for (model::LayerIndex layer = 1; layer < plain_.first_head_layer(); ++layer) {
      tell(progress, "choosing 4-bit codes, layer", layer, plain_.first_head_layer() - 1);
      const absl::Status chosen = choose(layer);
      if (!chosen.ok()) return with_context(chosen, plain_.layers()[layer].name);
      if (layer + 1 < plain_.first_head_layer()) RONDO_RETURN_IF_ERROR(go_on(layer));
    }
    return absl::OkStatus();
  }

 private:
  struct Piece {
    std::uint32_t real = 0;    // tokens
    std::uint32_t tokens = 0;  // of the bucket
    devices::Buffer batch;
    devices::Buffer activation;
  };
  using Programs = std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<devices::Program>>;

  /// Replaces each activation by what the layer makes of it, with its codes.
  absl::Status go_on(model::LayerIndex layer) {
    for (Piece& piece : pieces_) {
      const devices::OpList list = coded_.record(layer, model::Phase::kForward, model::Keep::kNothing, piece.tokens);
      RONDO_ASSIGN_OR_RETURN(const devices::Program* program, compile(coded_programs_, coded_, layer, list));
      const auto weight = [&](std::uint32_t index) {
        return schedule::rows_of(coded_, coded_.layers()[layer].parameters[index],
                                 store_.published(home_.at(parameter_of(coded_, layer, index).name)));
      };
      RONDO_RETURN_IF_ERROR(execute(*program, layer, piece, weight, {}));
      // Padding tokens stay zeros, whatever biases make of them.
      const Bytes row = piece.activation.size() / piece.tokens;
      std::memset(piece.activation.view().host(), 0, piece.activation.size());
      std::memcpy(piece.activation.view().host(), next_.view().host(), row * piece.real);
    }
    return absl::OkStatus();
  }

  absl::Status choose(model::LayerIndex layer) {
    RONDO_RETURN_IF_ERROR(read_weights(layer));
    std::vector<Reading> readings;
    for (Piece& piece : pieces_) {
      devices::OpList list = plain_.record(layer, model::Phase::kForward, model::Keep::kNothing, piece.tokens);
      if (readings.empty()) {
        RONDO_ASSIGN_OR_RETURN(readings, find_readings(layer, list));
      }
      for (std::size_t i = 0; i < readings.size(); ++i) add_moments(readings[i].input, i, list);
      RONDO_ASSIGN_OR_RETURN(const devices::Program* program, compile(plain_programs_, plain_, layer, list));
      const auto weight = [&](std::uint32_t index) { return weights_[index].second; };
      RONDO_RETURN_IF_ERROR(execute(*program, layer, piece, weight, readings));
    }
    weights_.clear();  // choosing reads them from their files, some rows at a time
    for (Reading& reading : readings) RONDO_RETURN_IF_ERROR(choose(layer, reading));
    return absl::OkStatus();
  }

  /// The layer's numbers as the devices would have them without codes.
  absl::Status read_weights(model::LayerIndex layer) {
    const devices::DType dtype = plain_.method().dtype;
    for (std::uint32_t index = 0; index < plain_.layers()[layer].parameters.size(); ++index) {
      std::pair<devices::Buffer, devices::BufferView>& weight = weights_.emplace_back();
      const model::Parameter& one = parameter_of(plain_, layer, index);
      if (parameter_of(coded_, layer, index).encoding == one.encoding) {
        weight.second =
            schedule::rows_of(plain_, plain_.layers()[layer].parameters[index], store_.published(home_.at(one.name)));
        continue;
      }
      RONDO_ASSIGN_OR_RETURN(weight.first, devices::allocate_host(one.bytes(dtype), kChoosingCodes));
      const devices::BufferView view = weight.first.view();
      weight.second = view;
      RONDO_ASSIGN_OR_RETURN(const model::TensorView* tensor, tensor_of(one));
      const auto put = [&](std::uint64_t first, std::span<const float> values) {
        const devices::BufferView part = view.part(first * size_of(dtype), values.size() * size_of(dtype));
        model::store_float32(values, file_type(dtype), {part.host(), part.size});
        return absl::OkStatus();
      };
      RONDO_RETURN_IF_ERROR(for_pieces(*tensor, put));
      files_.release(*tensor);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const model::TensorView*> tensor_of(const model::Parameter& one) const {
    const model::TensorView* tensor = files_.find(one.name);
    if (tensor == nullptr) return internal_error("tensor {} is not in the checked files", one.name);
    return tensor;
  }

  absl::StatusOr<std::vector<Reading>> find_readings(model::LayerIndex layer, const devices::OpList& list) const {
    std::vector<Reading> readings = readings_of(coded_, layer, list);
    for (Reading& reading : readings) {
      RONDO_ASSIGN_OR_RETURN(reading.moments, devices::allocate_host(reading.moment_bytes(), kChoosingCodes));
    }
    return readings;
  }

  absl::Status choose(model::LayerIndex layer, Reading& reading) {
    const std::span<const float> moments(reinterpret_cast<const float*>(reading.moments.view().host()),
                                         reading.moments.size() / sizeof(float));
    RONDO_ASSIGN_OR_RETURN(ErrorFeedback feedback, ErrorFeedback::make(executor_, threads_, moments, reading.width));
    reading.moments = {};
    for (const std::uint32_t index : reading.weights) {
      const model::Parameter& one = parameter_of(coded_, layer, index);
      RONDO_ASSIGN_OR_RETURN(const model::TensorView* tensor, tensor_of(one));
      const auto read = [tensor](std::uint64_t first, std::span<float> values) {
        model::TensorFiles::read_as_float32(*tensor, first, values);
      };
      const devices::BufferView codes = store_.published(home_.at(one.name));
      RONDO_RETURN_IF_ERROR(feedback.choose(one.encoding, one.shape[0], read, {codes.host(), codes.size}));
      files_.release(*tensor);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const devices::Program*> compile(Programs& programs, const model::Architecture& model,
                                                  model::LayerIndex layer, const devices::OpList& list) {
    auto& program = programs[{model.layers()[layer].program_class, list.tokens}];
    if (program != nullptr) return program.get();
    RONDO_RETURN_IF_ERROR(devices::validate(list));
    const devices::ArenaLayout layout = devices::plan_arena(list);
    if (layout.size > scratch_.size()) {
      RONDO_ASSIGN_OR_RETURN(scratch_, devices::allocate_host(layout.size, kChoosingCodes));
    }
    RONDO_ASSIGN_OR_RETURN(program, executor_.compile(list, layout));
    return program.get();
  }

  template <typename WeightOf>
  absl::Status execute(const devices::Program& program, model::LayerIndex layer, Piece& piece,
                       const WeightOf& weight_of, const std::vector<Reading>& readings) {
    const schedule::BatchLayout layout(plain_, piece.tokens);
    devices::Bindings bindings;
    for (const devices::TensorDesc& tensor : program.ops().tensors) {
      devices::BufferView& view = bindings.tensors.emplace_back();
      switch (tensor.role) {
        case TensorRole::kWeight:
          view = weight_of(tensor.index);
          break;
        case TensorRole::kInput:
          view = piece.activation.view();
          break;
        case TensorRole::kOutput:
          view = next_.view().part(0, piece.activation.size());
          break;
        case TensorRole::kBatch: {
          const auto which = static_cast<devices::BatchTensor>(tensor.index);
          view = piece.batch.view().part(layout.offset(which, plain_.layers()[layer].block), layout.size(which));
          break;
        }
        case TensorRole::kGradient:
          view = readings[tensor.index].moments.view();
          break;
        default:
          break;
      }
    }
    bindings.scratch = scratch_.view();
    bindings.layer = layer;
    return executor_.execute(program, bindings);
  }

  const model::Architecture& plain_;
  const model::Architecture& coded_;
  const model::TensorFiles& files_;
  devices::ThreadPool& threads_;
  devices::cpu::CpuExecutor executor_;
  offload::ParameterStore& store_;
  std::map<std::string, model::ParameterId> home_;
  std::vector<Piece> pieces_;
  devices::Buffer next_;
  devices::Buffer scratch_;
  std::vector<std::pair<devices::Buffer, devices::BufferView>>
      weights_;  // of the layer at hand; a view may be the store's
  Programs plain_programs_, coded_programs_;
};

}  // namespace

std::vector<schedule::Microbatch> first_microbatches(Loader& loader, std::uint64_t tokens) {
  std::vector<schedule::Microbatch> batches;
  std::uint64_t count = 0;
  for (std::uint64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    for (schedule::Microbatch& batch : loader.step(step)) {
      if (count >= tokens) return batches;
      count += batch.ids.size();
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

Bytes choice_bytes(const model::Architecture& model, const Loader::Lengths& lengths, std::uint64_t tokens,
                   devices::ThreadPool& threads) {
  const absl::StatusOr<model::Architecture> plain = bare(model, devices::Encoding::kPlain);
  const absl::StatusOr<model::Architecture> coded = bare(model, model.method().base_encoding);
  if (!plain.ok() || !coded.ok()) return 0;  // choosing will say why
  const std::uint32_t bucket = devices::token_bucket(lengths.longest);
  Bytes most = 0;
  Bytes scratch = 0;
  devices::cpu::CpuExecutor executor(threads);
  std::vector<std::unique_ptr<devices::Program>> programs;  // as long as CodeChoice has them
  const auto compile = [&](const devices::OpList& list) {
    const devices::ArenaLayout layout = devices::plan_arena(list);
    scratch = std::max(scratch, layout.size);
    auto program = executor.compile(list, layout);
    if (program.ok()) programs.push_back(*std::move(program));
  };
  std::set<std::uint32_t> seen;
  for (model::LayerIndex layer = 1; layer < plain->first_head_layer(); ++layer) {
    if (!seen.insert(plain->layers()[layer].program_class).second) continue;
    devices::OpList list = plain->record(layer, model::Phase::kForward, model::Keep::kNothing, bucket);
    const std::vector<Reading> readings = readings_of(*coded, layer, list);
    Bytes moments = 0;
    Bytes weights = 0;
    for (std::size_t i = 0; i < readings.size(); ++i) {
      moments += readings[i].moment_bytes();
      add_moments(readings[i].input, i, list);
      for (const std::uint32_t index : readings[i].weights) {
        weights += parameter_of(*plain, layer, index).bytes(plain->method().dtype);
      }
    }
    most = std::max({most, weights + kPieceElements * sizeof(float), weights + moments});
    for (const Reading& reading : readings) {
      const Bytes factors = ErrorFeedback::factor_bytes(reading.width);
      most = std::max(most, moments + factors);
      moments -= reading.moment_bytes();
      for (const std::uint32_t index : reading.weights) {  // read once more, from pages of its file
        const Bytes pages =
            parameter_of(*plain, layer, index).elements() * model::weight_type_size(plain->config().weight_type);
        most = std::max(most, moments + factors + ErrorFeedback::row_bytes(reading.width) + pages);
      }
    }
    compile(list);
    compile(coded->record(layer, model::Phase::kForward, model::Keep::kNothing, bucket));
  }
  const std::uint64_t kept = std::min(tokens + lengths.longest, lengths.data_tokens) / bucket + 1;
  return most + scratch + executor.scratch_bytes() +
         kept * (plain->boundary_bytes(bucket) + schedule::BatchLayout(*plain, bucket).total());
}

absl::Status choose_codes(const model::Architecture& model, const model::TensorFiles& files,
                          const std::vector<schedule::Microbatch>& batches, devices::ThreadPool& threads,
                          offload::ParameterStore& store, const Progress& progress) {
  RONDO_ASSIGN_OR_RETURN(const model::Architecture plain, bare(model, devices::Encoding::kPlain));
  RONDO_ASSIGN_OR_RETURN(const model::Architecture coded, bare(model, model.method().base_encoding));
  CodeChoice choice(plain, coded, files, threads, store);
  RONDO_RETURN_IF_ERROR(choice.open(model.parameters(), batches));
  return choice.run(progress);
}

}  // namespace rondo::train
