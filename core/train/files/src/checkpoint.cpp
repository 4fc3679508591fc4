#include "rondo/train/checkpoint.h"

#include <cstring>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/base/hash.h"
#include "rondo/base/status.h"
#include "rondo/model/safetensors.h"
#include "rondo/train/checkpoint_folders.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStaleFile = "stale_weights.safetensors";

/// One array of the store and its name in the file.
struct StoredArray {
  std::string name;
  model::ParameterId parameter = 0;
  offload::StateArray which = offload::StateArray::kMaster;
  std::uint64_t elements = 0;  // fp32 ones, or bytes by four
};

std::vector<StoredArray> stored_arrays(const model::Architecture& model, const offload::ParameterStore& store) {
  std::vector<StoredArray> arrays;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (!parameter.trained) continue;
    arrays.push_back({parameter.name, id, offload::StateArray::kMaster, parameter.elements()});
    const auto add_moment = [&](const char* suffix, offload::StateArray which, offload::MomentFormat format) {
      const char* coded = format == offload::MomentFormat::kBlocks8 ? ".blocks8" : "";
      const std::uint64_t words = store.moment_size(id, which) / sizeof(float);
      if (words > 0) arrays.push_back({parameter.name + suffix + coded, id, which, words});
    };
    const offload::StateLayout& state = store.specs()[id].state;
    add_moment(".exp_avg", offload::StateArray::kFirstMoment, state.first);
    add_moment(".exp_avg_sq", offload::StateArray::kSecondMoment, state.second);
  }
  return arrays;
}

model::WeightType type_of(const offload::ParameterStore& store, model::ParameterId id) {
  return file_type(store.dtype_of(id));
}

/// Writes the file and hands out the hash of its tensors.
absl::StatusOr<std::string> write_hashed(const std::filesystem::path& file,
                                         const std::vector<model::TensorToWrite>& tensors,
                                         const model::TensorProducer& produce) {
  ContentHash hash;
  RONDO_RETURN_IF_ERROR(model::write_safetensors(file, tensors, {}, [&](std::size_t i, const model::TensorSink& sink) {
    hash.add_text(tensors[i].name);
    return produce(i, [&](std::span<const std::byte> piece) {
      hash.add(piece);
      return sink(piece);
    });
  }));
  return hash.hex();
}

absl::Status check_contents(const std::filesystem::path& file, const TrainerState& state, const ContentHash& found) {
  const auto saved = state.contents.find(file.filename().string());
  if (saved == state.contents.end() || saved->second == found.hex()) return absl::OkStatus();
  return invalid_input("{}: its numbers have the hash {}, {} says {}: they are not what was saved, the file is damaged",
                       file.string(), found.hex(), kStateFile, saved->second);
}

/// What the file has and this run does not train would make a hash that is not the saved one.
absl::Status check_names(const model::TensorFiles& files, const std::filesystem::path& path,
                         const std::vector<StoredArray>& arrays) {
  std::set<std::string_view> known;
  for (const StoredArray& array : arrays) known.insert(array.name);
  for (const auto& [name, tensor] : files.tensors()) {
    if (!known.contains(name)) {
      return invalid_input("{}: tensor {} belongs to nothing that this run trains: another method, optimizer or model",
                           path.string(), name);
    }
  }
  return absl::OkStatus();
}

/// Trained parameters as the next step reads them, in that version: the masters may have gone on.
absl::StatusOr<std::string> write_stale(const std::filesystem::path& folder, std::uint64_t version,
                                        const model::Architecture& model, const offload::ParameterStore& store) {
  std::vector<model::TensorToWrite> tensors;
  std::vector<model::ParameterId> ids;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    if (!model.parameters()[id].trained) continue;
    ids.push_back(id);
    tensors.push_back({model.parameters()[id].name, type_of(store, id), {model.parameters()[id].elements()}});
  }
  return write_hashed(folder / kStaleFile, tensors, [&](std::size_t i, const model::TensorSink& sink) {
    const devices::BufferView weights = store.published(ids[i], version);
    return sink({weights.host(), weights.size});
  });
}

absl::Status read_stale(const std::filesystem::path& folder, const TrainerState& state,
                        const model::Architecture& model, offload::ParameterStore& store) {
  const std::filesystem::path path = folder / kStaleFile;
  std::error_code error;  // any other than that it is missing is told by who opens it
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) {
    if (state.contents.contains(kOptimizerFile) && !state.contents.contains(kStaleFile)) {
      return invalid_input("{}: not there: the checkpoint was made with staleness 0, set staleness: 0", path.string());
    }
    return invalid_input("{}: not there: the checkpoint is not whole, or was made with staleness 0", path.string());
  }
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, model::TensorFiles::open_file(path));
  ContentHash hash;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (!parameter.trained) continue;
    const model::TensorView* tensor = files.find(parameter.name);
    const devices::BufferView to = store.published(id, state.course.before.updates);
    if (tensor == nullptr || tensor->type != type_of(store, id) || tensor->data.size() != to.size) {
      return invalid_input("{}: tensor {} is not there with {} elements in {}: another method, model or dtype",
                           path.string(), parameter.name, parameter.elements(), devices::name_of(store.dtype_of(id)));
    }
    std::memcpy(to.host(), tensor->data.data(), to.size);
    hash.add_text(parameter.name);
    hash.add({to.host(), to.size});
  }
  return check_contents(path, state, hash);
}

