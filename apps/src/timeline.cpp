// A step's time line from a Chrome trace.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/apps/plot.h"
#include "rondo/apps/report.h"
#include "rondo/apps/text.h"
#include "rondo/base/status.h"

namespace rondo::apps {
namespace {

using Row = std::pair<std::int64_t, std::int64_t>;  // process, thread

struct Event {
  std::string name;
  double begin = 0;  // microseconds
  double end = 0;
  std::uint64_t step = 0;
  std::size_t pieces = 1;
};

struct Trace {
  std::map<Row, std::vector<Event>> rows;
  std::map<std::int64_t, std::string> devices;
  std::map<Row, std::string> queues;
};

// The picture's own units; the page scales it.
constexpr double kPageWidth = 960;
constexpr double kLetter = 6.3;  // of a label, wide ones included
constexpr double kRow = 16;
constexpr double kPageBottom = 24;
constexpr double kResolution = 3000;  // of the step's length: shorter gaps between like pieces do not show

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Never beyond what a whole number holds exactly.
double number_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::clamp(found->get<double>(), -1e15, 1e15) : 0;
}

void take(const nlohmann::json& item, Trace& trace) {
  if (!item.is_object() || !item.contains("args") || !item["args"].is_object()) return;
  const Row row{static_cast<std::int64_t>(number_in(item, "pid")), static_cast<std::int64_t>(number_in(item, "tid"))};
  const std::string kind = text_in(item, "ph");
  const std::string name = text_in(item, "name");
  if (kind == "M" && name == "process_name") trace.devices[row.first] = text_in(item["args"], "name");
  if (kind == "M" && name == "thread_name") trace.queues[row] = text_in(item["args"], "name");
  if (kind != "X") return;
  const double begin = number_in(item, "ts");
  const double end = begin + std::max(number_in(item, "dur"), 0.0);
  if (!std::isfinite(begin) || !std::isfinite(end)) return;
  trace.rows[row].push_back(
      {name, begin, end, static_cast<std::uint64_t>(std::max(number_in(item["args"], "step"), 0.0))});
}

/// The events of `step` alone, those of one kind that nothing visible parts joined.
std::vector<Event> of_step(std::vector<Event> events, std::uint64_t step, double gap) {
  std::erase_if(events, [&](const Event& event) { return event.step != step; });
  std::ranges::sort(events, {}, &Event::begin);
  std::vector<Event> joined;
  for (const Event& event : events) {
    if (!joined.empty() && joined.back().name == event.name && event.begin - joined.back().end < gap) {
      joined.back().end = std::max(joined.back().end, event.end);
      ++joined.back().pieces;
    } else {
      joined.push_back(event);
    }
  }
  return joined;
}

struct Extent {
  double begin = 0;
  double end = 0;
};

Extent extent_of(const Trace& trace, std::uint64_t step) {
  Extent extent{INFINITY, -INFINITY};
  for (const auto& [row, events] : trace.rows) {
    for (const Event& event : events) {
      if (event.step != step) continue;
      extent.begin = std::min(extent.begin, event.begin);
      extent.end = std::max(extent.end, event.end);
    }
  }
  if (extent.end <= extent.begin) extent.end = extent.begin + 1;
  return extent;
}

std::string label_of(Trace& trace, const Row& row) {
  return fmt::format("{} {}", trace.devices[row.first], trace.queues[row]);
}

/// Where the bars begin: right of the longest label.
double left_of(Trace& trace) {
  std::size_t letters = 0;
  for (const auto& [row, list] : trace.rows) letters = std::max(letters, label_of(trace, row).size());
  return std::min(kLetter * static_cast<double>(letters) + 10, kPageWidth / 2);
}

std::string time_axis(const Extent& extent, double left, double bottom) {
  std::string text;
  const double length = (extent.end - extent.begin) * 1e-6;
  for (const double mark : axis_marks(0, length)) {
    const double at = left + mark / length * (kPageWidth - left);
    const std::string label = format_duration(mark);
    text += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"0\" x2=\"{0:.1f}\" y2=\"{1:.1f}\"/>", at, bottom);
    if (at + 3 + kLetter * static_cast<double>(label.size()) > kPageWidth) continue;
    text +=
        fmt::format("<text class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", at + 3, bottom + 15, escaped(label));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> timeline_figure(std::string_view trace_text, const std::string& path) {
  const nlohmann::json document = nlohmann::json::parse(trace_text, nullptr, false);
  const nlohmann::json events =
      document.is_object() && document.contains("traceEvents") ? document["traceEvents"] : nlohmann::json();
  Trace trace;
  if (events.is_array()) {
    for (const nlohmann::json& item : events) take(item, trace);
  }
  std::set<std::uint64_t> steps;
  for (const auto& [row, list] : trace.rows) {
    for (const Event& event : list) steps.insert(event.step);
  }
  if (steps.empty()) return invalid_input("{}: no step in it; expected a trace that `rondo profile` has written", path);
  const std::uint64_t step = *std::next(steps.begin(), static_cast<std::ptrdiff_t>(steps.size() / 2));
  const Extent extent = extent_of(trace, step);
  const double length = extent.end - extent.begin;
  const double left = left_of(trace);
  std::map<std::string, int> colours;
  std::string shapes;
  double top = 0;
  for (const auto& [row, list] : trace.rows) {
    const std::vector<Event> shown = of_step(list, step, length / kResolution);
    if (shown.empty()) continue;
    shapes += fmt::format("<text class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 6,
                          top + kRow - 4, escaped(label_of(trace, row)));
    for (const Event& event : shown) {
      const int colour = colours.emplace(event.name, static_cast<int>(colours.size())).first->second;
      const double x = left + (event.begin - extent.begin) / length * (kPageWidth - left);
      const double width = std::max((event.end - event.begin) / length * (kPageWidth - left), 0.3);
      shapes += fmt::format(
          "<rect class=\"f{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}: "
          "{}{}</title></rect>",
          colour % 8, x, top + 1, width, kRow - 3, escaped(event.name),
          escaped(format_duration((event.end - event.begin) * 1e-6)),
          event.pieces > 1 ? fmt::format(", {} pieces", event.pieces) : "");
    }
    top += kRow;
  }
  std::string legend = "<ul class=\"legend\">";
  for (const auto& [name, colour] : colours) {
    legend += fmt::format("<li><span class=\"key f{}\"></span>{}</li>", colour % 8, escaped(name));
  }
  return fmt::format(
      "<figure class=\"wide\"><figcaption>Step {} of the trace, {}</figcaption>"
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"time line of a step\">{}{}</svg>{}</ul></figure>\n",
      step, escaped(format_duration(length * 1e-6)), kPageWidth, top + kPageBottom, time_axis(extent, left, top),
      shapes, legend);
}

}  // namespace rondo::apps
