// Encoded weights against the golden files of tests/reference/encodings: the bytes that encoding gives, and the numbers
// that the reference and the CPU expand them to, bit for bit. Encoded activations against what their definition
// promises.
#include "rondo/devices/encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "op_case.h"
#include "rondo/base/float16.h"
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
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
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

INSTANTIATE_TEST_SUITE_P(, Encodings,
                         ::testing::Values(Named{"int8", Encoding::kInt8}, Named{"nf4", Encoding::kNf4},
                                           Named{"mxfp4", Encoding::kMxfp4}),
                         [](const auto& one) { return std::string(one.param.name); });

constexpr std::int64_t kBlocks = 1000;  // several tasks, the last not full

/// Blocks of all sizes of numbers, some with an outlier that dwarfs the rest.
std::vector<float> activations() {
  std::mt19937_64 generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::int64_t block = 0; block < kBlocks; ++block) {
    const float spread = std::exp(4 * normal(generator));
    for (std::int64_t i = 0; i < kEncodedBlock; ++i) values.push_back(spread * normal(generator));
    if (block % 7 == 0) values.back() *= 1000.0F;
  }
  return values;
}

float scale_of(const EncodedLayout& layout, const std::vector<std::byte>& encoded, std::int64_t block) {
  float scale = 0;
  std::memcpy(&scale, encoded.data() + layout.scales + static_cast<Bytes>(block) * sizeof(scale), sizeof(scale));
  return scale;
}

class HadamardEncodings : public Encodings {
 protected:
  EncodedLayout layout(std::size_t n) const { return {GetParam().encoding, static_cast<std::int64_t>(n)}; }
  std::vector<float> decode(const std::vector<std::byte>& encoded, std::size_t n) const {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = decoded_element(GetParam().encoding, layout(n), encoded.data(), static_cast<std::int64_t>(i));
    }
    return values;
  }
  /// Tensor 0 into codes, tensor 1.
  OpList encoding(std::int64_t n, DType dtype) const {
    OpList ops;
    ops.tokens = 16;
    const Shape shape = {n / kEncodedBlock, kEncodedBlock};
    ops.tensors.push_back({"x", shape, dtype, TensorRole::kInput, 0});
    ops.tensors.push_back({"encoded", shape, dtype, TensorRole::kOutput, 0, GetParam().encoding});
    ops.ops.push_back({OpKind::kEncode, NoAttributes{}, {0}, {1}});
    return ops;
  }
};

/// A code errs by half of itself at most, and the transform keeps lengths: 64 codes err by 8 halves together, which are
/// 8 / 2 of the step of a sum, scale * 64, over the transform's own length, 8.
TEST_P(HadamardEncodings, Block_ErrsByHalfACodeAtMost) {
  const std::vector<float> x = activations();
  const std::vector<std::byte> encoded = encode(x, 64);
  const std::vector<float> y = decode(encoded, x.size());
  double furthest = 0;
  for (std::int64_t block = 0; block < kBlocks; ++block) {
    double squares = 0;
    for (std::int64_t i = block * kEncodedBlock; i < (block + 1) * kEncodedBlock; ++i) {
      const auto at = static_cast<std::size_t>(i);
      squares += std::pow(static_cast<double>(x[at]) - static_cast<double>(y[at]), 2);
    }
    const double step = 64 * static_cast<double>(scale_of(layout(x.size()), encoded, block));
    ASSERT_GT(step, 0.0);
    ASSERT_LE(std::sqrt(squares), 0.5 * step * (1 + 1e-4)) << block;
    furthest = std::max(furthest, std::sqrt(squares) / step);
  }
  EXPECT_GT(furthest, 0.25);  // the bound is a bound on something
}

/// The CPU's vectors and the plain loops agree bit for bit, there and back.
TEST_P(HadamardEncodings, OnTheCpu_AreTheReferencesBits) {
  const std::vector<float> x = activations();
  const auto n = static_cast<std::int64_t>(x.size());
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    const OpList ops = encoding(n, dtype);
    ASSERT_EQ(validate(ops), absl::OkStatus());
    for (const std::uint32_t members : {1U, 3U}) {
      auto want = CaseMemory::make({ops, {{}, {}}, 1, {}, {}}, 1);
      auto got = CaseMemory::make({ops, {{}, {}}, 1, {}, {}}, 1);
      for (std::int64_t i = 0; i < n; ++i) {
        want->set(0, i, static_cast<double>(x[static_cast<std::size_t>(i)]));
        got->set(0, i, static_cast<double>(x[static_cast<std::size_t>(i)]));
      }
      ASSERT_EQ(run_reference(ops, want->bindings()), absl::OkStatus());
      ThreadPool threads(members);
      cpu::CpuExecutor executor(threads);
      auto program = executor.compile(ops, plan_arena(ops));
      ASSERT_EQ(program.status(), absl::OkStatus());
      ASSERT_EQ(executor.execute(**program, got->bindings()), absl::OkStatus());
      const EncodedLayout sections = layout(x.size());
      const Bytes codes = GetParam().encoding == Encoding::kHadamard8 ? x.size() : x.size() / 2;
      EXPECT_EQ(std::memcmp(got->data(1), want->data(1), codes), 0);
      EXPECT_EQ(std::memcmp(got->data(1) + sections.scales, want->data(1) + sections.scales, kBlocks * sizeof(float)),
                0);
    }
  }
}

