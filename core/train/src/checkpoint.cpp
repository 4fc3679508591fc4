#include "rondo/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/model/safetensors.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

constexpr const char* kStateFile = "trainer_state.json";
constexpr const char* kOptimizerFile = "optimizer.safetensors";

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

nlohmann::ordered_json to_json(const TrainerState& state) {
  return {{"best_metric", nullptr},
          {"best_model_checkpoint", nullptr},
          {"epoch", state.epoch},
          {"global_step", state.global_step},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {"log_history", state.log_history},
          {"max_steps", state.max_steps},
          {"num_train_epochs", state.num_train_epochs},
          {"rondo",
           {{"updates", state.updates},
            {"skipped_steps", state.skipped_steps},
            {"samples", state.samples},
            {"numerics_class", state.numerics_class},
            {"settings", state.settings}}}};
}

std::optional<std::uint64_t> step_of(const std::filesystem::path& folder) {
  constexpr std::string_view kPrefix = "checkpoint-";
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size() || name.size() > kPrefix.size() + 18)
    return std::nullopt;
  if (!std::all_of(name.begin() + kPrefix.size(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::stoull(name.substr(kPrefix.size()));
}

std::vector<std::pair<std::uint64_t, std::filesystem::path>> checkpoints_in(const std::filesystem::path& output_dir) {
  std::vector<std::pair<std::uint64_t, std::filesystem::path>> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, ignored)) {
    const auto step = step_of(entry.path());
    if (step && std::filesystem::exists(entry.path() / kStateFile)) found.emplace_back(*step, entry.path());
  }
  std::ranges::sort(found);
  return found;
}

absl::Status fill_checkpoint(const std::filesystem::path& folder, const TrainerState& state,
                             const model::Architecture& model, offload::ParameterStore& store,
                             const std::filesystem::path& base_model) {
  RONDO_RETURN_IF_ERROR(write_result(model, store, base_model, folder));
  RONDO_RETURN_IF_ERROR(copy_tokenizer_files(base_model, folder));
  const std::vector<StoredArray> arrays = stored_arrays(model, store);
  std::vector<model::TensorToWrite> tensors;
  for (const StoredArray& array : arrays) {
    tensors.push_back({array.name, model::WeightType::kFloat32, {array.elements}});
  }
  RONDO_RETURN_IF_ERROR(
      model::write_safetensors(folder / kOptimizerFile, tensors, {}, [&](std::size_t i, std::span<std::byte> out) {
        const StoredArray& array = arrays[i];
        if (array.which != offload::StateArray::kMaster) return store.read_moment(array.parameter, array.which, out);
        return store.read(array.parameter, array.which, 0,
                          {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
      }));
  return write_file_atomically(folder / kStateFile, to_json(state).dump(2) + "\n");
}

}  // namespace

absl::Status write_checkpoint(const std::filesystem::path& output_dir, const TrainerState& state,
                              const model::Architecture& model, offload::ParameterStore& store,
                              const std::filesystem::path& base_model) {
  const std::filesystem::path place = output_dir / fmt::format("checkpoint-{}", state.global_step);
  const std::filesystem::path aside = output_dir / fmt::format(".checkpoint-{}.part", state.global_step);
  std::error_code error;
  std::filesystem::remove_all(aside, error);
  std::filesystem::create_directories(aside, error);
  if (error) return internal_error("{}: cannot be made: {}", aside.string(), error.message());
  absl::Status status = fill_checkpoint(aside, state, model, store, base_model);
  if (status.ok()) status = sync_path(aside);
  if (!status.ok()) {
    std::filesystem::remove_all(aside, error);
    return status;
  }
  std::filesystem::remove_all(place, error);
  std::filesystem::rename(aside, place, error);
  if (error) return internal_error("{}: cannot be renamed into place: {}", place.string(), error.message());
  return sync_path(output_dir);
}

absl::StatusOr<TrainerState> read_trainer_state(const std::filesystem::path& folder) {
  const std::string path = (folder / kStateFile).string();
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid_input("{}: not a JSON object", path);
  const auto own = json.find("rondo");
  if (own == json.end() || !own->is_object()) {
    return invalid_input("{}: key rondo is missing: not a checkpoint of this program", path);
  }
  const auto number = [&](const nlohmann::ordered_json& object, const char* key) -> absl::StatusOr<std::uint64_t> {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) {
      return invalid_input("{}: key {}: expected a number that is not negative", path, key);
    }
    return found->get<std::uint64_t>();
  };
  TrainerState state;
  RONDO_ASSIGN_OR_RETURN(state.global_step, number(json, "global_step"));
  RONDO_ASSIGN_OR_RETURN(state.max_steps, number(json, "max_steps"));
  RONDO_ASSIGN_OR_RETURN(state.updates, number(*own, "updates"));
  RONDO_ASSIGN_OR_RETURN(state.skipped_steps, number(*own, "skipped_steps"));
  RONDO_ASSIGN_OR_RETURN(state.samples, number(*own, "samples"));
  if (json.contains("epoch") && json["epoch"].is_number()) state.epoch = json["epoch"].get<double>();
  if (json.contains("log_history") && json["log_history"].is_array()) state.log_history = json["log_history"];
  if (own->contains("settings")) state.settings = (*own)["settings"];
  if (own->contains("numerics_class") && (*own)["numerics_class"].is_string()) {
    state.numerics_class = (*own)["numerics_class"].get<std::string>();
  }
  return state;
}

absl::StatusOr<TrainerState> read_checkpoint(const std::filesystem::path& folder, const model::Architecture& model,
                                             offload::ParameterStore& store) {
  RONDO_ASSIGN_OR_RETURN(TrainerState state, read_trainer_state(folder));
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, model::TensorFiles::open_file(folder / kOptimizerFile));
  for (const StoredArray& array : stored_arrays(model, store)) {
    const model::TensorView* tensor = files.find(array.name);
    if (tensor == nullptr) {
      return invalid_input("{}: tensor {} is missing: another method or model", (folder / kOptimizerFile).string(),
                           array.name);
    }
    if (tensor->elements() != array.elements || tensor->type != model::WeightType::kFloat32) {
      return invalid_input("{}: tensor {} has {} elements, expected {} in fp32", tensor->file, array.name,
                           tensor->elements(), array.elements);
    }
    if (array.which != offload::StateArray::kMaster) {
      RONDO_RETURN_IF_ERROR(store.write_moment(array.parameter, array.which, tensor->data));
      files.release(*tensor);
      continue;
    }
    RONDO_RETURN_IF_ERROR(for_pieces(*tensor, [&](std::uint64_t first, std::span<const float> values) {
      return store.write(array.parameter, array.which, first, values, state.updates);
    }));
    files.release(*tensor);
  }
  return state;
}

std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& output_dir) {
  const auto found = checkpoints_in(output_dir);
  if (found.empty()) return std::nullopt;
  return found.back().second;
}

absl::Status prune_checkpoints(const std::filesystem::path& output_dir, std::uint64_t limit) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".checkpoint-") && name.ends_with(".part")) std::filesystem::remove_all(entry.path(), error);
  }
  const auto found = checkpoints_in(output_dir);
  for (std::size_t i = 0; limit > 0 && i + limit < found.size(); ++i) {
    std::filesystem::remove_all(found[i].second, error);
    if (error) return internal_error("{}: cannot be removed: {}", found[i].second.string(), error.message());
  }
  return absl::OkStatus();
}

}  // namespace rondo::train
