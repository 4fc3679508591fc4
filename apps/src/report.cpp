// One or two runs as a page of HTML.
#include "rondo/apps/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "rondo/apps/plot.h"
#include "rondo/apps/text.h"

namespace rondo::apps {
namespace {

using train::RunHistory;
using train::TrainPoint;
using Points = std::vector<std::pair<double, double>>;

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--dim:#59636e;--line:#d5dae0;--card:#f6f8fa;
--c0:#0969da;--c1:#c2410c;--c2:#1a7f37;--c3:#8250df;--c4:#9a6700;--c5:#bf3989;--c6:#0e7490;--c7:#57606a}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--dim:#9198a1;--line:#30363d;--card:#161b22;
--c0:#58a6ff;--c1:#f78166;--c2:#56d364;--c3:#bc8cff;--c4:#e3b341;--c5:#f778ba;--c6:#39c5cf;--c7:#8b949e}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1rem;background:var(--back);color:var(--text);
font:16px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;margin:0 0 .5rem}h2{font-size:1.1rem;margin:1.5rem 0 .5rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:1rem}
figure{margin:0;padding:.7rem;background:var(--card);border:1px solid var(--line);border-radius:.5rem}
figure.wide{margin-top:1rem}figcaption{font-weight:600}svg{display:block;width:100%;height:auto}
.grid{stroke:var(--line)}.axis{stroke:var(--dim)}.mark{fill:var(--dim);font:11px system-ui,sans-serif}
.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}.faint{opacity:.35}.dashed{stroke-dasharray:6 4}
.legend{list-style:none;margin:.2rem 0 0;padding:0;font-size:.85rem}.key{display:inline-block;width:.8rem;height:.8rem;
border-radius:.2rem;margin-right:.4rem}.dim{color:var(--dim)}
table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{text-align:left;vertical-align:top;padding:.25rem .6rem;
border-bottom:1px solid var(--line)}th{font-weight:600}td.n{font-variant-numeric:tabular-nums}
summary{cursor:pointer;font-weight:600;margin:1rem 0 .5rem}
)";

/// The classes k0 to k7 (strokes) and f0 to f7 (fills, and backgrounds of keys).
std::string colour_classes() {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += fmt::format(".k{0}{{stroke:var(--c{0})}}.f{0}{{fill:var(--c{0});background:var(--c{0})}}\n", i);
  return text;
}

Points points_of(const RunHistory& run, const std::function<double(const TrainPoint&)>& value) {
  Points points;
  for (const TrainPoint& point : run.train) points.emplace_back(static_cast<double>(point.step), value(point));
  return points;
}

/// "A: " and the like before a label when there are two runs.
std::string label_of(const std::vector<RunHistory>& runs, std::size_t i, const std::string& what) {
  return runs.size() == 1 ? what : fmt::format("{}: {}", i == 0 ? "A" : "B", what);
}

Plot loss_plot(const std::vector<RunHistory>& runs) {
  Plot plot{"Loss", ValueKind::kNumber, {}, false};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Points raw = points_of(runs[i], [](const TrainPoint& point) { return point.loss; });
    const int colour = static_cast<int>(2 * i);
    const double window = std::clamp(static_cast<double>(raw.size()) / 25.0, 5.0, 200.0);
    plot.series.push_back({label_of(runs, i, "train"), raw, colour, Series::Style::kFaint});
    plot.series.push_back({label_of(runs, i, "train, smoothed"), smoothed(raw, window), colour, Series::Style::kLine});
    Points evaluations;
    for (const auto& point : runs[i].evaluations)
      evaluations.emplace_back(static_cast<double>(point.step), point.eval_loss);
    if (!evaluations.empty()) {
      plot.series.push_back({label_of(runs, i, "eval"), evaluations, colour + 1, Series::Style::kDots});
    }
  }
  return plot;
}

Plot memory_plot(const std::vector<RunHistory>& runs) {
  Plot plot{"Memory, most used so far", ValueKind::kBytes, {}, true};
  int colour = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::set<std::string> names;
    for (const TrainPoint& point : runs[i].train) {
      for (const auto& [name, bytes] : point.memory) names.insert(name);
    }
    for (const std::string& name : names) {
      const auto bytes = [&](const TrainPoint& point) {
        const auto found = point.memory.find(name);
        return found == point.memory.end() ? NAN : found->second;
      };
      plot.series.push_back({label_of(runs, i, name), points_of(runs[i], bytes), colour++,
                             i == 0 ? Series::Style::kLine : Series::Style::kDashed});
    }
  }
  return plot;
}

std::string plots(const std::vector<RunHistory>& runs) {
  struct Measure {
    const char* title;
    ValueKind kind;
    bool from_zero;
    double TrainPoint::*member;
  };
  const Measure measures[] = {{"Learning rate", ValueKind::kNumber, true, &TrainPoint::learning_rate},
                              {"Gradient norm, before clipping", ValueKind::kNumber, true, &TrainPoint::grad_norm},
                              {"Tokens a second", ValueKind::kCount, true, &TrainPoint::tokens_per_second},
                              {"SOL: share of the speed of light", ValueKind::kShare, true, &TrainPoint::sol},
                              {"Bubble: share of the pool that waits", ValueKind::kShare, true, &TrainPoint::bubble}};
  std::vector<Plot> all = {loss_plot(runs)};
  for (const Measure& measure : measures) {
    Plot plot{measure.title, measure.kind, {}, measure.from_zero};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      plot.series.push_back({label_of(runs, i, "each step"),
                             points_of(runs[i], [&](const TrainPoint& point) { return point.*measure.member; }),
                             static_cast<int>(2 * i), Series::Style::kLine});
    }
    all.push_back(std::move(plot));
  }
  all.push_back(memory_plot(runs));
  std::string text = "<div class=\"plots\">\n";
  for (const Plot& plot : all) {
    if (has_points(plot)) text += plot_figure(plot);
  }
  return text + "</div>\n";
}

