// One function a verb: calls the work and prints its result.
#include "rondo/apps/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rondo/apps/chat.h"
#include "rondo/apps/describe.h"
#include "rondo/apps/doctor.h"
#include "rondo/apps/import.h"
#include "rondo/apps/output.h"
#include "rondo/apps/report.h"
#include "rondo/apps/screen.h"
#include "rondo/apps/sweep_plot.h"
#include "rondo/apps/text.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/data/describe.h"
#include "rondo/train/manual.h"

namespace rondo::apps {
namespace {

using Json = nlohmann::ordered_json;
using train::Config;

absl::Status run_train(const Config& config, const Streams& streams, train::StopRequest& stop) {
  // A dry run keeps nothing, so that it has no folder for a log.
  const std::filesystem::path log =
      config.dry_run ? std::filesystem::path() : std::filesystem::path(config.output_dir) / "train.log";
  Screen screen(streams.err, terminal_kind(streams.err), log);
  const absl::StatusOr<train::RunOutcome> outcome = train::run_training(config, screen, stop);
  if (!outcome.ok()) {
    screen.log("error: " + one_line(message_of(outcome.status())) + "\n");
    return outcome.status();
  }
  if (!outcome->computed && !config.dry_run) {
    screen.write(fmt::format("{}the devices did no arithmetic: there is no result; the steps are in {}/metrics.jsonl\n",
                             outcome->interrupted ? "interrupted; " : "", outcome->output_dir));
  } else if (outcome->interrupted && config.dry_run) {
    screen.write("interrupted; a dry run keeps nothing\n");
  } else if (outcome->interrupted) {
    screen.write(
        fmt::format("interrupted; a checkpoint was saved in {}\n"
                    "to go on: the same command with --resume_from_checkpoint auto\n",
                    outcome->output_dir));
  } else if (!outcome->output_dir.empty() && !config.dry_run) {
    screen.write(fmt::format("the result is in {}\n", outcome->output_dir));
    if (!outcome->try_command.empty()) screen.write(fmt::format("try it: {}\n", outcome->try_command));
  }
  if (config.json) {
    RONDO_RETURN_IF_ERROR(put_json(streams.out, Json::object({{"output_dir", outcome->output_dir},
                                                              {"interrupted", outcome->interrupted},
                                                              {"try_command", outcome->try_command}})));
  }
  return outcome->interrupted ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status run_eval(const Config& config, const Streams& streams) {
  Screen screen(streams.err, terminal_kind(streams.err), {});
  RONDO_ASSIGN_OR_RETURN(const train::Evaluation evaluation, train::run_evaluation(config, screen));
  const double share =
      static_cast<double>(evaluation.matches) / static_cast<double>(std::max<std::uint64_t>(evaluation.samples, 1));
  if (config.json) {
    Json document = Json::object({{"eval_loss", evaluation.eval_loss},
                                  {"perplexity", evaluation.perplexity},
                                  {"target_tokens", evaluation.target_tokens}});
    if (config.exact_match) {
      document["exact_match"] = share;
      document["samples"] = evaluation.samples;
    }
    return put_json(streams.out, document);
  }
  std::string text = fmt::format("loss {:.6f}\nperplexity {:.6g}\ntarget tokens {}\n", evaluation.eval_loss,
                                 evaluation.perplexity, evaluation.target_tokens);
  if (config.exact_match) {
    text += fmt::format("exact match {:.1f}%: {} of {}\n", 100 * share, evaluation.matches, evaluation.samples);
  }
  return put(streams.out, text);
}

absl::Status run_generate(const Config& config, const Streams& streams) {
  absl::Status written = absl::OkStatus();
  const auto on_text = [&](std::string_view piece) {
    if (written.ok()) written = put(streams.out, piece);
  };
  RONDO_ASSIGN_OR_RETURN(const train::Generation generation,
                         config.json ? train::run_generation(config, {}) : train::run_generation(config, on_text));
  if (!config.json) {
    RONDO_RETURN_IF_ERROR(written);
    return put(streams.out, "\n");
  }
  return put_json(streams.out, Json::object({{"text", generation.text},
                                             {"prompt_ids", generation.prompt_ids},
                                             {"token_ids", generation.token_ids},
                                             {"finish_reason", generation.finish_reason}}));
}

absl::Status show_data(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const train::DataView view, train::run_data(config, terminal_kind(streams.out).colour));
  const auto& samples = view.dataset.samples;
  const std::size_t shown = std::min<std::size_t>(samples.size(), config.samples);
  if (config.json) {
    Json list = Json::array();
    for (std::size_t i = 0; i < shown; ++i) list.push_back(data::sample_json(samples[i]));
    Json document;
    document["samples"] = std::move(list);
    if (view.packing) document["packing"] = data::packing_json(*view.packing);
    return put_json(streams.out, document);
  }
  std::string report = data::describe_report(view.dataset.report) + "\n";
  if (view.packing) report += data::describe_packing(*view.packing) + "\n";
  std::fwrite(report.data(), 1, report.size(), streams.err);
  for (std::size_t i = 0; i < std::min(shown, view.texts.size()); ++i) {
    RONDO_RETURN_IF_ERROR(put(streams.out, fmt::format("sample {}\n{}\n", samples.index(i), view.texts[i])));
  }
  return absl::OkStatus();
}

void put_notes(const std::vector<std::string>& notes, const Streams& streams) {
  for (const std::string& note : notes) {
    const std::string line = labelled("note", note);
    std::fwrite(line.data(), 1, line.size(), streams.err);
  }
}

absl::Status show_sweep(const Config& config, bool measured, const Streams& streams, const train::StopFlag& stop) {
  if (!config.plot.empty()) RONDO_RETURN_IF_ERROR(with_context(check_writable(config.plot), "plot"));
  RONDO_ASSIGN_OR_RETURN(const train::SweepView view, train::run_sweep(config, measured, stop));
  put_notes(view.notes, streams);
  if (!config.plot.empty()) {
    const std::string title = fmt::format("{}, {}: {} tokens/s", config.model_name_or_path, config.finetuning_type,
                                          measured ? "measured" : "predicted");
    RONDO_RETURN_IF_ERROR(write_file_atomically(config.plot, sweep_svg(title, view.lines)));
  }
  if (config.json) return put_json(streams.out, view.json);
  return put(streams.out, describe_sweep(view.json));
}

absl::Status show_plan(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const train::PlanView view, train::run_plan(config));
  put_notes(view.notes, streams);
  if (config.json) return put_json(streams.out, view.json);
  return put(streams.out, describe_plan(view.plan) + describe_schedules(view.schedules));
}

absl::Status show_profile(const Config& config, const Streams& streams, const train::StopFlag& stop) {
  RONDO_ASSIGN_OR_RETURN(const train::ProfileView view, train::run_profile(config, stop));
  put_notes(view.notes, streams);
  if (config.json) return put_json(streams.out, view.json);
  return put(streams.out, describe_profile(view.json));
}

absl::Status show_devices(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const Json document, train::run_devices(config));
  if (config.json) return put_json(streams.out, document);
  return put(streams.out, describe_devices(document));
}

