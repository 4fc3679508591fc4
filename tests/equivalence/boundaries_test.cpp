// Activations and gradients that pass from layer to layer in codes: the same bits on every pool, plan and tier, since
// they are rounded whether or not they travel; losses near those without codes; the promised bytes.
#include <gtest/gtest.h>

#include <cmath>

#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using devices::Encoding;
using partition::Keep;

struct Coded {
  Variant variant;
  double loss_tolerance;  // against the same run without codes: of the first step's loss
  double norm_tolerance;  // likewise; of this model's adapters bf16 alone changes it by 3%
};
void PrintTo(const Coded& coded, std::ostream* stream) { *stream << coded.variant.name; }

/// The same model without codes.
model::Architecture plain_model(const model::Architecture& model) {
  model::MethodSpec method = model.method();
  method.boundary_encoding = Encoding::kPlain;
  return *model::Architecture::make(model.config(), method);
}

class Boundaries : public testing::TestWithParam<Coded> {
 protected:
  Boundaries() {
    job_.steps = steps_of(dataset_, {5, 5, 3});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 9, store); };
  }
  void expect_same(const Trace& reference, const Placement& placement) const {
    SCOPED_TRACE(placement.name);
    const Trace trace = trace_of(model_, job_, placement);
    EXPECT_EQ(trace.loss_sums, reference.loss_sums);
    EXPECT_EQ(trace.norms, reference.norms);
    EXPECT_EQ(trace.bytes == reference.bytes, true);
  }

  const data::Dataset dataset_ = random_samples(61, 5, 48, 24);
  const model::Architecture model_ = model_of(GetParam().variant);
  Job job_;
};

TEST_P(Boundaries, OverPoolsPlansAndKeeps_GiveTheSameBits) {
  const Trace reference = trace_of(model_, job_, {"cpu"});
  for (const std::string& pool : {std::string("cpu"), fast_cards(1), fast_cards(3), fast_cards(2) + ",cpu"}) {
    for (const Keep keep : {Keep::kNothing, Keep::kSelective, Keep::kAll}) {
      Placement placement{pool + " keeping " + std::to_string(static_cast<int>(keep)), pool};
      placement.keep = keep;
      expect_same(reference, placement);
      placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
      placement.threads = 2;
      expect_same(reference, placement);
    }
  }
  Placement apart{"one layer each", fast_cards(3)};
  apart.stages = one_layer_each(model_);
  apart.verify_transfers = true;
  expect_same(reference, apart);
  apart.name = "boundaries on disk";
  apart.boundaries_on_disk = 0;
  expect_same(reference, apart);
}

TEST_P(Boundaries, AgainstNumbersInFull_FollowTheirLosses) {
  const Trace coded = trace_of(model_, job_, {"codes"});
  const Trace plain = trace_of(plain_model(model_), job_, {"numbers"});
  EXPECT_NE(coded.loss_sums, plain.loss_sums);
  EXPECT_NEAR(coded.loss_sums[0] / plain.loss_sums[0], 1, GetParam().loss_tolerance);
  EXPECT_NEAR(coded.norms[0] / plain.norms[0], 1, GetParam().norm_tolerance);
}

TEST_P(Boundaries, TakeTheirEncodedBytes) {
  const double bits = GetParam().variant.boundaries == Encoding::kHadamard8 ? 8.5 : 4.5;
  constexpr std::uint32_t kTokens = 64;
  const std::int64_t elements = std::int64_t{kTokens} * model_.config().hidden_size;
  EXPECT_EQ(static_cast<double>(model_.boundary_bytes(kTokens)) * 8, bits * static_cast<double>(elements));
  // Programs that are larger than the plan says would not fit here.
  const Placement placement{"card", fast_cards(1)};
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->train(0).ok());
  EXPECT_EQ((*run)->device(0).peak_bytes(), (*run)->plan().devices[0].peak_bytes);
  const model::Architecture numbers = plain_model(model_);
  auto plain = TinyRun::make(numbers, job_, placement);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_NE((*run)->plan().devices[0].peak_bytes, (*plain)->plan().devices[0].peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    , Boundaries,
    testing::Values(
        Coded{{"lora_8bit_bf16", true, DType::kBfloat16, false, 16, false, Encoding::kHadamard8}, 2e-3, 0.15},
        Coded{{"full_8bit_fp32", false, DType::kFloat32, false, 16, false, Encoding::kHadamard8}, 1e-3, 0.01},
        Coded{{"full_4bit_bf16_tied", false, DType::kBfloat16, true, 16, false, Encoding::kHadamard4}, 0.02, 0.1}),
    [](const auto& one) { return std::string(one.param.variant.name); });

TEST(BoundariesOf, HiddenSizeThatIsNoWholeNumberOfBlocks_IsRefused) {
  model::MethodSpec method = lora(DType::kBfloat16);
  method.boundary_encoding = Encoding::kHadamard8;
  const auto refused = model::Architecture::make(small_config(), method);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "boundary_quantization_bit: the model's hidden_size is 24, no multiple of 64; leave it out");
}

}  // namespace
}  // namespace rondo::tiny
