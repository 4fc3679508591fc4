// What an optimizer does has on cards the bits that it has on the processor, of whatever numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string_view>

#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/devices/update_block.h"
#include "update_descriptions.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

/// kRare: ordinary ones, and so far apart that no two are computed together, all that an element has below 2^-64.
/// kOneRare: one of what it has, below 2^-64 or above 2^64, beside gradients of zero in some cases.
enum class Numbers : std::uint8_t { kOrdinary, kAnyBits, kAlike, kSettled, kRare, kOneRare };
constexpr std::int64_t kApart = 509;  // rare elements

class Update : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const auto card = test::usable_vulkan_card();
    if (!card) GTEST_SKIP() << test::kNoVulkanCard;
    for (const bool worse : {false, true}) {
      auto opened = open_card(*card, true, {.parts = worse ? 5U : 1U, .no_doubles = worse, .careless = worse});
      ASSERT_EQ(opened.status(), absl::OkStatus());
      cards_.push_back(*std::move(opened));
    }
    auto processor = cpu::open_cpu({}, threads_);
    ASSERT_EQ(processor.status(), absl::OkStatus());
    processor_ = *std::move(processor);
  }

  void expect_same_bits(const OpCase& op_case, Numbers numbers) const;
  void expect_same_bits(const OpCase& op_case, const std::function<void(CaseMemory&)>& prepare) const;

  ThreadPool threads_{2};
  std::vector<std::unique_ptr<Device>> cards_;  // the second as if it had no fp64, careless, and in parts
  std::unique_ptr<Device> processor_;
};

/// kAnyBits: each exponent as likely as any other, with what is no number, infinity and what lies below 2^-126 among
/// them. kAlike: near 1, with few bits, so that sums cancel and roundings meet ties.
std::uint32_t some_bits(std::mt19937& random, Numbers numbers) {
  const auto some = static_cast<std::uint32_t>(random());
  if (numbers == Numbers::kAlike) {
    const std::uint32_t few = some & 0x007FF001U & static_cast<std::uint32_t>(random());
    return (some & 0x80000000U) | ((126U + (some >> 29U & 3U)) << 23U) | few;
  }
  if (some % 61 == 0) return some & 0x807FFFFFU;
  return some % 67 == 0 ? some & 0x80000000U : some;
}

/// Of kOneRare's `i`th element: which of what it has is rare, and which is zero.
bool is_rare(std::string_view name, std::int64_t i) {
  constexpr std::array kNames = {"gradient", "master", "first moment", "second moment"};
  return name == kNames[static_cast<std::size_t>(i % 4)];
}
bool is_zero(std::string_view name, std::int64_t i) {
  return (name == "gradient" && i % 8 > 4) || (name == "first moment" && i % 8 == 5) ||
         (name == "second moment" && (i % 16 == 7 || i % 16 == 11 || i % 16 == 14));
}

void fill(const OpCase& op_case, Numbers numbers, CaseMemory& memory) {
  std::mt19937 random(7);
  const bool rare = numbers == Numbers::kRare || numbers == Numbers::kOneRare;
  for (TensorId id = 0; id < op_case.list.tensors.size(); ++id) {
    const TensorDesc& tensor = op_case.list.tensors[id];
    if (tensor.dtype != DType::kFloat32) continue;
    const std::string_view name = tensor.name;
    auto* bits = reinterpret_cast<std::uint32_t*>(memory.data(id));
    const bool signs = name == "gradient" || name == "master" || name == "first moment";
    // The first parameter's factors, and the second's scale of gradients, stay as they are.
    if (name == "factors" && rare) continue;
    for (std::int64_t i = name == "factors" ? kUpdateFactors + 1 : 0; i < tensor.elements(); ++i) {
      if (rare && i % kApart != 0) continue;
      const std::int64_t place = i / kApart;
      if (numbers == Numbers::kOneRare && is_zero(name, place)) bits[i] = 0;
      if (numbers == Numbers::kOneRare && (is_zero(name, place) || !is_rare(name, place))) continue;
      bits[i] = some_bits(random, numbers) & (signs ? 0xFFFFFFFFU : 0x7FFFFFFFU);
      if (rare) bits[i] &= 0x9FFFFFFFU;
      if (numbers == Numbers::kOneRare && place % 16 >= 8) bits[i] |= 0x60000000U;
    }
  }
}

/// One of the third parameter's factors.
void set_factor(const OpCase& op_case, std::int64_t factor, float value, CaseMemory& memory) {
  for (TensorId id = 0; id < op_case.list.tensors.size(); ++id) {
    if (op_case.list.tensors[id].name != "factors") continue;
    reinterpret_cast<float*>(memory.data(id))[2 * kUpdateFactors + factor] = value;
  }
}

