// Tests of what the backend keeps to itself: on the first card, skipped where there is none that can be used.
#pragma once

#include <gtest/gtest.h>

#include "context.h"

namespace rondo::devices::vulkan {

class CardTest : public testing::Test {
 protected:
  void SetUp() override {
    auto instance = Instance::make(nullptr);
    if (!instance.ok()) GTEST_SKIP() << instance.status();
    auto cards = (*instance)->cards();
    if (!cards.ok() || !cards->front().info.unsuitable.empty()) GTEST_SKIP() << "no Vulkan card that can be used";
    instance_ = *std::move(instance);
    card_ = cards->front();
  }

  std::shared_ptr<Instance> instance_;
  Card card_;
};

}  // namespace rondo::devices::vulkan
