// Blocks of 256 numbers with scales of their own for every 16 or 32.
#pragma once

#include <cstddef>

namespace rondo::gguf {

constexpr std::size_t kLargeBlock = 256;

void decode_q2_k(const std::byte* blocks, std::size_t count, float* out);
void decode_q3_k(const std::byte* blocks, std::size_t count, float* out);
void decode_q4_k(const std::byte* blocks, std::size_t count, float* out);
void decode_q5_k(const std::byte* blocks, std::size_t count, float* out);
void decode_q6_k(const std::byte* blocks, std::size_t count, float* out);

}  // namespace rondo::gguf
