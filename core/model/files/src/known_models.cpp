// From the config.json files that the models were published with, of those that read pictures too the text part. Token
// ids, initializer ranges, Granite's and Falcon-H1's factors and scalings of Gemma's, Phi's, MiniCPM's and Ministral's
// rotary embedding are left to the family's defaults: a plan does not need them.
#include "rondo/model/known_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace rondo::model {
namespace {

struct Row {
  const char* name;
  const char* type;
  std::uint32_t hidden;
  std::uint32_t intermediate;
  std::uint32_t layers;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  std::uint32_t vocabulary;
  bool tied;
  std::uint32_t positions;
  double theta;
  double llama3_factor = 0;  // of the rotary scaling "llama3"; 0: none
  std::uint32_t window = 0;  // sliding; 0: none
  std::uint32_t experts = 0;
  std::uint32_t choices = 0;      // of experts by a token
  std::uint32_t width = 0;        // of an expert; 0: intermediate
  std::uint32_t value_heads = 0;  // of linear attention, which has 16 of keys
};

constexpr Row kRows[] = {
    {"meta-llama/Llama-2-7b-hf", "llama", 4096, 11008, 32, 32, 32, 128, 32000, false, 4096, 1e4},
    {"meta-llama/Llama-2-13b-hf", "llama", 5120, 13824, 40, 40, 40, 128, 32000, false, 4096, 1e4},
    {"meta-llama/Llama-2-70b-hf", "llama", 8192, 28672, 80, 64, 8, 128, 32000, false, 4096, 1e4},
    {"meta-llama/Meta-Llama-3-8B", "llama", 4096, 14336, 32, 32, 8, 128, 128256, false, 8192, 5e5},
    {"meta-llama/Meta-Llama-3-70B", "llama", 8192, 28672, 80, 64, 8, 128, 128256, false, 8192, 5e5},
    {"meta-llama/Llama-3.1-8B", "llama", 4096, 14336, 32, 32, 8, 128, 128256, false, 131072, 5e5, 8},
    {"meta-llama/Llama-3.1-70B", "llama", 8192, 28672, 80, 64, 8, 128, 128256, false, 131072, 5e5, 8},
    {"meta-llama/Llama-3.1-405B", "llama", 16384, 53248, 126, 128, 8, 128, 128256, false, 131072, 5e5, 8},
    {"meta-llama/Llama-3.2-1B", "llama", 2048, 8192, 16, 32, 8, 64, 128256, true, 131072, 5e5, 32},
    {"meta-llama/Llama-3.2-3B", "llama", 3072, 8192, 28, 24, 8, 128, 128256, true, 131072, 5e5, 32},
    {"meta-llama/Llama-3.3-70B-Instruct", "llama", 8192, 28672, 80, 64, 8, 128, 128256, false, 131072, 5e5, 8},
    {"TinyLlama/TinyLlama_v1.1", "llama", 2048, 5632, 22, 32, 4, 64, 32000, false, 2048, 1e4},
    {"HuggingFaceTB/SmolLM2-135M", "llama", 576, 1536, 30, 9, 3, 64, 49152, true, 8192, 1e5},
    {"HuggingFaceTB/SmolLM2-360M", "llama", 960, 2560, 32, 15, 5, 64, 49152, true, 8192, 1e5},
    {"HuggingFaceTB/SmolLM2-1.7B", "llama", 2048, 8192, 24, 32, 32, 64, 49152, true, 8192, 1.3e5},
    {"internlm/internlm3-8b-instruct", "internlm3", 4096, 10240, 48, 32, 2, 128, 128512, false, 32768, 5e7},
    {"IQuestLab/IQuest-Coder-V1-40B-Instruct", "iquestcoder", 5120, 27648, 80, 40, 8, 128, 76800, false, 131072, 5e5},
    {"kyutai/helium-1-preview-2b", "helium", 2560, 7040, 24, 20, 20, 128, 48000, false, 4096, 1e5},
    {"THUDM/glm-4-9b-chat-hf", "glm", 4096, 13696, 40, 32, 2, 128, 151552, false, 131072, 1e4},
    {"tencent/Youtu-LLM-2B", "youtu", 2048, 6144, 32, 16, 16, 64, 128256, true, 131072, 1.6e6},
    {"facebook/cwm", "cwm", 6144, 21504, 64, 48, 8, 128, 128256, false, 131072, 1e6, 16, 8192},
    {"openbmb/MiniCPM3-4B", "minicpm3", 2560, 6400, 62, 40, 40, 32, 73448, true, 32768, 1e4},
    {"karpathy/nanochat-d32", "nanochat", 2048, 8192, 32, 16, 16, 128, 65536, false, 2048, 1e4},
    {"inceptionai/Jais-2-8B-Chat", "jais2", 3328, 26624, 32, 26, 26, 128, 150272, false, 8192, 1e4},
    {"mistralai/Mistral-7B-v0.1", "mistral", 4096, 14336, 32, 32, 8, 128, 32000, false, 32768, 1e4, 0, 4096},
    {"mistralai/Mistral-7B-v0.3", "mistral", 4096, 14336, 32, 32, 8, 128, 32768, false, 32768, 1e6},
    {"mistralai/Mistral-Nemo-Base-2407", "mistral", 5120, 14336, 40, 32, 8, 128, 131072, false, 131072, 1e6},
    {"mistralai/Mistral-Small-24B-Base-2501", "mistral", 5120, 32768, 40, 32, 8, 128, 131072, false, 32768, 1e8},
    {"mistralai/Mistral-Small-3.1-24B-Base-2503", "mistral", 5120, 32768, 40, 32, 8, 128, 131072, false, 131072, 1e9},
    {"mistralai/Ministral-3-8B-Base-2512", "ministral3", 4096, 14336, 34, 32, 8, 128, 131072, false, 262144, 1e6},
    {"Qwen/Qwen2-0.5B", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, true, 131072, 1e6},
    {"Qwen/Qwen2-1.5B", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, true, 131072, 1e6},
    {"Qwen/Qwen2-7B", "qwen2", 3584, 18944, 28, 28, 4, 128, 152064, false, 131072, 1e6},
    {"Qwen/Qwen2-72B", "qwen2", 8192, 29568, 80, 64, 8, 128, 152064, false, 131072, 1e6},
    {"Qwen/Qwen2.5-0.5B", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, true, 32768, 1e6},
    {"Qwen/Qwen2.5-1.5B", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, true, 131072, 1e6},
    {"Qwen/Qwen2.5-3B", "qwen2", 2048, 11008, 36, 16, 2, 128, 151936, true, 32768, 1e6},
    {"Qwen/Qwen2.5-7B", "qwen2", 3584, 18944, 28, 28, 4, 128, 152064, false, 131072, 1e6},
    {"Qwen/Qwen2.5-14B", "qwen2", 5120, 13824, 48, 40, 8, 128, 152064, false, 131072, 1e6},
    {"Qwen/Qwen2.5-32B", "qwen2", 5120, 27648, 64, 40, 8, 128, 152064, false, 131072, 1e6},
    {"Qwen/Qwen2.5-72B", "qwen2", 8192, 29568, 80, 64, 8, 128, 152064, false, 131072, 1e6},
    {"Qwen/Qwen2.5-VL-3B", "qwen2", 2048, 11008, 36, 16, 2, 128, 151936, true, 128000, 1e6},
    {"Qwen/Qwen2.5-VL-7B", "qwen2", 3584, 18944, 28, 28, 4, 128, 152064, false, 128000, 1e6},
    {"Qwen/Qwen2.5-VL-72B", "qwen2", 8192, 29568, 80, 64, 8, 128, 152064, false, 128000, 1e6},
    {"Qwen/Qwen3-0.6B", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, true, 40960, 1e6},
    {"Qwen/Qwen3-1.7B", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, true, 40960, 1e6},
    {"Qwen/Qwen3-4B", "qwen3", 2560, 9728, 36, 32, 8, 128, 151936, true, 40960, 1e6},
    {"Qwen/Qwen3-8B", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, false, 40960, 1e6},
    {"Qwen/Qwen3-14B", "qwen3", 5120, 17408, 40, 40, 8, 128, 151936, false, 40960, 1e6},
    {"Qwen/Qwen3-32B", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, false, 40960, 1e6},
    {"Qwen/Qwen3-VL-2B", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, true, 262144, 5e6},
    {"Qwen/Qwen3-VL-4B", "qwen3", 2560, 9728, 36, 32, 8, 128, 151936, true, 262144, 5e6},
    {"Qwen/Qwen3-VL-8B", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, false, 262144, 5e6},
    {"Qwen/Qwen3-VL-32B", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, false, 262144, 5e6},
    {"Qwen/Qwen1.5-MoE-A2.7B", "qwen2_moe", 2048, 5632, 24, 16, 16, 128, 151936, false, 8192, 1e6, 0, 0, 60, 4, 1408},
    {"Qwen/Qwen2-57B-A14B", "qwen2_moe", 3584, 18944, 28, 28, 4, 128, 151936, false, 131072, 1e6, 0, 0, 64, 8, 2560},
    {"Qwen/Qwen3-30B-A3B", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, false, 40960, 1e6, 0, 0, 128, 8, 768},
    {"Qwen/Qwen3-235B-A22B", "qwen3_moe", 4096, 12288, 94, 64, 4, 128, 151936, false, 40960, 1e6, 0, 0, 128, 8, 1536},
    {"Qwen/Qwen3-VL-30B-A3B", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, false, 262144, 5e6, 0, 0, 128, 8, 768},
    {"Qwen/Qwen3-VL-235B-A22B", "qwen3_moe", 4096, 12288, 94, 64, 4, 128, 151936, false, 262144, 5e6, 0, 0, 128, 8,
     1536},
    {"zai-org/GLM-4.5-Air", "glm4_moe", 4096, 10944, 46, 96, 8, 128, 151552, false, 131072, 1e6, 0, 0, 128, 8, 1408},
    {"zai-org/GLM-4.5", "glm4_moe", 5120, 12288, 92, 96, 8, 128, 151552, false, 131072, 1e6, 0, 0, 160, 8, 1536},
    {"zai-org/GLM-4.7-Flash", "glm4_moe_lite", 2048, 10240, 47, 20, 20, 64, 154880, false, 202752, 1e6, 0, 0, 64, 4,
     1536},
    {"deepseek-ai/DeepSeek-V3", "deepseek_v3", 7168, 18432, 61, 128, 128, 64, 129280, false, 163840, 1e4, 0, 0, 256, 8,
     2048},
    {"deepseek-ai/DeepSeek-R1", "deepseek_v3", 7168, 18432, 61, 128, 128, 64, 129280, false, 163840, 1e4, 0, 0, 256, 8,
     2048},
    {"moonshotai/Moonlight-16B-A3B", "deepseek_v3", 2048, 11264, 27, 16, 16, 64, 163840, false, 8192, 5e4, 0, 0, 64, 6,
     1408},
    {"deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2", 2048, 10944, 27, 16, 16, 64, 102400, false, 163840, 1e4, 0, 0, 64,
     6, 1408},
    {"baidu/ERNIE-4.5-21B-A3B-PT", "ernie4_5_moe", 2560, 12288, 28, 20, 4, 128, 103424, true, 131072, 5e5, 0, 0, 64, 6,
     1536},
    {"mistralai/Mixtral-8x7B-v0.1", "mixtral", 4096, 14336, 32, 32, 8, 128, 32000, false, 32768, 1e6, 0, 0, 8, 2},
    {"allenai/OLMoE-1B-7B-0924", "olmoe", 2048, 1024, 16, 16, 16, 128, 50304, false, 4096, 1e4, 0, 0, 64, 8},
    {"openai/gpt-oss-20b", "gpt_oss", 2880, 2880, 24, 64, 8, 64, 201088, false, 131072, 1.5e5, 0, 128, 32, 4},
    {"openai/gpt-oss-120b", "gpt_oss", 2880, 2880, 36, 64, 8, 64, 201088, false, 131072, 1.5e5, 0, 128, 128, 4},
    {"microsoft/Phi-3-mini-4k-instruct", "phi3", 3072, 8192, 32, 32, 32, 96, 32064, false, 4096, 1e4, 0, 2047},
    {"microsoft/Phi-3-medium-4k-instruct", "phi3", 5120, 17920, 40, 40, 10, 128, 32064, false, 4096, 1e4, 0, 2047},
    {"microsoft/Phi-3.5-mini-instruct", "phi3", 3072, 8192, 32, 32, 32, 96, 32064, false, 131072, 1e4},
    {"microsoft/phi-4", "phi3", 5120, 17920, 40, 40, 10, 128, 100352, false, 16384, 2.5e5},
    {"microsoft/Phi-4-mini-instruct", "phi3", 3072, 8192, 32, 24, 8, 128, 200064, true, 131072, 1e4},
    {"Qwen/Qwen3.5-0.8B", "qwen3_5_text", 1024, 3584, 24, 8, 2, 256, 248320, true, 262144, 1e7, 0, 0, 0, 0, 0, 16},
    {"Qwen/Qwen3.5-4B", "qwen3_5_text", 2560, 9216, 32, 16, 4, 256, 248320, true, 262144, 1e7, 0, 0, 0, 0, 0, 32},
    {"Qwen/Qwen3.5-9B", "qwen3_5_text", 4096, 12288, 32, 16, 4, 256, 248320, false, 262144, 1e7, 0, 0, 0, 0, 0, 32},
    {"Qwen/Qwen3.5-27B", "qwen3_5_text", 5120, 17408, 64, 24, 4, 256, 248320, false, 262144, 1e7, 0, 0, 0, 0, 0, 48},
    {"Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe_text", 2048, 0, 40, 16, 2, 256, 248320, false, 262144, 1e7, 0, 0, 256, 8, 512,
     32},
    {"Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next", 2048, 5120, 48, 16, 2, 256, 151936, false, 262144, 1e7, 0, 0,
     512, 10, 512, 32},
    {"LiquidAI/LFM2-350M", "lfm2", 1024, 4608, 16, 16, 8, 64, 65536, true, 128000, 1e6},
    {"LiquidAI/LFM2-700M", "lfm2", 1536, 6912, 16, 24, 8, 64, 65536, true, 128000, 1e6},
    {"LiquidAI/LFM2-1.2B", "lfm2", 2048, 8192, 16, 32, 8, 64, 65536, true, 128000, 1e6},
    {"LiquidAI/LFM2-8B-A1B", "lfm2_moe", 2048, 7168, 24, 32, 8, 64, 65536, true, 128000, 1e6, 0, 0, 32, 4, 1792},
    {"HuggingFaceTB/SmolLM3-3B", "smollm3", 2048, 11008, 36, 16, 4, 128, 128256, true, 65536, 5e6},
    {"ibm-granite/granite-3.3-2b-instruct", "granite", 2048, 8192, 40, 32, 8, 64, 49159, true, 131072, 1e7},
    {"ibm-granite/granite-3.3-8b-instruct", "granite", 4096, 12800, 40, 32, 8, 128, 49159, true, 131072, 1e7},
    {"ibm-granite/granite-3.1-1b-a400m-instruct", "granitemoe", 1024, 512, 24, 16, 8, 64, 49155, true, 131072, 1e7, 0,
     0, 32, 8},
    {"ibm-granite/granite-3.1-3b-a800m-instruct", "granitemoe", 1536, 512, 32, 24, 8, 64, 49155, true, 131072, 1e7, 0,
     0, 40, 8},
    {"ibm-granite/granite-4.0-micro", "granitemoehybrid", 2560, 8192, 40, 40, 8, 64, 100352, true, 131072, 1e7},
    {"ibm-ai-platform/Bamba-9B-v1", "bamba", 4096, 14336, 32, 32, 8, 128, 128256, false, 262144, 1e4},
    {"ibm-ai-platform/Bamba-9B-v2", "bamba", 4096, 14336, 32, 32, 8, 128, 128256, false, 262144, 1e4},
    {"tiiuae/Falcon-H1-7B-Base", "falcon_h1", 3072, 12288, 44, 12, 2, 128, 130048, false, 262144, 1e11},
    {"nvidia/Minitron-4B-Base", "nemotron", 3072, 9216, 32, 24, 8, 128, 256000, false, 4096, 1e4},
    {"nvidia/Minitron-8B-Base", "nemotron", 4096, 16384, 32, 48, 8, 128, 256000, false, 4096, 1e4},
    {"nvidia/Nemotron-Mini-4B-Instruct", "nemotron", 3072, 9216, 32, 24, 8, 128, 256000, false, 4096, 1e4},
    {"nvidia/Nemotron-H-8B-Base-8K", "nemotron_h", 4096, 21504, 52, 32, 8, 128, 131072, false, 8192, 1e4},
    {"nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron_h", 4480, 15680, 56, 40, 8, 128, 131072, false, 131072, 1e4},
    {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_h", 2688, 1856, 52, 32, 2, 128, 131072, false, 262144, 1e4,
     0, 0, 128, 6, 1856},
    {"allenai/OLMo-2-0425-1B", "olmo2", 2048, 8192, 16, 16, 16, 128, 100352, false, 4096, 5e5},
    {"allenai/OLMo-2-1124-7B", "olmo2", 4096, 11008, 32, 32, 32, 128, 100352, false, 4096, 5e5},
    {"allenai/OLMo-2-1124-13B", "olmo2", 5120, 13824, 40, 40, 40, 128, 100352, false, 4096, 5e5},
    {"allenai/OLMo-2-0325-32B", "olmo2", 5120, 27648, 64, 40, 8, 128, 100352, false, 4096, 5e5},
    {"google/gemma-2b", "gemma", 2048, 16384, 18, 8, 1, 256, 256000, true, 8192, 1e4},
    {"google/gemma-7b", "gemma", 3072, 24576, 28, 16, 16, 256, 256000, true, 8192, 1e4},
    {"google/gemma-2-2b", "gemma2", 2304, 9216, 26, 8, 4, 256, 256000, true, 8192, 1e4, 0, 4096},
    {"google/gemma-2-9b", "gemma2", 3584, 14336, 42, 16, 8, 256, 256000, true, 8192, 1e4, 0, 4096},
    {"google/gemma-2-27b", "gemma2", 4608, 36864, 46, 32, 16, 128, 256000, true, 8192, 1e4, 0, 4096},
    {"google/gemma-3-270m", "gemma3_text", 640, 2048, 18, 4, 1, 256, 262144, true, 32768, 1e6, 0, 512},
    {"google/gemma-3-1b-pt", "gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144, true, 32768, 1e6, 0, 512},
    {"google/gemma-3-4b-pt", "gemma3_text", 2560, 10240, 34, 8, 4, 256, 262208, true, 131072, 1e6, 0, 1024},
    {"google/gemma-3-12b-pt", "gemma3_text", 3840, 15360, 48, 16, 8, 256, 262208, true, 131072, 1e6, 0, 1024},
    {"google/gemma-3-27b-pt", "gemma3_text", 5376, 21504, 62, 32, 16, 128, 262208, true, 131072, 1e6, 0, 1024},
    {"google/gemma-4-E2B", "gemma4_text", 1536, 6144, 35, 8, 1, 256, 262144, true, 131072, 1e6, 0, 512},
    {"google/gemma-4-E4B", "gemma4_text", 2560, 10240, 42, 8, 2, 256, 262144, true, 131072, 1e6, 0, 512},
    {"google/gemma-4-31B", "gemma4_text", 5376, 21504, 60, 32, 16, 256, 262144, true, 262144, 1e6, 0, 1024},
    {"google/gemma-4-26B-A4B", "gemma4_text", 2816, 2112, 30, 16, 8, 256, 262144, true, 262144, 1e6, 0, 1024, 128, 8,
     704},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// Without the suffix that tells one training of a model from another.
std::string stem(std::string_view name) {
  std::string text = lower(name);
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (const std::string_view suffix : {"-instruct", "-base", "-chat", "-hf", "-it", "-pt"}) {
      if (!text.ends_with(suffix)) continue;
      text.resize(text.size() - suffix.size());
      shorter = true;
    }
  }
  return text;
}

std::string without_owner(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

/// Of norms.
const char* epsilon_of(const Row& row) {
  constexpr std::array<std::string_view, 18> kLarge = {
      "llama",   "internlm3", "iquestcoder", "mistral", "ministral3", "granite",      "granitemoehybrid",
      "mixtral", "olmoe",     "gpt_oss",     "phi3",    "glm4_moe",   "ernie4_5_moe", "glm4_moe_lite",
      "bamba",   "falcon_h1", "cwm",         "minicpm3"};
  const std::string_view type = row.type;
  if (type == "helium") return "1e-8";
  if (type == "glm") return "1.5625e-7";
  const bool moonlight = type == "deepseek_v3" && row.experts == 64;
  return moonlight || std::ranges::count(kLarge, type) > 0 ? "1e-5" : "1e-6";
}

/// Yarn from 4,096 tokens on; the two mscales are the same in each.
std::string deepseek_rope(double mscale) {
  return fmt::format(
      R"(, "rope_scaling": {{"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": {},)"
      R"( "mscale_all_dim": {}, "original_max_position_embeddings": 4096}})",
      mscale, mscale);
}

/// Of attention by a latent, where the family's default is another. `head_dim` of these rows is the turned part's.
std::string latent_text(const Row& row) {
  const std::string_view type = row.type;
  if (type == "deepseek_v2") {
    return R"(, "q_lora_rank": null, "first_k_dense_replace": 1)" + deepseek_rope(0.707);
  }
  if (type != "deepseek_v3") return "";
  if (row.experts == 256) return deepseek_rope(1.0);
  return R"(, "q_lora_rank": null, "first_k_dense_replace": 1, "n_shared_experts": 2, "n_group": 1, "topk_group": 1,)"
         R"( "routed_scaling_factor": 2.446)";
}

/// Which halves there are, and sizes of state spaces.
std::string mixers_text(const Row& row) {
  const std::string_view type = row.type;
  if (type == "bamba") return R"(, "attn_layer_indices": [9, 18, 27], "mamba_d_state": 128)";
  if (type == "falcon_h1") return R"(, "mamba_d_ssm": 3072, "mamba_n_heads": 24)";
  if (type != "nemotron_h") return "";
  if (row.experts > 0) {
    return R"(, "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "mamba_num_heads": 64,)"
           R"( "moe_shared_expert_intermediate_size": 3712, "routed_scaling_factor": 2.5)";
  }
  if (row.layers == 56) {
    return R"(, "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",)"
           R"( "mamba_head_dim": 80)";
  }
  return R"(, "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-")";
}

/// Of E2B, whose each fifth layer sees all, and E4B, whose each sixth does.
std::string small_gemma4_text(const Row& row) {
  const bool smaller = row.layers == 35;
  std::vector<std::string> kinds(row.layers, "\"sliding_attention\"");
  const std::uint32_t pattern = smaller ? 5 : 6;
  for (std::uint32_t layer = pattern - 1; layer < row.layers; layer += pattern) kinds[layer] = "\"full_attention\"";
  return fmt::format(R"(, "global_head_dim": 512, "hidden_size_per_layer_input": 256, "num_kv_shared_layers": {},)"
                     R"( "use_double_wide_mlp": {}, "final_logit_softcapping": 30.0, "layer_types": [{}])",
                     smaller ? 20 : 18, smaller, fmt::join(kinds, ", "));
}

std::string config_text(const Row& row) {
  std::string text =
      fmt::format(R"({{"model_type": "{}", "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {},)"
                  R"( "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "vocab_size": {},)"
                  R"( "max_position_embeddings": {}, "rms_norm_eps": {}, "rope_theta": {}, "tie_word_embeddings": {},)"
                  R"( "torch_dtype": "bfloat16")",
                  row.type, row.hidden, row.intermediate, row.layers, row.heads, row.kv_heads, row.head_dim,
                  row.vocabulary, row.positions, epsilon_of(row), row.theta, row.tied);
  if (row.window > 0) text += fmt::format(R"(, "sliding_window": {})", row.window);
  if (row.window == 0 && std::string_view(row.type) == "mistral") text += R"(, "sliding_window": null)";
  if (row.llama3_factor > 0) {
    text += fmt::format(R"(, "rope_scaling": {{"rope_type": "llama3", "factor": {:.1f}, "low_freq_factor": 1.0,)"
                        R"( "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
                        row.llama3_factor);
  }
  if (std::string_view(row.type) == "granitemoehybrid") {
    const std::vector<std::string> attention(row.layers, "\"attention\"");
    text +=
        fmt::format(R"(, "num_local_experts": 0, "shared_intermediate_size": {}, "position_embedding_type": "rope",)"
                    R"( "layer_types": [{}])",
                    row.intermediate, fmt::join(attention, ", "));
  }
  if (std::string_view(row.type) == "lfm2") {
    text += R"(, "block_auto_adjust_ff_dim": false, "full_attn_idxs": [2, 5, 8, 10, 12, 14])";
  }
  if (std::string_view(row.type) == "lfm2_moe") text += R"(, "full_attn_idxs": [2, 6, 10, 14, 18, 21])";
  if (std::string_view(row.type) == "glm4_moe") {
    const bool larger = row.experts == 160;  // GLM-4.5, not its Air
    text += fmt::format(R"(, "attention_bias": true, "use_qk_norm": {}, "first_k_dense_replace": {},)"
                        R"( "routed_scaling_factor": {})",
                        larger, larger ? 3 : 1, larger ? 2.5 : 1.0);
  }
  const bool small_gemma4 = std::string_view(row.type) == "gemma4_text" && row.kv_heads < 4;
  if (small_gemma4) text += small_gemma4_text(row);
  if (std::string_view(row.type) == "gemma4_text" && !small_gemma4) {
    text += fmt::format(R"(, "global_head_dim": 512, "num_global_key_value_heads": {}, "attention_k_eq_v": true,)"
                        R"( "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0, "enable_moe_block": {})",
                        row.kv_heads / 4, row.experts > 0);
  }
  if (std::string_view(row.type) == "gpt_oss") text += R"(, "quantization_config": {"quant_method": "mxfp4"})";
  if (row.experts > 0) {
    const std::string_view type = row.type;
    const bool routed = type.starts_with("glm4_moe") || type.starts_with("deepseek") || type == "nemotron_h";
    text += fmt::format(R"(, "{}": {}, "num_experts_per_tok": {})", routed ? "n_routed_experts" : "num_experts",
                        row.experts, row.choices);
  }
  text += latent_text(row) + mixers_text(row);
  if (row.value_heads > 0) text += fmt::format(R"(, "linear_num_value_heads": {})", row.value_heads);
  if (row.width > 0 && row.value_heads > 0) {  // the one that all tokens share is as wide
    text += fmt::format(R"(, "shared_expert_intermediate_size": {})", row.width);
  }
  const bool qwen2_moe = std::string_view(row.type) == "qwen2_moe";
  if (qwen2_moe) {  // as wide as the chosen ones together
    text += fmt::format(R"(, "shared_expert_intermediate_size": {})", row.width * row.choices);
  }
  if (row.width > 0) {
    text += fmt::format(R"(, "moe_intermediate_size": {}, "norm_topk_prob": {})", row.width,
                        !qwen2_moe && std::string_view(row.type) != "deepseek_v2");
  }
  return text + "}";
}

}  // namespace

std::optional<ModelConfig> known_model(std::string_view name) {
  const std::string wanted = stem(name);
  for (const Row& row : kRows) {
    const std::string known = stem(row.name);
    if (wanted != known && wanted != without_owner(known)) continue;
    auto config = parse_config(config_text(row), row.name);
    if (config.ok()) return *std::move(config);
  }
  return std::nullopt;
}

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

}  // namespace rondo::model
