// Curves as SVG that stands inside an HTML page: axes, grid, lines and points in the page's colours (CSS variables
// --c0 to --c7), no scripts, nothing fetched. Everything that comes from outside is escaped, and the text is
// well-formed XML.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rondo::apps {

/// `text` for HTML and XML text and attributes: markup characters as entities; what is no UTF-8 and control characters
/// become U+FFFD.
std::string escaped(std::string_view text);

/// How an axis' numbers are written.
enum class ValueKind { kNumber, kShare, kCount, kBytes };

/// 1234.5 as people read it: "0.412", "41%", "1.2 k", "3.5 GiB".
std::string format_axis_value(double value, ValueKind kind);

struct Series {
  enum class Style { kLine, kFaint, kDots, kDashed };
  std::string label;
  std::vector<std::pair<double, double>> points;  // in rising x; points that are not finite are left out
  int colour = 0;                                 // 0 to 7
  Style style = Style::kLine;
};

struct Plot {
  std::string title;
  ValueKind kind = ValueKind::kNumber;
  std::vector<Series> series;
  bool from_zero = false;  // the vertical axis begins at 0
};

/// At most `most` points (> 3) with every stretch's highest and lowest kept.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, std::size_t most);

/// Exponentially smoothed over about `window` points.
std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& points, double window);

/// Marks of an axis from `low` to `high`: multiples of 1, 2 or 5 times a power of ten, three to eight of them.
std::vector<double> axis_marks(double low, double high);

/// True when a series has a point.
bool has_points(const Plot& plot);

/// A <figure> with caption, legend and the <svg>. REQUIRES: has_points(plot).
std::string plot_figure(const Plot& plot);

}  // namespace rondo::apps
