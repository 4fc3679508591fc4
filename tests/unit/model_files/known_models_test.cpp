// Models that are planned by name have the published numbers of parameters.
#include "rondo/model/known_models.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

std::uint64_t parameters_of(const ModelConfig& config) {
  std::uint64_t count = 0;
  for (const ParameterSpec& spec : model_parameters(config)) {
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : spec.shape) elements *= extent;
    count += elements;
  }
  return count;
}

TEST(KnownModels, Names_AreManyAndEachIsFound) {
  const std::vector<std::string> names = known_models();
  EXPECT_GE(names.size(), 20U);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const std::string& name : names) EXPECT_TRUE(known_model(name)) << name;
}

TEST(KnownModels, Parameters_AreAsPublished) {
  // The sizes of the safetensors files on the Hub.
  const std::map<std::string, std::uint64_t> published = {{"meta-llama/Llama-2-7b-hf", 6738415616},
                                                          {"meta-llama/Llama-2-13b-hf", 13015864320},
                                                          {"meta-llama/Llama-2-70b-hf", 68976648192},
                                                          {"meta-llama/Meta-Llama-3-8B", 8030261248},
                                                          {"meta-llama/Llama-3.1-8B", 8030261248},
                                                          {"meta-llama/Llama-3.1-70B", 70553706496},
                                                          {"meta-llama/Llama-3.1-405B", 405853388800},
                                                          {"meta-llama/Llama-3.2-1B", 1235814400},
                                                          {"meta-llama/Llama-3.2-3B", 3212749824},
                                                          {"TinyLlama/TinyLlama_v1.1", 1100048384},
                                                          {"HuggingFaceTB/SmolLM2-135M", 134515008},
                                                          {"HuggingFaceTB/SmolLM2-360M", 361821120},
                                                          {"HuggingFaceTB/SmolLM2-1.7B", 1711376384},
                                                          {"mistralai/Mistral-7B-v0.1", 7241732096},
                                                          {"mistralai/Mistral-7B-v0.3", 7248023552},
                                                          {"mistralai/Mistral-Nemo-Base-2407", 12247782400},
                                                          {"mistralai/Mistral-Small-24B-Base-2501", 23572403200},
                                                          {"mistralai/Mistral-Small-3.1-24B-Base-2503", 23572403200},
                                                          {"Qwen/Qwen2-0.5B", 494032768},
                                                          {"Qwen/Qwen2-1.5B", 1543714304},
                                                          {"Qwen/Qwen2-7B", 7615616512},
                                                          {"Qwen/Qwen2-72B", 72706203648},
                                                          {"Qwen/Qwen2.5-3B", 3085938688},
                                                          {"Qwen/Qwen2.5-14B", 14770033664},
                                                          {"Qwen/Qwen2.5-32B", 32763876352},
                                                          {"Qwen/Qwen3-0.6B", 596049920},
                                                          {"Qwen/Qwen3-1.7B", 1720574976},
                                                          {"Qwen/Qwen3-4B", 4022468096},
                                                          {"Qwen/Qwen3-8B", 8190735360},
                                                          {"Qwen/Qwen3-14B", 14768307200},
                                                          {"Qwen/Qwen3-32B", 32762123264},
                                                          {"Qwen/Qwen3-30B-A3B", 30532122624},
                                                          {"Qwen/Qwen3-235B-A22B", 235093634560},
                                                          {"mistralai/Mixtral-8x7B-v0.1", 46702792704},
                                                          {"allenai/OLMoE-1B-7B-0924", 6919161856},
                                                          {"HuggingFaceTB/SmolLM3-3B", 3075098624},
                                                          {"LiquidAI/LFM2-350M", 354483968},
                                                          {"LiquidAI/LFM2-700M", 742489344},
                                                          {"LiquidAI/LFM2-1.2B", 1170340608},
                                                          {"ibm-granite/granite-3.3-2b-instruct", 2533539840},
                                                          {"ibm-granite/granite-3.3-8b-instruct", 8170864640},
                                                          {"ibm-granite/granite-3.1-1b-a400m-instruct", 1334628352},
                                                          {"ibm-granite/granite-3.1-3b-a800m-instruct", 3298793472},
                                                          {"allenai/OLMo-2-0425-1B", 1484916736},
                                                          {"allenai/OLMo-2-1124-7B", 7298617344},
                                                          {"allenai/OLMo-2-1124-13B", 13716198400},
                                                          {"allenai/OLMo-2-0325-32B", 32234279936},
                                                          {"microsoft/Phi-3-mini-4k-instruct", 3821079552},
                                                          {"microsoft/Phi-3-medium-4k-instruct", 13960238080},
                                                          {"microsoft/Phi-3.5-mini-instruct", 3821079552},
                                                          {"microsoft/phi-4", 14659507200},
                                                          {"microsoft/Phi-4-mini-instruct", 3836021760},
                                                          {"google/gemma-2b", 2506172416},
                                                          {"google/gemma-7b", 8537680896},
                                                          {"google/gemma-2-2b", 2614341888},
                                                          {"google/gemma-2-9b", 9241705984},
                                                          {"google/gemma-2-27b", 27227128320},
                                                          {"google/gemma-3-270m", 268098176},
                                                          {"google/gemma-3-1b-pt", 999885952}};
  for (const auto& [name, count] : published) {
    const auto config = known_model(name);
    ASSERT_TRUE(config) << name;
    EXPECT_EQ(parameters_of(*config), count) << name;
  }
}

