// Versions, masters and the rounding to bf16 and fp16.
#include "rondo/offload/parameter_store.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>

#include "patience.h"
#include "rondo/base/float16.h"

namespace rondo::offload {
namespace {

using test::patience;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

ParameterStore make(devices::DType dtype, std::uint64_t elements = 8, bool phantom = false) {
  return *ParameterStore::make({{"frozen", elements, false, true}, {"trained", elements, true, true}}, dtype, phantom);
}

TEST(ParameterStore, Fp32_HasOneMemoryForMasterAndPublished) {
  ParameterStore store = make(devices::DType::kFloat32);
  EXPECT_EQ(reinterpret_cast<std::byte*>(store.master(1).data()), store.published(1).host());
  store.master(1)[3] = 2.5F;
  store.publish_from_master(1, 0);
  float value = 0;
  std::memcpy(&value, store.published(1).host() + 12, 4);
  EXPECT_EQ(value, 2.5F);
  EXPECT_EQ(store.first_moment(1).size(), 8U);
  EXPECT_TRUE(store.first_moment(0).empty()) << "what is not trained has no moments";
}

TEST(ParameterStore, Bfloat16VersionZero_RoundsToNearestTiesToEvenAndKeepsNaN) {
  const std::pair<std::uint32_t, std::uint16_t> kCases[] = {
      {0x3F800000, 0x3F80},  // 1
      {0x3F808000, 0x3F80},  // a tie, to the even lower
      {0x3F818000, 0x3F82},  // a tie, to the even upper
      {0x3F808001, 0x3F81},  // just past a tie
      {0x3F817FFF, 0x3F81},  // just short of one
      {0xBF808001, 0xBF81},  // negative
      {0x80000000, 0x8000},  // -0
      {0x00000001, 0x0000},  // the smallest subnormal
      {0x7F7FFFFF, 0x7F80},  // the largest number: over the largest bf16 by more than half a step
      {0x7F800000, 0x7F80},  // infinity
      {0xFF800000, 0xFF80},  // -infinity
      {0x7FC00000, 0x7FC0},  // NaN
      {0x7F800001, 0x7FC0},  // a NaN whose upper half alone would be infinity
      {0xFFFFFFFF, 0xFFFF},  // a NaN that rounding up would turn into 0
  };
  // Repeated to an odd number, so that whole vectors and the rest behind them both see every case.
  constexpr std::size_t kCount = std::size(kCases) * 5 + 3;
  ParameterStore store = make(devices::DType::kBfloat16, kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    store.master(1)[i] = std::bit_cast<float>(kCases[i % std::size(kCases)].first);
  store.publish_from_master(1, 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, store.published(1).host() + 2 * i, 2);
    EXPECT_EQ(bits, kCases[i % std::size(kCases)].second)
        << std::hex << kCases[i % std::size(kCases)].first << " at " << std::dec << i;
  }
}

std::vector<float> published_of(ParameterStore& store) {
  std::vector<float> values(store.specs()[1].elements);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, store.published(1).host() + 2 * i, 2);
    values[i] = std::bit_cast<float>(std::uint32_t{bits} << 16U);
  }
  return values;
}

TEST(ParameterStore, Bfloat16LaterVersion_RoundsToEitherNeighbourWithTheMasterAsMean) {
  // Over more than one block, so that every block's random numbers are seen; 2^-7 lies between the neighbours of 1.
  constexpr std::size_t kCount = 40'003;
  for (const float rest : {0.125F, 0.5F, 0.75F}) {
    ParameterStore store = make(devices::DType::kBfloat16, kCount);
    const float value = -1.0F - rest / 128;
    for (float& master : store.master(1)) master = value;
    store.publish_from_master(1, 3);
    double ups = 0;
    for (const float found : published_of(store)) {
      ASSERT_TRUE(found == -1.0F || found == -1.0F - 1.0F / 128) << found;
      ups += found == -1.0F ? 0 : 1;
    }
    const double deviation = std::sqrt(rest * (1 - rest) / kCount);
    EXPECT_NEAR(ups / kCount, rest, 5 * deviation) << "five standard deviations of a fair draw";
  }
}