/// Each gradient has come for so long that the first moment is the same number.
void settle(const OpCase& op_case, CaseMemory& memory) {
  const std::byte* gradient = nullptr;
  for (TensorId id = 0; id < op_case.list.tensors.size(); ++id) {
    const TensorDesc& tensor = op_case.list.tensors[id];
    const std::string_view name = tensor.name;
    if (name == "gradient") gradient = memory.data(id);
    if (name == "first moment") std::memcpy(memory.data(id), gradient, tensor.bytes());
    if (name != "factors") continue;
    auto* factors = reinterpret_cast<float*>(memory.data(id));
    for (std::int64_t i = 0; i < tensor.elements(); i += kUpdateFactors) factors[i] = 1.0F;  // of gradients
  }
}

/// All that is no number counts as the same.
template <typename Word>
std::int64_t differences(const std::byte* got, const std::byte* want, std::int64_t count, Word infinity) {
  std::int64_t found = 0;
  const auto is_none = [&](Word bits) {
    constexpr auto kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
    return static_cast<Word>(bits & static_cast<Word>(~kSign)) > infinity;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    Word a{};
    Word b{};
    std::memcpy(&a, got + static_cast<std::size_t>(i) * sizeof(Word), sizeof(Word));
    std::memcpy(&b, want + static_cast<std::size_t>(i) * sizeof(Word), sizeof(Word));
    if (a != b && !(is_none(a) && is_none(b))) ++found;
  }
  return found;
}

std::int64_t differences(const TensorDesc& tensor, const std::byte* got, const std::byte* want) {
  const std::int64_t n = tensor.elements();
  switch (tensor.dtype) {
    case DType::kFloat64:
      return differences<std::uint64_t>(got, want, n, std::bit_cast<std::uint64_t>(HUGE_VAL));
    case DType::kFloat32:
      return differences<std::uint32_t>(got, want, n, 0x7F800000U);
    case DType::kBfloat16:
      return differences<std::uint16_t>(got, want, n, 0x7F80U);
    case DType::kFloat16:
      return differences<std::uint16_t>(got, want, n, 0x7C00U);
    default:
      return std::memcmp(got, want, tensor.bytes()) == 0 ? 0 : 1;
  }
}

void Update::expect_same_bits(const OpCase& op_case, Numbers numbers) const {
  expect_same_bits(op_case, [&](CaseMemory& memory) {
    if (numbers == Numbers::kSettled) {
      settle(op_case, memory);
    } else if (numbers != Numbers::kOrdinary) {
      fill(op_case, numbers, memory);
    }
  });
}

void Update::expect_same_bits(const OpCase& op_case, const std::function<void(CaseMemory&)>& prepare) const {
  auto given = CaseMemory::make(op_case, 3);
  auto want = CaseMemory::make(op_case, 3);
  auto got = CaseMemory::make(op_case, 3);
  ASSERT_EQ(given.status(), absl::OkStatus());
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  prepare(*given);
  want->copy_from(*given);
  ASSERT_EQ(run_on_card(*processor_, op_case.list, *want), absl::OkStatus());
  for (const auto& card : cards_) {
    got->copy_from(*given);
    ASSERT_EQ(run_on_card(*card, op_case.list, *got), absl::OkStatus());
    for (TensorId id = 0; id < op_case.list.tensors.size(); ++id) {
      const TensorDesc& tensor = op_case.list.tensors[id];
      EXPECT_EQ(differences(tensor, got->data(id), want->data(id)), 0)
          << tensor.name << (card == cards_.back() ? ", without fp64, careless, in parts" : "");
    }
  }
}

TEST_P(Update, OfNumbers_HasTheBitsOfTheProcessors) {
  for (const Numbers numbers :
       {Numbers::kOrdinary, Numbers::kAnyBits, Numbers::kAlike, Numbers::kSettled, Numbers::kRare, Numbers::kOneRare}) {
    SCOPED_TRACE(static_cast<int>(numbers));
    expect_same_bits(update_case(GetParam(), GetParam() == DType::kFloat32 ? Scale::kModel : Scale::kOdd), numbers);
  }
}

TEST_P(Update, OfRareFactors_HasTheBitsOfTheProcessors) {
  const OpCase op_case = update_case(GetParam(), Scale::kOdd);
  for (std::int64_t factor = 0; factor < kUpdateFactors; ++factor) {
    for (const float value : {0.0F, 0x1p-130F, 0x1p-110F, 0x1p-70F, 0x1p-47F, 0x1p70F, 0x1p110F}) {
      SCOPED_TRACE(fmt::format("factor {}: {}", factor, value));
      expect_same_bits(op_case, [&](CaseMemory& memory) {
        fill(op_case, Numbers::kOneRare, memory);
        set_factor(op_case, factor, value, memory);
      });
    }
  }
}

TEST_P(Update, OfCodes_HasTheBitsOfTheProcessors) {
  for (const Numbers numbers :
       {Numbers::kOrdinary, Numbers::kAnyBits, Numbers::kAlike, Numbers::kRare, Numbers::kOneRare}) {
    SCOPED_TRACE(static_cast<int>(numbers));
    expect_same_bits(coded_update_case(GetParam(), Scale::kOdd), numbers);
  }
}

INSTANTIATE_TEST_SUITE_P(, Update, ::testing::Values(DType::kFloat32, DType::kBfloat16, DType::kFloat16),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace rondo::devices::testing
