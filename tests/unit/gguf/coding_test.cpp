// Decoding against the numbers of the package gguf (tests/data/gguf/coded), bit for bit.
#include "coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/base/float16.h"

namespace rondo::gguf {
namespace {

struct Golden {
  std::string codes;
  std::vector<float> values;
  const Coding* coding = nullptr;
  std::span<const std::byte> data() const { return std::as_bytes(std::span(codes)); }
};

Golden golden(std::uint32_t type) {
  Golden out;
  out.coding = find_coding(type);
  const std::string base = std::string(RONDO_TEST_DATA) + "/gguf/coded/" + std::string(out.coding->name);
  out.codes = *read_file(base + ".bin");
  const std::string values = *read_file(base + ".f32");
  out.values.resize(values.size() / sizeof(float));
  std::memcpy(out.values.data(), values.data(), values.size());
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class Decode : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Decode, RandomBlocks_AreTheReferencesNumbers) {
  const Golden g = golden(GetParam());
  ASSERT_EQ(g.codes.size() / g.coding->block_bytes * g.coding->block_numbers, g.values.size());
  ASSERT_GT(g.values.size(), 0U);
  std::vector<float> out(g.values.size());
  decode_stretch(*g.coding, g.data(), 0, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(same_bits({&out[i], 1}, {&g.values[i], 1}))
        << g.coding->name << " " << i << ": " << out[i] << ", expected " << g.values[i];
  }
}

TEST_P(Decode, Stretches_AreParts) {
  const Golden g = golden(GetParam());
  for (const std::size_t first : {0U, 1U, 31U, 32U, 200U}) {
    for (const std::size_t count : {1U, 2U, 33U, 55U}) {
      if (first + count > g.values.size()) continue;
      std::vector<float> out(count);
      decode_stretch(*g.coding, g.data(), first, out);
      EXPECT_TRUE(same_bits(out, std::span(g.values).subspan(first, count))) << first << " " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Decode, testing::Values(0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 30, 39),
                         [](const auto& test_info) { return std::string(find_coding(test_info.param)->name); });

TEST(SplitMxfp4, CodesAndScales_GiveTheSameNumbers) {
  const Golden g = golden(39);
  std::vector<std::byte> codes(g.values.size() / 2);
  std::vector<std::byte> scales(g.values.size() / 32);
  split_mxfp4(g.data(), codes, scales);
  for (std::size_t i = 0; i < g.values.size(); ++i) {
    const auto pair = std::to_integer<unsigned>(codes[i / 2]);
    const float found =
        from_mxfp4(i % 2 == 0 ? pair & 15U : pair >> 4U, std::to_integer<unsigned>(scales[i / 32])) + 0.0F;
    ASSERT_TRUE(same_bits({&found, 1}, {&g.values[i], 1})) << i;
  }
}

TEST(FindCoding, OtherTypes_AreNamed) {
  EXPECT_EQ(find_coding(23), nullptr);
  EXPECT_EQ(type_in_words(23), "type 23 (iq4_xs)");
  EXPECT_EQ(type_in_words(4242), "type 4242");
  EXPECT_EQ(type_in_words(12), "q4_k");
  EXPECT_THAT(readable_types(), testing::HasSubstr("q6_k"));
}

}  // namespace
}  // namespace rondo::gguf
