// A checkpoint is whole or absent, comes back bit for bit, and what is wrong with one is told in a line.
#include "rondo/train/checkpoint.h"

#include <sys/inotify.h>
#include <unistd.h>

#include "files.h"
#include "rondo/base/file.h"
#include "rondo/schedule/shape.h"
#include "rondo/train/checkpoint_folders.h"
#include "tiny_model.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using devices::DType;
using test::entries_in;
using test::expect_refused;
using test::fresh_folder;
using test::put;

offload::ParameterStore store_of(const model::Architecture& model) {
  return *offload::ParameterStore::make(schedule::parameter_specs(model), model.method().dtype, false);
}

constexpr std::uint64_t kUpdates = 2;

/// Weights and moments from a seed.
offload::ParameterStore filled_store(const model::Architecture& model, std::uint64_t seed) {
  offload::ParameterStore store = store_of(model);
  tiny::fill_weights(model, seed, store);
  float next = static_cast<float>(seed);
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    if (!model.parameters()[id].trained) continue;
    for (float& value : store.first_moment(id)) value = next *= -0.999F;
    for (float& value : store.second_moment(id)) value = 1e-8F * static_cast<float>(++seed);
    store.publish_from_master(id, kUpdates);  // how a weight is rounded depends on the number of updates
  }
  return store;
}

TrainerState some_state(std::uint64_t step) {
  TrainerState state;
  state.global_step = step;
  state.course.now.updates = kUpdates;
  state.course.before.updates = kUpdates - 1;
  state.skipped_steps = step - kUpdates;
  state.epoch = 1.0 / 3;
  state.max_steps = 90;
  state.num_train_epochs = 2.5;
  state.samples = 17;
  state.log_history.push_back({.step = 1, .loss = 0.1});
  state.settings = {{"seed", 7}, {"dtype", "bf16"}};
  state.numerics_class = "cpu";
  return state;
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(base_);
    put(base_ / "tokenizer.json", "{\"a\": 1}");
  }
  void TearDown() override { fs::remove_all(folder_); }

  absl::Status write(std::uint64_t step, const model::Architecture& model, offload::ParameterStore& store) const {
    return write_checkpoint(out_, some_state(step), model, store, Documents(base_));
  }
  /// Writes checkpoint-3 and hands its folder out.
  fs::path written() {
    offload::ParameterStore store = filled_store(model_, 4);
    const absl::Status status = write(3, model_, store);
    EXPECT_TRUE(status.ok()) << status;
    return out_ / "checkpoint-3";
  }
  absl::Status read(const fs::path& checkpoint) {
    offload::ParameterStore store = store_of(model_);
    return read_checkpoint(checkpoint, model_, store).status();
  }

  const fs::path folder_ = fresh_folder();
  const fs::path base_ = folder_ / "base";
  const fs::path out_ = folder_ / "out";
  const model::Architecture model_ = *model::Architecture::make(tiny::small_config(), tiny::lora(DType::kBfloat16));
};

TEST_F(Checkpoint, EveryMethod_ComesBackBitForBit) {
  for (const model::MethodSpec& method : {tiny::full(DType::kBfloat16), tiny::full(DType::kFloat32),
                                          tiny::lora(DType::kBfloat16), tiny::lora(DType::kFloat32)}) {
    for (const bool tied : {false, true}) {
      const auto model = *model::Architecture::make(tiny::small_config(tied), method);
      offload::ParameterStore store = filled_store(model, 4);
      for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
        if (model.parameters()[id].trained) store.publish_from_master(id, some_state(3).course.now.updates);
      }
      fs::remove_all(out_);
      ASSERT_TRUE(write(3, model, store).ok());
      offload::ParameterStore other = filled_store(model, 5);
      // What is not trained comes from the base model.
      for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
        if (model.parameters()[id].trained) continue;
        const auto from = store.published(id);
        std::copy(from.host(), from.host() + from.size, other.published(id).host());
      }
      ASSERT_NE(tiny::bytes_of(model, store), tiny::bytes_of(model, other));
      const auto state = read_checkpoint(out_ / "checkpoint-3", model, other);
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_EQ(tiny::first_difference(model, store, tiny::bytes_of(model, store), tiny::bytes_of(model, other)), "");
    }
  }
}

