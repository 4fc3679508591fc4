// Described cards take the time that their description says, in ideal time to the nanosecond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include "cards.h"
#include "rondo/devices/cpu/cpu_device.h"

namespace rondo::devices::emulated {
namespace {

using std::chrono::steady_clock;

constexpr double kNanosecond = 1e-9;

std::unique_ptr<Device> timed(const CardOptions& options) { return *open_timed(options); }

/// Seconds of the last of `runs` of a program that were given to the device before the first began.
double seconds_of_last(Device& device, const OpList& list, std::uint64_t runs) {
  const Loaded loaded = load(device, list);
  const auto line = *device.timeline();
  Gate gate;
  for (std::uint64_t i = 1; i <= runs; ++i) {
    device.queue(QueueRole::kCompute).run(*loaded.program, loaded.bindings, gate.waits(), {line.get(), i}, {"test"});
  }
  gate.open();
  EXPECT_TRUE(line->wait(runs, patience()).ok());
  return seconds_between(reached(*line, runs - 1), reached(*line, runs));
}

TEST(TimedCard, OpBoundByComputing_TakesFlopsOverSpeed) {
  const auto device = timed(round_card());
  // 2 * 50 * 200 * 250 FLOP at 0.5e12 a second: 10 us each, back to back.
  EXPECT_NEAR(seconds_of_last(*device, small_product(), 16), 10e-6, 2 * kNanosecond);
}

TEST(TimedCard, OpBoundByMemory_TakesBytesOverBandwidth) {
  CardOptions options = round_card();
  options.profile.memory_bandwidth = 1e9;
  const auto device = timed(options);
  const double bytes = 4.0 * (50 * 250 + 200 * 250 + 50 * 200);
  EXPECT_NEAR(seconds_of_last(*device, small_product(), 3), bytes / 1e9, 2 * kNanosecond);
}

TEST(TimedCard, ProductOfEightBits_TakesItsOwnSpeedAndTheConversions) {
  CardOptions options = round_card();
  OpList list = small_product();
  for (TensorDesc& tensor : list.tensors) tensor.dtype = DType::kBfloat16;
  std::get<MatMulAttributes>(list.ops[0].attributes).fp8 = Fp8Format::kE4m3;
  EXPECT_EQ(timed(options)->compile(list, plan_arena(list)).status().code(), absl::StatusCode::kUnimplemented);
  ThreadPool threads(1);  // an emulated card, whose arithmetic the processor does, has what the catalogue gives it
  EXPECT_FALSE((*open_emulated(options, threads))->caps().fp8);
  options.profile.fp8_flops = 2e12;
  options.profile.memory_bandwidth = 1e12;
  EXPECT_TRUE((*open_emulated(options, threads))->caps().fp8);
  const auto device = timed(options);
  ASSERT_TRUE(device->caps().fp8);
  const double conversion_bytes = 2.0 * (50 * 250 + 200 * 250) + 8.0 * 50 * 200;
  EXPECT_NEAR(seconds_of_last(*device, list, 3), 5e-6 + conversion_bytes / 1e12, 2 * kNanosecond);
}

TEST(TimedCard, Copies_TakeLatencyAndBytesOverLinkInEachDirection) {
  const auto device = timed(round_card());
  const Buffer here = *device->allocate(10'000'000, MemoryKind::kDevice);
  const Buffer home = phantom_host(10'000'000);
  const auto up = *device->timeline();
  const auto down = *device->timeline();
  Gate gate;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    device->queue(QueueRole::kUp).copy(home.view(), here.view(), gate.waits(), {up.get(), i}, {"test"});
    device->queue(QueueRole::kDown).copy(here.view(), home.view(), gate.waits(), {down.get(), i}, {"test"});
  }
  gate.open();
  ASSERT_TRUE(up->wait(3, patience()).ok());
  ASSERT_TRUE(down->wait(3, patience()).ok());
  EXPECT_NEAR(seconds_between(reached(*up, 2), reached(*up, 3)), 11e-3, 4 * kNanosecond);
  EXPECT_NEAR(seconds_between(reached(*down, 2), reached(*down, 3)), 6e-3, 4 * kNanosecond);
}

TEST(TimedCard, WorkOnSeveralQueues_ChainsInIdealTime) {
  const auto device = timed(round_card());
  const Loaded loaded = load(*device, small_product());
  const Buffer home = phantom_host(50 * 250 * 4);
  const auto line = *device->timeline();
  constexpr std::uint64_t kRounds = 50;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    const Point before{line.get(), 2 * i};
    const Point there{line.get(), 2 * i + 1};
    device->queue(QueueRole::kUp).copy(home.view(), loaded.buffers[0].view(), {&before, 1}, there, {"test"});
    device->queue(QueueRole::kCompute)
        .run(*loaded.program, loaded.bindings, {&there, 1}, {line.get(), 2 * i + 2}, {"test"});
  }
  ASSERT_TRUE(line->wait(2 * kRounds, patience()).ok());
  // A round is a copy of 50 kB (1.05 ms) and a product (10 us); the switch of threads between them costs nothing.
  const double round = 1e-3 + 50e3 / 1e9 + 10e-6;
  EXPECT_NEAR(seconds_between(reached(*line, 2 * kRounds - 12), reached(*line, 2 * kRounds)), 6 * round, 6e-8);
}

