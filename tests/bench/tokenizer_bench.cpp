// Text to ids on one thread, line by line and as chats are: short texts, many of them.
// RONDO_BENCH_MODEL names the folder with tokenizer.json, RONDO_BENCH_TEXT the file; scripts/bench/tokenizing.py runs
// this beside the `tokenizers` library.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "rondo/data/tokenizer.h"

namespace rondo::data {
namespace {

const char* named(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

void encode(benchmark::State& state) {
  const auto tokenizer = Tokenizer::load(Documents(named("RONDO_BENCH_MODEL")));
  if (!tokenizer.ok()) return state.SkipWithError(std::string(tokenizer.status().message()).c_str());
  std::ifstream file(named("RONDO_BENCH_TEXT"));
  std::vector<std::string> lines;
  std::int64_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    bytes += static_cast<std::int64_t>(line.size());
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return state.SkipWithError("RONDO_BENCH_TEXT names no file with lines");
  std::size_t tokens = 0;
  for (auto _ : state) {
    tokens = 0;
    for (const std::string& line : lines) tokens += tokenizer->encode(line, false).ids.size();
  }
  state.SetBytesProcessed(bytes * static_cast<std::int64_t>(state.iterations()));
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rondo::data
