// What training, evaluation, generation and planning have in common: the model opened and checked, the pool, the plan,
// weights in the host's stores.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/data/chat_template.h"
#include "rondo/data/samples.h"
#include "rondo/data/tokenizer.h"
#include "rondo/devices/pool.h"
#include "rondo/model/architecture.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"
#include "rondo/offload/optimizer_state.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/partition/plan.h"
#include "rondo/schedule/executor.h"
#include "rondo/train/config.h"
#include "rondo/train/loader.h"
#include "rondo/train/model_place.h"
#include "rondo/train/progress.h"

namespace rondo::train {

/// A model's files that turn conversations into tokens.
struct TextParts {
  data::Tokenizer tokenizer;
  std::optional<data::ChatTemplate> chat_template;
  data::Renderer renderer() const { return {&tokenizer, chat_template ? &*chat_template : nullptr}; }
};
absl::StatusOr<TextParts> open_text(const Documents& documents);

/// The run's data as the keys say: training set and evaluation set (empty when there is none).
struct RunData {
  data::Dataset train;
  data::Dataset evaluation;
};
/// `documents`: what `text` was made from.
absl::StatusOr<RunData> load_data(const Config& config, const Documents& documents, const TextParts& text);

/// The optimizer that the keys name.
offload::OptimizerSettings optimizer_of(const Config& config);
/// How the run's steps go through its training data.
LoaderOptions loader_options(const Config& config);
/// The same for evaluation: in file order.
LoaderOptions evaluation_options(const Config& config);

/// What a plan is for.
enum class Purpose : std::uint8_t { kTrain, kEvaluate };

/// The model and its files, no weights read yet. With `need_weights` the files are opened and every tensor is checked;
/// without, a model of known_models() need not be there (`folder` is empty then).
struct OpenModel {
  std::filesystem::path folder;  // or the GGUF file
  Documents documents;
  std::optional<model::TensorFiles> files;
  std::optional<model::TensorFiles> adapter_files;
  std::optional<model::Architecture> architecture;
};
absl::StatusOr<OpenModel> open_model(const Config& config, Purpose purpose, bool need_weights);

/// Pool, shapes and plan.
struct Machine {
  std::unique_ptr<devices::ThreadPool> threads;
  std::vector<devices::PoolMember> pool;
  devices::HostProfile host;
  partition::MachineShape shape;
  std::filesystem::path disk_folder;  // empty: nothing goes to disk
  bool phantom = false;               // a pool that does no arithmetic
  bool verifies = false;
  Bytes opened_drivers = 0;  // main memory that drivers took when the pool was opened
  std::string numerics_class;

  /// What member `i` can do, for the executor and for the plan.
  void set_profile(std::size_t i, devices::DeviceProfile profile);
};
absl::StatusOr<Machine> open_machine(const Config& config);

struct PlannedRun {
  partition::ModelShape shape;
  partition::Workload work;
  partition::PlanRequest request;
  partition::Plan plan;
  std::vector<std::uint32_t> buckets;
  offload::OptimizerSettings optimizer;
  std::vector<std::string> advice;  // the plan's about keys: what other values would gain
};
/// Measures the disk of nvme_path and keeps its speed in `machine`, unless there is none or its speed is known. `most`:
/// what lies there for it. Errors: those of measure_disk().
absl::Status find_disk_speed(const Config& config, Machine& machine, Bytes most = ~Bytes{0});
/// `lengths`: of the run's microbatches. `dealt`: what is repeated (repeat_plan()) instead of looking for a plan; null:
/// nothing. A plan with something on a disk whose speed is not known is made once more with that, which is measured and
/// kept in `machine`. Errors: InvalidArgument / ResourceExhausted as make_plan and repeat_plan say, and those of
/// measure_disk().
absl::StatusOr<PlannedRun> plan_run(const Config& config, const model::Architecture& model, Machine& machine,
                                    const Loader::Lengths& lengths, Purpose purpose,
                                    const partition::Plan* dealt = nullptr);
/// The same with what is known: nothing is measured. Threads: any.
absl::StatusOr<PlannedRun> plan_on_known(const Config& config, const model::Architecture& model, const Machine& machine,
                                         const Loader::Lengths& lengths, Purpose purpose,
                                         const partition::Plan* dealt = nullptr);
/// Errors: InvalidArgument when there are more than a run may have.
absl::StatusOr<std::uint64_t> steps_of_run(const Config& config, Loader& loader);
/// None when nothing is evaluated. `data` outlives it.
std::optional<Loader> evaluation_loader(const Config& config, const RunData& data);
/// Of the microbatches of all steps and of the evaluations.
Loader::Lengths lengths_of_run(Loader& loader, std::uint64_t steps, std::optional<Loader>& evaluation);
/// Without data: every sequence counts as cutoff_len tokens, all targets.
Loader::Lengths assumed_lengths(const Config& config);
/// The same as samples, enough for one step. Token r comes as often as words do by Zipf's law, in proportion to
/// 1 / (r + 1): some again and again, most hardly ever, as in texts.
data::Dataset assumed_data(const Config& config, std::uint32_t vocabulary);

/// The plan's entry of host memory for it: by how much it takes more before the first step than any step.
inline constexpr const char* kChoosingCodes = "choosing codes";
/// And what checkpoints are written through.
inline constexpr const char* kWriting = "writing";

/// Whether a training run chooses the codes of its frozen base for its data.
bool chooses_codes(const Config& config);

/// The store, filled from the files (or phantom). `plan`: what of it lies on disk. `samples`: for which the codes of a
/// frozen base are chosen; none: each is the nearest one.
absl::StatusOr<offload::ParameterStore> open_store(const Config& config, const OpenModel& model, const Machine& machine,
                                                   const partition::Plan& plan = {},
                                                   const std::vector<schedule::Microbatch>& samples = {},
                                                   const Progress& progress = {});

/// The parts of an executor that follow from these, all of which outlive it. Traces are for the caller to add.
schedule::ExecutorParts executor_parts(const OpenModel& model, const Machine& machine, const PlannedRun& run,
                                       offload::ParameterStore& store);

}  // namespace rondo::train
