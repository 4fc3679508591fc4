// Every op on the CPU against the reference, in fp32, bf16 and fp16, each op on the reference's own inputs.
#include <gtest/gtest.h>

#include "every_op.h"
#include "on_the_cpu.h"

namespace rondo::devices::testing {
namespace {

class EveryOp : public OpTest {};

TEST_P(EveryOp, OnTheCpu_AgreesWithTheReference) { expect_reference_on_the_cpu(op_case(), std::get<1>(GetParam())); }

INSTANTIATE_TEST_SUITE_P(, EveryOp, every_op(), name_of_op_test);

}  // namespace
}  // namespace rondo::devices::testing