TEST(ParameterStore, Bfloat16LaterVersion_KeepsWhatBfloat16Holds) {
  const std::uint16_t kBits[] = {0x0000, 0x8000, 0x3F80, 0xBF81, 0x0001, 0x7F7F, 0x7F80, 0xFF80};
  constexpr std::size_t kCount = 8 * 9 + 5;
  ParameterStore store = make(devices::DType::kBfloat16, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    store.master(1)[i] = std::bit_cast<float>(std::uint32_t{kBits[i % 8]} << 16U);
  }
  store.publish_from_master(1, 12);
  const std::vector<float> found = published_of(store);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found[i]) >> 16U, kBits[i % 8]) << i;
  }
}

TEST(ParameterStore, Bfloat16LaterVersion_DrawsFollowFromTheVersionAlone) {
  constexpr std::size_t kCount = 4096;
  ParameterStore store = make(devices::DType::kBfloat16, kCount);
  for (std::size_t i = 0; i < kCount; ++i) store.master(1)[i] = 0.3F + 1e-5F * static_cast<float>(i);
  store.publish_from_master(1, 1);
  const std::vector<float> first = published_of(store);
  store.publish_from_master(1, 2);
  EXPECT_NE(published_of(store), first);
  store.publish_from_master(1, 1);
  EXPECT_EQ(published_of(store), first);
}

std::uint16_t half_of(const ParameterStore& store, std::size_t i) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, store.published(1).host() + 2 * i, 2);
  return bits;
}

TEST(ParameterStore, Float16VersionZero_RoundsToNearestTiesToEven) {
  const std::pair<float, std::uint16_t> kCases[] = {
      {1.0F, 0x3C00},
      {1.0F + 0x1p-11F, 0x3C00},  // a tie, to the even lower
      {1.0F + 0x3p-11F, 0x3C02},  // a tie, to the even upper
      {1.0F + 0x1.01p-11F, 0x3C01},
      {-1.0F - 0x1.01p-11F, 0xBC01},
      {-0.0F, 0x8000},
      {65519.0F, 0x7BFF},  // the largest number that is finite to nearest
      {65520.0F, 0x7C00},
      {0x1p-14F, 0x0400},
      {0x1p-24F, 0x0001},
      {0x1.8p-24F, 0x0002},  // a tie, to the even upper
      {0x1p-25F, 0x0000},    // a tie, to the even lower
      {-0x1.1p-25F, 0x8001},
  };
  constexpr std::size_t kCount = std::size(kCases) * 5 + 3;
  ParameterStore store = make(devices::DType::kFloat16, kCount);
  for (std::size_t i = 0; i < kCount; ++i) store.master(1)[i] = kCases[i % std::size(kCases)].first;
  store.publish_from_master(1, 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(half_of(store, i), kCases[i % std::size(kCases)].second) << kCases[i % std::size(kCases)].first;
  }
}

TEST(ParameterStore, Float16LaterVersion_RoundsToEitherNeighbourWithTheMasterAsMean) {
  constexpr std::size_t kCount = 40'003;
  // Where fp16 has all its digits, just above 2^-14, and below: units of 2^-24, between 0 and the first as well.
  for (const int place : {0xBC00, 0x3555, 0x0400, 0x0203, 0x8001, 0x0000}) {
    const auto lower = static_cast<std::uint16_t>(place);
    const float below = from_float16(lower);
    const float above = from_float16(static_cast<std::uint16_t>(lower + 1));
    for (const float rest : {0.125F, 0.5F, 0.75F}) {
      ParameterStore store = make(devices::DType::kFloat16, kCount);
      for (float& master : store.master(1)) master = below + rest * (above - below);
      store.publish_from_master(1, 3);
      double ups = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::uint16_t found = half_of(store, i);
        ASSERT_TRUE(found == lower || found == lower + 1) << found << " of " << lower;
        ups += found == lower ? 0 : 1;
      }
      const double deviation = std::sqrt(rest * (1 - rest) / kCount);
      EXPECT_NEAR(ups / kCount, rest, 5 * deviation) << lower << ": five standard deviations of a fair draw";
    }
  }
}

