// Curves as SVG.
#include "rondo/apps/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/apps/text.h"
#include "rondo/base/utf8.h"

namespace rondo::apps {
namespace {

using Points = std::vector<std::pair<double, double>>;

// The picture's own units; the page scales it.
constexpr double kWidth = 640;
constexpr double kHeight = 250;
constexpr double kLeft = 62;
constexpr double kRight = 14;
constexpr double kTop = 10;
constexpr double kBottom = 26;
constexpr std::size_t kMostPoints = 800;
constexpr std::size_t kMostDots = 60;  // longer series of points are lines

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Never empty, so that one may divide by its length.
  void widen(double share) {
    const double length = high - low;
    const double room = length > 0 ? length * share : std::max(std::fabs(high) * 0.1, 1e-9);
    low -= room;
    high += room;
  }
};

bool is_finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

struct Frame {
  Range x;
  Range y;
  double left(double value) const { return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight); }
  double top(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

Frame frame_of(const Plot& plot) {
  Frame frame;
  for (const Series& series : plot.series) {
    for (const auto& point : series.points) {
      if (!is_finite(point)) continue;
      frame.x.take(point.first);
      frame.y.take(point.second);
    }
  }
  if (frame.x.low == frame.x.high) frame.x.widen(0);
  if (plot.from_zero) frame.y.low = std::min(frame.y.low, 0.0);
  const double low = frame.y.low;
  frame.y.widen(0.04);
  if (plot.from_zero && low == 0) frame.y.low = 0;
  return frame;
}

std::string axes(const Plot& plot, const Frame& frame) {
  std::string text;
  // Bytes are marked in whole multiples of their unit.
  double unit = 1;
  while (plot.kind == ValueKind::kBytes && frame.y.high / unit >= 1024 && unit < 1e15) unit *= 1024;
  for (const double mark : axis_marks(frame.y.low / unit, frame.y.high / unit)) {
    const double at = frame.top(mark * unit);
    text += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, at,
                        kWidth - kRight, at);
    text += fmt::format("<text class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6,
                        at + 4, escaped(format_axis_value(mark * unit, plot.kind)));
  }
  for (const double mark : axis_marks(frame.x.low, frame.x.high)) {
    if (mark != std::floor(mark)) continue;  // steps are whole
    text += fmt::format("<text class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                        frame.left(mark), kHeight - 8, fmt::format("{:.0f}", mark));
  }
  return text + fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>", kLeft,
                            kHeight - kBottom, kWidth - kRight);
}

std::string curve(const Series& series, const Frame& frame) {
  Points points;
  std::ranges::copy_if(series.points, std::back_inserter(points), is_finite);
  points = thinned(points, kMostPoints);
  const bool dots = series.style == Series::Style::kDots;
  std::string text;
  if (points.size() > 1) {
    const char* style = series.style == Series::Style::kFaint    ? " faint"
                        : series.style == Series::Style::kDashed ? " dashed"
                                                                 : "";
    text += fmt::format("<polyline class=\"curve k{}{}\" points=\"", series.colour % 8, style);
    for (std::size_t i = 0; i < points.size(); ++i) {
      text +=
          fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", frame.left(points[i].first), frame.top(points[i].second));
    }
    text += "\"/>";
  }
  if (points.size() > 1 && (!dots || points.size() > kMostDots)) return text;
  for (const auto& [x, y] : points) {
    text += fmt::format(
        "<circle class=\"dot f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>{}: step {:.0f}, "
        "{:.6g}</title></circle>",
        series.colour % 8, frame.left(x), frame.top(y), escaped(series.label), x, y);
  }
  return text;
}

/// "train: last 2.31, lowest 2.20, highest 4.05"
std::string legend(const Plot& plot) {
  std::string text = "<ul class=\"legend\">";
  for (const Series& series : plot.series) {
    Range range;
    double last = 0;
    for (const auto& point : series.points) {
      if (!is_finite(point)) continue;
      range.take(point.second);
      last = point.second;
    }
    if (range.high < range.low) continue;
    const bool faint = series.style == Series::Style::kFaint;
    text += fmt::format(
        "<li><span class=\"key f{}{}\"></span>{} <span class=\"dim\">last {}, lowest {}, highest {}</span></li>",
        series.colour % 8, faint ? " faint" : "", escaped(series.label), escaped(format_axis_value(last, plot.kind)),
        escaped(format_axis_value(range.low, plot.kind)), escaped(format_axis_value(range.high, plot.kind)));
  }
  return text + "</ul>";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (length == 0 || (length == 1 && (byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')))) {
      result += "\xEF\xBF\xBD";
      ++at;
      continue;
    }
    const std::string_view piece = text.substr(at, length);
    at += length;
    if (piece == "&") {
      result += "&amp;";
    } else if (piece == "<") {
      result += "&lt;";
    } else if (piece == ">") {
      result += "&gt;";
    } else if (piece == "\"") {
      result += "&quot;";
    } else if (piece == "'") {
      result += "&#39;";
    } else if (piece == "\xEF\xBF\xBE" || piece == "\xEF\xBF\xBF") {
      result += "\xEF\xBF\xBD";  // no characters in XML
    } else {
      result += piece;
    }
  }
  return result;
}

std::string format_axis_value(double value, ValueKind kind) {
  if (!std::isfinite(value)) return "?";
  switch (kind) {
    case ValueKind::kShare:
      return fmt::format("{:.3g}%", 100 * value);
    case ValueKind::kCount:
      return format_count(value);
    case ValueKind::kBytes: {
      const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
      std::size_t unit = 0;
      for (; std::fabs(value) >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
      return fmt::format("{:.3g} {}", value, units[unit]);
    }
    case ValueKind::kNumber:
      break;
  }
  return fmt::format("{:.4g}", value);
}

Points thinned(const Points& points, std::size_t most) {
  if (points.size() <= most) return points;
  Points kept;
  const std::size_t stretches = most / 2;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    const auto [low, high] =
        std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

Points smoothed(const Points& points, double window) {
  const double keep = 1.0 - 2.0 / (std::max(window, 1.0) + 1.0);
  Points result;
  double sum = 0;
  double weight = 0;
  for (const auto& point : points) {
    if (!is_finite(point)) continue;
    sum = sum * keep + point.second;
    weight = weight * keep + 1;
    result.emplace_back(point.first, sum / weight);
  }
  return result;
}

std::vector<double> axis_marks(double low, double high) {
  const double length = high - low;
  if (!(length > 0) || !std::isfinite(length)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(length)));
  double step = power;
  for (const double factor : {0.2, 0.5, 1.0, 2.0}) {
    step = factor * power;
    if (length / step <= 6.5) break;
  }
  std::vector<double> marks;
  const double first = std::ceil(low / step);
  // Counted: of numbers so large that a step is less than what tells neighbours apart, adding one never ends.
  for (int n = 0; n < 8 && (first + n) * step <= high; ++n) {
    const double mark = first + n == 0 ? 0.0 : (first + n) * step;
    if (marks.empty() || mark > marks.back()) marks.push_back(mark);
  }
  return marks;
}

bool has_points(const Plot& plot) {
  return std::ranges::any_of(plot.series,
                             [](const Series& series) { return std::ranges::any_of(series.points, is_finite); });
}

std::string plot_figure(const Plot& plot) {
  const Frame frame = frame_of(plot);
  std::string text = fmt::format("<figure><figcaption>{}</figcaption>", escaped(plot.title));
  text += fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                      escaped(plot.title));
  text += axes(plot, frame);
  for (const Series& series : plot.series) text += curve(series, frame);
  return text + "</svg>" + legend(plot) + "</figure>\n";
}

}  // namespace rondo::apps
