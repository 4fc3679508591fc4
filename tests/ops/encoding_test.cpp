// Encoded weights against the golden files of tests/reference/encodings: the bytes that encoding gives, and the numbers
// that the reference and the CPU expand them to, bit for bit.
#include "rondo/devices/encoding.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {
namespace {

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file(std::string(RONDO_TEST_DATA) + "/encodings/" + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(bytes.empty()) << name;
  std::vector<std::byte> data(bytes.size());
  std::memcpy(data.data(), bytes.data(), bytes.size());
  return data;
}

std::vector<float> golden_floats(const std::string& name) {
  const std::vector<std::byte> bytes = golden(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct Named {
  const char* name;
  Encoding encoding;
};
void PrintTo(const Named& named, std::ostream* stream) { *stream << named.name; }

class Encodings : public ::testing::TestWithParam<Named> {
 protected:
  std::string file(const char* ending) const { return std::string(GetParam().name) + ending; }
  std::vector<std::byte> encode(std::span<const float> values, std::size_t part) const {
    const auto n = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> out(encoded_bytes(GetParam().encoding, n), std::byte{0xAB});
    BlockEncoder encoder(GetParam().encoding, n, out);
    for (std::size_t first = 0; first < values.size(); first += part) {
      encoder.append(values.subspan(first, std::min(part, values.size() - first)));
    }
    encoder.finish();
    return out;
  }
  /// An expansion of n elements of encoded bytes, from tensor 0 to tensor 1.
  OpList list(std::int64_t n, DType dtype) const {
    OpList ops;
    ops.tokens = 16;
    ops.tensors.push_back({"encoded", {1, n}, dtype, TensorRole::kWeight, 0, GetParam().encoding});
    ops.tensors.push_back({"expanded", {1, n}, dtype, TensorRole::kOutput, 0});
    Op& op = ops.ops.emplace_back();
    op.kind = OpKind::kExpand;
    op.reads = {0};
    op.writes = {1};
    return ops;
  }
};

TEST_P(Encodings, Encode_GivesTheGoldenBytesWhateverTheParts) {
  const std::vector<float> weights = golden_floats("weights.f32");
  const std::vector<std::byte> want = golden(file(".bin"));
  for (const std::size_t blocks : {1U, 3U, 256U, 1000U}) EXPECT_EQ(encode(weights, blocks * 64), want) << blocks;
}

TEST_P(Encodings, Expand_GivesTheGoldenNumbers) {
  const std::vector<float> want = golden_floats(file(".f32"));
  const auto n = static_cast<std::int64_t>(want.size());
  const std::vector<std::byte> encoded = golden(file(".bin"));
  for (const std::uint32_t members : {0U, 1U, 3U}) {  // 0: the reference
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      const OpList ops = list(n, dtype);
      ASSERT_EQ(validate(ops), absl::OkStatus());
      auto memory = CaseMemory::make({ops, {{}, {}}, 1, {}, {}}, 1);
      ASSERT_EQ(memory.status(), absl::OkStatus());
      std::memcpy(memory->data(0), encoded.data(), encoded.size());
      if (members == 0) {
        ASSERT_EQ(run_reference(ops, memory->bindings()), absl::OkStatus());
      } else {
        ThreadPool threads(members);
        cpu::CpuExecutor executor(threads);
        auto program = executor.compile(ops, plan_arena(ops));
        ASSERT_EQ(program.status(), absl::OkStatus());
        ASSERT_EQ(executor.execute(**program, memory->bindings()), absl::OkStatus());
      }
      auto rounded = CaseMemory::make({ops, {{}, {}}, 1, {}, {}}, 1);
      for (std::int64_t i = 0; i < n; ++i) {
        rounded->set(1, i, static_cast<double>(want[static_cast<std::size_t>(i)]));
        ASSERT_EQ(memory->get(1, i), rounded->get(1, i)) << members << " members, element " << i;
      }
    }
  }
}

TEST_P(Encodings, Encode_OfLittleOrNothing_IsWhole) {
  const std::vector<float> zeros(130, 0.0F);
  for (const std::size_t n : {1U, 63U, 64U, 65U, 130U}) {
    const std::vector<std::byte> encoded = encode(std::span(zeros).first(n), 64);
    const OpList ops = list(static_cast<std::int64_t>(n), DType::kFloat32);
    auto memory = CaseMemory::make({ops, {{}, {}}, 1, {}, {}}, 1);
    std::memcpy(memory->data(0), encoded.data(), encoded.size());
    ASSERT_EQ(run_reference(ops, memory->bindings()), absl::OkStatus());
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(memory->get(1, static_cast<std::int64_t>(i)), 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(, Encodings, ::testing::Values(Named{"int8", Encoding::kInt8}, Named{"nf4", Encoding::kNf4}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(DynamicMap, RisesFromMinusNearlyOneToOne) {
  const auto& map = dynamic_map();
  EXPECT_TRUE(std::ranges::is_sorted(map, std::ranges::less_equal()));
  EXPECT_EQ(map[127], 0.0F);
  EXPECT_EQ(map[255], 1.0F);
  EXPECT_FLOAT_EQ(map[0], -0.99296875F);
}

TEST(EncodedBytes, OfAMillionElements_AreAboutThePublishedBits) {
  constexpr std::int64_t kElements = 1 << 20;
  EXPECT_NEAR(static_cast<double>(encoded_bytes(Encoding::kInt8, kElements)) * 8 / kElements, 8.5, 1e-3);
  EXPECT_NEAR(static_cast<double>(encoded_bytes(Encoding::kNf4, kElements)) * 8 / kElements, 4.127, 2e-3);
}

}  // namespace
}  // namespace rondo::devices::testing
