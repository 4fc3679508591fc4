// The timeline that Perfetto opens: what is written for a few spans.
#include "rondo/schedule/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files.h"

namespace rondo::schedule {
namespace {

using devices::QueueRole;

class TraceFile : public testing::Test {
 protected:
  /// Work of slot 3 in step 1, in milliseconds.
  void add(QueueRole role, const char* name, std::uint32_t microbatch, int begin, int end) {
    const auto at = [this](int time) { return start_ + std::chrono::milliseconds(time); };
    trace_.on_work(role, {name, 1, 3, microbatch}, at(begin), at(end));
  }

  nlohmann::json events() {
    const std::filesystem::path file = test::fresh_folder() / "trace.json";
    EXPECT_TRUE(write_trace(file, {&trace_}, plan_).ok());
    return nlohmann::json::parse(std::ifstream(file))["traceEvents"];
  }

  /// Phase, thread and time in milliseconds of the events of each flow.
  std::vector<std::string> flows() {
    std::vector<std::string> found;
    std::uint64_t last = 0;
    for (const auto& event : events()) {
      if (event.value("cat", "") != "flow") continue;
      if (event["id"] != last) found.push_back(event["name"].get<std::string>() + ":");
      last = event["id"];
      found.back() += " " + event["ph"].get<std::string>() + std::to_string(event["tid"].get<int>()) + "@" +
                      std::to_string(static_cast<int>(event["ts"].get<double>() / 1000));
    }
    return found;
  }

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  DeviceTrace trace_{"card", 64};
  partition::Plan plan_;
};

TEST_F(TraceFile, Microbatch_HasAFlowFromUploadToArithmeticToDownload) {
  add(QueueRole::kUp, "activations", 0, 0, 1);
  add(QueueRole::kCompute, "forward", 0, 2, 3);
  add(QueueRole::kCompute, "forward", 0, 3, 5);
  add(QueueRole::kDown, "activations", 0, 6, 7);
  EXPECT_EQ(flows(), std::vector<std::string>{"microbatch: s1@0 t0@2 t0@3 f2@6"});
}

TEST_F(TraceFile, LastUploadBeforeTheArithmetic_IsWhereTheFlowBegins) {
  add(QueueRole::kUp, "activations", 1, 0, 1);
  add(QueueRole::kUp, "activations", 1, 1, 4);
  add(QueueRole::kUp, "activations", 2, 2, 3);
  add(QueueRole::kCompute, "backward", 1, 4, 5);
  EXPECT_EQ(flows(), std::vector<std::string>{"microbatch: s1@1 f0@4"});
}

TEST_F(TraceFile, Weights_FlowToTheFirstArithmeticBehindThem) {
  add(QueueRole::kUp, "weights", 0, 0, 1);
  add(QueueRole::kUp, "weights", 0, 1, 3);
  add(QueueRole::kCompute, "clear", 0, 3, 4);
  add(QueueRole::kCompute, "forward", 0, 2, 4);  // had come with the first piece
  add(QueueRole::kCompute, "forward", 0, 4, 6);
  EXPECT_EQ(flows(), std::vector<std::string>{"weights: s1@1 f0@4"});
}

TEST_F(TraceFile, Microbatches_CountFromNoughtInTheSlot) {
  plan_.rounds = {{0, 4}, {4, 4}};
  plan_.slots.resize(4);
  plan_.slots[3].round = 1;
  add(QueueRole::kCompute, "clear", 0, 0, 1);
  add(QueueRole::kCompute, "forward", 4, 1, 2);
  add(QueueRole::kCompute, "forward", 7, 2, 3);
  std::vector<std::uint32_t> found;
  for (const auto& event : events()) {
    if (event["ph"] == "X") found.push_back(event["args"]["microbatch"]);
  }
  EXPECT_EQ(found, (std::vector<std::uint32_t>{0, 0, 3}));
}

TEST_F(TraceFile, ArithmeticOnHostMemory_HasNoFlow) {
  add(QueueRole::kCompute, "forward", 0, 0, 1);
  EXPECT_TRUE(flows().empty());
}

}  // namespace
}  // namespace rondo::schedule
