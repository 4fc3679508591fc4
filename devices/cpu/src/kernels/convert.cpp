// Conversions between fp32 and what is stored, and the name of the instruction set in use.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

template <typename From, typename To>
void convert(ThreadPool& pool, const From* x, To* y, std::int64_t n) {
  pool.parallel_for(divide_up(n, kTaskElements), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t begin = task * kTaskElements;
    const std::int64_t count = HWY_MIN(kTaskElements, n - begin);
    for_vectors(count, [=](std::int64_t i, auto extent)
                           HWY_ATTR { store(load(x + begin + i, extent), y + begin + i, extent); });
  });
}

void widen(ThreadPool& pool, Storage storage, const void* x, float* y, std::int64_t n) {
  with_storage(storage, [&](auto type) { convert(pool, static_cast<const decltype(type)*>(x), y, n); });
}
void narrow(ThreadPool& pool, const float* x, Storage storage, void* y, std::int64_t n) {
  with_storage(storage, [&](auto type) { convert(pool, x, static_cast<decltype(type)*>(y), n); });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(target_name);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

std::string kernel_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

void to_float32(ThreadPool& pool, Storage storage, const void* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(widen)(pool, storage, x, y, n);
}

void from_float32(ThreadPool& pool, const float* x, Storage storage, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(narrow)(pool, x, storage, y, n);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