TEST_F(Checkpoint, State_ComesBackAsItWas) {
  const auto state = read_trainer_state(written());
  ASSERT_TRUE(state.ok()) << state.status();
  const TrainerState before = some_state(3);
  EXPECT_EQ(state->global_step, before.global_step);
  EXPECT_EQ(state->course.now.updates, before.course.now.updates);
  EXPECT_EQ(state->skipped_steps, before.skipped_steps);
  EXPECT_EQ(state->epoch, before.epoch);
  EXPECT_EQ(state->max_steps, before.max_steps);
  EXPECT_EQ(state->samples, before.samples);
  EXPECT_TRUE(state->log_history == before.log_history);
  EXPECT_EQ(state->settings, before.settings);
  EXPECT_EQ(state->numerics_class, before.numerics_class);
}

TEST_F(Checkpoint, Folder_HoldsTheResultAndTheTokenizer) {
  const fs::path checkpoint = written();
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors",
                           "trainer_state.json", "tokenizer.json"}) {
    EXPECT_TRUE(fs::exists(checkpoint / file)) << file;
  }
  EXPECT_EQ(entries_in(checkpoint), 5U);
  EXPECT_EQ(entries_in(out_), 1U);
}

TEST_F(Checkpoint, WriteThatFails_LeavesOnlyWhatWasThere) {
  const fs::path before = written();
  const std::string optimizer = *read_file(before / "optimizer.safetensors");
  fs::remove(base_ / "tokenizer.json");
  fs::create_directories(base_ / "tokenizer.json");  // is copied after the tensors, and cannot be
  offload::ParameterStore store = filled_store(model_, 9);
  for (const std::uint64_t step : {3U, 4U}) EXPECT_FALSE(write(step, model_, store).ok());
  EXPECT_EQ(entries_in(out_), 1U);
  EXPECT_EQ(*read_file(before / "optimizer.safetensors"), optimizer);
  EXPECT_TRUE(read(before).ok());
}

TEST_F(Checkpoint, SameStepAgain_ReplacesTheFolder) {
  put(written() / "left_over", "x");
  offload::ParameterStore store = filled_store(model_, 9);
  ASSERT_TRUE(write(3, model_, store).ok());
  EXPECT_EQ(entries_in(out_), 1U);
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-3" / "left_over"));
}

/// Names of what was removed from a folder since the watch began.
class Removals {
 public:
  explicit Removals(const fs::path& folder) : watch_(::inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(::inotify_add_watch(watch_, folder.c_str(), IN_DELETE), 0);
  }
  ~Removals() { ::close(watch_); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    alignas(inotify_event) char events[4096];
    const ssize_t size = ::read(watch_, events, sizeof(events));
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      names.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return names;
  }

 private:
  const int watch_;
};

TEST_F(Checkpoint, SameStepAgain_NeverLacksTheFolder) {
  written();
  offload::ParameterStore store = filled_store(model_, 9);
  const Removals removals(out_);
  ASSERT_TRUE(write(3, model_, store).ok());
  EXPECT_THAT(removals.names(), testing::Not(testing::Contains("checkpoint-3")));
}

TEST_F(Checkpoint, SameStepAgainByRenaming_ReplacesTheFolder) {
  const fs::path place = written();
  const fs::path aside = out_ / ".checkpoint-3.part";
  const auto put_again = [&](const char* note) {
    fs::create_directories(aside);
    put(aside / "trainer_state.json", note);
    const absl::Status status = put_in_place_by_renaming(aside, place);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(entries_in(out_), 1U);
    EXPECT_EQ(entries_in(place), 1U);
    EXPECT_EQ(*read_file(place / "trainer_state.json"), note);
  };
  put_again("second");
  fs::create_directories(out_ / ".checkpoint-3.old");  // of a removal that was interrupted
  put(out_ / ".checkpoint-3.old" / "optimizer.safetensors", "x");
  put_again("third");
  fs::remove(place / "trainer_state.json");  // likewise
  put(place / "optimizer.safetensors", "x");
  put_again("fourth");
  fs::remove_all(place);
  put_again("fifth");
  EXPECT_FALSE(put_in_place_by_renaming(aside, place).ok()) << "there is none";
  EXPECT_EQ(*read_file(place / "trainer_state.json"), "fifth");
}