/// Else an overflow of one layer would be an ordinary number in the next, and the step would be taken.
TEST_P(HadamardEncodings, OfWhatIsNotFinite_ExpandToNaN) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()}) {
    OpList ops = encoding(3 * kEncodedBlock, DType::kFloat32);
    auto memory = CaseMemory::make({ops, {{}, {}}, 1, {}, {}}, 1);
    for (std::int64_t i = 0; i < 3 * kEncodedBlock; ++i) memory->set(0, i, 1.0 + static_cast<double>(i % 5));
    memory->set(0, 70, static_cast<double>(bad));
    memory->set(0, 71, static_cast<double>(bad));  // two of the largest overflow in their sum
    for (const bool plain : {true, false}) {
      if (plain) {
        ASSERT_EQ(run_reference(ops, memory->bindings()), absl::OkStatus());
      } else {
        ThreadPool threads(1);
        cpu::CpuExecutor executor(threads);
        auto program = executor.compile(ops, plan_arena(ops));
        ASSERT_EQ(executor.execute(**program, memory->bindings()), absl::OkStatus());
      }
      const EncodedLayout sections = layout(3 * kEncodedBlock);
      for (std::int64_t i = 0; i < 3 * kEncodedBlock; ++i) {
        const float y = decoded_element(GetParam().encoding, sections, memory->data(1), i);
        EXPECT_EQ(std::isnan(y), i / kEncodedBlock == 1) << i << " " << bad << (plain ? " reference" : " CPU");
      }
    }
  }
}

TEST_P(HadamardEncodings, OfNextToNothing_IsZero) {
  std::vector<float> x(2 * kEncodedBlock, 1e-35F);
  x.back() = 1.0F;
  const std::vector<float> y = decode(encode(x, 64), x.size());
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], 0.0F);
  EXPECT_NEAR(y.back(), 1.0F, 0.15F);
}

INSTANTIATE_TEST_SUITE_P(, HadamardEncodings,
                         ::testing::Values(Named{"hadamard8", Encoding::kHadamard8},
                                           Named{"hadamard4", Encoding::kHadamard4}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(DynamicMap, RisesFromMinusNearlyOneToOne) {
  const auto& map = dynamic_map();
  EXPECT_TRUE(std::ranges::is_sorted(map, std::ranges::less_equal()));
  EXPECT_EQ(map[127], 0.0F);
  EXPECT_EQ(map[255], 1.0F);
  EXPECT_FLOAT_EQ(map[0], -0.99296875F);
}

/// Every block that can be, of codes of every kind and scales from the least to the largest.
TEST(Mxfp4, NumbersThatWereInIt_ComeBackAsTheyWere) {
  std::mt19937_64 generator(31);
  std::vector<float> values;
  for (std::uint32_t scale = 5; scale <= 252; ++scale) {
    for (int kind = 0; kind < 9; ++kind) {  // of all codes, or of the smaller ones alone
      for (std::int64_t i = 0; i < kMxfp4Block; ++i) {
        const auto code = static_cast<std::uint32_t>(generator() % (kind == 8 ? 8U : static_cast<unsigned>(kind) + 1U));
        values.push_back(from_mxfp4(code | (generator() % 2 == 0 ? 8U : 0U), scale));
      }
    }
  }
  values.resize(values.size() - 5);  // the last block is short
  const auto n = static_cast<std::int64_t>(values.size());
  const EncodedLayout layout(Encoding::kMxfp4, n);
  std::vector<std::byte> encoded(layout.size);
  BlockEncoder encoder(Encoding::kMxfp4, n, encoded);
  encoder.append(values);
  encoder.finish();
  for (std::int64_t i = 0; i < n; ++i) {
    const float found = decoded_element(Encoding::kMxfp4, layout, encoded.data(), i);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i)]))
        << "element " << i;
  }
}

/// By the definition: the scale from the largest, each to the nearest, ties to the even code.
TEST(Mxfp4, OtherNumbers_TakeTheNearest) {
  const std::vector<float> values = {4.0F, 0.25F, 0.26F, 0.75F, 0.74F, 1.25F, 1.26F, 1.75F, 1.74F, 2.5F,
                                     2.6F, 3.5F,  3.4F,  5.0F,  5.1F,  7.9F,  -0.3F, -5.1F, 0.0F};
  const std::vector<float> wanted = {4.0F, 0.0F, 0.5F, 1.0F, 0.5F, 1.0F, 1.5F,  2.0F,  1.5F, 2.0F,
                                     3.0F, 4.0F, 3.0F, 4.0F, 6.0F, 6.0F, -0.5F, -6.0F, 0.0F};
  const auto n = static_cast<std::int64_t>(values.size());
  const EncodedLayout layout(Encoding::kMxfp4, n);
  std::vector<std::byte> encoded(layout.size);
  BlockEncoder encoder(Encoding::kMxfp4, n, encoded);
  encoder.append(values);
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(decoded_element(Encoding::kMxfp4, layout, encoded.data(), i), wanted[static_cast<std::size_t>(i)]) << i;
  }
}

TEST(EncodedBytes, OfAMillionElements_AreAboutThePublishedBits) {
  constexpr std::int64_t kElements = 1 << 20;
  EXPECT_NEAR(static_cast<double>(encoded_bytes(Encoding::kInt8, kElements)) * 8 / kElements, 8.5, 1e-3);
  EXPECT_NEAR(static_cast<double>(encoded_bytes(Encoding::kNf4, kElements)) * 8 / kElements, 4.127, 2e-3);
  EXPECT_EQ(encoded_bytes(Encoding::kMxfp4, kElements) * 8 * 4, Bytes{kElements} * 17);
  EXPECT_EQ(encoded_bytes(Encoding::kHadamard8, kElements) * 16, Bytes{kElements} * 17);
  EXPECT_EQ(encoded_bytes(Encoding::kHadamard4, kElements) * 16, Bytes{kElements} * 9);
}

}  // namespace
}  // namespace rondo::devices::testing
