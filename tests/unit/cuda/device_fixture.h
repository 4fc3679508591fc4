// A device over the fake driver, with buffers on it, and small programs to run there.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "fake_card.h"
#include "fake_driver.h"
#include "patience.h"

namespace rondo::devices::cuda::testing {

constexpr std::int64_t kTokens = 32;
constexpr std::int64_t kWidth = 40;

/// One step.
inline OpList addition() {
  OpList list;
  list.tokens = kTokens;
  const Shape shape{kTokens, kWidth};
  list.tensors = {{"a", shape, DType::kFloat32, TensorRole::kInput, 0},
                  {"b", shape, DType::kFloat32, TensorRole::kInput, 1},
                  {"c", shape, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kAdd, NoAttributes{}, {0, 1}, {2}}};
  return list;
}

/// x = rows of a table of seven.
inline OpList look_up() {
  OpList list;
  list.tokens = kTokens;
  list.tensors = {{"ids", {kTokens}, DType::kInt32, TensorRole::kBatch, 0},
                  {"table", {7, kWidth}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"x", {kTokens, kWidth}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kEmbedding, EmbeddingAttributes{}, {0, 1}, {2}}};
  return list;
}

/// Two gradients to which every run adds kTokens times what dy holds: runs can be counted, and steps that were sent
/// twice or not at all are seen.
inline constexpr int kTallySteps = 4;
inline OpList tallies() {
  OpList list;
  list.tokens = kTokens;
  list.tensors = {{"dy", {kTokens, kWidth}, DType::kFloat32, TensorRole::kInput, 0},
                  {"first", {kWidth}, DType::kFloat32, TensorRole::kGradient, 0},
                  {"second", {kWidth}, DType::kFloat32, TensorRole::kGradient, 1}};
  list.ops = {{OpKind::kBiasGradient, NoAttributes{}, {0}, {1}}, {OpKind::kBiasGradient, NoAttributes{}, {0}, {2}}};
  return list;
}

class CudaDevice : public ::testing::Test {
 protected:
  void TearDown() override {
    bound_.clear();
    device_.reset();
    lines_.clear();
    EXPECT_EQ(things_left(), 0);
  }

  void open(const FakeScript& script = {}, const CardSetup& setup = {}) {
    reset_fake(script);
    auto opened = open_fake({}, setup);
    ASSERT_EQ(opened.status(), absl::OkStatus());
    device_ = *std::move(opened);
  }
  std::unique_ptr<Program> compile(const OpList& list) {
    auto program = device_->compile(list, plan_arena(list));
    EXPECT_EQ(program.status(), absl::OkStatus());
    return program.ok() ? *std::move(program) : nullptr;
  }
  Bindings bind(const OpList& list) {
    Bindings bindings;
    for (const TensorDesc& tensor : list.tensors) {
      auto buffer = device_->allocate(tensor.bytes(), MemoryKind::kDevice);
      EXPECT_EQ(buffer.status(), absl::OkStatus());
      bindings.tensors.push_back(buffer->view());
      bound_.push_back(*std::move(buffer));
    }
    return bindings;
  }
  /// Copies and waits.
  void put(const BufferView& to, const void* from) {
    Buffer host = *allocate_host(to.size, "test");
    std::memcpy(host.view().host(), from, to.size);
    const auto line = timeline();
    up().copy(host.view().part(0, to.size), to, {}, {line.get(), 1}, {"put"});
    EXPECT_EQ(line->wait(1, test::patience()), absl::OkStatus());
  }
  std::vector<float> get(const BufferView& from) {
    Buffer host = *allocate_host(from.size, "test");
    const auto line = timeline();
    device_->queue(QueueRole::kDown).copy(from, host.view().part(0, from.size), {}, {line.get(), 1}, {"get"});
    EXPECT_EQ(line->wait(1, test::patience()), absl::OkStatus());
    const auto* values = reinterpret_cast<const float*>(host.view().host());
    return {values, values + from.size / sizeof(float)};
  }
  /// dy = 1 and no gradients yet.
  Bindings bind_tallies() {
    Bindings bindings = bind(tallies());
    put(bindings.tensors[0], std::vector<float>(kTokens * kWidth, 1.0F).data());
    put(bindings.tensors[1], std::vector<float>(kWidth, 0.0F).data());
    put(bindings.tensors[2], std::vector<float>(kWidth, 0.0F).data());
    return bindings;
  }
  void expect_runs(const Bindings& bindings, int runs) {
    const std::vector<float> expected(kWidth, static_cast<float>(runs * kTokens));
    EXPECT_EQ(get(bindings.tensors[1]), expected);
    EXPECT_EQ(get(bindings.tensors[2]), expected);
  }
  /// Runs by itself and waits.
  absl::Status run(const Program& program, const Bindings& bindings) {
    lines_.push_back(timeline());
    compute().run(program, bindings, {}, {lines_.back().get(), 1}, {"layer 3"});
    return lines_.back()->wait(1, test::patience());
  }

  std::unique_ptr<Timeline> timeline() { return *device_->timeline(); }
  Queue& compute() { return device_->queue(QueueRole::kCompute); }
  Queue& up() { return device_->queue(QueueRole::kUp); }

  std::unique_ptr<Device> device_;
  std::vector<Buffer> bound_;
  std::vector<std::unique_ptr<Timeline>> lines_;  // a queue may still be at them when their waits are over
};

}  // namespace rondo::devices::cuda::testing