TEST_F(Checkpoint, InterruptedAnywhere_IsTakenForWhatItHolds) {
  const fs::path place = written();
  const std::string state = *read_file(place / "trainer_state.json");
  const auto folder = [&](const char* name, const std::string& mark, bool whole) {
    fs::create_directories(out_ / name);
    put(out_ / name / "mark", mark);
    if (whole) put(out_ / name / "trainer_state.json", state);
  };
  // What is there of: part, old, checkpoint ('h': a half), and which of them then is the checkpoint.
  struct Case {
    const char* there;
    const char* left;
  };
  for (const Case& one : {Case{"p--", "part"}, Case{"-o-", "old"}, Case{"po-", "part"}, Case{"ho-", "old"},
                          Case{"p-c", "checkpoint"}, Case{"h-c", "checkpoint"}, Case{"-oc", "checkpoint"},
                          Case{"-hc", "checkpoint"}, Case{"p-h", "part"}, Case{"h--", ""}, Case{"-h-", ""}}) {
    for (const bool resumes : {true, false}) {
      SCOPED_TRACE(one.there);
      fs::remove_all(out_);
      const char* const names[] = {".checkpoint-3.part", ".checkpoint-3.old", "checkpoint-3"};
      const char* const marks[] = {"part", "old", "checkpoint"};
      for (std::size_t i = 0; i < 3; ++i) {
        if (one.there[i] != '-') folder(names[i], marks[i], one.there[i] != 'h');
      }
      if (resumes) {
        EXPECT_TRUE(recover_checkpoints(out_).ok());
        EXPECT_EQ(newest_checkpoint(out_).has_value(), *one.left != '\0');
      }
      EXPECT_TRUE(prune_checkpoints(out_, 1).ok());
      if (*one.left == '\0') {
        EXPECT_EQ(entries_in(out_), 0U);
        continue;
      }
      EXPECT_EQ(entries_in(out_), 1U);
      EXPECT_EQ(newest_checkpoint(out_), place);
      EXPECT_EQ(*read_file(place / "mark"), one.left);
    }
  }
}

TEST_F(Checkpoint, FileMissing_IsNamed) {
  for (const char* file : {"trainer_state.json", "optimizer.safetensors"}) {
    const fs::path checkpoint = written();
    fs::remove(checkpoint / file);
    expect_refused(read(checkpoint), {(checkpoint / file).string()});
  }
  expect_refused(read(folder_ / "nowhere"), {"nowhere"});
}

TEST_F(Checkpoint, StateCutAnywhere_IsRefusedByName) {
  const fs::path file = written() / "trainer_state.json";
  const std::string whole = *read_file(file);
  for (std::size_t size = 0; size < whole.find_last_of('}'); ++size) {
    put(file, whole.substr(0, size));
    expect_refused(read_trainer_state(file.parent_path()).status(), {file.string()});
  }
}

TEST_F(Checkpoint, OptimizerCutAnywhere_IsRefusedByName) {
  const fs::path file = written() / "optimizer.safetensors";
  const std::string whole = *read_file(file);
  ASSERT_GT(whole.size(), 4000U);
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 7) {
    put(file, whole.substr(0, size));
    expect_refused(read(file.parent_path()), {file.string()});
  }
  put(file, whole.substr(0, whole.size() - 1));
  expect_refused(read(file.parent_path()), {file.string()});
}

/// One bit of a number is all that a failing disk may change: no reader of the format would see it.
TEST_F(Checkpoint, ChangedNumber_IsRefusedByName) {
  const fs::path file = written() / "optimizer.safetensors";
  const std::string whole = *read_file(file);
  ASSERT_TRUE(read(file.parent_path()).ok());
  for (const std::size_t place : {whole.size() / 2, whole.size() - 1}) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 4);
    put(file, changed);
    expect_refused(read(file.parent_path()), {file.string(), "damaged"});
  }
  // Those of early versions say nothing of their contents.
  const fs::path state = file.parent_path() / "trainer_state.json";
  auto json = nlohmann::ordered_json::parse(*read_file(state), nullptr, false);
  json["stateful_callbacks"]["Rondo"]["attributes"].erase("contents");
  put(state, json.dump());
  EXPECT_TRUE(read(file.parent_path()).ok());
}

TEST_F(Checkpoint, StateOfAnotherProgram_IsRefusedAsSuch) {
  const fs::path checkpoint = written();
  put(checkpoint / "trainer_state.json", R"({"epoch": 1.0, "global_step": 3, "log_history": [], "max_steps": 6})");
  expect_refused(read(checkpoint), {"trainer_state.json", "Rondo", "not a checkpoint of this program"});
  put(checkpoint / "trainer_state.json", "[1, 2]");
  expect_refused(read(checkpoint), {"trainer_state.json", "not a JSON object"});
}