TEST(TimedCard, Work_IsNeverDoneBeforeItsTime) {
  const auto device = timed(round_card());
  const Buffer here = *device->allocate(5'000'000, MemoryKind::kDevice);
  const Buffer home = phantom_host(5'000'000);
  const auto line = *device->timeline();
  const Moment begin = steady_clock::now();
  device->queue(QueueRole::kUp).copy(home.view(), here.view(), {}, {line.get(), 1}, {"test"});
  ASSERT_TRUE(line->wait(1, patience()).ok());
  EXPECT_GE(seconds_between(begin, steady_clock::now()), 6e-3);
}

/// Ideal seconds that each of two cards needs for two copies of 100 MB up, begun at the same moment. A copy is long
/// beside what a busy machine keeps a thread from its processor.
std::array<double, 2> times_of_two(const CardOptions& a, const CardOptions& b) {
  std::array<std::unique_ptr<Device>, 2> devices = {timed(a), timed(b)};
  const Buffer home = phantom_host(100'000'000);
  Gate gate;
  std::vector<Buffer> here;
  std::vector<std::unique_ptr<Timeline>> lines;
  for (const auto& device : devices) {
    here.push_back(*device->allocate(100'000'000, MemoryKind::kDevice));
    lines.push_back(*device->timeline());
    for (std::uint64_t i = 1; i <= 2; ++i) {
      device->queue(QueueRole::kUp)
          .copy(home.view(), here.back().view(), gate.waits(), {lines.back().get(), i}, {"test"});
    }
  }
  const Moment begin = gate.open(std::chrono::milliseconds(200));
  std::array<double, 2> seconds{};
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(lines[i]->wait(2, patience()).ok());
    seconds[i] = seconds_between(begin, reached(*lines[i], 2));
  }
  return seconds;
}

/// Whether one of several goes is as it should be: on a shared link a thread that wakes up late begins late, and the
/// other has the link to itself meanwhile.
bool holds_once(const std::function<bool()>& go) {
  for (int tries = 0; tries < 10; ++tries) {
    if (go()) return true;
  }
  return false;
}

bool is_between(double value, double least, double most) {
  if (value >= least && value <= most) return true;
  std::cout << value << " s lies outside " << least << " to " << most << " s\n";
  return false;
}

TEST(TimedCards, OfOneRoot_ShareItsBandwidth) {
  CardOptions a = round_card("timed:round:0");
  CardOptions b = round_card("timed:round:1");
  a.profile.link_latency_seconds = b.profile.link_latency_seconds = 0;
  for (const double seconds : times_of_two(a, b)) EXPECT_NEAR(seconds, 0.2, 1e-6);
  a.root = b.root = make_root_complex();
  EXPECT_TRUE(holds_once([&] {
    const auto shared = times_of_two(a, b);
    const double longer = std::max(shared[0], shared[1]);
    EXPECT_GE(longer, 0.4 - 1e-6);
    return is_between(longer, 0, 0.4 + 1e-6);
  }));
}

TEST(TimedCards, SlowCardOnAFastRoot_LeavesTheRestToTheOther) {
  CardOptions fast = round_card("timed:fast:0");
  CardOptions slow = round_card("timed:slow:0");
  fast.profile.link_latency_seconds = slow.profile.link_latency_seconds = 0;
  slow.profile.link_up = 0.25e9;
  fast.root = slow.root = make_root_complex();
  EXPECT_TRUE(holds_once([&] {
    const auto seconds = times_of_two(fast, slow);
    EXPECT_GE(seconds[1], 0.8 - 1e-6);
    // 200 MB at 0.75 GB/s: an even split would take 0.4 s. The slow one is never held up.
    constexpr double kFast = 0.2 / 0.75;
    return is_between(seconds[0], kFast - 1e-6, kFast + 1e-6) && is_between(seconds[1], 0, 0.8 + 1e-6);
  }));
}

