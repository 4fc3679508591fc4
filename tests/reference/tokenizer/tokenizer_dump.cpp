// tokenizer_dump FOLDER STRINGS RESULTS [ROUNDS]: what our tokenizer makes of a file of strings, for compare.py.
//
// STRINGS: for each string its size (u32, little-endian) and its bytes. RESULTS: for each string the number of tokens,
// then id, begin and end of each (i32, u32, u32), the number of symbols left out (u32), then the text decoded from the
// ids without and with the special tokens left out (size and bytes each). ROUNDS > 0: encodes everything that often
// first and prints the seconds taken by the best round.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "rondo/data/tokenizer.h"

namespace {

std::vector<std::string> read_strings(const char* path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::string> out;
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, 4);
    out.push_back(bytes.substr(at + 4, size));
    at += 4 + size;
  }
  return out;
}

template <typename Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

double best_round(const rondo::data::Tokenizer& tokenizer, const std::vector<std::string>& strings, int rounds) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& text : strings) (void)tokenizer.encode(text, true);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto tokenizer = rondo::data::Tokenizer::load(rondo::Documents(argv[1]));
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  const std::vector<std::string> strings = read_strings(argv[2]);
  if (argc > 4) std::printf("%.6f\n", best_round(*tokenizer, strings, std::stoi(argv[4])));
  std::string out;
  for (const std::string& text : strings) {
    const rondo::data::Encoded encoded = tokenizer->encode(text, true);
    put(out, static_cast<std::uint32_t>(encoded.ids.size()));
    for (std::size_t i = 0; i < encoded.ids.size(); ++i) {
      put(out, encoded.ids[i]);
      put(out, static_cast<std::uint32_t>(encoded.ranges[i].begin));
      put(out, static_cast<std::uint32_t>(encoded.ranges[i].end));
    }
    put(out, static_cast<std::uint32_t>(encoded.dropped));
    put_text(out, tokenizer->decode(encoded.ids, false));
    put_text(out, tokenizer->decode(encoded.ids, true));
  }
  std::ofstream(argv[3], std::ios::binary) << out;
  return 0;
}
