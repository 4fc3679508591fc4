// Boundary activations on disk, from the outside: a host_memory_limit that nothing else can meet.
#include <gmock/gmock.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "patience.h"
#include "shell.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// Eight blocks on a device that holds few of them at a time, 64 microbatches of 512 tokens that all belong to one
/// reduction group: 66 MiB of boundaries. Two threads, whose scratch has room in 18 MiB as that of many has not.
Words on_small_device(const Words& more) {
  Words words = {"--model_name_or_path=deep",   "--dataset=long.jsonl",   "--devices=cpu",
                 "--memory_limit=cpu:0=800KiB", "--cutoff_len=512",       "--gradient_accumulation_steps=64",
                 "--reduction_group=64",        "--finetuning_type=lora", "--threads=2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void make_model_and_data(const Workspace& workspace) {
  const Outcome made = workspace.run({"init", "--arch=llama", "--output_dir=deep", "--dtype=fp32", "--seed=7",
                                      "--num_hidden_layers=8", "--hidden_size=32"});
  ASSERT_EQ(made.status, 0) << made.err;
  std::string lines;
  for (int i = 0; i < 64; ++i) {
    std::string text = std::to_string(i);
    while (text.size() < 700) text += " the river runs down to the sea";
    lines += Json::object({{"text", text}}).dump() + "\n";
  }
  workspace.write("long.jsonl", lines);
}

TEST(BoundariesOnDisk, LimitThatNothingElseMeets_IsKept_WithTheSameResult) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's, and 18 MiB do not hold it";
  const Workspace workspace;
  ASSERT_NO_FATAL_FAILURE(make_model_and_data(workspace));
  const auto run = [&](const std::string& out, const Words& more) {
    Words words = on_small_device(more);
    words.insert(words.begin(), "train");
    for (const char* word : {"--max_steps=2", "--save_steps=0", "--lr=1e-2"}) words.emplace_back(word);
    words.push_back("--output_dir=" + out);
    return workspace.run(words);
  };
  constexpr double kLimit = 18.0 * 1048576;
  const Words limit = {"--host_memory_limit=18MiB", "--nvme_path=disk"};
  const Outcome refused = run("refused", {"--host_memory_limit=18MiB"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("error: host memory: the plan needs"), HasSubstr("nvme_path")));

  Words planning = on_small_device(limit);
  planning.insert(planning.begin(), "plan");
  planning.emplace_back("--json");
  const Json plan = json_of(workspace.run(planning));
  EXPECT_LE(plan.value("host_peak_bytes", 1e12), kLimit);
  EXPECT_GT(plan["disk_memory"].value("boundaries", 0.0), 1.5 * plan["host_memory"].value("boundaries", 1e12));
  EXPECT_EQ(plan["disk_memory"]["boundaries"], plan["disk_bytes"]);
  EXPECT_GT(plan.value("disk_bytes_written_per_step", 0.0), 1e6);

  const Outcome in_memory = run("in_memory", {});
  ASSERT_EQ(in_memory.status, 0) << in_memory.err;
  const Outcome on_disk = run("on_disk", limit);
  ASSERT_EQ(on_disk.status, 0) << on_disk.err;
  const std::size_t table = on_disk.err.find("memory\n");
  ASSERT_NE(table, std::string::npos);
  EXPECT_THAT(on_disk.err.substr(table, 2000), HasSubstr("\n  disk "));
  const auto most = [&](const std::string& out) {
    double bytes = 0;
    for (const Json& line : metrics_of(workspace, out)) bytes = std::max(bytes, line["memory"].value("host", 1e12));
    return bytes;
  };
  EXPECT_LE(most("on_disk"), kLimit);
  // Libraries take less than is reckoned with, how much less differs from processor to processor. What may be taken
  // beyond the first limit is for boundaries alone.
  constexpr double kMore = 6.0 * 1048576;
  const Outcome wider = run("wider", {"--host_memory_limit=24MiB", "--nvme_path=disk"});
  ASSERT_EQ(wider.status, 0) << wider.err;
  EXPECT_LE(most("wider"), kLimit + kMore);
  EXPECT_GT(most("wider") - most("on_disk"), 0.85 * kMore) << "memory that was promised lies idle";
  for (const Json& line : metrics_of(workspace, "in_memory")) EXPECT_GT(line["memory"].value("host", 0.0), kLimit);
  EXPECT_TRUE(workspace.read("on_disk/adapter_model.safetensors") ==
              workspace.read("in_memory/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(workspace.path("disk")));
}

/// No process cleans up behind this signal: what a run has on disk must have no name there.
TEST(BoundariesOnDisk, RunThatIsKilled_LeavesNothingThere) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's, and 18 MiB do not hold it";
  const Workspace workspace;
  ASSERT_NO_FATAL_FAILURE(make_model_and_data(workspace));
  fs::create_directory(workspace.path("disk"));
  Words words = on_small_device(
      {"--host_memory_limit=18MiB", "--nvme_path=disk", "--max_steps=1000", "--save_steps=0", "--output_dir=killed"});
  words.insert(words.begin(), "train");
  Process process(words, workspace.path().string());
  ASSERT_TRUE(process.says("step 1/"));
  process.send(SIGKILL);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("step 1/"), HasSubstr("\n  disk ")));
  EXPECT_TRUE(fs::is_empty(workspace.path("disk")));
}