TEST(ParameterStore, Float16LaterVersion_KeepsWhatFloat16HoldsAndStaysFinite) {
  constexpr std::size_t kCount = 65'536;
  ParameterStore store = make(devices::DType::kFloat16, kCount);
  for (std::size_t i = 0; i < kCount; ++i) store.master(1)[i] = from_float16(static_cast<std::uint16_t>(i));
  store.publish_from_master(1, 12);
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::uint16_t found = half_of(store, i);
    if (std::isnan(store.master(1)[i])) {
      EXPECT_TRUE(std::isnan(from_float16(found))) << i;
    } else {
      ASSERT_EQ(found, i);
    }
  }
  for (float& master : store.master(1)) master = 65519.0F;  // nearer to 65504 than to infinity
  store.publish_from_master(1, 13);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(half_of(store, i), 0x7BFF);
}

TEST(ParameterStore, Wait_EndsWithTheVersionAndNotBefore) {
  ParameterStore store = make(devices::DType::kBfloat16);
  EXPECT_TRUE(store.wait_for_version(1, 0, patience()).ok());
  EXPECT_EQ(store.wait_for_version(1, 1, steady_clock::now() + milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  auto waiting = std::async(std::launch::async, [&] { return store.wait_for_version(1, 2, patience()); });
  store.set_version(1, 1);
  store.set_version(0, 5);
  EXPECT_EQ(waiting.wait_for(milliseconds(30)), std::future_status::timeout);
  store.set_version(1, 2);
  EXPECT_TRUE(waiting.get().ok());
  EXPECT_TRUE(store.wait_for_version(1, 1, patience()).ok()) << "a later version will do";
  EXPECT_EQ(store.version(1), 2U);
}

TEST(ParameterStore, Failure_EndsWaitsUntilAllVersionsAreSet) {
  ParameterStore store = make(devices::DType::kBfloat16);
  auto waiting = std::async(std::launch::async, [&] { return store.wait_for_version(1, 1, patience()); });
  store.fail(absl::InternalError("the optimizer stopped"));
  EXPECT_EQ(waiting.get().message(), "the optimizer stopped");
  store.set_all_versions(3);
  EXPECT_TRUE(store.wait_for_version(1, 3, patience()).ok());
  EXPECT_EQ(store.version(0), 3U);
}

TEST(ParameterStore, Phantom_HasSizesButNoMemory) {
  const ParameterStore store = make(devices::DType::kBfloat16, std::uint64_t{1} << 40U, true);
  EXPECT_EQ(store.published(0).size, Bytes{2} << 40U);
  EXPECT_EQ(store.published(0).host(), nullptr);
}

TEST(ParameterStore, TwoPublishedVersions_LieApartAndTheMasterIsNeither) {
  for (const devices::DType dtype : {devices::DType::kBfloat16, devices::DType::kFloat32}) {
    auto store = *ParameterStore::make({{"frozen", 8, false, true}, {"trained", 8, true, true}}, dtype, false, {}, 2);
    const auto first = [&](std::uint64_t version) {
      float value = 0;
      std::uint16_t bits = 0;
      const std::byte* at = store.published(1, version).host();
      if (dtype == devices::DType::kFloat32) {
        std::memcpy(&value, at, sizeof value);
        return value;
      }
      std::memcpy(&bits, at, sizeof bits);
      return std::bit_cast<float>(std::uint32_t{bits} << 16U);
    };
    for (std::uint64_t version = 0; version <= 3; ++version) {
      for (float& master : store.master(1)) master = static_cast<float>(version + 1);
      store.publish_from_master(1, version);
      store.set_version(1, version);
      EXPECT_EQ(first(version), static_cast<float>(version + 1));
      if (version > 0) {
        EXPECT_EQ(first(version - 1), static_cast<float>(version)) << "the step at work reads it";
      }
      EXPECT_EQ(store.published(1).host(), store.published(1, version).host()) << "the newest";
    }
    EXPECT_EQ(store.published(0, 0).host(), store.published(0, 1).host()) << "what is not trained has one";
  }
}

}  // namespace
}  // namespace rondo::offload
