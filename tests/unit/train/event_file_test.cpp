// TensorBoard's files: bytes that its own writer makes of the same events, and a file read back by a reader of its own.
#include "rondo/train/event_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "files.h"
#include "rondo/base/file.h"
#include "tensorboard.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

TEST(Crc32c, CheckValue_IsThePublishedOne) { EXPECT_EQ(crc32c("123456789"), 0xE3069283U); }

// Made by tensorboard 2.21 (RecordWriter over Event protos of wall_time 1.5, step 300).
TEST(EventBytes, Scalars_AreThoseOfTensorboardsOwnWriter) {
  EXPECT_EQ(
      hex(frame_record(encode_scalars(1.5, 300, {{"train/loss", 2.5}, {"eval/loss", -0.125}}))),
      "33000000000000000ca7205609000000000000f83f10ac022a250a110a0a747261696e2f6c6f737315000020400a100a096576616c2f6c"
      "6f737315000000bedad2c7c8");
}

TEST(EventBytes, VersionAndSessionStart_AreThoseOfTensorboardsOwnWriter) {
  EXPECT_EQ(hex(frame_record(encode_version(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hex(frame_record(encode_session_start(1.5, 300))),
            "100000000000000095fbfe1809000000000000f83f10ac023a020801713b788a");
}

/// CRC-32C bit by bit, as the polynomial is defined.
std::uint32_t slow_crc(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc & 1U) != 0 ? (crc >> 1U) ^ 0x82F63B78U : crc >> 1U;
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U;
}

/// A reader of protobuf messages: field number to values, in order.
struct Message {
  explicit Message(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::uint64_t key = varint(bytes, at);
      std::string value;
      switch (key & 7U) {
        case 0:
          value = std::to_string(varint(bytes, at));
          break;
        case 1:
          value = bytes.substr(at, 8);
          at += 8;
          break;
        case 5:
          value = bytes.substr(at, 4);
          at += 4;
          break;
        default: {
          const std::uint64_t size = varint(bytes, at);
          value = bytes.substr(at, size);
          at += size;
        }
      }
      fields[static_cast<int>(key >> 3U)].push_back(value);
    }
  }
  static std::uint64_t varint(const std::string& bytes, std::size_t& at) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string field(int number) const { return fields.contains(number) ? fields.at(number).front() : ""; }
  std::map<int, std::vector<std::string>> fields;
};

template <typename Number>
Number number_of(const std::string& bytes) {
  Number number = 0;
  if (bytes.size() == sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

/// The records of a file; every checksum is looked at.
std::vector<Message> read_events(const fs::path& path) {
  std::vector<Message> events;
  const std::string file = *read_file(path);
  for (std::size_t at = 0; at + 12 <= file.size();) {
    const auto size = number_of<std::uint64_t>(file.substr(at, 8));
    EXPECT_EQ(number_of<std::uint32_t>(file.substr(at + 8, 4)), slow_crc(file.substr(at, 8)));
    const std::string data = file.substr(at + 12, size);
    EXPECT_EQ(number_of<std::uint32_t>(file.substr(at + 12 + size, 4)), slow_crc(data));
    events.emplace_back(data);
    at += 16 + size;
    if (at > file.size()) ADD_FAILURE() << "a record is cut";
  }
  return events;
}

class Silent : public RunObserver {
 public:
  void on_start(const RunSummary&) override {}
  void on_step(const StepReport&) override {}
  void on_evaluation(const EvalReport&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_note(const std::string& text) override { notes.push_back(text); }
  void on_progress(std::string_view, std::uint64_t, std::uint64_t) override {}
  std::vector<std::string> notes;
};

TEST(Tensorboard, ResumedRun_IsWrittenStepByStepUnderTheTagsOfTransformers) {
  const fs::path folder = test::fresh_folder();
  Config config;
  config.output_dir = folder.string();
  config.report_to = "tensorboard";
  Silent silent;
  {
    TensorboardReporter reporter(config, silent);
    RunSummary summary;
    summary.first_step = 40;
    reporter.on_start(summary);
    StepReport step;
    step.step = 41;
    step.loss = 0.1;
    step.learning_rate = 2e-4;
    step.grad_norm = 0.5;
    step.memory = {{"cpu:0", 1000}};
    reporter.on_step(step);
    EvalReport evaluation;
    evaluation.step = 41;
    evaluation.eval_loss = 3.5;
    reporter.on_evaluation(evaluation);
  }
  EXPECT_TRUE(silent.notes.empty());
  const fs::path file = fs::directory_iterator(folder / "runs")->path();
  EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents."));
  const std::vector<Message> events = read_events(file);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].field(3), "brain.Event:2");
  EXPECT_EQ(events[1].field(2), "41");
  EXPECT_EQ(Message(events[1].field(7)).field(1), "1");
  std::map<std::string, float> scalars;
  for (const std::size_t i : {2U, 3U}) {
    EXPECT_EQ(events[i].field(2), "41");
    EXPECT_GT(number_of<double>(events[i].field(1)), 1.7e9);
    const Message summary(events[i].field(5));
    for (const std::string& value : summary.fields.at(1)) {
      scalars[Message(value).field(1)] = number_of<float>(Message(value).field(2));
    }
  }
  EXPECT_EQ(scalars["train/loss"], 0.1F);
  EXPECT_EQ(scalars["train/learning_rate"], 2e-4F);
  EXPECT_EQ(scalars["memory/cpu:0"], 1000.0F);
  EXPECT_EQ(scalars["eval/loss"], 3.5F);
  EXPECT_TRUE(scalars.contains("train/grad_norm") && scalars.contains("train/epoch"));
  fs::remove_all(folder);
}

TEST(Tensorboard, FolderThatCannotBeMade_CostsANoteNotTheRun) {
  const fs::path folder = test::fresh_folder();
  test::put(folder / "file", "x");
  Config config;
  config.report_to = "tensorboard";
  config.logging_dir = (folder / "file" / "runs").string();
  Silent silent;
  TensorboardReporter reporter(config, silent);
  reporter.on_start({});
  reporter.on_step({});
  ASSERT_EQ(silent.notes.size(), 1U);
  EXPECT_THAT(silent.notes[0], testing::HasSubstr(config.logging_dir));
  fs::remove_all(folder);
}

TEST(Tensorboard, NotAskedFor_LeavesNothing) {
  const fs::path folder = test::fresh_folder();
  Config config;
  config.output_dir = folder.string();
  Silent silent;
  TensorboardReporter reporter(config, silent);
  reporter.on_start({});
  reporter.on_step({});
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace rondo::train
