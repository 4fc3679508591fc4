// What is known before a run, a plan and the list of devices, as text for people.
#include "rondo/apps/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "rondo/apps/text.h"
#include "rondo/base/units.h"
#include "rondo/data/describe.h"

namespace rondo::apps {
namespace {

using Json = nlohmann::ordered_json;
using NamedTables = std::vector<std::pair<std::string, partition::MemoryTable>>;

/// One row a device, one column a purpose, then the total.
std::string memory_text(const NamedTables& tables) {
  std::vector<std::string> purposes;
  for (const auto& [name, table] : tables) {
    for (const auto& [purpose, bytes] : table) {
      if (std::find(purposes.begin(), purposes.end(), purpose) == purposes.end()) purposes.push_back(purpose);
    }
  }
  std::vector<std::vector<std::string>> rows(1);
  rows[0].push_back("");
  rows[0].insert(rows[0].end(), purposes.begin(), purposes.end());
  rows[0].push_back("total");
  for (const auto& [name, table] : tables) {
    std::vector<std::string> row = {name};
    for (const std::string& purpose : purposes) {
      const auto found =
          std::find_if(table.begin(), table.end(), [&](const auto& cell) { return cell.first == purpose; });
      row.push_back(found == table.end() ? "-" : format_bytes(found->second));
    }
    row.push_back(format_bytes(partition::total_of(table)));
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

/// Devices share their purposes, the host has its own: two tables.
std::string memory_tables(const NamedTables& tables) {
  NamedTables devices;
  NamedTables host;
  for (const auto& table : tables) {
    const bool of_host = table.first == "host" || table.first == "disk";
    (of_host ? host : devices).push_back(table);
  }
  std::string text = "memory\n";
  if (!devices.empty()) text += memory_text(devices);
  if (!host.empty()) text += memory_text(host);
  return text;
}

std::string indented(const std::string& text) {
  std::string result;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

std::string prediction_text(const partition::Prediction& predicted) {
  return fmt::format("{} a step, {} tokens/s, bubble {:.1f}%, limited by {}", format_duration(predicted.step_seconds),
                     format_count(predicted.tokens_per_second), 100 * predicted.bubble, predicted.limited_by);
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// "3.2 T", "-" for what was not measured.
std::string rate_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? format_count(found->get<double>()) : std::string("-");
}

/// "bf16,fp16" of an array under `key`.
std::string names_under(const Json& device, const char* key) {
  std::string names;
  if (const auto list = device.find(key); list != device.end() && list->is_array()) {
    for (const Json& name : *list) {
      if (name.is_string()) names += (names.empty() ? "" : ",") + name.get<std::string>();
    }
  }
  return names;
}

std::vector<std::string> device_row(const Json& device) {
  const std::string by_units = names_under(device, "matrix_dtypes");
  std::string flops = "-";
  if (const auto speeds = device.find("flops"); speeds != device.end() && speeds->is_object()) {
    for (const auto& [dtype, speed] : speeds->items()) {
      if (!speed.is_number()) continue;
      const char* comma = ", ";
      if (flops == "-") {
        flops.clear();
        comma = "";
      }
      flops += fmt::format("{}{} {}", comma, dtype, format_count(speed.get<double>()));
    }
  }
  const auto memory = device.find("memory_bytes");
  const bool has_memory = memory != device.end() && memory->is_number_unsigned();
  const auto link = device.find("link");
  const Json none = Json::object();
  const Json& ends = link != device.end() && link->is_object() ? *link : none;
  return {text_of(device, "name"),
          has_memory ? format_bytes(memory->get<Bytes>()) : "-",
          names_under(device, "dtypes"),
          by_units.empty() ? "-" : by_units,
          flops,
          rate_of(device, "memory_bandwidth"),
          rate_of(ends, "up_bytes_per_second"),
          rate_of(ends, "down_bytes_per_second"),
          text_of(device, "description")};
}

/// How many shapes of ops are known of a device that was measured, and how old that is; empty of others.
std::string calibration_text(const Json& device) {
  const auto known = device.find("calibration");
  if (known == device.end() || !known->is_object()) return {};
  const auto number = [&](const char* key) {
    const auto found = known->find(key);
    return found != known->end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  if (number("shapes") == 0) return {};
  const double age = std::difftime(std::time(nullptr), static_cast<std::time_t>(number("seen")));
  return fmt::format("{}: {} shapes of ops are known, the newest since {}\n", text_of(device, "name"), number("shapes"),
                     format_duration(std::max(age, 0.0)));
}

std::string catalogue_text(const Json& document) {
  const auto cards = document.find("catalogue");
  if (cards == document.end()) return {};
  std::vector<std::vector<std::string>> rows;
  for (const Json& card : *cards) rows.push_back(device_row(card));
  return "\ncards that can be emulated\n" + format_table(rows);
}

}  // namespace

std::string labelled(std::string_view label, std::string_view text) {
  std::string result;
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += fmt::format("{:<11}{}\n", begin == 0 ? label : "", one_line(text.substr(begin, end - begin)));
    begin = end + 1;
  } while (begin < text.size());
  return result;
}

std::string describe_summary(const train::RunSummary& summary, bool colour) {
  std::string text = fmt::format("model      {}\n", summary.model);
  if (!summary.method.empty()) text += fmt::format("method     {}\n", summary.method);
  if (summary.data.records > 0) text += labelled("data", data::describe_report(summary.data));
  if (summary.evaluation.records > 0) text += labelled("evaluation", data::describe_report(summary.evaluation));
  if (summary.total_steps > 0) {
    text += fmt::format("steps      {}", summary.total_steps);
    if (summary.first_step > 0) text += fmt::format(", {} done already ({})", summary.first_step, summary.resumed_from);
    text += "\n";
  }
  if (summary.predicted.step_seconds > 0) {
    text += fmt::format("predicted  {}", prediction_text(summary.predicted));
    const double steps = static_cast<double>(summary.total_steps - std::min(summary.first_step, summary.total_steps));
    if (steps > 0) text += fmt::format("; {} in all", format_duration(steps * summary.predicted.step_seconds));
    text += "\n";
  }
  for (const auto& [name, reason] : summary.unused_devices) text += fmt::format("unused     {}: {}\n", name, reason);
  for (const std::string& note : summary.notes) text += labelled("note", note);
  if (!summary.memory.empty()) text += memory_tables(summary.memory);
  const std::string& sample = colour ? summary.sample_text_coloured : summary.sample_text;
  if (!sample.empty()) text += "a sample, its targets marked\n" + indented(sample);
  return text;
}

std::string describe_plan(const partition::Plan& plan) {
  std::string text = fmt::format("predicted  {}\n", prediction_text(plan.predicted));
  for (const std::string& sentence : plan.predicted.advice) text += labelled("advice", sentence);
  std::vector<std::vector<std::string>> rows = {{"device", "peak", "budget", "busy", ""}};
  for (const partition::DevicePlan& device : plan.devices) {
    rows.push_back({device.name, format_bytes(device.peak_bytes), format_bytes(device.budget_bytes),
                    fmt::format("{:.0f}%", 100 * device.busy),
                    device.unused_because.empty() ? "" : "unused: " + device.unused_because});
  }
  text += format_table(rows);
  NamedTables tables;
  for (const partition::DevicePlan& device : plan.devices) {
    if (device.unused_because.empty()) tables.emplace_back(device.name, device.memory);
  }
  tables.emplace_back("host", plan.host);
  if (plan.disk_bytes > 0) tables.emplace_back("disk", plan.disk);
  text += memory_tables(tables);
  rows = {{"slot", "phase", "layers", "device", "round", "a microbatch"}};
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const partition::Slot& slot = plan.slots[i];
    rows.push_back({std::to_string(i), partition::name_of(slot.phase),
                    fmt::format("{}-{}", slot.first_layer, slot.last_layer), plan.devices.at(slot.device).name,
                    std::to_string(slot.round), format_duration(slot.seconds)});
  }
  return text + "slots of a step\n" + format_table(rows);
}

std::string describe_schedules(const std::vector<partition::ComparedSchedule>& schedules) {
  if (schedules.empty()) return {};
  std::vector<std::vector<std::string>> rows = {
      {"schedule", "bubble", "tokens/s", "peak", "stages a device", "recompute", "fits"}};
  const auto word = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  for (const partition::ComparedSchedule& row : schedules) {
    rows.push_back({row.name, fmt::format("{:.1f}%", 100 * row.bubble), format_count(row.tokens_per_second),
                    format_bytes(row.peak_bytes), std::to_string(row.stages_per_device), word(row.recompute),
                    word(row.fits)});
  }
  return "schedules\n" + format_table(rows);
}

std::string describe_profile(const Json& document) {
  const Json& predicted = document.at("predicted");
  const Json& measured = document.at("measured");
  const auto percent = [](const Json& share) { return fmt::format("{:.1f}%", 100 * share.get<double>()); };
  const auto duration = [](const Json& seconds) { return format_duration(seconds.get<double>()); };
  std::vector<std::vector<std::string>> rows = {{"", "a step", "tokens/s", "bubble"}};
  for (const auto& [name, part] : {std::pair("predicted", &predicted), std::pair("measured", &measured)}) {
    rows.push_back({name, duration(part->at("step_seconds")), format_count(part->at("tokens_per_second").get<double>()),
                    percent(part->at("bubble"))});
  }
  std::string text = format_table(rows);
  rows = {{"device", "busy", "predicted", "peak", "predicted", "up", "down"}};
  std::vector<std::vector<std::string>> phases = {{"device", "phase", "a step", "predicted"}};
  for (std::size_t i = 0; i < measured.at("devices").size(); ++i) {
    const Json& device = measured.at("devices")[i];
    const Json& plan = predicted.at("devices").at(i);
    rows.push_back({text_of(device, "name"), percent(device.at("busy")), percent(plan.at("busy")),
                    format_bytes(device.at("peak_bytes").get<Bytes>()),
                    format_bytes(plan.at("peak_bytes").get<Bytes>()), percent(device.at("up_busy")),
                    percent(device.at("down_busy"))});
    for (const auto& [phase, seconds] : device.at("phases").items()) {
      const Json& expected = device.at("predicted_phases").at(phase);
      if (seconds.get<double>() <= 0 && expected.get<double>() <= 0) continue;
      phases.push_back({text_of(device, "name"), phase, duration(seconds), duration(expected)});
    }
  }
  return text + format_table(rows) + format_table(phases);
}

std::string describe_runs(const Json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"folder", "run", "status", "started", "steps", "loss", "eval", "tokens/s", "model"}};
  const auto number = [](const Json& run, const char* key) {
    return run.at(key).is_number() ? fmt::format("{:.4f}", run.at(key).get<double>()) : std::string("-");
  };
  for (const Json& run : document.at("runs")) {
    const Json& total = run.at("total_steps");
    const std::string started = text_of(run, "started");
    rows.push_back({one_line(text_of(run, "output_dir")), run.at("id").is_number() ? run.at("id").dump() : "-",
                    text_of(run, "status") + (run.at("exists").get<bool>() ? "" : ", folder gone"),
                    started.empty() ? "-" : started,
                    run.at("steps").dump() + (total.is_number() ? "/" + total.dump() : ""), number(run, "final_loss"),
                    number(run, "best_eval_loss"), rate_of(run, "tokens_per_second"), one_line(text_of(run, "model"))});
  }
  return rows.size() == 1 ? "no runs\n" : format_table(rows);
}

std::string describe_sweep(const Json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"devices", "global batch", "a step", "tokens/s", "bubble", "limited by"}};
  const Json& points = document.at("sweep");
  const bool measured = std::any_of(points.begin(), points.end(),
                                    [](const Json& point) { return point.contains("predicted_step_seconds"); });
  if (measured) rows[0].insert(rows[0].begin() + 3, "predicted");
  for (const Json& point : points) {
    const std::string batch = std::to_string(point.at("global_batch").get<std::uint64_t>());
    if (point.contains("error")) {
      rows.push_back({text_of(point, "devices"), batch, "does not fit"});
      continue;
    }
    rows.push_back({text_of(point, "devices"), batch, format_duration(point.at("step_seconds").get<double>()),
                    format_count(point.at("tokens_per_second").get<double>()),
                    fmt::format("{:.1f}%", 100 * point.at("bubble").get<double>()), text_of(point, "limited_by")});
    if (measured) {
      rows.back().insert(rows.back().begin() + 3, format_duration(point.at("predicted_step_seconds").get<double>()));
    }
  }
  std::string text = format_table(rows);
  for (const Json& knee : document.at("knees")) {
    text += labelled("knee", fmt::format("{}: 95% of its best throughput from a global batch of {} on",
                                         text_of(knee, "devices"), knee.at("global_batch").get<std::uint64_t>()));
  }
  for (const Json& point : points) {
    if (point.contains("error")) text += labelled("refused", text_of(point, "error"));
  }
  return text;
}

std::string describe_devices(const Json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"device", "memory", "dtypes", "matrix units", "FLOP/s", "memory B/s", "up B/s", "down B/s", ""}};
  std::string known;
  if (const auto devices = document.find("devices"); devices != document.end() && devices->is_array()) {
    for (const Json& device : *devices) {
      rows.push_back(device_row(device));
      known += calibration_text(device);
    }
  }
  return format_table(rows) + known + catalogue_text(document);
}

}  // namespace rondo::apps
