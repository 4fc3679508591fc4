#include "rondo/apps/sweep_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rondo/apps/plot.h"

namespace rondo::apps {
namespace {

using train::SweepLine;

// The picture stands alone: it has its size and colours in it.
constexpr double kSheetWidth = 760;
constexpr double kSheetHeight = 440;
constexpr double kSheetLeft = 80;
constexpr double kSheetRight = 20;
constexpr double kSheetTop = 44;
constexpr double kSheetBottom = 56;
constexpr double kLegendRow = 18;
constexpr std::array kColours = {"#1b6ca8", "#c4432b", "#2e8b57", "#8a4fa3",
                                 "#b8860b", "#4d4d4d", "#0e7c86", "#d2527f"};

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

/// Batches by their logarithm, tokens linearly from 0.
class Axes {
 public:
  explicit Axes(const std::vector<SweepLine>& lines) {
    for (const SweepLine& line : lines) {
      for (const auto& [batch, tokens] : line.points) {
        batches_.push_back(batch);
        most_ = std::max(most_, tokens);
      }
    }
    std::ranges::sort(batches_);
    const auto last = std::unique(batches_.begin(), batches_.end());
    batches_.erase(last, batches_.end());
    if (most_ <= 0) most_ = 1;
    most_ *= 1.05;
  }

  double x(std::uint32_t batch) const {
    const double low = std::log2(batches_.front());
    const double high = std::log2(batches_.back());
    const double share = high > low ? (std::log2(batch) - low) / (high - low) : 0.5;
    return kSheetLeft + 12 + share * (kSheetWidth - kSheetLeft - kSheetRight - 24);
  }
  double y(double tokens) const {
    return kSheetHeight - kSheetBottom - tokens / most_ * (kSheetHeight - kSheetTop - kSheetBottom);
  }

  std::string svg() const {
    std::string text;
    for (const double at : axis_marks(0, most_)) {
      text += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n",
                          kSheetLeft, y(at), kSheetWidth - kSheetRight, y(at));
      text += text_at(kSheetLeft - 8, y(at) + 4, "end", fmt::format("{:g}", at));
    }
    double free_from = 0;
    for (const std::uint32_t batch : batches_) {
      if (x(batch) < free_from) continue;
      free_from = x(batch) + 32;
      text += text_at(x(batch), kSheetHeight - kSheetBottom + 18, "middle", std::to_string(batch));
    }
    text +=
        text_at((kSheetLeft + kSheetWidth - kSheetRight) / 2, kSheetHeight - 16, "middle", "global batch (sequences)");
    return text + fmt::format(
                      "<text x=\"18\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {0:.1f})\">"
                      "tokens/s</text>\n",
                      (kSheetTop + kSheetHeight - kSheetBottom) / 2);
  }
  bool empty() const { return batches_.empty(); }

 private:
  std::vector<std::uint32_t> batches_;
  double most_ = 0;
};

std::string line_svg(const SweepLine& line, const Axes& axes, const char* colour) {
  std::string path;
  std::string dots;
  for (const auto& [batch, tokens] : line.points) {
    path += fmt::format("{:.1f},{:.1f} ", axes.x(batch), axes.y(tokens));
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"{}\"><title>{}: {:.0f} "
        "tokens/s</title></circle>\n",
        axes.x(batch), axes.y(tokens), batch == line.knee ? 6 : 3, batch == line.knee ? "white" : colour, colour, batch,
        tokens);
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour) + dots;
}

}  // namespace

std::string sweep_svg(const std::string& title, const std::vector<SweepLine>& lines) {
  const Axes axes(lines);
  const double height = kSheetHeight + kLegendRow * static_cast<double>(lines.size());
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kSheetWidth, height);
  text += text_at(kSheetLeft, 24, "start", title);
  if (!axes.empty()) text += axes.svg();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    if (!lines[i].points.empty()) text += line_svg(lines[i], axes, colour);
    const double y = kSheetHeight + kLegendRow * static_cast<double>(i);
    text += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n", kSheetLeft, y - 6,
                        colour);
    const std::string knee = lines[i].knee > 0 ? fmt::format(" (95% of its best from {} on)", lines[i].knee)
                                               : std::string(" (does not fit)");
    text += text_at(kSheetLeft + 22, y, "start", lines[i].name + knee);
  }
  return text + "</svg>\n";
}

}  // namespace rondo::apps