std::string value_or_dash(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

/// A row of the summary: what, and how it is read off a run.
struct Fact {
  const char* name;
  std::function<std::string(const RunHistory&)> value;
};

std::vector<Fact> facts() {
  const auto last = [](const RunHistory& run) { return run.train.empty() ? TrainPoint{} : run.train.back(); };
  return {
      {"folder", [](const RunHistory& run) { return run.folder.string(); }},
      {"state", [](const RunHistory& run) { return run.status; }},
      {"model", [](const RunHistory& run) { return train::setting(run, "model_name_or_path"); }},
      {"data", [](const RunHistory& run) { return train::setting(run, "dataset"); }},
      {"method", [](const RunHistory& run) { return train::setting(run, "finetuning_type"); }},
      {"steps",
       [](const RunHistory& run) {
         return run.total_steps > 0 ? fmt::format("{} of {}", run.steps(), run.total_steps)
                                    : std::to_string(run.steps());
       }},
      {"loss of the last step",
       [last](const RunHistory& run) { return run.train.empty() ? "-" : value_or_dash(last(run).loss, "{:.4f}"); }},
      {"best evaluation", [](const RunHistory& run) { return value_or_dash(train::best_eval_loss(run), "{:.4f}"); }},
      {"tokens a second, mean",
       [](const RunHistory& run) {
         const double speed = train::mean_tokens_per_second(run);
         return std::isfinite(speed) ? format_count(speed) : std::string("-");
       }},
      {"time",
       [last](const RunHistory& run) { return run.train.empty() ? "-" : format_duration(last(run).elapsed_seconds); }},
      {"skipped steps, retries, lost devices", [last](const RunHistory& run) {
         const TrainPoint point = last(run);
         return fmt::format("{}, {}, {}", value_or_dash(point.skipped_steps, "{:.0f}"),
                            value_or_dash(point.retries, "{:.0f}"), value_or_dash(point.lost_devices, "{:.0f}"));
       }}};
}

std::string head_row(const std::vector<RunHistory>& runs) {
  return runs.size() == 1 ? "" : "<tr><th></th><th>A</th><th>B</th></tr>\n";
}

std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("<tr><th>{}</th>", escaped(name));
  for (const std::string& cell : cells) text += fmt::format("<td class=\"n\">{}</td>", escaped(cell));
  return text + "</tr>\n";
}

std::string summary_table(const std::vector<RunHistory>& runs) {
  std::string text = "<table>\n" + head_row(runs);
  for (const Fact& fact : facts()) {
    std::vector<std::string> cells;
    for (const RunHistory& run : runs) cells.push_back(fact.value(run));
    text += row(fact.name, cells);
  }
  return text + "</table>\n";
}

/// Keys in the first run's order, then those that only the second has.
std::vector<std::string> setting_names(const std::vector<RunHistory>& runs) {
  std::vector<std::string> names;
  for (const RunHistory& run : runs) {
    for (const auto& [name, value] : run.settings) {
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    }
  }
  return names;
}

std::string settings_tables(const std::vector<RunHistory>& runs) {
  std::string all;
  std::string differing;
  for (const std::string& name : setting_names(runs)) {
    std::vector<std::string> cells;
    for (const RunHistory& run : runs) cells.push_back(train::setting(run, name));
    all += row(name, cells);
    if (cells.front() != cells.back()) differing += row(name, cells);
  }
  if (all.empty()) return "<p class=\"dim\">There is no config.resolved.yaml that can be read.</p>\n";
  std::string text;
  if (runs.size() > 1) {
    text += "<h2>Settings that differ</h2>\n";
    text +=
        differing.empty() ? "<p>None.</p>\n" : "<table id=\"differing\">\n" + head_row(runs) + differing + "</table>\n";
  }
  return text +
         fmt::format("<details{}><summary>All settings</summary>\n<table id=\"settings\">\n{}{}</table>\n</details>\n",
                     runs.size() == 1 ? " open=\"open\"" : "", head_row(runs), all);
}

std::string remarks(const std::vector<RunHistory>& runs) {
  std::string text;
  for (const RunHistory& run : runs) {
    if (run.ignored_lines > 0) {
      text += fmt::format("<p class=\"dim\">{}: {} lines of metrics.jsonl are not whole and were left out.</p>\n",
                          escaped(run.folder.string()), run.ignored_lines);
    }
    if (run.train.empty()) {
      text += fmt::format("<p class=\"dim\">{}: no step is logged yet.</p>\n", escaped(run.folder.string()));
    }
  }
  return text;
}

}  // namespace

std::string report_page(const std::vector<RunHistory>& runs, const std::string& timeline) {
  std::string title = runs.front().folder.filename().string();
  if (title.empty()) title = runs.front().folder.string();
  if (runs.size() > 1) title += " and " + runs.back().folder.filename().string();
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
  page += fmt::format("<title>{} - rondo</title>\n<style>{}{}</style>\n</head>\n<body>\n", escaped(title), kStyle,
                      colour_classes());
  page += fmt::format("<h1>{}</h1>\n{}{}", escaped(title), summary_table(runs), remarks(runs));
  page += "<h2>Measurements</h2>\n" + plots(runs);
  if (!timeline.empty()) page += "<h2>Time line</h2>\n" + timeline;
  page += "<h2>Settings</h2>\n" + settings_tables(runs);
  return page + "</body>\n</html>\n";
}

}  // namespace rondo::apps