TEST(TimedCard, Jitter_StaysWithinItsShareAndFollowsTheSeed) {
  const auto durations = [](std::uint64_t seed) {
    CardOptions options = round_card();
    options.profile.jitter = 0.1;
    options.profile.flops[DType::kFloat32] = 1e11;  // 100 us
    options.seed = seed;
    const auto device = timed(options);
    const Loaded loaded = load(*device, small_product());
    Gate gate;
    const auto line = *device->timeline();
    for (std::uint64_t i = 1; i <= 16; ++i) {
      device->queue(QueueRole::kCompute).run(*loaded.program, loaded.bindings, gate.waits(), {line.get(), i}, {"test"});
    }
    gate.open();
    EXPECT_TRUE(line->wait(16, patience()).ok());
    std::vector<double> found;
    for (std::uint64_t i = 10; i <= 16; ++i) found.push_back(seconds_between(reached(*line, i - 1), reached(*line, i)));
    return found;
  };
  const std::vector<double> first = durations(1);
  for (const double seconds : first) {
    EXPECT_GE(seconds, 90e-6 - kNanosecond);
    EXPECT_LE(seconds, 110e-6 + kNanosecond);
  }
  EXPECT_GT(*std::max_element(first.begin(), first.end()) - *std::min_element(first.begin(), first.end()), 2e-6);
  EXPECT_THAT(durations(1), testing::Pointwise(testing::DoubleNear(2 * kNanosecond), first));
  EXPECT_NE(durations(2), first);
}

/// Attention over 64 tokens, 4 heads of 16, of fp32.
OpList attention() {
  OpList list;
  list.tokens = 64;
  const Shape shape{64, 4, 16};
  list.tensors = {{"q", shape, DType::kFloat32, TensorRole::kInput, 0},
                  {"k", shape, DType::kFloat32, TensorRole::kInput, 1},
                  {"v", shape, DType::kFloat32, TensorRole::kInput, 2},
                  {"bounds", {66}, DType::kInt32, TensorRole::kBatch, static_cast<std::uint32_t>(BatchTensor::kBounds)},
                  {"o", shape, DType::kFloat32, TensorRole::kOutput, 0},
                  {"lse", {64, 4}, DType::kFloat32, TensorRole::kSaved, 0}};
  list.ops = {{OpKind::kAttention, AttentionAttributes{}, {0, 1, 2, 3}, {4, 5}}};
  return list;
}

double attention_seconds(const OpList& list) {
  CardOptions options = round_card();
  options.profile.flops[DType::kFloat32] = 1e9;  // so slow that memory does not count
  return seconds_of_last(*timed(options), list, 2);
}

TEST(TimedCard, Attention_CountsTheListsUsualLength) {
  OpList list = attention();
  EXPECT_NEAR(attention_seconds(list), 2.0 * 64 * 4 * 16 * 64 / 0.5e9, 2 * kNanosecond);
  list.sequence_length = 16;
  EXPECT_NEAR(attention_seconds(list), 2.0 * 64 * 4 * 16 * 16 / 0.5e9, 2 * kNanosecond);
}

TEST(EmulatedCard, Attention_CountsTheSequencesAtHand) {
  ThreadPool threads(1);
  CardOptions options = round_card("emulated:round:0");
  options.profile.flops[DType::kFloat32] = 1e7;  // far slower than the CPU
  const auto device = *open_emulated(options, threads);
  const OpList list = attention();
  const Loaded loaded = load(*device, list);
  auto* bounds = reinterpret_cast<std::int32_t*>(loaded.buffers[3].view().host());
  for (const auto& [sequences, lengths] : std::vector<std::pair<std::vector<std::int32_t>, double>>{
           {{1, 0, 64}, 64 * 64}, {{2, 0, 32, 64}, 2 * 32 * 32}}) {
    std::copy(sequences.begin(), sequences.end(), bounds);
    const double expected = 2.0 * 4 * 16 * lengths / 0.5e7;
    EXPECT_TRUE(holds_once([&] {
      const auto line = *device->timeline();
      const Moment begin = steady_clock::now();
      device->queue(QueueRole::kCompute).run(*loaded.program, loaded.bindings, {}, {line.get(), 1}, {"test"});
      EXPECT_TRUE(line->wait(1, patience()).ok()) << line->wait(1, patience());
      EXPECT_GE(seconds_between(begin, reached(*line, 1)), expected);
      return is_between(seconds_between(begin, reached(*line, 1)), 0, expected + 30e-3);
    }));
  }
}