TEST_F(Checkpoint, WrongValueInTheState_NamesItsKey) {
  const fs::path file = written() / "trainer_state.json";
  const auto whole = nlohmann::ordered_json::parse(*read_file(file), nullptr, false);
  for (const char* key : {"global_step", "max_steps", "updates", "skipped_steps", "samples"}) {
    for (const nlohmann::ordered_json& wrong : {nlohmann::ordered_json(-1), nlohmann::ordered_json(1.5),
                                                nlohmann::ordered_json("3"), nlohmann::ordered_json(nullptr)}) {
      nlohmann::ordered_json changed = whole;
      (changed.contains(key) ? changed : changed["stateful_callbacks"]["Rondo"]["attributes"])[key] = wrong;
      put(file, changed.dump());
      expect_refused(read(file.parent_path()), {file.string(), key});
    }
  }
}

TEST_F(Checkpoint, OfAnotherModelOrMethod_NamesTheTensor) {
  const fs::path checkpoint = written();
  const auto refused = [&](const model::ModelConfig& config, const model::MethodSpec& method,
                           const std::vector<std::string>& parts) {
    const auto model = *model::Architecture::make(config, method);
    offload::ParameterStore store = store_of(model);
    expect_refused(read_checkpoint(checkpoint, model, store).status(), parts);
  };
  refused(tiny::small_config(), tiny::full(DType::kBfloat16),
          {"optimizer.safetensors", "model.embed_tokens.weight", "missing"});
  model::MethodSpec rank = tiny::lora(DType::kBfloat16);
  rank.lora->rank = 5;
  refused(tiny::small_config(), rank, {"optimizer.safetensors", "lora_A", "expected 120"});
  model::ModelConfig deeper = tiny::small_config();
  ++deeper.num_layers;
  deeper.sliding_window.push_back(0);
  refused(deeper, tiny::lora(DType::kBfloat16), {"layers.3", "missing"});
}

TEST_F(Checkpoint, Newest_IsByNumberAndNeedsItsState) {
  EXPECT_FALSE(newest_checkpoint(out_).has_value());
  offload::ParameterStore store = filled_store(model_, 4);
  for (const std::uint64_t step : {9U, 10U, 2U}) ASSERT_TRUE(write(step, model_, store).ok());
  EXPECT_EQ(newest_checkpoint(out_), out_ / "checkpoint-10");
  for (const char* name : {"checkpoint-11", "checkpoint-", "checkpoint-12x", "checkpoint-99999999999999999999",
                           ".checkpoint-13.part", "other-14"}) {
    fs::create_directories(out_ / name);
    if (std::string(name) != "checkpoint-11") put(out_ / name / "trainer_state.json", "{}");
  }
  EXPECT_EQ(newest_checkpoint(out_), out_ / "checkpoint-10");
}

TEST_F(Checkpoint, Prune_KeepsTheNewestAndRemovesWhatWasInterrupted) {
  offload::ParameterStore store = filled_store(model_, 4);
  for (const std::uint64_t step : {9U, 10U, 2U}) ASSERT_TRUE(write(step, model_, store).ok());
  fs::create_directories(out_ / ".checkpoint-11.part");
  put(out_ / "notes.txt", "mine");
  ASSERT_TRUE(prune_checkpoints(out_, 0).ok());
  EXPECT_EQ(entries_in(out_), 4U);
  EXPECT_FALSE(fs::exists(out_ / ".checkpoint-11.part"));
  ASSERT_TRUE(prune_checkpoints(out_, 2).ok());
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-2"));
  EXPECT_TRUE(fs::exists(out_ / "checkpoint-9") && fs::exists(out_ / "checkpoint-10"));
  EXPECT_TRUE(fs::exists(out_ / "notes.txt"));
}

TEST_F(Checkpoint, Prune_TellsWhatCannotBeRemovedAndRemovesTheRest) {
  offload::ParameterStore store = filled_store(model_, 4);
  for (const std::uint64_t step : {2U, 4U, 6U}) ASSERT_TRUE(write(step, model_, store).ok());
  absl::Status status;
  {
    const test::Unremovable stays(out_ / "checkpoint-2");
    status = prune_checkpoints(out_, 1);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("checkpoint-2"));
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-2" / "trainer_state.json")) << "what is left of it passes for a whole one";
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-4"));
  EXPECT_EQ(newest_checkpoint(out_), out_ / "checkpoint-6");
  EXPECT_TRUE(prune_checkpoints(out_, 0).ok());
  EXPECT_EQ(entries_in(out_), 1U) << "what was removed in part is not removed later";
}