/// Their files count bytes of codes. To the digits of the model card (arXiv 2508.10925, table 1).
TEST(KnownModels, ParametersOfGptOss_AreAsPublished) {
  EXPECT_NEAR(static_cast<double>(parameters_of(*known_model("openai/gpt-oss-20b"))), 20.91e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(parameters_of(*known_model("openai/gpt-oss-120b"))), 116.83e9, 0.005e9);
}

/// Files on the Hub have more: what reads pictures, and layers for several tokens ahead. As transformers 5.23 counts
/// its Qwen3_5MoeForCausalLM and Qwen3NextForCausalLM; the default configurations are those of the smaller one of
/// Qwen3.5 and of Qwen3-Next.
TEST(KnownModels, ParametersOfMixturesWithASharedExpert_AreThoseOfTheTextPart) {
  EXPECT_EQ(parameters_of(*known_model("Qwen/Qwen1.5-MoE-A2.7B")), 14315784192U);
  EXPECT_EQ(parameters_of(*known_model("Qwen/Qwen2-57B-A14B-Instruct")), 57408658944U);
  EXPECT_EQ(parameters_of(*known_model("Qwen/Qwen3.5-35B-A3B")), 34660610688U);
  EXPECT_EQ(parameters_of(*known_model("Qwen/Qwen3-Next-80B-A3B-Instruct")), 79674391296U);
}

/// As transformers 5.23 counts, and the biases by which experts are chosen, which but for ERNIE's are no parameters
/// there.
TEST(KnownModels, ParametersOfMixturesThatABiasChooses_AreAsInTransformers) {
  EXPECT_EQ(parameters_of(*known_model("zai-org/GLM-4.5-Air")), 106852245504U + 45U * 128U);
  EXPECT_EQ(parameters_of(*known_model("zai-org/GLM-4.5")), 352797814784U + 89U * 160U);
  EXPECT_EQ(parameters_of(*known_model("baidu/ERNIE-4.5-21B-A3B-PT")), 21825437888U);
  EXPECT_EQ(parameters_of(*known_model("LiquidAI/LFM2-8B-A1B")), 8339929856U + 22U * 32U);
}

/// Those whose text part is built as another model.
TEST(KnownModels, ParametersOfTextParts_AreThoseOfTheModelsTheyAreBuiltAs) {
  for (const auto& [whole, text] : {std::pair("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen2.5-3B"),
                                    {"Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B"},
                                    {"Qwen/Qwen2.5-VL-72B-Instruct", "Qwen/Qwen2.5-72B"},
                                    {"Qwen/Qwen3-VL-2B-Instruct", "Qwen/Qwen3-1.7B"},
                                    {"Qwen/Qwen3-VL-4B-Instruct", "Qwen/Qwen3-4B"},
                                    {"Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-8B"},
                                    {"Qwen/Qwen3-VL-32B-Instruct", "Qwen/Qwen3-32B"},
                                    {"Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen/Qwen3-30B-A3B"},
                                    {"Qwen/Qwen3-VL-235B-A22B-Instruct", "Qwen/Qwen3-235B-A22B"}}) {
    ASSERT_TRUE(known_model(whole)) << whole;
    EXPECT_EQ(parameters_of(*known_model(whole)), parameters_of(*known_model(text))) << whole;
  }
}

/// As transformers 5.23 counts, and a number of each block, which is no parameter there.
TEST(KnownModels, ParametersOfGemma4_AreThoseOfTheTextPart) {
  EXPECT_EQ(parameters_of(*known_model("google/gemma-4-E2B-it")), 4628569344U + 35U);
  EXPECT_EQ(parameters_of(*known_model("google/gemma-4-E4B")), 7463013376U + 42U);
  EXPECT_EQ(parameters_of(*known_model("google/gemma-4-31B")), 30697345280U + 60U);
  EXPECT_EQ(parameters_of(*known_model("google/gemma-4-26B-A4B-it")), 25233141760U + 30U);
}

