// Twenty updates of every optimizer against tests/data/optimizers, the codes of 8-bit moments, and the same bits
// whether the state lies in memory or on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "one_parameter.h"
#include "rondo/devices/moment_codes.h"

namespace rondo::offload {
namespace {

const nlohmann::json& golden() {
  static const auto* const value = [] {
    std::ifstream file(RONDO_TEST_DATA "/optimizers/optimizers.json");
    return new nlohmann::json(nlohmann::json::parse(file, nullptr, false));
  }();
  return *value;
}

/// As make_goldens.py has them.
float start(std::uint64_t i) { return (static_cast<float>((i * 29) % 101) - 50.0F) / 32.0F; }
std::vector<float> gradient(std::uint64_t n, std::uint64_t step) {
  std::vector<float> values(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const float number = static_cast<float>((i * 37 + (step * step + i % 7) * 101) % 127) - 63.0F;
    values[i] = number / 64.0F / static_cast<float>(1U << (i % 5));
  }
  return values;
}

OptimizerKind kind_of(const std::string& name) {
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "lion") return OptimizerKind::kLion;
  return name == "adamw" ? OptimizerKind::kAdamW : OptimizerKind::kAdamW8Bit;
}

OptimizerSettings settings_of(const nlohmann::json& one) {
  OptimizerSettings settings;
  settings.kind = kind_of(one["kind"].get<std::string>());
  settings.beta1 = one.value("beta1", 0.9);
  settings.beta2 = one.value("beta2", 0.999);
  settings.epsilon = one.value("epsilon", 1e-8);
  settings.momentum = one.value("momentum", 0.0);
  settings.weight_decay = one["weight_decay"].get<double>();
  return settings;
}

TEST(OptimizerGolden, TwentyUpdates_AreTheReferences) {
  std::size_t cases = 0;
  for (const nlohmann::json& one : golden()["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto n = one["elements"].get<std::uint64_t>();
    const auto stride = one["stride"].get<std::uint64_t>();
    OneParameter parameter(n, settings_of(one));
    for (std::uint64_t i = 0; i < n; ++i) parameter.store().master(0)[i] = start(i);
    for (std::uint64_t step = 1; step <= golden()["steps"].get<std::uint64_t>(); ++step) {
      parameter.step(gradient(n, step), one["rate"].get<double>());
    }
    const auto expected = one["weights"].get<std::vector<double>>();
    double difference = 0;
    double length = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double found = parameter.store().master(0)[i * stride];
      difference += (found - expected[i]) * (found - expected[i]);
      const double moved = expected[i] - static_cast<double>(start(i * stride));
      length += moved * moved;
    }
    // Twenty roundings of weights up to 1.6 beside updates of 1e-2; a code that falls on the other side of a middle
    // moves a weight of its own by a part of an update.
    EXPECT_LT(std::sqrt(difference / length), one["kind"] == "adamw_8bit" ? 1e-4 : 3e-6);
    ++cases;
  }
  EXPECT_EQ(cases, 5U);
}

TEST(MomentCodes, Values_AreThePublishedOnes) {
  const auto expect_same = [](std::span<const float, 256> found, const char* key) {
    const auto expected = golden()[key].get<std::vector<float>>();
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_FLOAT_EQ(found[i], expected[i]) << key << " " << i;
  };
  expect_same(devices::moment_values(true), "signed_codes");
  expect_same(devices::moment_values(false), "unsigned_codes");
}

TEST(MomentCodes, NearestCode_IsTakenOnTheNumbersSideOfZero) {
  for (const nlohmann::json& one : golden()["examples"]) {
    const auto values = one["values"].get<std::vector<float>>();
    const bool is_signed = one["signed"].get<bool>();
    std::vector<std::uint8_t> codes(values.size());
    EXPECT_EQ(devices::encode_moments(values, is_signed, codes), one["scale"].get<float>());
    EXPECT_THAT(codes, testing::ElementsAreArray(one["codes"].get<std::vector<std::uint8_t>>()));
  }
}

TEST(MomentCodes, EveryCode_IsThatOfItsValue) {
  for (const bool is_signed : {true, false}) {
    const auto table = devices::moment_values(is_signed);
    std::vector<std::uint8_t> codes(256);
    EXPECT_EQ(devices::encode_moments(table, is_signed, codes), 1.0F);
    for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(codes[i], i);
    std::vector<float> values(256);
    devices::decode_moments(codes, 2.0F, is_signed, values);
    for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(values[i], 2.0F * table[i]);
  }
}

TEST(MomentCodes, SecondMomentsOtherThanZero_NeverTakeItsCode) {
  const std::vector<float> values = {1.0F, 1e-8F, 1e-20F, 1e-30F, 0.0F};
  std::vector<std::uint8_t> codes(values.size());
  devices::encode_moments(values, false, codes);
  EXPECT_THAT(codes, testing::ElementsAre(255, 1, 1, 1, 0));
}

/// As in rows of an embedding: large gradients beside small ones, then none at all.
TEST(MomentCodes, SmallGradientsThatEnd_MoveNoWeightFar) {
  constexpr std::uint64_t kElements = 4096;
  constexpr double kRate = 1e-3;
  OptimizerSettings settings;
  settings.kind = OptimizerKind::kAdamW8Bit;
  settings.weight_decay = 0;
  OneParameter parameter(kElements, settings);
  std::vector<float> gradients(kElements, 1.0F);
  for (std::uint64_t i = 1; i < kElements; i += 2) gradients[i] = 2e-4F;
  for (std::uint64_t i = 0; i < kElements; ++i) parameter.store().master(0)[i] = 0.0F;
  parameter.step(gradients, kRate);
  for (std::uint64_t i = 1; i < kElements; i += 2) gradients[i] = 0.0F;
  for (int step = 0; step < 20; ++step) parameter.step(gradients, kRate);
  for (std::uint64_t i = 0; i < kElements; ++i) EXPECT_LT(std::abs(parameter.store().master(0)[i]), 22 * kRate) << i;
}

TEST(MomentCodes, ZerosAlone_StayZeros) {
  const std::vector<float> zeros(100, 0.0F);
  std::vector<std::uint8_t> codes(100, 7);
  std::vector<float> values(100, 1.0F);
  const float scale = devices::encode_moments(zeros, true, codes);
  devices::decode_moments(codes, scale, true, values);
  EXPECT_THAT(values, testing::Each(0.0F));
}

TEST(StateLayout, Bytes_FollowTheOptimizer) {
  const std::uint64_t n = 100'000;
  const auto bytes = [&](OptimizerKind kind, double momentum = 0) {
    OptimizerSettings settings;
    settings.kind = kind;
    settings.momentum = momentum;
    return state_layout(settings, n).moments(n);
  };
  EXPECT_EQ(bytes(OptimizerKind::kAdamW), 8 * n);
  EXPECT_EQ(bytes(OptimizerKind::kSgd), 0U);
  EXPECT_EQ(bytes(OptimizerKind::kSgd, 0.9), 4 * n);
  EXPECT_EQ(bytes(OptimizerKind::kLion), 4 * n);
  EXPECT_EQ(bytes(OptimizerKind::kAdamW8Bit), 2 * (n + 391 * 4));
  OptimizerSettings settings;
  settings.kind = OptimizerKind::kAdamW8Bit;
  EXPECT_EQ(state_layout(settings, 4095).moments(4095), 8 * 4095U) << "small parameters keep fp32";
}

class OnDisk : public testing::TestWithParam<std::tuple<OptimizerKind, double, devices::DType>> {};

/// Everything that lasts.
std::string bytes_of(ParameterStore& store) {
  std::string bytes;
  const auto append = [&](const void* from, std::size_t size) { bytes.append(static_cast<const char*>(from), size); };
  append(store.published(0).host(), store.published(0).size);
  std::vector<float> master(store.specs()[0].elements);
  EXPECT_TRUE(store.read(0, StateArray::kMaster, 0, std::as_writable_bytes(std::span(master))).ok());
  append(master.data(), 4 * master.size());
  for (const StateArray which : {StateArray::kFirstMoment, StateArray::kSecondMoment}) {
    std::vector<std::byte> moment(store.moment_size(0, which));
    // In pieces that end anywhere.
    constexpr std::size_t kPiece = 100003;
    for (std::size_t first = 0; first < moment.size(); first += kPiece) {
      const std::span<std::byte> to = std::span(moment).subspan(first).first(std::min(kPiece, moment.size() - first));
      EXPECT_TRUE(store.read(0, which, first, to).ok());
    }
    append(moment.data(), moment.size());
  }
  return bytes;
}

TEST_P(OnDisk, Updates_GiveTheBitsOfThoseInMemory_AndGoOnFromCopies) {
  const auto& [kind, momentum, dtype] = GetParam();
  constexpr std::uint64_t kElements = (std::uint64_t{1} << 18U) + 4999;  // a chunk and a part of one, no whole block
  OptimizerSettings settings;
  settings.kind = kind;
  settings.momentum = momentum;
  settings.weight_decay = 0.01;
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("rondo_optimizer_" + std::to_string(::getpid()));
  {
    OneParameter here(kElements, settings, true, dtype, 1);
    OneParameter there(kElements, settings, true, dtype, 2, folder);
    std::vector<float> values(kElements);
    for (std::uint64_t i = 0; i < kElements; ++i) values[i] = start(i);
    for (OneParameter* one : {&here, &there}) {
      ASSERT_TRUE(one->store().write(0, StateArray::kMaster, 0, values).ok());
    }
    // What a checkpoint carries: moments of one update, in a store that has made none.
    here.step(gradient(kElements, 1), 1e-2);
    for (const StateArray which : {StateArray::kFirstMoment, StateArray::kSecondMoment}) {
      std::vector<std::byte> moment(here.store().moment_size(0, which));
      ASSERT_TRUE(here.store().read(0, which, 0, moment).ok());
      ASSERT_TRUE(there.store().write_moment(0, which, moment).ok());
    }
    ASSERT_TRUE(here.store().read(0, StateArray::kMaster, 0, std::as_writable_bytes(std::span(values))).ok());
    ASSERT_TRUE(there.store().write(0, StateArray::kMaster, 0, values, 1).ok());
    there.count_update();
    ASSERT_EQ(bytes_of(here.store()), bytes_of(there.store()));
    ASSERT_TRUE(there.store().disk()->start().ok());
    for (std::uint64_t step = 2; step <= 4; ++step) {
      here.step(gradient(kElements, step), 1e-2);
      there.step(gradient(kElements, step), 1e-2);
    }
    ASSERT_TRUE(there.store().disk()->drain_and_wait().ok());
    EXPECT_TRUE(bytes_of(here.store()) == bytes_of(there.store()));
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OnDisk,
                         testing::Values(std::tuple(OptimizerKind::kAdamW, 0.0, devices::DType::kBfloat16),
                                         std::tuple(OptimizerKind::kAdamW8Bit, 0.0, devices::DType::kBfloat16),
                                         std::tuple(OptimizerKind::kAdamW8Bit, 0.0, devices::DType::kFloat32),
                                         std::tuple(OptimizerKind::kSgd, 0.0, devices::DType::kFloat32),
                                         std::tuple(OptimizerKind::kSgd, 0.0, devices::DType::kBfloat16),
                                         std::tuple(OptimizerKind::kSgd, 0.9, devices::DType::kBfloat16),
                                         std::tuple(OptimizerKind::kLion, 0.0, devices::DType::kFloat32)));

}  // namespace
}  // namespace rondo::offload