/// As a removal that was interrupted leaves it: whole still, and no checkpoint any more.
TEST_F(Checkpoint, OneThatIsBeingRemoved_StaysAway) {
  written();
  offload::ParameterStore store = filled_store(model_, 4);
  ASSERT_TRUE(write(5, model_, store).ok());
  fs::rename(out_ / "checkpoint-5", out_ / ".checkpoint-5.gone");
  EXPECT_TRUE(recover_checkpoints(out_).ok());
  EXPECT_EQ(newest_checkpoint(out_), out_ / "checkpoint-3");
  EXPECT_TRUE(prune_checkpoints(out_, 0).ok());
  EXPECT_EQ(entries_in(out_), 1U);
}

/// A run that goes on from an older checkpoint leaves newer ones of smaller steps than those that were there.
TEST_F(Checkpoint, OfALaterBranch_IsNewerThanLargerStepsBefore) {
  offload::ParameterStore store = filled_store(model_, 4);
  for (const std::uint64_t step : {4U, 6U, 8U}) ASSERT_TRUE(write(step, model_, store).ok());
  EXPECT_EQ(branch_of_run(out_, out_ / "checkpoint-8"), 0U);
  EXPECT_EQ(branch_of_run(out_, out_ / "checkpoint-4"), 1U);
  EXPECT_EQ(branch_of_run(out_, {}), 1U);
  EXPECT_EQ(branch_of_run(folder_ / "nowhere", out_ / "checkpoint-4"), 0U);
  put(out_ / "checkpoint-4" / "branch", "2");
  EXPECT_EQ(newest_checkpoint(out_), out_ / "checkpoint-4");
  EXPECT_TRUE(is_newest(out_, out_ / "checkpoint-4"));
  EXPECT_EQ(branch_of_run(out_, out_ / "checkpoint-8"), 3U);
  EXPECT_EQ(checkpoint_before(out_, out_ / "checkpoint-4"), std::nullopt) << "no other has fewer steps";
  EXPECT_EQ(checkpoint_before(out_, out_ / "checkpoint-8"), out_ / "checkpoint-4");
  ASSERT_TRUE(prune_checkpoints(out_, 2).ok());
  EXPECT_TRUE(fs::exists(out_ / "checkpoint-4") && fs::exists(out_ / "checkpoint-8"));
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-6"));
}

TEST_F(Checkpoint, StateThatCannotBeLookedAt_IsNone) {
  fs::create_directories(out_ / "checkpoint-7");
  fs::create_symlink("trainer_state.json", out_ / "checkpoint-7" / "trainer_state.json");  // of itself
  written();
  EXPECT_EQ(newest_checkpoint(out_), out_ / "checkpoint-3");
  EXPECT_TRUE(prune_checkpoints(out_, 1).ok());
}

TEST_F(Checkpoint, Prune_KeepsTheBestBesideTheNewest) {
  offload::ParameterStore store = filled_store(model_, 4);
  const auto left = [&](std::uint64_t limit, std::uint64_t best) {
    for (const std::uint64_t step : {2U, 4U, 6U, 8U}) EXPECT_TRUE(write(step, model_, store).ok());
    EXPECT_TRUE(prune_checkpoints(out_, limit, best).ok());
    std::vector<std::uint64_t> steps;
    for (const std::uint64_t step : {2U, 4U, 6U, 8U}) {
      if (fs::exists(out_ / ("checkpoint-" + std::to_string(step)))) steps.push_back(step);
    }
    return steps;
  };
  using Steps = std::vector<std::uint64_t>;
  EXPECT_EQ(left(3, 2), (Steps{2, 6, 8}));
  EXPECT_EQ(left(2, 2), (Steps{2, 8}));
  EXPECT_EQ(left(1, 4), (Steps{4, 8}));  // both are needed
  EXPECT_EQ(left(1, 8), (Steps{8}));
  EXPECT_EQ(left(2, 5), (Steps{6, 8}));  // a best that was not saved
  EXPECT_EQ(left(9, 2), (Steps{2, 4, 6, 8}));
}

}  // namespace
}  // namespace rondo::train