absl::Status fill_checkpoint(const std::filesystem::path& folder, TrainerState state, const model::Architecture& model,
                             offload::ParameterStore& store, const Documents& base) {
  RONDO_RETURN_IF_ERROR(write_result(model, store, base, folder));
  RONDO_RETURN_IF_ERROR(copy_tokenizer_files(base, folder));
  std::vector<StoredArray> arrays = stored_arrays(model, store);
  std::vector<model::TensorToWrite> tensors;
  tensors.reserve(arrays.size());
  for (StoredArray& array : arrays) {
    tensors.push_back({std::move(array.name), model::WeightType::kFloat32, {array.elements}});
  }
  RONDO_ASSIGN_OR_RETURN(
      state.contents[kOptimizerFile],
      write_hashed(folder / kOptimizerFile, tensors, [&](std::size_t i, const model::TensorSink& sink) {
        return read_pieces(store, arrays[i].parameter, arrays[i].which, sink);
      }));
  if (store.published_versions() > 1) {
    RONDO_ASSIGN_OR_RETURN(state.contents[kStaleFile], write_stale(folder, state.course.before.updates, model, store));
  }
  if (state.branch > 0) {
    RONDO_RETURN_IF_ERROR(write_file_atomically(folder / kBranchFile, std::to_string(state.branch)));
  }
  return write_trainer_state(folder, state);
}

}  // namespace

absl::Status write_checkpoint(const std::filesystem::path& output_dir, const TrainerState& state,
                              const model::Architecture& model, offload::ParameterStore& store, const Documents& base) {
  const std::filesystem::path aside = part_folder(output_dir, state.global_step);
  RONDO_RETURN_IF_ERROR(discard(aside));
  std::error_code error;
  std::filesystem::create_directories(aside, error);
  if (error) return internal_error("{}: cannot be made: {}", aside.string(), error.message());
  absl::Status status = fill_checkpoint(aside, state, model, store, base);
  if (status.ok()) status = sync_path(aside);
  if (!status.ok()) {
    (void)discard(aside);  // what went wrong first is told
    return status;
  }
  return put_in_place(aside, checkpoint_folder(output_dir, state.global_step));
}

absl::StatusOr<TrainerState> read_checkpoint(const std::filesystem::path& folder, const model::Architecture& model,
                                             offload::ParameterStore& store) {
  RONDO_ASSIGN_OR_RETURN(TrainerState state, read_trainer_state(folder));
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, model::TensorFiles::open_file(folder / kOptimizerFile));
  ContentHash hash;
  const std::vector<StoredArray> arrays = stored_arrays(model, store);
  for (const StoredArray& array : arrays) {
    const model::TensorView* tensor = files.find(array.name);
    if (tensor == nullptr) {
      return invalid_input("{}: tensor {} is missing: another method or model", (folder / kOptimizerFile).string(),
                           array.name);
    }
    if (tensor->elements() != array.elements || tensor->type != model::WeightType::kFloat32) {
      return invalid_input("{}: tensor {} has {} elements, expected {} in fp32", tensor->file, array.name,
                           tensor->elements(), array.elements);
    }
    hash.add_text(array.name);
    if (array.which != offload::StateArray::kMaster) {
      hash.add(tensor->data);
      RONDO_RETURN_IF_ERROR(store.write_moment(array.parameter, array.which, tensor->data));
      files.release(*tensor);
      continue;
    }
    RONDO_RETURN_IF_ERROR(for_pieces(*tensor, [&](std::uint64_t first, std::span<const float> values) {
      hash.add(std::as_bytes(values));
      return store.write(array.parameter, array.which, first, values, state.course.now.updates);
    }));
    files.release(*tensor);
  }
  RONDO_RETURN_IF_ERROR(check_names(files, folder / kOptimizerFile, arrays));
  RONDO_RETURN_IF_ERROR(check_contents(folder / kOptimizerFile, state, hash));
  if (store.published_versions() > 1) {
    store.set_all_versions(state.course.now.updates);  // which says where the newest weights lie
    RONDO_RETURN_IF_ERROR(read_stale(folder, state, model, store));
  }
  return state;
}

}  // namespace rondo::train
