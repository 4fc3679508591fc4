// Tests that run for every described op with all storage types of the devices.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "op_case.h"

namespace rondo::devices::testing {

/// Parameters: the op's place in op_descriptions(), and the storage type.
class OpTest : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {
 protected:
  OpCase op_case() const {
    return op_descriptions()[std::get<0>(GetParam())].make(std::get<1>(GetParam()), Scale::kOdd);
  }
};

inline auto every_op() {
  return ::testing::Combine(::testing::Range<std::size_t>(0, op_descriptions().size()),
                            ::testing::Values(DType::kFloat32, DType::kBfloat16, DType::kFloat16));
}

inline std::string name_of_op_test(const ::testing::TestParamInfo<OpTest::ParamType>& info) {
  return std::string(op_descriptions()[std::get<0>(info.param)].name) + "_" + name_of(std::get<1>(info.param));
}

}  // namespace rondo::devices::testing