/// `disk_bytes` is the most that lies there at once, and no run that fits into memory has anything there: not the file
/// that a disk's speed is measured with either. One of more than half a MiB could not be made here.
TEST(BoundariesOnDisk, PlanThatNeedsNone_WritesNoneToMeasureIt) {
  const Workspace workspace;
  const test::Shown shown = test::shell("cd " + workspace.path().string() +
                                        " && ulimit -f 1024 && " RONDO_PROGRAM
                                        " plan --model=model --devices=cpu --cutoff_len=64 --nvme_path=disk --json");
  ASSERT_EQ(shown.status, 0) << shown.output;
  EXPECT_THAT(shown.output, HasSubstr("\"disk_bytes\":0,"));
  EXPECT_FALSE(fs::exists(workspace.path("disk")));
}

/// The scheduler runs at full scale on a pool that does no arithmetic: the disk takes its time there, and no space.
TEST(BoundariesOnDisk, TimedPool_RunsAsPlanned_WithoutAFile) {
  const Workspace workspace;
  workspace.write("machine.yaml",
                  "tight: {memory_bytes: 16.68e9, memory_bandwidth: 1e12, optimizer_parameters_per_second: 1e12, "
                  "disk_bandwidth: 2e9}\n"
                  "roomy: {memory_bytes: 64e9, memory_bandwidth: 1e12, optimizer_parameters_per_second: 1e12, "
                  "disk_bandwidth: 2e9}\n");
  const auto profile_on = [&](const std::string& host) {
    return json_of(workspace.run({"profile", "--model_name_or_path=Qwen/Qwen3-8B", "--devices=timed:rtx4090*2",
                                  "--finetuning_type=lora", "--cutoff_len=512", "--gradient_accumulation_steps=32",
                                  "--reduction_group=32", "--nvme_path=disk", "--host=machine.yaml#" + host,
                                  "--steps=2", "--json"}));
  };
  Json profile = profile_on("tight");
  const Json predicted = profile["predicted"];
  EXPECT_GT(predicted["disk_memory"].value("boundaries", 0.0), 3e8);
  EXPECT_LE(predicted.value("host_peak_bytes", 1e12), 16.68e9);
  EXPECT_GT(predicted.value("disk_bytes_read_per_step", 0.0), 3e8);
  const double seconds = predicted.value("step_seconds", 0.0);
  const auto measured = [](const Json& of) { return of["measured"].value("step_seconds", 0.0); };
  EXPECT_GT(measured(profile), 0.7 * seconds);
  // Busy processors wake the workers late, where nothing lies on disk as well: the disk must not add to that.
  double allowed = 1.3 * seconds;
  for (int tries = 1; tries < 4 && measured(profile) > allowed; ++tries) {
    const Json in_memory = profile_on("roomy");
    EXPECT_EQ(in_memory["predicted"].value("disk_bytes", 1.0), 0.0);
    allowed = std::max(allowed, 1.3 * measured(in_memory));
    profile = profile_on("tight");
  }
  EXPECT_LT(measured(profile), allowed);
  EXPECT_FALSE(fs::exists(workspace.path("disk")));
}

}  // namespace
}  // namespace rondo::cli
