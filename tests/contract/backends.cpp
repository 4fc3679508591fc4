// The backends under contract and what they are excused from.
#include "backends.h"

#include <gtest/gtest.h>

#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/emulated/emulated_device.h"
#include "rondo/devices/null/null_device.h"
#include "rondo/devices/vulkan/vulkan_device.h"
#include "vulkan_card.h"

namespace rondo::devices::contract {
namespace {

absl::StatusOr<std::unique_ptr<Device>> open_cpu(ThreadPool& threads, bool single_queue) {
  cpu::CpuOptions options;
  options.name = "cpu:0";
  options.memory_limit = kMemory;
  options.single_queue = single_queue;
  return cpu::open_cpu(options, threads);
}

/// Quick enough that a case takes milliseconds.
emulated::CardOptions card(const char* name, bool single_queue, bool weights_in_place = false) {
  emulated::CardOptions options;
  options.name = name;
  options.profile.name = "card";
  options.profile.flops = {{DType::kFloat32, 1e13}, {DType::kBfloat16, 4e13}};
  options.profile.memory_bytes = kMemory;
  options.profile.memory_bandwidth = 1e12;
  options.profile.link_up = 2e10;
  options.profile.link_down = 2e10;
  options.profile.weights_in_place = weights_in_place;
  options.single_queue = single_queue;
  return options;
}

std::optional<vulkan::CardInfo> vulkan_card() {
#ifdef __SANITIZE_THREAD__
  return std::nullopt;  // the sanitizer cannot see how a driver's threads lock
#endif
  return test::usable_vulkan_card();
}

absl::StatusOr<std::unique_ptr<Device>> open_vulkan(vulkan::VulkanOptions options, bool validated) {
  options.memory_limit = kMemory;
  if (validated) options.on_complaint = [](const std::string& message) { ADD_FAILURE() << message; };
  return vulkan::open_vulkan(options);
}

std::vector<Backend> all_backends() {
  std::vector<Backend> all = {
      {"null",
       [](ThreadPool&) {
         return null::open_null({"null:0", kMemory});
       }},
      {"cpu", [](ThreadPool& threads) { return open_cpu(threads, false); }},
      {"cpu_one_queue", [](ThreadPool& threads) { return open_cpu(threads, true); }},
      {"emulated",
       [](ThreadPool& threads) { return emulated::open_emulated(card("emulated:card:0", false), threads); }},
      {"emulated_one_queue",
       [](ThreadPool& threads) { return emulated::open_emulated(card("emulated:card:0", true), threads); }},
      {"emulated_weights_in_place",
       [](ThreadPool& threads) { return emulated::open_emulated(card("emulated:card:0", false, true), threads); }},
      {"timed", [](ThreadPool&) { return emulated::open_timed(card("timed:card:0", false)); }},
      {"timed_one_queue", [](ThreadPool&) { return emulated::open_timed(card("timed:card:0", true)); }},
  };
  if (const auto found = vulkan_card(); found) {
    const std::uint32_t index = found->index;
    const auto add = [&all](const char* name, const vulkan::VulkanOptions& options, bool validated) {
      all.push_back({name, [options, validated](ThreadPool&) { return open_vulkan(options, validated); }});
    };
    using vulkan::Use;
    add("vulkan", {.index = index}, false);
    add("vulkan_one_queue", {.index = index, .single_queue = true, .short_submissions = true, .card_copies_from = 0},
        false);
    add("vulkan_validated", {.index = index}, true);
    add("vulkan_validated_card_copies",
        {.index = index, .host_reaches = false, .short_submissions = true, .parts = 3, .backwards = true}, true);
    add("vulkan_validated_weights_in_place", {.index = index, .weights_in_place = Use::kAlways}, true);
    if (found->matrix_units) add("vulkan_validated_matrix_units", {.index = index, .matrix_units = Use::kAlways}, true);
  }
  return all;
}

}  // namespace

const std::vector<Backend>& backends() {
  static const auto* const all = new std::vector<Backend>(all_backends());
  return *all;
}

const std::vector<Exclusion>& exclusions() {
  using Kind = Exclusion::Kind;
  constexpr const char* kNoArithmetic = "the null backend computes nothing";
  constexpr const char* kNoBytes = "timed cards have no memory: nothing can be read back";
  static const auto* const all = new std::vector<Exclusion>{
      {Kind::kNever, "vulkan_validated", "Run_ManyTimes_AllocatesNothing", "the validation layer allocates"},
      {Kind::kNever, "null", "Run_TwoBindings_GivesEachItsAnswer", kNoArithmetic},
      {Kind::kNever, "null", "Run_WithScratchAndManyInFlight_GivesEachItsAnswer", kNoArithmetic},
      {Kind::kNever, "null", "Run_ManyTimes_AllocatesNothing", kNoArithmetic},
      {Kind::kNever, "null", "Run_BoundToHostMemory_FollowsTheCapability", kNoArithmetic},
      {Kind::kNever, "null", "Run_AfterAFailedAttempt_IsUntouchedByIt", kNoArithmetic},
      {Kind::kNever, "null", "Compile_OfAProductInFp8_IsRefusedByNameWhereThereIsNone", kNoArithmetic},
      {Kind::kNever, "null", "Run_UploadComputeDownload_OrderedByPointsAlone", kNoArithmetic},
      {Kind::kNever, "timed", "Copy_UpAndDown_KeepsEveryByte", kNoBytes},
      {Kind::kNever, "timed", "Copy_OfMemoryThatWasExpected_BringsWhatLiesThereThen", kNoBytes},
      {Kind::kNever, "timed", "Copy_WithinTheDevice_MovesTheView", kNoBytes},
      {Kind::kNever, "timed", "Clear_PartOfABuffer_LeavesTheRest", kNoBytes},
      {Kind::kNever, "timed", "Order_LongChainAcrossQueues_ArrivesWhole", kNoBytes},
      {Kind::kNever, "timed", "Poison_OfAWait_SkipsTheWork", kNoBytes},
      {Kind::kNever, "timed", "Destruction_WithWorkInFlight_FinishesIt", kNoBytes},
      {Kind::kNever, "timed", "Run_TwoBindings_GivesEachItsAnswer", kNoBytes},
      {Kind::kNever, "timed", "Run_WithScratchAndManyInFlight_GivesEachItsAnswer", kNoBytes},
      {Kind::kNever, "timed", "Run_AfterAFailedAttempt_IsUntouchedByIt", kNoBytes},
      {Kind::kNever, "timed", "Run_UploadComputeDownload_OrderedByPointsAlone", kNoBytes},
  };
  return *all;
}

const Exclusion* find_exclusion(const std::string& backend, const std::string& test) {
  for (const Exclusion& exclusion : exclusions()) {
    if (backend.rfind(exclusion.backend, 0) == 0 && test == exclusion.test) return &exclusion;
  }
  return nullptr;
}

}  // namespace rondo::devices::contract