absl::Status make_model(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const std::string folder, train::run_init(config));
  if (config.json) return put_json(streams.out, Json::object({{"output_dir", folder}}));
  return put(streams.out, folder + "\n");
}

absl::Status merge_adapter(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const std::string folder, train::run_merge(config));
  if (config.json) return put_json(streams.out, Json::object({{"output_dir", folder}}));
  return put(streams.out, folder + "\n");
}

absl::Status export_file(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const std::string file, train::run_export(config));
  if (config.json) return put_json(streams.out, Json::object({{"output", file}}));
  return put(streams.out, file + "\n");
}

absl::Status show_runs(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const Json document, train::run_runs(config));
  if (config.json) return put_json(streams.out, document);
  return put(streams.out, describe_runs(document));
}

/// RUN/trace.json is shown when it is there, the file that the user names must be.
absl::StatusOr<std::string> timeline_of(const Config& config, const train::RunHistory& run) {
  const std::filesystem::path path =
      config.trace.empty() ? run.folder / "trace.json" : std::filesystem::path(config.trace);
  std::error_code ignored;
  if (config.trace.empty() && !std::filesystem::exists(path, ignored)) return std::string();
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return timeline_figure(text, path.string());
}

absl::Status make_report(const Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const std::vector<train::RunHistory> runs, train::open_runs(config));
  RONDO_ASSIGN_OR_RETURN(const std::string timeline, timeline_of(config, runs.front()));
  RONDO_RETURN_IF_ERROR(with_context(check_writable(config.output), "output"));
  RONDO_RETURN_IF_ERROR(write_file_atomically(config.output, report_page(runs, timeline)));
  if (config.json) return put_json(streams.out, Json::object({{"output", config.output}}));
  return put(streams.out, config.output + "\n");
}

/// A text for another program; as JSON where everything is to be JSON.
absl::Status put_text(std::FILE* out, const std::string& text, bool json) {
  return json ? put_json(out, Json::object({{"text", text}})) : put(out, text);
}

}  // namespace

absl::Status run_verb(const std::string& verb, const Config& config, const Streams& streams, train::StopRequest& stop) {
  if (verb == "train") return run_train(config, streams, stop);
  if (verb == "eval") return run_eval(config, streams);
  if (verb == "generate") return run_generate(config, streams);
  if (verb == "chat") return run_chat(config, streams);
  if (verb == "data") return show_data(config, streams);
  if (!config.sweep.empty() && (verb == "plan" || verb == "profile")) {
    return show_sweep(config, verb == "profile", streams, stop.asked);
  }
  if (verb == "plan") return show_plan(config, streams);
  if (verb == "profile") return show_profile(config, streams, stop.asked);
  if (verb == "devices") return show_devices(config, streams);
  if (verb == "init") return make_model(config, streams);
  if (verb == "merge") return merge_adapter(config, streams);
  if (verb == "export") return export_file(config, streams);
  if (verb == "runs") return show_runs(config, streams);
  if (verb == "report") return make_report(config, streams);
  if (verb == "import") return run_import(config, streams);
  if (verb == "doctor") return run_doctor(config, streams);
  if (verb == "completion") return put_text(streams.out, train::completion_script(config.shell), config.json);
  if (verb == "man") return put_text(streams.out, train::manual_page(RONDO_VERSION), config.json);
  return invalid_input("{}: unknown verb", verb);
}

}  // namespace rondo::apps
