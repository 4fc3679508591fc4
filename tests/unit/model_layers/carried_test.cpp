// What lies between two layers beside the residual stream, and rows of one matrix that blocks share out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rondo/model/architecture.h"
#include "rondo/model/known_models.h"
#include "rondo/model/parameters.h"
#include "tiny_model.h"

namespace rondo::model {
namespace {

using devices::DType;

constexpr std::uint32_t kTokensCarried = 16;

Architecture e2b() {
  auto made = Architecture::make(*known_model("google/gemma-4-E2B"), tiny::lora(DType::kBfloat16));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

/// The halves of block N are layers 1 + 2 N and 2 + 2 N.
LayerIndex attention_of(std::uint32_t block) { return 1 + 2 * block; }
LayerIndex mlp_of(std::uint32_t block) { return 2 + 2 * block; }

TEST(Carried, BlocksOfOneKind_HaveOneProgram) {
  const Architecture model = e2b();
  const auto program = [&](LayerIndex layer) { return model.layers()[layer].program_class; };
  EXPECT_EQ(program(mlp_of(3)), program(mlp_of(4)));    // whatever rows they have
  EXPECT_NE(program(mlp_of(14)), program(mlp_of(15)));  // where MLPs become wider
  EXPECT_EQ(program(mlp_of(15)), program(mlp_of(34)));
  EXPECT_EQ(program(attention_of(11)), program(attention_of(12)));
  EXPECT_NE(program(attention_of(12)), program(attention_of(13)));  // which lends its keys
  EXPECT_NE(program(attention_of(9)), program(attention_of(14)));   // likewise, of those that see all
  EXPECT_EQ(program(attention_of(15)), program(attention_of(33)));
}

TEST(Carried, EachBlock_HasItsRowsOfTheProjection) {
  const Architecture model = e2b();
  for (const std::uint32_t block : {0U, 20U}) {
    const std::vector<ParameterUse>& uses = model.layers()[mlp_of(block)].parameters;
    const auto use = std::ranges::find_if(uses, [&](const ParameterUse& one) {
      return model.parameters()[one.id].name == "model.per_layer_model_projection.weight";
    });
    ASSERT_NE(use, uses.end());
    EXPECT_EQ(use->first_row, block * 256);
    EXPECT_EQ(use->rows, 256);
    EXPECT_EQ(use->piece, block);
  }
}

TEST(Carried, TheTable_IsOfNoLayer) {
  const Architecture model = e2b();
  ASSERT_TRUE(model.block_table().has_value());
  const ParameterId table = model.block_table()->table;
  EXPECT_EQ(model.parameters()[table].name, "model.embed_tokens_per_layer.weight");
  EXPECT_EQ(model.block_table()->scale, 16.0);
  for (const Layer& layer : model.layers()) {
    EXPECT_EQ(std::ranges::count(layer.parameters, table, &ParameterUse::id), 0) << layer.name;
  }
}

/// The stream, the embedding, and keys and values of a head of 256 channels and of one of 512.
TEST(Carried, BetweenLayers_LieKeysAndValuesToo) {
  EXPECT_EQ(e2b().boundary_bytes(kTokensCarried), Bytes{kTokensCarried} * (2 * 1536 + 2 * 256 + 2 * 512) * 2);
  const auto other = Architecture::make(*known_model("google/gemma-4-31B"), tiny::lora(DType::kBfloat16));
  EXPECT_EQ(other->boundary_bytes(kTokensCarried, Phase::kDecode), Bytes{kTokensCarried} * 5376 * 2);
}

TEST(Carried, EncodedBoundaries_AreRefused) {
  MethodSpec spec = tiny::lora(DType::kBfloat16);
  spec.boundary_encoding = devices::Encoding::kHadamard8;
  const auto made = Architecture::make(*known_model("google/gemma-4-E2B"), spec);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(std::string(made.status().message()), testing::HasSubstr("boundary_quantization_bit"));
}

}  // namespace
}  // namespace rondo::model
