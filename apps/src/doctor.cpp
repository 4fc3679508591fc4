// The findings as lines or as JSON.
#include "rondo/apps/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rondo/apps/output.h"
#include "rondo/apps/screen.h"
#include "rondo/apps/text.h"
#include "rondo/base/status.h"
#include "rondo/train/doctor.h"

namespace rondo::apps {
namespace {

using Json = nlohmann::ordered_json;
using train::Finding;
using train::Health;

std::string line_of(const Finding& finding, bool colour) {
  const char* shade = finding.health == Health::kOk ? "32" : finding.health == Health::kAdvice ? "33" : "31";
  const std::string health = fmt::format("{:<8}", name_of(finding.health));
  return fmt::format("{} {:<13} {}\n", colour ? fmt::format("\x1b[{}m{}\x1b[0m", shade, health) : health,
                     finding.subject, one_line(finding.text));
}

}  // namespace

absl::Status run_doctor(const train::Config& config, const Streams& streams) {
  const std::vector<Finding> findings = train::diagnose(config);
  const Finding* problem = nullptr;
  Json list = Json::array();
  std::string text;
  for (const Finding& finding : findings) {
    if (finding.health == Health::kProblem && problem == nullptr) problem = &finding;
    list.push_back({{"health", name_of(finding.health)}, {"subject", finding.subject}, {"text", finding.text}});
    text += line_of(finding, terminal_kind(streams.out).colour);
  }
  if (config.json) {
    RONDO_RETURN_IF_ERROR(put_json(streams.out, {{"possible", problem == nullptr}, {"findings", list}}));
  } else {
    RONDO_RETURN_IF_ERROR(put(streams.out, text));
  }
  if (problem == nullptr) return absl::OkStatus();
  return internal_error("training is not possible here: {}: {}", problem->subject, problem->text);
}

}  // namespace rondo::apps
