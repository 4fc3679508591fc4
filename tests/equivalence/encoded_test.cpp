// A frozen base that is kept, sent and held encoded: the same bits on every pool and plan, and the bits of a plain
// model that holds the numbers which the codes stand for.
#include <gtest/gtest.h>

#include <cstring>

#include "rondo/devices/reference/reference.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using devices::Encoding;
using partition::Keep;

struct EncodedVariant {
  const char* name;
  Encoding encoding;
  DType dtype;
};
void PrintTo(const EncodedVariant& variant, std::ostream* stream) { *stream << variant.name; }

model::MethodSpec encoded_lora(Encoding encoding, DType dtype) {
  model::MethodSpec method = lora(dtype);
  method.base_encoding = encoding;
  return method;
}

/// Fills a plain model with what the encoded weights of the same seed expand to.
void fill_expanded(const model::Architecture& plain, Encoding encoding, offload::ParameterStore& store) {
  constexpr std::uint64_t kSeed = 9;
  fill_weights(plain, kSeed, store);
  const DType dtype = plain.method().dtype;
  const model::Architecture encoded = *model::Architecture::make(plain.config(), encoded_lora(encoding, dtype));
  std::vector<offload::ParameterSpec> specs;
  for (const model::Parameter& one : encoded.parameters()) {
    specs.push_back({one.name, one.elements(), one.trained, one.decays(), one.encoding});
  }
  auto codes = offload::ParameterStore::make(specs, dtype, false);
  ASSERT_TRUE(codes.ok());
  fill_weights(encoded, kSeed, *codes);
  for (model::ParameterId id = 0; id < specs.size(); ++id) {
    if (specs[id].encoding == Encoding::kPlain) continue;
    devices::OpList list;
    list.tokens = 16;
    const devices::Shape shape = encoded.parameters()[id].shape;
    list.tensors.push_back({"codes", shape, dtype, devices::TensorRole::kWeight, 0, encoding});
    list.tensors.push_back({"numbers", shape, dtype, devices::TensorRole::kOutput, 0});
    list.ops.push_back({devices::OpKind::kExpand, devices::NoAttributes{}, {0}, {1}});
    devices::Bindings bindings;
    bindings.tensors = {codes->published(id), store.published(id)};
    ASSERT_TRUE(devices::run_reference(list, bindings).ok());
  }
}

class Encoded : public testing::TestWithParam<EncodedVariant> {
 protected:
  Encoded() {
    job_.steps = steps_of(dataset_, {5, 5, 3});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 9, store); };
  }

  const data::Dataset dataset_ = random_samples(61, 5, 48, 24);
  const model::Architecture model_ =
      *model::Architecture::make(small_config(), encoded_lora(GetParam().encoding, GetParam().dtype));
  Job job_;
};

TEST_P(Encoded, OverPoolsPlansAndKeeps_GivesTheSameBits) {
  const Trace reference = trace_of(model_, job_, {"cpu"});
  const auto expect_same = [&](const Placement& placement) {
    SCOPED_TRACE(placement.name);
    const Trace trace = trace_of(model_, job_, placement);
    EXPECT_EQ(trace.loss_sums, reference.loss_sums);
    EXPECT_EQ(trace.norms, reference.norms);
    EXPECT_EQ(trace.bytes == reference.bytes, true);
  };
  for (const std::string& pool : {std::string("cpu"), fast_cards(1), fast_cards(3), fast_cards(2) + ",cpu"}) {
    for (const Keep keep : {Keep::kNothing, Keep::kSelective, Keep::kAll}) {
      Placement placement{pool + " keeping " + std::to_string(static_cast<int>(keep)), pool};
      placement.keep = keep;
      expect_same(placement);
      placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
      placement.threads = 2;
      expect_same(placement);
    }
  }
}

TEST_P(Encoded, AgainstThePlainModelOfTheSameNumbers_SameLossesAndFactors) {
  const Trace encoded = trace_of(model_, job_, {"encoded"});
  const model::Architecture plain = *model::Architecture::make(small_config(), lora(GetParam().dtype));
  Job job = job_;
  job.fill = [](const model::Architecture& one, offload::ParameterStore& store) {
    fill_expanded(one, GetParam().encoding, store);
  };
  const Trace expanded = trace_of(plain, job, {"plain"});
  EXPECT_EQ(encoded.loss_sums, expanded.loss_sums);
  EXPECT_EQ(encoded.norms, expanded.norms);
  const Trace other = trace_of(plain, job_, {"unrounded"});
  EXPECT_NE(encoded.loss_sums, other.loss_sums);
  EXPECT_NEAR(encoded.loss_sums[2] / other.loss_sums[2], 1, 0.1);
}

TEST_P(Encoded, Weights_TakeTheirEncodedBytesEverywhere) {
  Placement placement{"card", fast_cards(1)};
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  Bytes bytes = 0;
  for (model::ParameterId id = 0; id < model_.parameters().size(); ++id) {
    const model::Parameter& parameter = model_.parameters()[id];
    const bool of_a_block = parameter.kind == model::WeightKind::kMatrix && parameter.name != "lm_head.weight";
    EXPECT_EQ(parameter.encoding, of_a_block ? GetParam().encoding : Encoding::kPlain) << parameter.name;
    EXPECT_EQ((*run)->store().published(id).size, parameter.bytes(GetParam().dtype));
    bytes += parameter.bytes(GetParam().dtype);
  }
  EXPECT_EQ((*run)->plan().host[0], (std::pair<std::string, Bytes>("weights", bytes)));
  EXPECT_EQ((*run)->device(0).peak_bytes(), (*run)->plan().devices[0].peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(, Encoded,
                         testing::Values(EncodedVariant{"int8_bf16", Encoding::kInt8, DType::kBfloat16},
                                         EncodedVariant{"nf4_bf16", Encoding::kNf4, DType::kBfloat16},
                                         EncodedVariant{"nf4_fp32", Encoding::kNf4, DType::kFloat32},
                                         EncodedVariant{"mxfp4_bf16", Encoding::kMxfp4, DType::kBfloat16}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
