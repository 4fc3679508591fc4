// Rows as GGUF's number types; q8_0 against the bytes of the package gguf (tests/data/gguf).
#include "blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "rondo/base/file.h"

namespace rondo::gguf {
namespace {

TEST(PutRow, Q8_IsTheReferencesBytes) {
  const std::string values = *read_file(std::string(RONDO_TEST_DATA) + "/gguf/values.f32");
  const std::string expected = *read_file(std::string(RONDO_TEST_DATA) + "/gguf/q8_0.bin");
  std::vector<float> row(values.size() / sizeof(float));
  std::memcpy(row.data(), values.data(), values.size());
  std::string out(row_bytes(TensorType::kQ8_0, row.size()), '\0');
  ASSERT_EQ(out.size(), expected.size());
  ASSERT_TRUE(put_row(row, TensorType::kQ8_0, std::as_writable_bytes(std::span(out))));
  EXPECT_TRUE(out == expected);
}

TEST(PutRow, NumberThatDoesNotFit_IsRefused) {
  const auto fits = [](float value, TensorType type) {
    std::vector<float> row(kBlock, 1.0F);
    row[3] = value;
    std::vector<std::byte> out(row_bytes(type, row.size()));
    return put_row(row, type, out);
  };
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBf16, TensorType::kQ8_0}) {
    EXPECT_TRUE(fits(-65504.0F, type)) << type_name(type);
    EXPECT_FALSE(fits(std::numeric_limits<float>::quiet_NaN(), type)) << type_name(type);
    EXPECT_FALSE(fits(-std::numeric_limits<float>::infinity(), type)) << type_name(type);
    EXPECT_EQ(fits(kLargest, type), type == TensorType::kF32) << type_name(type);
  }
  EXPECT_FALSE(fits(65520.0F, TensorType::kF16));
  EXPECT_TRUE(fits(0x1.fep127F, TensorType::kBf16));
}

}  // namespace
}  // namespace rondo::gguf
