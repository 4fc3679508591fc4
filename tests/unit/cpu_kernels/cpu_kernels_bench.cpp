// How fast the kernels are, at the sizes of a model of 135 million parameters: 2,048 tokens of width 576, 9 heads of 64
// over 3 key heads, 49,152 ids. Rates are per second of processor time, all threads together: per core, and comparable
// on a machine that others use as well. Matrix work is counted causally, memory as what must be read and written once.
#include <benchmark/benchmark.h>

#include "attention_support.h"
#include "entropy_support.h"
#include "kernels.h"

namespace rondo::devices::cpu::testing {
namespace {

constexpr std::int64_t kTokens = 2048;
constexpr std::int64_t kWidth = 576;
constexpr std::int64_t kInner = 1536;

Storage storage_of(const benchmark::State& state) {
  return state.range(0) == 0 ? Storage::kFloat32 : Storage::kBfloat16;
}
std::uint32_t threads_of(const benchmark::State& state) { return static_cast<std::uint32_t>(state.range(1)); }
double bytes_of(const benchmark::State& state) { return state.range(0) == 0 ? 4.0 : 2.0; }

void count(benchmark::State& state, const char* what, double each) {
  state.counters[what] =
      benchmark::Counter(each * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void Add(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Array a = random_array(storage_of(state), kTokens * kWidth, 1);
  Array y(storage_of(state), a.size());
  for ([[maybe_unused]] auto _ : state) {
    add(pool, storage_of(state), a.data(), a.data(), y.data(), kTokens * kWidth);
  }
  count(state, "GB/s", 2 * bytes_of(state) * static_cast<double>(a.size()));
}

void Norm(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Array x = random_array(storage_of(state), kTokens * kWidth, 1);
  const Array w = random_array(storage_of(state), kWidth, 2);
  Array y(storage_of(state), x.size());
  for ([[maybe_unused]] auto _ : state) {
    norm_forward(pool, storage_of(state), x.data(), w.data(), nullptr, y.data(), kTokens, kWidth,
                 NormAttributes{1e-5F});
  }
  count(state, "GB/s", 2 * bytes_of(state) * static_cast<double>(x.size()));
}

void NormBackward(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Array x = random_array(storage_of(state), kTokens * kWidth, 1);
  const Array w = random_array(storage_of(state), kWidth, 2);
  Array dx(storage_of(state), x.size());
  std::vector<float> dw(kWidth);
  std::vector<std::byte> scratch(norm_backward_scratch(kTokens, kWidth));
  for ([[maybe_unused]] auto _ : state) {
    norm_backward(pool, storage_of(state), x.data(), w.data(), x.data(), x.data(), dx.data(), dw.data(), kTokens,
                  kWidth, NormAttributes{1e-5F}, scratch.data());
  }
  count(state, "GB/s", 4 * bytes_of(state) * static_cast<double>(x.size()));
}

void GatedSilu(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Array gate = random_array(storage_of(state), kTokens * kInner, 1);
  const Array up = random_array(storage_of(state), kTokens * kInner, 2);
  Array y(storage_of(state), gate.size());
  for ([[maybe_unused]] auto _ : state) {
    gated_activation(pool, storage_of(state), {ActivationKind::kSilu}, gate.data(), up.data(), y.data(),
                     kTokens * kInner);
  }
  count(state, "GB/s", 3 * bytes_of(state) * static_cast<double>(gate.size()));
}

void GatedSiluBackward(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Array gate = random_array(storage_of(state), kTokens * kInner, 1);
  const Array up = random_array(storage_of(state), kTokens * kInner, 2);
  Array dgate(storage_of(state), gate.size());
  Array dup(storage_of(state), gate.size());
  for ([[maybe_unused]] auto _ : state) {
    gated_activation_backward(pool, storage_of(state), {ActivationKind::kSilu}, gate.data(), up.data(), up.data(),
                              dgate.data(), dup.data(), kTokens * kInner);
  }
  count(state, "GB/s", 5 * bytes_of(state) * static_cast<double>(gate.size()));
}

void Rope(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Batch batch = batch_of({512, 512, 512, 512}, kTokens);
  RopeAttributes attributes;
  attributes.frequencies.assign(32, 0.1F);
  const Array x = random_array(storage_of(state), kTokens * kWidth, 1);
  Array y(storage_of(state), x.size());
  std::vector<std::byte> scratch(kTokens * 64 * sizeof(float));
  for ([[maybe_unused]] auto _ : state) {
    rope(pool, storage_of(state), x.data(), batch.positions.data(), batch.bounds.data(), y.data(), kTokens, 9, 64,
         attributes, scratch.data());
  }
  count(state, "GB/s", 2 * bytes_of(state) * static_cast<double>(x.size()));
}

void Dropout(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const Array x = random_array(storage_of(state), kTokens * kWidth, 1);
  const std::vector<std::uint64_t> keys(kTokens, 5);
  Array y(storage_of(state), x.size());
  for ([[maybe_unused]] auto _ : state) {
    dropout(pool, storage_of(state), x.data(), keys.data(), y.data(), kTokens, kWidth, 1, {0.1F, 2});
  }
  count(state, "GB/s", 2 * bytes_of(state) * static_cast<double>(x.size()));
}

void CrossEntropy(benchmark::State& state) {
  constexpr std::int64_t kRowsHere = 128;
  constexpr std::int64_t kVocabulary = 49152;
  ThreadPool pool(threads_of(state));
  const std::vector<float> logits = random_values(kRowsHere * kVocabulary, 1, 3.0F);
  const std::vector<std::int32_t> targets(kRowsHere, 7);
  EntropyRows rows(kRowsHere);
  Array gradient(storage_of(state), logits.size());
  for ([[maybe_unused]] auto _ : state) {
    vocabulary_loss(pool, {logits.data(), targets.data(), kRowsHere, kVocabulary}, rows.statistics.data(),
                    rows.losses.data(), rows.normalisers.data(), {gradient.data(), storage_of(state)});
  }
  count(state, "GB/s", (4 + bytes_of(state)) * static_cast<double>(logits.size()));
}

/// Range 2: number of sequences that the tokens are cut into.
AttentionCase attention_of(const benchmark::State& state) {
  const auto sequences = static_cast<std::size_t>(state.range(2));
  const std::vector<std::int32_t> lengths(sequences, static_cast<std::int32_t>(kTokens / state.range(2)));
  return attention_case(lengths, kTokens, 9, 3, 64);
}
/// Range 0 of attention's: from 2 on bf16 by each of the processor's units.
const TileUnits* units_of(const benchmark::State& state) {
  return state.range(0) < 2 ? nullptr : units_of_the_processor()[static_cast<std::size_t>(state.range(0) - 2)];
}
double causal_flops(const benchmark::State& state, double products) {
  const double length = static_cast<double>(kTokens) / static_cast<double>(state.range(2));
  return products * 2 * 9 * 64 * static_cast<double>(kTokens) * (length + 1) / 2;
}

void Attention(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const AttentionCase c = attention_of(state);
  const AttentionInputs in = attention_inputs(storage_of(state), c.shape);
  AttentionForward out = run_forward(pool, storage_of(state), c, in, units_of(state));
  std::vector<std::byte> scratch(attention_scratch(c.shape, units_of(state), pool.threads()));
  for ([[maybe_unused]] auto _ : state) {
    attention(pool, storage_of(state), units_of(state), c.shape, c.attributes, in.q.data(), in.k.data(), in.v.data(),
              c.batch.bounds.data(), out.o.data(), static_cast<float*>(out.lse.data()), scratch.data());
  }
  count(state, "GFLOP/s", causal_flops(state, 2));
}

void AttentionBackward(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  const AttentionCase c = attention_of(state);
  const AttentionInputs in = attention_inputs(storage_of(state), c.shape);
  const AttentionForward forward = run_forward(pool, storage_of(state), c, in, units_of(state));
  AttentionGradients out = run_backward(pool, storage_of(state), c, in, forward, units_of(state));
  std::vector<std::byte> scratch(attention_backward_scratch(c.shape, units_of(state), pool.threads()));
  for ([[maybe_unused]] auto _ : state) {
    attention_backward(pool, storage_of(state), units_of(state), c.shape, c.attributes, in.q.data(), in.k.data(),
                       in.v.data(), forward.o.data(), static_cast<const float*>(forward.lse.data()), in.d_o.data(),
                       c.batch.bounds.data(), out.dq.data(), out.dk.data(), out.dv.data(), scratch.data());
  }
  count(state, "GFLOP/s", causal_flops(state, 5));
}

void storages_and_threads(benchmark::internal::Benchmark* b) {
  b->ArgNames({"bf16", "threads"})->MeasureProcessCPUTime();
  for (const std::int64_t storage : {0, 1}) {
    for (const std::int64_t threads : {1, 2}) b->Args({storage, threads});
  }
}
void attention_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"bf16", "threads", "sequences"})->MeasureProcessCPUTime();
  for (const std::int64_t sequences : {1, 4, 128}) {
    b->Args({0, 1, sequences});
    b->Args({1, 1, sequences});
    b->Args({0, 2, sequences});
    for (std::size_t i = 0; i < units_of_the_processor().size(); ++i) {
      b->Args({static_cast<std::int64_t>(i) + 2, 1, sequences});
      b->Args({static_cast<std::int64_t>(i) + 2, 2, sequences});
    }
  }
}

BENCHMARK(Add)->Apply(storages_and_threads);
BENCHMARK(Norm)->Apply(storages_and_threads);
BENCHMARK(NormBackward)->Apply(storages_and_threads);
BENCHMARK(GatedSilu)->Apply(storages_and_threads);
BENCHMARK(GatedSiluBackward)->Apply(storages_and_threads);
BENCHMARK(Rope)->Apply(storages_and_threads);
BENCHMARK(Dropout)->Apply(storages_and_threads);
BENCHMARK(CrossEntropy)->Apply(storages_and_threads);
BENCHMARK(Attention)->Apply(attention_sizes);
BENCHMARK(AttentionBackward)->Apply(attention_sizes);

}  // namespace
}  // namespace rondo::devices::cpu::testing

BENCHMARK_MAIN();