TEST(EmulatedCard, Bits_AreTheCpus) {
  ThreadPool threads(2);
  const auto card = *open_emulated(round_card("emulated:round:0"), threads);
  const auto cpu = *cpu::open_cpu({"cpu:0", 64_MiB, false}, threads);
  EXPECT_EQ(card->caps().numerics_class, cpu->caps().numerics_class);
  std::vector<Buffer> results;
  for (Device* device : {card.get(), cpu.get()}) {
    const Loaded loaded = load(*device, small_product());
    const auto line = *device->timeline();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const Buffer input = *allocate_host(loaded.buffers[i].size(), "test");
      auto* values = reinterpret_cast<float*>(input.view().host());
      for (Bytes j = 0; j < input.size() / 4; ++j) values[j] = 1.0F / static_cast<float>(3 + i + j % 97);
      device->queue(QueueRole::kUp).copy(input.view(), loaded.buffers[i].view(), {}, {line.get(), ++value}, {"test"});
      ASSERT_TRUE(line->wait(value, patience()).ok());
    }
    device->queue(QueueRole::kCompute).run(*loaded.program, loaded.bindings, {}, {line.get(), ++value}, {"test"});
    const Point ran{line.get(), value};
    results.push_back(*allocate_host(loaded.buffers[2].size(), "test"));
    device->queue(QueueRole::kDown)
        .copy(loaded.buffers[2].view(), results.back().view(), {&ran, 1}, {line.get(), ++value}, {"test"});
    ASSERT_TRUE(line->wait(value, patience()).ok()) << line->wait(value, patience());
  }
  EXPECT_EQ(std::memcmp(results[0].view().host(), results[1].view().host(), results[0].size()), 0);
  EXPECT_NE(*reinterpret_cast<const float*>(results[0].view().host()), 0.0F);
}

TEST(EmulatedCard, MemoryOfAnotherCard_IsRefused) {
  ThreadPool threads(1);
  const auto a = *open_emulated(round_card("emulated:round:0"), threads);
  const auto b = *open_emulated(round_card("emulated:round:1"), threads);
  const Buffer on_a = *a->allocate(64, MemoryKind::kDevice);
  const Buffer on_b = *b->allocate(64, MemoryKind::kDevice);
  const auto line = *a->timeline();
  a->queue(QueueRole::kUp).copy(on_b.view(), on_a.view(), {}, {line.get(), 1}, {"test"});
  EXPECT_THAT(std::string(line->wait(1, patience()).message()), testing::HasSubstr("another card"));
}

double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

TEST(TimedCards, EightAtATime_KeepTimeAndLeaveTheProcessorAlone) {
  constexpr std::uint64_t kRounds = 50;
  CardOptions options = round_card();
  options.profile.flops[DType::kFloat32] = 2.5e9;  // 4 ms a product
  options.profile.link_latency_seconds = 1e-5;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Loaded> loads;
  loads.reserve(8);  // work in flight points into them
  std::vector<std::unique_ptr<Timeline>> computed;
  std::vector<std::unique_ptr<Timeline>> uploaded;
  const Buffer home = phantom_host(50 * 250 * 4);
  Gate gate;
  for (std::size_t d = 0; d < 8; ++d) {
    devices.push_back(timed(options));
    loads.push_back(load(*devices[d], small_product()));
    computed.push_back(*devices[d]->timeline());
    uploaded.push_back(*devices[d]->timeline());
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
      // Inputs go up two rounds ahead of the computing.
      const Point there{uploaded[d].get(), i};
      const Point input_free{computed[d].get(), i > 2 ? i - 2 : 0};
      const std::array<Point, 2> waits = {gate.waits()[0], input_free};
      devices[d]->queue(QueueRole::kUp).copy(home.view(), loads[d].buffers[0].view(), waits, there, {"test"});
      devices[d]
          ->queue(QueueRole::kCompute)
          .run(*loads[d].program, loads[d].bindings, {&there, 1}, {computed[d].get(), i}, {"test"});
    }
  }
  const double cpu_before = cpu_seconds();
  const Moment begin = gate.open();
  for (const auto& line : computed) {
    const absl::Status status = line->wait(kRounds, patience());
    ASSERT_TRUE(status.ok()) << status;
    // The first input takes 60 us, then 50 products of 4 ms follow each other without a gap.
    EXPECT_NEAR(seconds_between(begin, reached(*line, kRounds)), 0.2 + 60e-6, 2e-6);
  }
  const double elapsed = seconds_between(begin, steady_clock::now());
  // 24 threads that sleep: less than one core in all, under sanitizers too; one that spins would take a core by itself.
  EXPECT_LT(cpu_seconds() - cpu_before, 0.9 * elapsed);
}

}  // namespace
}  // namespace rondo::devices::emulated