/// As transformers 5.23 counts; but for V2-Lite the biases by which experts are chosen are no parameters there.
TEST(KnownModels, ParametersOfAttentionByALatent_AreAsInTransformers) {
  EXPECT_EQ(parameters_of(*known_model("zai-org/GLM-4.7-Flash")), 29943390976U + 46U * 64U);
  EXPECT_EQ(parameters_of(*known_model("deepseek-ai/DeepSeek-V3")), 671026404352U + 58U * 256U);
  EXPECT_EQ(parameters_of(*known_model("moonshotai/Moonlight-16B-A3B-Instruct")), 15960108544U + 26U * 64U);
  EXPECT_EQ(parameters_of(*known_model("deepseek-ai/DeepSeek-V2-Lite-Chat")), 15706484224U);
}

/// As transformers 5.23 counts; the biases by which experts are chosen are no parameters there.
TEST(KnownModels, ParametersOfLayersOfOneHalf_AreAsInTransformers) {
  EXPECT_EQ(parameters_of(*known_model("nvidia/Nemotron-H-8B-Base-8K")), 8100852736U);
  EXPECT_EQ(parameters_of(*known_model("nvidia/NVIDIA-Nemotron-Nano-9B-v2")), 8888227328U);
  EXPECT_EQ(parameters_of(*known_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")), 31577937344U + 23U * 128U);
}

/// As transformers 5.23 counts.
TEST(KnownModels, ParametersOfStateSpacesWithMlps_AreAsInTransformers) {
  EXPECT_EQ(parameters_of(*known_model("ibm-ai-platform/Bamba-9B-v2")), 9780235392U);
  EXPECT_EQ(parameters_of(*known_model("tiiuae/Falcon-H1-7B-Instruct")), 7585513568U);
}

/// As transformers 5.23 counts.
TEST(KnownModels, ParametersOfSmallFamilies_AreAsInTransformers) {
  EXPECT_EQ(parameters_of(*known_model("internlm/internlm3-8b-instruct")), 8804241408U);
  EXPECT_EQ(parameters_of(*known_model("IQuestLab/IQuest-Coder-V1-40B-Instruct")), 39794283520U);
  EXPECT_EQ(parameters_of(*known_model("kyutai/helium-1-preview-2b")), 2172643840U);
  EXPECT_EQ(parameters_of(*known_model("THUDM/glm-4-9b-chat-hf")), 9399951360U);
  EXPECT_EQ(parameters_of(*known_model("tencent/Youtu-LLM-2B")), 1961560064U);
  EXPECT_EQ(parameters_of(*known_model("nvidia/Minitron-4B-Base")), 4190509056U);
  EXPECT_EQ(parameters_of(*known_model("nvidia/Minitron-8B-Base")), 8271699968U);
  EXPECT_EQ(parameters_of(*known_model("ibm-granite/granite-4.0-micro")), 3402836480U);
  EXPECT_EQ(parameters_of(*known_model("facebook/cwm")), 32581097472U);
  EXPECT_EQ(parameters_of(*known_model("openbmb/MiniCPM3-4B")), 4073875968U);
  EXPECT_EQ(parameters_of(*known_model("karpathy/nanochat-d32")), 1879048192U);
  EXPECT_EQ(parameters_of(*known_model("inceptionai/Jais-2-8B-Chat")), 8090401280U);
}

TEST(KnownModels, OtherSpellings_AreTheSameModel) {
  for (const char* name : {"qwen3-32b", "Qwen3-32B", "qwen/qwen3-32b"}) EXPECT_TRUE(known_model(name)) << name;
  for (const char* name :
       {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B-Base",
        "meta-llama/Llama-2-7b-chat-hf", "Llama-3.3-70B", "google/gemma-3-1b-it", "gemma-3-270m-it"}) {
    EXPECT_TRUE(known_model(name)) << name;
  }
}

TEST(KnownModels, OthersModels_AreUnknown) {
  for (const char* name : {"", "Qwen3-33B", "somebody/Qwen3-32B", "Qwen/", "Qwen/Qwen3-32B-MoE", "/models/Qwen3-32B"}) {
    EXPECT_FALSE(known_model(name)) << name;
  }
}

TEST(KnownModels, RotaryScalingAndWindows_AreRead) {
  EXPECT_EQ(known_model("Llama-3.2-1B")->rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(known_model("Llama-3.2-1B")->rope.factor, 32);
  EXPECT_EQ(known_model("Mistral-7B-v0.1")->sliding_window.at(0), 4096U);
  EXPECT_EQ(known_model("Mistral-7B-v0.3")->sliding_window.at(0), 0U);
  EXPECT_TRUE(known_model("Qwen2-7B")->attention_bias);
  EXPECT_EQ(known_model("gemma-3-1b")->sliding_window.at(4), 512U);
  EXPECT_EQ(known_model("gemma-3-1b")->sliding_window.at(5), 0U);
  EXPECT_TRUE(known_model("SmolLM3-3B")->without_rope.at(3));
  EXPECT_EQ(known_model("Ministral-3-8B-Base-2512")->rope.query_growth, (QueryGrowth{.rate = 0.1, .from = 16384}));
}

}  // namespace
}  // namespace rondo::model
