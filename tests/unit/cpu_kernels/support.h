// What the kernel tests share: arrays in either storage, random values, comparison with fp64 references, and runs on
// every instruction set of this machine and with several thread counts.
#pragma once

#include <cpuid.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels.h"
#include "kernels/tile_units.h"
#include "rondo/base/float16.h"

namespace rondo::devices::cpu::testing {

inline float widen(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

/// Whether this process may use the processor's matrix units for bf16 (AMX), for which it asks.
inline bool has_tile_units() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kAmxBf16 = 1U << 22U;  // of EDX of leaf 7, Intel's Software Developer's Manual, volume 2, CPUID
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmxBf16) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, arch_prctl(2)
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// What this processor multiplies small bf16 matrices with, of what Rondo knows.
inline const std::vector<const TileUnits*>& units_of_the_processor() {
  static const std::vector<const TileUnits*> all = [] {
    std::vector<const TileUnits*> units;
    if (__builtin_cpu_supports("avx512bf16") != 0) units.push_back(&dot_units());
    if (has_tile_units()) units.push_back(&amx_units());
    return units;
  }();
  return all;
}

/// The nearest bf16, ties to even, found by comparing distances rather than by the kernels' arithmetic on bits.
inline std::uint16_t narrow(float x) {
  const auto low = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
  const auto high = static_cast<std::uint16_t>(low + 1);
  const double below = std::abs(static_cast<double>(x) - static_cast<double>(widen(low)));
  const double above = std::abs(static_cast<double>(widen(high)) - static_cast<double>(x));
  if (below == above) return (low & 1U) == 0 ? low : high;
  return below < above ? low : high;
}

/// An array stored as fp32, bf16 or fp16.
class Array {
 public:
  Array(Storage storage, std::size_t n) : storage_(storage), floats_(n), halves_(n) {}
  Array(Storage storage, const std::vector<float>& values) : Array(storage, values.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      floats_[i] = values[i];
      halves_[i] = storage == Storage::kFloat16 ? to_float16(values[i]) : narrow(values[i]);
    }
  }
  void* data() { return storage_ == Storage::kFloat32 ? static_cast<void*>(floats_.data()) : halves_.data(); }
  const void* data() const {
    return storage_ == Storage::kFloat32 ? static_cast<const void*>(floats_.data()) : halves_.data();
  }
  std::size_t size() const { return floats_.size(); }
  double operator[](std::size_t i) const {
    if (storage_ == Storage::kFloat16) return static_cast<double>(from_float16(halves_[i]));
    return static_cast<double>(storage_ == Storage::kFloat32 ? floats_[i] : widen(halves_[i]));
  }
  /// Elements begin ... begin + count - 1 as an array of their own.
  Array slice(std::size_t begin, std::size_t count) const {
    Array result(storage_, count);
    std::memcpy(result.floats_.data(), floats_.data() + begin, count * sizeof(float));
    std::memcpy(result.halves_.data(), halves_.data() + begin, count * sizeof(std::uint16_t));
    return result;
  }
  bool same_bits(const Array& other) const {
    const std::size_t bytes = size() * (storage_ == Storage::kFloat32 ? 4 : 2);
    return size() == other.size() && std::memcmp(data(), other.data(), bytes) == 0;
  }

 private:
  Storage storage_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> halves_;
};

inline std::vector<float> random_values(std::size_t n, std::uint32_t seed, float spread = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

inline Array random_array(Storage storage, std::int64_t n, std::uint32_t seed, float spread = 1.0F) {
  return {storage, random_values(static_cast<std::size_t>(n), seed, spread)};
}

/// |got - want| <= relative * |want| + absolute for all elements; a bf16 or fp16 result may be off by its rounding as
/// well: half a unit in the last of eight or eleven bits, in fp16 at least half of 2^-24.
inline void expect_close(const Array& got, const std::vector<double>& want, Storage storage, double relative,
                         double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const bool half = storage == Storage::kFloat16;
  const double rounding = storage == Storage::kBfloat16 ? 0x1.0p-8 : half ? 0x1.0p-11 : 0.0;
  const double least = half ? 0x1.0p-25 : 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double allowed = (relative + rounding) * std::abs(want[i]) + absolute + least;
    ASSERT_LE(std::abs(got[i] - want[i]), allowed)
        << what << ": element " << i << " is " << got[i] << ", expected " << want[i];
  }
}

struct Batch {
  std::vector<std::int32_t> bounds, positions;
};

/// Sequences of these lengths one after another, padded to `tokens`.
inline Batch batch_of(const std::vector<std::int32_t>& lengths, std::size_t tokens) {
  Batch batch;
  batch.bounds.push_back(static_cast<std::int32_t>(lengths.size()));
  std::int32_t at = 0;
  for (const std::int32_t length : lengths) {
    batch.bounds.push_back(at);
    for (std::int32_t i = 0; i < length; ++i) batch.positions.push_back(i);
    at += length;
  }
  batch.bounds.push_back(at);
  batch.bounds.resize(tokens + 2);
  batch.positions.resize(tokens);
  return batch;
}

/// Runs `body` with each instruction set that this machine has and the kernels are compiled for.
inline void for_each_target(const std::function<void()>& body) {
  const std::int64_t available = hwy::SupportedTargets();
  for (const std::int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if ((available & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_EQ(kernel_target(), hwy::TargetName(target));
    SCOPED_TRACE(kernel_target());
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
}

inline void for_each_storage(const std::function<void(Storage)>& body) {
  for_each_target([&] {
    for (const Storage storage : {Storage::kFloat32, Storage::kBfloat16, Storage::kFloat16}) {
      SCOPED_TRACE("storage " + std::to_string(static_cast<int>(storage)));
      body(storage);
    }
  });
}

/// `run` computes an array with a pool; it must give the same bits with 1, 2 and 3 threads.
inline void expect_same_with_any_threads(const std::function<Array(ThreadPool&)>& run) {
  ThreadPool one(1);
  const Array expected = run(one);
  for (const std::uint32_t threads : {2U, 3U}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(run(pool).same_bits(expected)) << threads << " threads";
  }
}

}  // namespace rondo::devices::cpu::testing
